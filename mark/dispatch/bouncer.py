"""The Bouncer (MArk section 4.3): admission control, the source of backpressure and load shedding.

Plain functions of numbers. The agent calls them as they are; the simulator compiles the same ones. An instance
works in batches of at most `max_batch`, starts one whenever it is idle and something waits (so the wait for a
batch to form is never longer than W_batch), and serves in order of arrival. A request that has to wait is
predicted to share a full batch, because its batch may fill up before it starts: the prediction is exact for
`max_batch` = 1 and never too early otherwise.
"""

from __future__ import annotations


def predicted_finish_at(
    now: float, free_at: float, waiting: int, max_batch: int, single_s: float, full_batch_s: float
) -> float:
    """The predicted finish of a request that joins now.

    `free_at` is the end of the batch in service (now or earlier when idle), `waiting` the requests queued behind
    it, `single_s` and `full_batch_s` the seconds a batch of one and of `max_batch` take.
    """
    if free_at <= now and waiting == 0:
        return now + single_s
    start_at = max(now, free_at)
    # Most often the next batch still has room; a division takes longer than all the rest of this function.
    if waiting < max_batch:
        return start_at + full_batch_s
    return start_at + (waiting // max_batch + 1) * full_batch_s


def admits(finish_at: float, arrived_at: float, deadline_at: float, factor: float) -> bool:
    """True where the time to finish is within `factor` of the time allowed (0.98; 1 in `mark`)."""
    return finish_at - arrived_at <= factor * (deadline_at - arrived_at)

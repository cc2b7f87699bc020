"""The Bouncer (MArk section 4.3): admission control, the source of backpressure and load shedding.

Plain functions of numbers. The agent calls them as they are; the simulator compiles the same ones. An instance
works in batches of at most `max_batch`, starts one whenever it is idle and something waits (so the wait for a
batch to form is never longer than W_batch), and serves in order of arrival. A request that has to wait is
predicted to share a full batch, because its batch may fill up before it starts: the prediction is exact for
`max_batch` = 1 and never too early otherwise, where batches take what they are expected to.

Where they vary, admission looks at a quantile of the finish. The times of the batches ahead and of the request's
own are independent, so their variances add up; a batch in service counts in full, since how long it has left is
not better known than how long it takes. The quantile is that of a lognormal time, expanded to its second order in
the coefficient of variation (Cornish-Fisher with a skewness of 3 sd / mean): within 1 % of exact up to 25 %.
"""

from __future__ import annotations

import math


def predicted_finish_at(
    now: float,
    free_at: float,
    in_service: int,
    waiting: int,
    max_batch: int,
    single_s: float,
    full_batch_s: float,
) -> float:
    """The expected finish of a request that joins now.

    `free_at` is the expected end of the batch in service, now where it is overdue; `in_service` and `waiting` are
    the requests in it and queued behind it, `single_s` and `full_batch_s` the seconds a batch of one and of
    `max_batch` take.
    """
    if in_service == 0 and waiting == 0:
        return now + single_s
    start_at = max(now, free_at)
    # Most often the next batch still has room; a division takes longer than all the rest of this function.
    if waiting < max_batch:
        return start_at + full_batch_s
    return start_at + (waiting // max_batch + 1) * full_batch_s


def late_finish_at(
    now: float,
    finish_at: float,
    in_service: int,
    waiting: int,
    max_batch: int,
    full_batch_s: float,
    cv: float,
    sigmas: float,
) -> float:
    """The finish that is `sigmas` normal deviations late, of a request expected to finish at `finish_at`.

    `cv` is the coefficient of variation of a batch's time; without one, or at 0 deviations, the expected finish.
    """
    if cv == 0.0 or sigmas == 0.0:
        return finish_at
    mean_s = finish_at - now
    if in_service == 0 and waiting == 0:
        deviation_s = cv * mean_s
    else:
        batches = waiting // max_batch + (2 if in_service > 0 else 1)
        deviation_s = cv * full_batch_s * math.sqrt(batches)
    return deviating_finish_at(now, finish_at, deviation_s, sigmas)


def deviating_finish_at(now: float, finish_at: float, deviation_s: float, sigmas: float) -> float:
    """The finish that is `sigmas` normal deviations late, where its standard deviation is known."""
    skew_s = 0.5 * (sigmas * sigmas - 1.0) * deviation_s * deviation_s / (finish_at - now)
    return finish_at + sigmas * deviation_s + skew_s


def admits(finish_at: float, arrived_at: float, deadline_at: float, factor: float) -> bool:
    """True where the time to finish is within `factor` of the time allowed (0.98; 1 in `mark`)."""
    return finish_at - arrived_at <= factor * (deadline_at - arrived_at)


def stays(
    finish_at: float, late_at: float, terminates_at: float, arrived_at: float, deadline_at: float, factor: float
) -> bool:
    """True where an instance takes the request: it ends no sooner than the request, and admits it.

    `finish_at` is the expected finish, `late_at` the one that admission looks at; `factor` is infinite without a
    Bouncer.
    """
    return finish_at <= terminates_at and (factor == math.inf or admits(late_at, arrived_at, deadline_at, factor))

"""The batcher: batch when busy, not by the clock.

An idle server starts at once with what waits, at most N_batch; requests gather only while it works. The first of
a batch therefore never waits for the others, which keeps the bound W_batch of the tuner with room to spare
(docs/decisions/0003-work-conserving-batches.md).
"""

from __future__ import annotations


def batch_size(waiting: int, max_batch: int) -> int:
    """The size of the batch that an idle server takes now; 0 when none wait."""
    return min(max_batch, waiting)

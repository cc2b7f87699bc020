"""The batcher: batch when busy, not by the clock.

An idle server starts at once with what waits, at most N_batch; requests gather only while it works. The first of
a batch therefore never waits for the others, which keeps the bound W_batch of the tuner with room to spare
(docs/decisions/0002-policies.md).

Where requests have sizes, a batch is limited in items. It takes requests in order of arrival until the next one no
longer fits; one larger than a batch goes alone. The queue is counted in places: the items waiting, and the places
left empty in a batch whose next request did not fit. So `max_batch` places are one batch to come, whatever the
sizes, and with requests of one item places are requests.
"""

from __future__ import annotations


def batch_size(waiting: int, max_batch: int) -> int:
    """The size of the batch that an idle server takes now; 0 when none wait."""
    return min(max_batch, waiting)


def fits(items: int, size: int, max_batch: int) -> bool:
    """True where a request of `size` joins a batch that has `items` so far: the first always does."""
    return items == 0 or items + size <= max_batch


def whole_batches(items: int, max_batch: int) -> int:
    """Places of the batches that so many items fill or begin to fill."""
    return -(-items // max_batch) * max_batch


def places_after(waiting: int, size: int, max_batch: int) -> int:
    """Places that are waiting once a request of `size` has joined: in the last batch, or behind it."""
    begun = waiting % max_batch
    if begun > 0 and not fits(begun, size, max_batch):
        waiting += max_batch - begun
    return waiting + (size if size <= max_batch else whole_batches(size, max_batch))


def places_ahead(in_service: int, waiting: int, size: int, max_batch: int) -> int:
    """Places before the last one that a request of `size` would get; none where it would start at once."""
    if in_service == 0 and waiting == 0:
        return 0
    return places_after(waiting, size, max_batch) - 1


def places_left(waiting: int, items: int, max_batch: int) -> int:
    """Places that are waiting once a batch of so many items was taken."""
    return waiting - min(waiting, whole_batches(items, max_batch))

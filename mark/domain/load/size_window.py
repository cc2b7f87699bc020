"""Sizes of the most recent requests, as counts: what gateways measure, and what a pool is chosen by.

Sizes are counted in bins that are exact up to 64 items and at most a thirty-second wide above, so that a histogram
has a few hundred entries at most and two of them merge by adding. As everywhere, a size is rounded up.

A window holds the last requests in two halves. Units of demand join the newer one; once that is full it takes the
place of the older one, whose requests are forgotten. So once as many are known, there are always half of a window
and less than two halves beside the last unit, however long they took to come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mark.domain.load.sizes import SizeDistribution, size_distribution

SizeCounts = tuple[tuple[int, int], ...]
"""(upper end of a bin in items, requests), rising."""
EXACT_BITS = 6
"""Leading binary digits of a size that its bin keeps."""
WINDOW = 10_000
"""Requests that are remembered where the settings do not say. Assumed: a hundred of them are the largest 1 %."""
KNOWN_SHARE = 0.1
"""Share of the window from which on it is believed: a thousand requests tell a share of 1 % to within a third."""
MEASURED = "measured"


def size_bin(size: int) -> int:
    """The upper end of the bin of a size: the size itself up to 64, at most a thirty-second more above."""
    shift = max(0, (size - 1).bit_length() - EXACT_BITS)
    return -(-size >> shift) << shift


def add_sizes(*counts: Iterable[tuple[int, int]]) -> SizeCounts:
    """The sum of histograms; sizes that nobody has are left out."""
    total = Counter[int]()
    for some in counts:
        for size, count in some:
            total[size] += count
    return tuple(sorted((size, count) for size, count in total.items() if count))


def sizes_since(now: SizeCounts, before: SizeCounts) -> SizeCounts:
    """Counts since an earlier reading; nothing is below 0 where a store forgot its counts."""
    known = dict(before)
    grown = ((size, count - known.get(size, 0)) for size, count in now)
    return tuple((size, count) for size, count in grown if count > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeWindow:
    """The sizes of the most recent requests."""

    #: Of the half that is full.
    older: SizeCounts = ()
    #: Of those that have come since.
    newer: SizeCounts = ()

    @property
    def requests(self) -> int:
        """Requests that are known."""
        return sum(count for _, count in (*self.older, *self.newer))

    def followed_by(self, counts: SizeCounts, window: int) -> SizeWindow:
        """The window with the requests of one more unit."""
        newer = add_sizes(self.newer, counts)
        full = 2 * sum(count for _, count in newer) >= window
        return SizeWindow(older=newer) if full else SizeWindow(older=self.older, newer=newer)

    def distribution(self, window: int, largest: int) -> SizeDistribution | None:
        """The sizes as measured; None where too few are known. largest: the largest that is served."""
        if self.requests < max(1, KNOWN_SHARE * window):
            return None
        weights: dict[int, float] = {}
        for size, count in (*self.older, *self.newer):
            served = min(size, largest)
            weights[served] = weights.get(served, 0.0) + count
        return size_distribution(MEASURED, weights)


EMPTY_WINDOW = SizeWindow()
"""Nothing is known yet."""

"""Segmentation of a series into calm load and bursts, unit by unit from the units before alone.

A burst begins with a unit far above the median of the `BASE_UNITS` before it, and lasts while the load stays half
as far above it: a switch with hysteresis. What lasts longer than the median takes to follow is a new level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.predictors.classical.points import first_unit
from mark.predictors.expert import Floats, Ints, Series

BASE_UNITS = 90
"""Units of the running median: bursts of half an hour, one after the other, fill less than half of them."""
FEWEST_UNITS = 15
"""Units before the first base."""
BASE_EVERY = 15
"""Units between two medians, on the absolute clock."""
HIGH_SHARE = 0.35
"""Of the base: an excess above it begins a burst."""
HIGH_DEVIATIONS = 6.0
"""Median absolute deviations from the base that a burst exceeds: 4 standard deviations of normal noise."""
LOWEST_SHARE = 0.1
"""Of the mean: the least excess that begins a burst, where the base is zero."""
LOW_SHARE = 0.5
"""Of the excess that begins a burst: below it the burst has ended."""
FILL_UNITS = 15
"""Calm units whose mean stands for the load without the burst."""
SETTLED_UNITS = 180
"""Units after which it makes no difference where a series began."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """Bursts of a series by their onset; indexes count from the series' first unit.

    onsets, ends: shape (bursts,), the first unit and the first one after; the last burst may go on at the end.
    """

    onsets: Ints
    ends: Ints
    #: The series without its bursts, shape (units,), requests/s.
    calm: Floats
    #: What is above that, shape (units,), requests/s; at least 0.
    excess: Floats
    #: Sum of the excess before each unit, shape (units + 1,).
    excess_sums: Floats

    def sizes(self, end: int) -> Floats:
        """The excess of each burst summed up to `end`: shape (bursts,)."""
        begun = np.minimum(self.onsets, end)
        sizes: Floats = self.excess_sums[np.clip(self.ends, begun, end)] - self.excess_sums[begun]
        return sizes


def find_bursts(series: Series) -> Bursts:
    """The bursts of a series."""
    rates = series.rates
    base, high = _bases(series)
    above = rates - base
    begins, lasts = above >= high, above >= LOW_SHARE * high
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lasts, [False])).astype(np.int8))).astype(np.int64)
    starts, ends = edges[::2], edges[1::2]  # of each run of units that a burst may last through
    beginnings = np.append(np.flatnonzero(begins), len(rates)).astype(np.int64)
    onsets = beginnings[np.searchsorted(beginnings, starts)]
    onsets, ends = onsets[onsets < ends], ends[onsets < ends]
    changes = np.zeros(len(rates) + 1, np.int64)
    changes[onsets], changes[ends] = 1, -1  # two bursts have a calm unit between them
    inside = np.cumsum(changes)[:-1] > 0
    return _bursts(rates, onsets, ends, np.where(inside, _filled(rates, ~inside), rates))


def extend_bursts(known: Bursts, series: Series) -> Bursts:
    """The bursts of a series, of whose first units they are known: only the last hours are looked at again."""
    units = len(known.calm)
    settled, warm_up = units - SETTLED_UNITS, SETTLED_UNITS
    before = known.onsets < settled
    if settled <= warm_up or known.ends[before].max(initial=0) >= settled:
        return find_bursts(series)
    first = settled - warm_up
    start_at = series.start_at + first * series.unit_s
    late = find_bursts(Series(rates=series.rates[first:], start_at=start_at, unit_s=series.unit_s))
    after = late.onsets >= warm_up
    return _bursts(
        series.rates,
        np.concatenate((known.onsets[before], late.onsets[after] + first)),
        np.concatenate((known.ends[before], late.ends[after] + first)),
        np.concatenate((known.calm[:settled], late.calm[warm_up:])),
    )


def _bursts(rates: Floats, onsets: Ints, ends: Ints, calm: Floats) -> Bursts:
    excess = np.maximum(rates - calm, 0.0)
    return Bursts(onsets, ends, calm, excess, np.concatenate(([0.0], np.cumsum(excess))))


def _bases(series: Series) -> tuple[Floats, Floats]:
    """The base of each unit and the excess over it that begins a burst: shape (units,); infinite without one."""
    rates, start = series.rates, first_unit(series)
    units = np.arange(len(rates))
    medians_at = np.maximum(units - (units + start) % BASE_EVERY, 0)
    times, which = np.unique(medians_at, return_inverse=True)
    base, high = np.zeros(len(times)), np.full(len(times), np.inf)
    whole = times >= BASE_UNITS
    windows = [rates[None, max(0, time - BASE_UNITS) : time] for time in times[~whole]]
    if whole.any():
        rows = np.lib.stride_tricks.sliding_window_view(rates, BASE_UNITS)[times[whole] - BASE_UNITS]
        base[whole], high[whole] = _typical(rows)
    for row, window in zip(np.flatnonzero(~whole), windows, strict=True):
        if window.shape[1] >= FEWEST_UNITS:
            base[row], high[row] = (found[0] for found in _typical(window))
    return base[which], high[which]


def _typical(windows: Floats) -> tuple[Floats, Floats]:
    """Median of each window and the excess that is none of its noise. windows: shape (windows, units)."""
    base = np.median(windows, axis=1)
    deviation = np.median(np.abs(windows - base[:, None]), axis=1)
    least = LOWEST_SHARE * windows.mean(axis=1)
    high = np.maximum(np.maximum(HIGH_SHARE * base, HIGH_DEVIATIONS * deviation), least)
    return base, np.where(high > 0, high, np.finfo(np.float64).tiny)


def _filled(rates: Floats, calm: NDArray[np.bool_]) -> Floats:
    """The mean of the last calm units before each unit; its own rate where there are too few."""
    known: NDArray[np.int64] = np.cumsum(calm) - calm
    if calm.sum() < FILL_UNITS:
        return rates
    means = np.lib.stride_tricks.sliding_window_view(rates[calm], FILL_UNITS).mean(axis=1)
    filled: Floats = np.where(known >= FILL_UNITS, means[np.maximum(known - FILL_UNITS, 0)], rates)
    return filled

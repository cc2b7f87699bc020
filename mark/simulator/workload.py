"""A workload: the arrivals that a trace and a seed stand for.

The trace's bins are cut into cells of at most one second (a 1 min bin into 60). A cell's count is drawn from
Poisson with the cell's mean, which for the bin as a whole is Poisson with the bin's mean, or is the trace's own
count where the bins hold whole counts. Within the cell the instants are uniform: they are drawn sorted, as the
partial sums of exponential gaps divided by their total, so that nothing is ever sorted.

Cells are drawn in fixed blocks. Counts and instants have a stream of their own per block, so any stretch of
the trace can be had alone, in any order and in chunks of any size, with the same arrivals; and demand and counts
per second need no instants. Only the last blocks are kept: a week of arrivals is never in memory at once.

Where requests have sizes, those of a block are drawn from a stream of their own: the arrivals are the same with
and without them.

A rehearsal moves through the trace X times as fast with the trace's rates: of X requests one is sent, and stands
for all of them. A cell's count is then Poisson with the cell's mean over X, where the trace holds counts too; of
raw instants each is kept with probability 1 / X.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mark.domain.demand import UNIT_S, WINDOW_S, Demand
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import SizeDistribution
from mark.simulator.rng import stream
from mark.simulator.traces.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK_S = 3600.0
BLOCK_ARRIVALS = 2_000_000
"""A block is shortened where the trace's peak could put more arrivals into it: 16 MB of instants."""
BLOCKS_KEPT = 2
LAST_IN_CELL = 1.0 - 2.0**-24
"""Instants stay 60 ns short of the cell's end, so that rounding never moves one into the next cell."""
EPSILON = 1e-9


class Workload:
    """Arrivals of `trace` under `seed`, of which `[start_s, end_s)` is replayed.

    All times are seconds on the trace's clock, 0 at its first bin. The part before `start_s` is the history.
    `speed` is how many times as fast as the clock on the wall the trace is moved through, 1 at least; each arrival
    stands for so many. `sizes` are those of the requests in items, None where all have one. `notes` says what was
    cut or thinned.
    """

    def __init__(
        self,
        *,
        trace: Trace,
        seed: int,
        start_s: float = 0.0,
        duration_s: float | None = None,
        speed: float = 1.0,
        sizes: SizeDistribution | None = None,
    ) -> None:
        if not (math.isfinite(speed) and speed >= 1.0):
            raise Misconfigured(f"a speed must be 1 or more, not {speed:g}")
        self.trace = trace
        self.seed = seed
        self.speed = speed
        self.sizes = sizes
        self.start_s, self.end_s, cut = trace.span(start_s, duration_s)
        thinned = (
            f"the trace runs {speed:g} times as fast: one request in {speed:g} is sent and counts as {speed:g}",
        )
        self.notes = (*trace.notes, *cut, *(thinned if speed != 1.0 else ()))
        self._raw = _kept(trace.arrivals_s, seed, speed)
        self._cells_a_bin = max(1, math.ceil(trace.bin_s - EPSILON))
        self._cell_s = trace.bin_s / self._cells_a_bin
        per_s = round(1 / self._cell_s)
        # Cells that divide the second start exactly on it when the index is divided, not multiplied.
        self._cells_a_second = per_s if abs(per_s * self._cell_s - 1) < EPSILON else 0
        self._cells = len(trace.rates_rps) * self._cells_a_bin
        peak_rps = max(float(trace.rates_rps.max()), 1.0)
        self._block = max(1, int(min(BLOCK_S, BLOCK_ARRIVALS / peak_rps) / self._cell_s))
        self._kept: OrderedDict[int, Floats] = OrderedDict()

    @property
    def whole_seconds(self) -> tuple[float, float]:
        """First and last instant of the whole seconds in it: what a run replays."""
        return float(math.ceil(self.start_s)), float(math.floor(self.end_s))

    @property
    def duration_s(self) -> float:
        """Seconds that are replayed."""
        return self.end_s - self.start_s

    @cached_property
    def at_trace_speed(self) -> Workload:
        """The same load with all of its arrivals."""
        if self.speed == 1.0:
            return self
        return self.at_full_speed(self.start_s, self.end_s - self.start_s)

    def at_full_speed(self, start_s: float, duration_s: float) -> Workload:
        """Another stretch of the same load, with all of its arrivals."""
        return Workload(trace=self.trace, seed=self.seed, start_s=start_s, duration_s=duration_s, sizes=self.sizes)

    def arrivals(self, from_s: float, to_s: float) -> Floats:
        """Arrival instants in [from_s, to_s), rising, shape (arrivals,); the same however calls are chunked."""
        parts = list(self._parts(from_s, to_s))
        if len(parts) == 1:
            return parts[0].copy()
        return np.concatenate(parts) if parts else np.empty(0)

    def items(self, from_s: float, to_s: float) -> Ints:
        """Items of each of the arrivals in [from_s, to_s), shape (arrivals,)."""
        if self.sizes is None:
            return np.ones(self.arrivals(from_s, to_s).size, dtype=np.int64)
        sizes, cumulative = np.array(self.sizes.sizes), self.sizes.cumulative
        parts = []
        for block, instants in self._stretches(from_s, to_s):
            drawn = stream(self.seed, f"sizes-{block}").random(instants.size)[_places(instants, from_s, to_s)]
            parts.append(sizes[np.searchsorted(cumulative, drawn, side="right")])
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def second_counts(self, from_s: float, to_s: float) -> Ints:
        """Arrivals of each second of [from_s, to_s), both whole seconds. Shape (seconds,)."""
        first, last = round(from_s), round(to_s)
        if abs(first - from_s) > EPSILON or abs(last - to_s) > EPSILON or not 0 <= first <= last:
            raise Misconfigured(f"counts per second need whole seconds, not {from_s:g} to {to_s:g}")
        if self._raw is not None or not self._cells_a_second:
            return self._counted(first, last)
        per_s = self._cells_a_second
        found = np.zeros((last - first) * per_s, dtype=np.int64)
        end = min(last * per_s, self._cells)
        for block in self._blocks(first * per_s, end):
            at = block * self._block
            low, high = max(at, first * per_s), min(at + self._block, end)
            found[low - first * per_s : high - first * per_s] = self._counts(block)[low - at : high - at]
        counts: Ints = found.reshape(-1, per_s).sum(axis=1)
        return counts

    def demand(self, from_s: float, to_s: float) -> Demand:
        """Demand of the whole units in [from_s, to_s), of the same arrivals, the first unit at `from_s`.

        Each arrival counts for as many as it stands for: these are the trace's rates at any speed.

        The largest rate of a unit is over its windows of 5 s (MArk section 4.2: P_u, P_s). `from_s` is a whole
        second; a unit that is not complete at `to_s` is left out.
        """
        unit, window = int(UNIT_S), int(WINDOW_S)
        units = max(0, math.floor((to_s - from_s) / unit + EPSILON))
        counts = self.second_counts(from_s, from_s + units * unit)
        windows = counts.reshape(units, unit // window, window).sum(axis=2)
        return Demand(
            end_at=from_s + units * UNIT_S,
            mean_rps=tuple((self.speed * windows.sum(axis=1) / unit).tolist()),
            max_rps=tuple((self.speed * windows.max(axis=1, initial=0) / window).tolist()),
        )

    def history(self, start_s: float, keep_units: int) -> Demand:
        """Demand of the last `keep_units` units that end at `start_s`; fewer near the trace's start.

        The past went by at the trace's own speed: all of its arrivals were seen.
        """
        units = max(0, min(keep_units, math.floor(start_s / UNIT_S + EPSILON)))
        return self.at_trace_speed.demand(start_s - units * UNIT_S, start_s)

    def _counted(self, first: int, last: int) -> Ints:
        """Counts per second by looking at the instants."""
        counts = np.zeros(last - first, dtype=np.int64)
        for part in self._parts(float(first), float(last)):
            counts += np.bincount(np.floor(part).astype(np.int64) - first, minlength=last - first)
        return counts

    def _parts(self, from_s: float, to_s: float) -> Iterator[Floats]:
        """The arrivals of [from_s, to_s), block by block."""
        for _, instants in self._stretches(from_s, to_s):
            yield instants[_places(instants, from_s, to_s)]

    def _stretches(self, from_s: float, to_s: float) -> Iterator[tuple[int, Floats]]:
        """The blocks around [from_s, to_s), each with its number and all of its arrivals; raw instants are one."""
        if not to_s > from_s:
            return
        if self._raw is not None:
            yield 0, self._raw
            return
        # One cell more on either side: whether an edge falls just before or just after a cell's start is rounding.
        first = max(0, math.floor(from_s / self._cell_s) - 1)
        last = min(self._cells, math.ceil(to_s / self._cell_s) + 1)
        for block in self._blocks(first, last):
            yield block, self._instants(block)

    def _blocks(self, first: int, last: int) -> range:
        """The blocks that hold the cells [first, last)."""
        return range(first // self._block, -(-last // self._block)) if last > first else range(0)

    def _counts(self, block: int) -> Ints:
        """Arrivals of each of the block's cells."""
        first = block * self._block
        last = min(first + self._block, self._cells)
        cells = np.arange(first, last)
        means = self.trace.rates_rps[cells // self._cells_a_bin] * self._cell_s / self.speed
        if self.trace.whole_counts and self._cells_a_bin == 1 and self.speed == 1.0:
            return np.rint(means).astype(np.int64)
        drawn: Ints = stream(self.seed, f"arrival-counts-{block}").poisson(means)
        return drawn

    def _instants(self, block: int) -> Floats:
        if block in self._kept:
            self._kept.move_to_end(block)
            return self._kept[block]
        instants = self._drawn(block, self._counts(block))
        self._kept[block] = instants
        if len(self._kept) > BLOCKS_KEPT:
            self._kept.popitem(last=False)
        return instants

    def _drawn(self, block: int, counts: Ints) -> Floats:
        """Instants of the block's arrivals, rising. counts: shape (cells,)."""
        places = uniform_order(counts, stream(self.seed, f"arrivals-{block}").standard_exponential)
        places += np.repeat(np.arange(len(counts), dtype=np.float64) + block * self._block, counts)
        if self._cells_a_second:
            places /= self._cells_a_second
        else:
            places *= self._cell_s
        return places


def uniform_order(counts: Ints, draw_gaps: Callable[[int], Floats]) -> Floats:
    """Sorted uniforms on [0, 1) for each cell, one cell after the other, shape (counts.sum(),).

    n sorted uniforms are distributed as the first n partial sums of n + 1 exponential gaps over the sum of all
    (Devroye, Non-Uniform Random Variate Generation, 1986, section V.3.1). counts: shape (cells,).
    """
    ends = np.cumsum(counts + 1)
    sums = np.cumsum(draw_gaps(int(ends[-1])))
    totals = sums[ends - 1]
    starts = np.concatenate(([0.0], totals[:-1]))
    inside = np.ones(len(sums), dtype=bool)
    inside[ends - 1] = False
    places: Floats = sums[inside]
    places -= np.repeat(starts, counts)
    places *= np.repeat(1.0 / (totals - starts), counts)
    np.minimum(places, LAST_IN_CELL, out=places)
    return places


def _kept(raw: Floats | None, seed: int, speed: float) -> Floats | None:
    """Of raw instants, those that are sent: each with probability 1 / `speed`."""
    if raw is None or speed == 1.0:
        return raw
    drawn = stream(seed, "arrivals-kept").random(raw.size)
    return raw[drawn * speed < 1.0]


def _places(rising: Floats, from_s: float, to_s: float) -> slice:
    low, high = np.searchsorted(rising, (from_s, to_s))
    return slice(int(low), int(high))

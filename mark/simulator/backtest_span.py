"""The span of a workload that a backtest scores, and the load before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mark.domain.demand import KEEP_HISTORY, UNIT_S, Demand
from mark.simulator.backtest import DAY_S, BacktestSpan, Flags
from mark.simulator.workload import Workload

DIGITS = 9
"""Of a mean rate, requests/s: sums over a long trace leave errors far below."""
Windows = Sequence[tuple[float, float]]
"""Times of day, `(from_s, to_s)` in seconds since midnight, from < to <= a day."""


def make_span(
    workload: Workload,
    *,
    history_units: int,
    leads: tuple[int, ...],
    drawn_lead: int,
    target: str,
    every: int = 1,
    leave_out: Windows = (),
) -> BacktestSpan:
    """The workload's replayed part as a span, with at most `history_units` of what came before.

    Times of day in `leave_out` are those of the trace's source: its own clock where it says no more.
    """
    start_s, end_s = workload.whole_seconds
    future = demand_between(workload, start_s, end_s)
    return BacktestSpan(
        trace=workload.trace.name,
        history=history_before(workload, start_s, history_units),
        future=future,
        kept=_kept(workload.trace.start_at + start_s, len(future), leave_out),
        leads=leads,
        drawn_lead=drawn_lead,
        target=target,
        every=every,
    )


def history_before(workload: Workload, at_s: float, units: int = KEEP_HISTORY) -> Demand:
    """Demand of the last `units` whole units that end at `at_s`; fewer near the trace's start."""
    units = min(units, math.floor(at_s / UNIT_S))
    return demand_between(workload, at_s - units * UNIT_S, at_s)


def demand_between(workload: Workload, from_s: float, to_s: float) -> Demand:
    """Demand of the whole units in [from_s, to_s), the first at `from_s`, a whole second.

    The highest 5 s rates are those of the arrivals that a replay draws. So are the means where the trace holds
    whole counts; else they are the trace's own rates, which are what was measured: a draw would only add noise.
    """
    drawn = workload.demand(from_s, to_s)
    trace = workload.trace
    if trace.whole_counts or not len(drawn):
        return drawn
    bins_s = np.arange(len(trace.rates_rps) + 1) * trace.bin_s
    arrived = np.concatenate(([0.0], np.cumsum(trace.rates_rps * trace.bin_s)))
    ends_s = from_s + np.arange(len(drawn) + 1) * UNIT_S
    means = np.round(np.diff(np.interp(ends_s, bins_s, arrived)) / UNIT_S, DIGITS)
    means = np.maximum(means, 0.0)
    highest = np.maximum(drawn.max_rps, means)  # a window drawn in a quiet minute may hold less than the mean
    return replace(drawn, mean_rps=tuple(means.tolist()), max_rps=tuple(highest.tolist()))


def _kept(start_at: float, units: int, leave_out: Windows) -> Flags:
    """Units that touch none of the windows, shape (units,)."""
    begins = (start_at + np.arange(units) * UNIT_S) % DAY_S
    kept = np.ones(units, dtype=np.bool_)
    for from_s, to_s in leave_out:
        for shift_s in (0.0, DAY_S):  # a unit that reaches over midnight meets the next day's windows
            kept &= (begins >= to_s + shift_s) | (begins + UNIT_S <= from_s + shift_s)
    return kept

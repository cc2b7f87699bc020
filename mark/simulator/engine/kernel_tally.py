"""Outcomes of the requests of a run: counts, the latency histogram, the seconds, the SLO monitor's window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.objective import is_window_full, missed_target

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Records = Any
"""A record array; numpy's stubs cannot name its fields."""
Record = Any
"""One record of it. `rules` is one of RULES (`kernel.py`): what does not change during a run."""

FINE_S, FINE_BINS = 0.0001, 20_000
COARSE_S, COARSE_BINS = 0.01, 12_000
HISTOGRAM_BINS = FINE_BINS + COARSE_BINS
SPREAD = 7919.37
"""Times an instant, what it has behind the point is as good as random."""
"""Latencies are counted in bins of 0.1 ms up to 2 s and of 10 ms beyond."""

SECOND = np.dtype(
    [
        ("arrivals", "i8"),
        ("answered", "i8"),
        ("missed", "i8"),
        ("to_lambda", "i8"),
        ("on_shared", "i8"),  # taken by instances that several models share
        ("spared", "i8"),  # taken by the model's own, though shared ones would probably have been in time
        ("latency_sum", "f8"),
        ("latency_max", "f8"),
        ("accuracy", "f8"),  # sum over the answers of variants
    ]
)
TOTAL = np.dtype(
    [
        *((name, "i8") for name in ("instance", "standby", "lambda_", "shed", "missed", "throttled")),
        *((name, "i8") for name in ("invocations", "cold", "pings", "batches", "drawn")),
        ("crossed", "i8"),  # answered by an instance in another zone than they came in
        ("fallback_decisions", "i8"),  # batches that the heuristic chose in a learned policy's place
        *((name, "i8") for name in ("window_requests", "window_missed", "last_requests", "last_missed")),
        *((name, "f8") for name in ("latency_sum", "opened_at", "closed_at", "quiet_until", "due_at")),
        *((name, "f8") for name in ("accuracy_sum", "quality_sum")),  # of the answers of variants
    ]
)


class RunTally(NamedTuple):
    """Counts of outcomes."""

    #: Records of SECOND by second of arrival.
    seconds: Records
    histogram: Ints
    #: One record of TOTAL.
    totals: Record


def answer(arrived_at: float, finish_at: float, rules: Record, tally: RunTally) -> None:
    """A request was answered. Of a rehearsal's latency, on the trace's clock, the real one is counted."""
    taken_s = finish_at - arrived_at + rules.network_s
    latency_s = taken_s / rules.speed
    second = tally.seconds[second_of(arrived_at, rules)]
    totals = tally.totals
    second.answered += 1
    second.latency_sum += latency_s
    second.latency_max = max(second.latency_max, latency_s)
    tally.histogram[_bin(latency_s)] += 1
    totals.latency_sum += latency_s
    totals.window_requests += 1
    if taken_s > rules.objective_s:
        second.missed += 1
        totals.missed += 1
        totals.window_missed += 1


def note_accuracy(arrived_at: float, accuracy: float, rules: Record, tally: RunTally) -> None:
    """A variant of that accuracy has answered."""
    tally.seconds[second_of(arrived_at, rules)].accuracy += accuracy
    tally.totals.accuracy_sum += accuracy


def shed(arrived_at: float, rules: Record, tally: RunTally) -> None:
    """Refuse a request (503); it counts as missed."""
    totals = tally.totals
    tally.seconds[second_of(arrived_at, rules)].missed += 1
    totals.shed += 1
    totals.missed += 1
    totals.window_requests += 1
    totals.window_missed += 1


def zone_of_entry(arrived_at: float, entry: Floats) -> int:
    """The zone in which a request comes in, drawn by its instant: the same for all policies.

    entry: the zones' shares of the requests, added up. shape (zones,).
    """
    if entry.size == 1:
        return 0
    drawn, zone = (arrived_at * SPREAD) % 1.0, 0
    while zone + 1 < entry.size and drawn >= entry[zone]:
        zone += 1
    return zone


def window_closed(now: float, rules: Record, totals: Record) -> bool:
    """Close the monitor's window when it is full; True when it missed the target outside a cool-down."""
    requests, missed = totals.window_requests, totals.window_missed
    if not is_window_full(requests, now - totals.opened_at, rules.monitor_requests, rules.monitor_s):
        return False
    totals.last_requests, totals.last_missed = requests, missed
    totals.window_requests, totals.window_missed = 0, 0
    totals.opened_at = now
    totals.closed_at = now
    return bool(missed_target(missed, requests, rules.target) and now >= totals.quiet_until)


def second_of(arrived_at: float, rules: Record) -> int:
    """Its place in the per-second records."""
    return min(int(arrived_at - rules.start_at), int(rules.last_second))


def _bin(latency_s: float) -> int:
    if latency_s < FINE_S * FINE_BINS:
        return int(latency_s / FINE_S)
    return min(FINE_BINS + int((latency_s - FINE_S * FINE_BINS) / COARSE_S), HISTOGRAM_BINS - 1)

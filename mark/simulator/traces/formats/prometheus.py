"""The answer of Prometheus's `/api/v1/query_range`: series of rates, or of counters that only rise.

A series whose name ends in `_total` or `_count` is a counter, as Prometheus's naming has it: the rate between two
samples is their difference, or the second one where the counter began anew. `rate(...)` leaves no name: other
series are requests per second over the step before each sample. Series are summed. A sample that is NaN or
infinite says nothing: it is left out, and its bin is missing where no other series has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.content import EmptyFile
from mark.simulator.traces.formats.rows import RowKind, Rows, TraceOptions
from mark.simulator.traces.formats.times import MAX_TIME_S

Floats = NDArray[np.float64]

RANGE = "an answer of Prometheus's query_range"
COUNTER_ENDS = ("_total", "_count")
BUCKET = "le"
"""The label of a histogram's buckets."""
LEAST_STEPS = 10
LEAST_MOVES = 40
"""So many changes of a rate are never rises alone but for a few."""
RESET_SHARE = 0.05
"""A counter that begins anew is at most at this share of what it was, and does so this rarely."""
RISING = (
    "a series that only rises is taken as a counter although no name says so; --rows rates takes its values as "
    "requests per second"
)
MOST_SERIES = 3
"""Series that a note names at most."""
MS = 1000
MOST_STEPS = 10_000_000
"""Prometheus gives 11,000 samples of a series at most; a thousand times as many come from uneven times."""


def read_range(name: str, document: Mapping[str, Any], options: TraceOptions, step_s: float | None = None) -> Rows:
    """The sum of the series that the filters take, a bin a step. Labels are the filters' keys.

    step_s: step that was asked for; None: the largest that all times are multiples of.
    """
    series = _series(name, document)
    labels = sorted({label for one in series for label in one["metric"]})
    options.where.check(RANGE, labels)
    takes = options.where.on({label: _label(label) for label in labels})
    taken = [one for one in series if takes(one)]
    if not taken:
        return Rows(name=name, format=RANGE, kind=RowKind.RATE, times=np.empty(0), values=np.empty(0))
    _check_histogram(name, taken)
    sampled = [_samples(name, one["values"]) for one in taken]
    step = round(step_s * MS) if step_s else int(np.gcd.reduce(np.concatenate([np.diff(at) for at, _ in sampled])))
    if step == 0:
        raise Misconfigured(f"{name} holds one sample of each series; ask for a longer range")
    length = max(int(times[-1]) for times, _ in sampled) - min(int(times[0]) for times, _ in sampled)
    if length / step > MOST_STEPS:
        raise Misconfigured(f"{name}: its times are multiples of no step but {step} ms; ask for one query's range")
    finite = [np.isfinite(values) for _, values in sampled]
    samples = [(times[good], values[good]) for (times, values), good in zip(sampled, finite, strict=True)]
    left_out = sum(int((~good).sum()) for good in finite)
    rates: dict[int, float] = {}
    counters = rising = 0
    for one, (times, values) in zip(taken, samples, strict=True):
        named = str(one["metric"].get("__name__", "")).endswith(COUNTER_ENDS)
        counter = options.rows is None and (named or _only_rises(name, values))
        counters += counter
        rising += counter and not named
        for at, rate in _bins(times, values, step, counter=counter):
            rates[at] = rates.get(at, 0.0) + rate
    if not rates:
        raise EmptyFile(f"{name} holds no rate but NaN or infinite ones; check the query and the times asked for")
    starts = np.array(sorted(rates), dtype=np.int64)
    return Rows(
        name=name,
        format=RANGE,
        kind=RowKind.RATE if counters else options.number_kind(RowKind.RATE, name),
        times=starts / MS,
        values=np.array([rates[at] for at in starts.tolist()]),
        bin_s=step / MS,
        exact=True,
        notes=(*_notes(taken, counters, options, left_out), *((RISING,) if rising else ())),
    )


def _check_histogram(name: str, taken: Sequence[Any]) -> None:
    """Refuse several buckets of a histogram: each holds the requests of those below it, too."""
    if len({one["metric"].get(BUCKET) for one in taken} - {None}) > 1:
        raise Misconfigured(
            f"{name} holds the buckets of a histogram, where a request counts several times: ask for its _count, "
            f"or take --where {BUCKET}=+Inf"
        )


def _only_rises(name: str, values: Floats) -> bool:
    """True for a counter that has lost its name, as `sum` takes it away: it never falls but to about 0.

    values: shape (samples,). A rate goes up and down. Misconfigured where it rises but falls in part: a sum of
    counters, one of which began anew, does not show what came after that.
    """
    steps = np.diff(values)
    if len(steps) < LEAST_STEPS or not (steps > 0).any():
        return False
    falls = steps < 0
    to_zero = values[1:][falls] <= RESET_SHARE * values[:-1][falls]
    if to_zero.all():
        return float(falls.mean()) <= RESET_SHARE
    moves = int((steps != 0).sum())
    if moves >= LEAST_MOVES and falls.sum() <= RESET_SHARE * moves:
        raise Misconfigured(
            f"{name}: the series rises and rarely falls, as a sum of counters does: ask for sum(rate(...[1m])); "
            "--rows rates takes its values as requests per second"
        )
    return False


def _label(name: str) -> Callable[[Any], str]:
    """The value of a label of a series."""
    return lambda one: str(one["metric"].get(name, ""))


def _series(name: str, document: Mapping[str, Any]) -> list[Any]:
    if document.get("status") != "success":
        raise Misconfigured(f"{name}: Prometheus answered {document.get('error', 'no success')}; ask again")
    data = document.get("data")
    kind = data.get("resultType") if isinstance(data, dict) else None
    series = data.get("result") if isinstance(data, dict) else None
    if kind != "matrix":
        raise Misconfigured(f"{name} holds a {kind}, one instant; ask /api/v1/query_range for a matrix")
    if not isinstance(series, list) or not all(
        isinstance(one, dict) and isinstance(one.get("metric"), dict) and isinstance(one.get("values"), list)
        for one in series
    ):
        raise Misconfigured(f"{name} holds series without values; ask for a rate or a counter, no histogram")
    if not any(one["values"] for one in series):
        raise EmptyFile(f"{name} holds no sample; check the query and the times asked for")
    return [one for one in series if one["values"]]


def _samples(name: str, values: Sequence[Any]) -> tuple[NDArray[np.int64], Floats]:
    """Times in ms and values of a series, rising."""
    try:
        found = np.array([(float(at), float(value)) for at, value in values])
    except (TypeError, ValueError) as error:
        raise Misconfigured(f"{name} holds a sample that is no [time, value]; ask Prometheus again") from error
    if not (np.abs(found[:, 0]) <= MAX_TIME_S).all():
        raise Misconfigured(f"{name}: a sample's time is not an epoch second; ask Prometheus again")
    order = np.argsort(found[:, 0], kind="stable")
    return np.rint(found[order, 0] * MS).astype(np.int64), found[order, 1]


def _bins(times: NDArray[np.int64], values: Floats, step: int, *, counter: bool) -> list[tuple[int, float]]:
    """Start in ms and rate of each bin. A counter's increase is spread over the bins since the sample before."""
    if not counter:
        return list(zip((times - step).tolist(), values.tolist(), strict=True))
    rises = np.diff(values)
    rises = np.where(rises < 0, values[1:], rises)  # it began anew from 0
    spans = np.diff(times)
    found = []
    for start, span, rise in zip(times[:-1].tolist(), spans.tolist(), rises.tolist(), strict=True):
        found += [(at, rise / span * MS) for at in range(start, start + span, step)]
    return found


def _notes(taken: Sequence[Any], counters: int, options: TraceOptions, left_out: int) -> tuple[str, ...]:
    what = options.rows or RowKind.RATE
    per = "step" if what is RowKind.COUNT else "second"
    notes = [
        f"the values are taken as requests per {per}"
        if not counters
        else f"{counters} of {len(taken)} series are counters: rates are their differences"
    ]
    if len(taken) > 1:
        named = ", ".join(_words(one["metric"]) for one in taken[:MOST_SERIES])
        more = f" and {len(taken) - MOST_SERIES} more" if len(taken) > MOST_SERIES else ""
        notes.append(f"{len(taken)} series are summed: {named}{more}; --where LABEL=VALUE chooses among them")
    if left_out:
        notes.append(f"{left_out} samples that are NaN or infinite are left out")
    return tuple(notes)


def _words(metric: Mapping[str, Any]) -> str:
    labels = ",".join(f'{key}="{value}"' for key, value in sorted(metric.items()) if key != "__name__")
    return f"{metric.get('__name__', '')}{{{labels}}}"

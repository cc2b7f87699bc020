"""Measures of a run: rows of costs and latencies, and curves of latency over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mark.dispatch.objective import attainment
from mark.simulator.results import RunResult, SecondSeries
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row

Where = tuple[tuple[str, str | int], ...]


def latency_rows(where: Where, result: RunResult, claim: str | None = None) -> Iterator[Row]:
    """Mean and quantiles of latency, ms, and the share within the objective, of which the text has a claim.

    Published as drawings only.
    """
    for quantity, value_s in (
        ("mean_ms", result.latency.mean_s),
        ("p50_ms", result.latency.p50_s),
        ("p98_ms", quantile_s(result, 0.98)),
        ("p99_ms", result.latency.p99_s),
    ):
        yield Row(where, quantity, value_s * 1000)
    yield Row(where, "attained", result.attained, claim=claim)


def quantile_s(result: RunResult, level: float) -> float:
    """The latency that the share `level` of the answers keeps, from the run's CCDF; NaN without any answer."""
    latency = result.latency
    if not len(latency.ccdf_s):
        return float("nan")
    below = np.flatnonzero(latency.ccdf_share <= 1 - level)
    return float(latency.ccdf_s[below[0] if len(below) else -1])


def cut_rows(where: Where, result: RunResult, rival: RunResult, claim: str | None = None) -> Iterator[Row]:
    """By how many percent latency is below a rival's: its mean, median and 0.99 quantile."""
    ours, other = result.latency, rival.latency
    for quantity, ours_s, other_s in (
        ("mean_cut_percent", ours.mean_s, other.mean_s),
        ("p50_cut_percent", ours.p50_s, other.p50_s),
        ("p99_cut_percent", ours.p99_s, other.p99_s),
    ):
        yield Row(where, quantity, 100 * (1 - ours_s / other_s), claim=claim)


def ccdf_plot(name: str, title: str, results: Mapping[str, RunResult]) -> Plot:
    """CCDF of latency of one model by system, as in MArk's figure 8."""
    limit_ms = next(iter(results.values())).slo.latency_s * 1000
    return Plot(
        name=name,
        title=f"{title}: share of the answers slower than x",
        x_label="latency, ms",
        y_label="share slower",
        curves=tuple(ccdf_curve(system, result) for system, result in results.items()),
        marks=((limit_ms, "objective"),),
        level=(0.02, "2 %"),
        log_x=True,
        log_y=True,
    )


def ccdf_curve(label: str, result: RunResult) -> Curve:
    """Share of the answers that were slower than x ms."""
    latency = result.latency
    return Curve(
        label=label,
        x=tuple((latency.ccdf_s * 1000).tolist()),
        y=tuple(latency.ccdf_share.tolist()),
    )


def latency_over_time(label: str, seconds: SecondSeries, step_s: int) -> Curve:
    """Mean latency, ms, of what arrived in each step; x is the step's start in minutes. NaN where nothing was."""
    answered = _steps(seconds.answered.astype(np.float64), step_s)
    total_s = _steps(seconds.latency_sum_s, step_s)
    mean_ms = [1000 * s / n if n else float("nan") for s, n in zip(total_s, answered, strict=True)]
    return Curve(label=label, x=tuple(i * step_s / 60 for i in range(len(mean_ms))), y=tuple(mean_ms))


def longest_ms(seconds: SecondSeries, from_s: int = 0, to_s: int | None = None) -> float:
    """The longest latency of what arrived in [from_s, to_s), ms."""
    return 1000 * float(seconds.latency_max_s[from_s:to_s].max(initial=0.0))


def unanswered(result: RunResult) -> int:
    """Requests that arrived, were not answered, and are not in flight at the end: what was lost or gave up."""
    seconds = result.seconds
    return int(seconds.arrivals.sum()) - int(seconds.answered.sum()) - result.served.in_flight


def attained_between(seconds: SecondSeries, from_s: int, to_s: int) -> float:
    """Share of what arrived in [from_s, to_s) that was answered in time; 1 where nothing arrived."""
    arrived = int(seconds.arrivals[from_s:to_s].sum())
    attained = attainment(int(seconds.missed[from_s:to_s].sum()), arrived)
    return 1.0 if attained is None else attained


def _steps(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]], step_s: int) -> list[float]:
    edges = np.arange(0, len(values), step_s)
    return [float(value) for value in np.add.reduceat(values, edges)]

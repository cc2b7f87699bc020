"""Statistics of a trace: level, peaks, daily rhythm (seasonality), and burstiness within the second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.simulator.traces.trace import Trace

Floats = NDArray[np.float64]

DAY_S = 86400.0
RHYTHM_S = 300.0
"""Means over 5 minutes tell a day's rhythm; shorter ones drown it in noise."""
SHORT_DAY = 0.05
"""So much of the second day may be missing: a log ends with its last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStatistics:
    """Statistics of the bins, rates in requests/s.

    `cv` is standard deviation / mean. `day_autocorrelation` is the correlation of 5-minute means with those one
    day later (None for bins over 5 minutes or less than nearly two days). `burstiness_p50` and `_p99` are over the
    minutes' variance / mean of their 1 s counts, 1 being Poisson (None where seconds are not known).
    """

    name: str
    duration_s: float
    bin_s: float
    requests: float
    mean_rps: float
    p50_rps: float
    p99_rps: float
    peak_rps: float
    peak_over_mean: float
    cv: float
    day_autocorrelation: float | None
    burstiness_p50: float | None
    burstiness_p99: float | None
    notes: tuple[str, ...]


def describe(trace: Trace) -> TraceStatistics:
    """The statistics of all the trace's bins."""
    rates = trace.rates_rps
    mean = float(rates.mean())
    p50, p99 = np.percentile(rates, (50, 99))
    bursts = _minute_burstiness(trace)
    return TraceStatistics(
        name=trace.name,
        duration_s=trace.duration_s,
        bin_s=trace.bin_s,
        requests=float(rates.sum()) * trace.bin_s,
        mean_rps=mean,
        p50_rps=float(p50),
        p99_rps=float(p99),
        peak_rps=float(rates.max()),
        peak_over_mean=float(rates.max()) / mean if mean else 0.0,
        cv=float(rates.std()) / mean if mean else 0.0,
        day_autocorrelation=_day_autocorrelation(trace),
        burstiness_p50=float(np.percentile(bursts, 50)) if len(bursts) else None,
        burstiness_p99=float(np.percentile(bursts, 99)) if len(bursts) else None,
        notes=trace.notes,
    )


def _day_autocorrelation(trace: Trace) -> float | None:
    per_mean = max(1, round(RHYTHM_S / trace.bin_s))
    lag = round(DAY_S / (per_mean * trace.bin_s))
    means = trace.rates_rps[: len(trace.rates_rps) // per_mean * per_mean].reshape(-1, per_mean).mean(axis=1)
    if trace.bin_s > RHYTHM_S or len(means) < (2 - SHORT_DAY) * lag:
        return None
    today, tomorrow = means[:-lag], means[lag:]
    if today.std() == 0 or tomorrow.std() == 0:
        return None
    return float(np.corrcoef(today, tomorrow)[0, 1])


def _minute_burstiness(trace: Trace) -> Floats:
    """Variance / mean of the 1 s counts of each minute with arrivals, shape (minutes,)."""
    bins_a_second = round(1 / trace.bin_s)
    if not trace.whole_counts or abs(bins_a_second * trace.bin_s - 1) > 1e-9:
        return np.empty(0)
    counts = trace.rates_rps * trace.bin_s
    minutes = len(counts) // (60 * bins_a_second)
    seconds = counts[: minutes * 60 * bins_a_second].reshape(minutes, 60, bins_a_second).sum(axis=2)
    means = seconds.mean(axis=1)
    busy = means > 0
    bursts: Floats = seconds[busy].var(axis=1) / means[busy]
    return bursts

"""Series cut down to what a page can show, without losing the peaks: envelopes, steps, shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.domain.demand import WINDOW_S
from mark.simulator.results import Floats, Ints, Latency, MinuteSeries, SecondSeries

MAX_POINTS = 720
"""Two minutes each over a day: more than one stretch for two pixels of a 1200 px page."""
MAX_STEPS = 1440
"""A day of minutes is drawn as it is."""
MAX_FORECASTS = 360
"""Four minutes each over a day: a line with more corners hides the arrivals below it."""
MAX_SHARES = 288
"""Stretches of the missed share: five minutes each over a day."""
MAX_CCDF = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Rates over time. at_s: length points, middles of equal stretches; low_rps, high_rps: their extremes."""

    at_s: Floats
    low_rps: Floats
    high_rps: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Piecewise constant values. from_s: length points; values: shape (points, columns).

    Each row holds until the next. The last point closes the last stretch with its own value.
    """

    from_s: Floats
    values: Floats


def arrivals_band(seconds: SecondSeries, *, points: int = MAX_POINTS, stands_for: float = 1.0) -> Band:
    """Smallest and largest 5 s rate in each of <= `points` stretches; a unit's maximum is over 5 s too.

    Each arrival counts for `stands_for`, the run's speed.
    """
    counts = stands_for * seconds.arrivals.astype(np.float64)
    if counts.size == 0:
        empty = np.zeros(0)
        return Band(at_s=empty, low_rps=empty, high_rps=empty)
    window = int(WINDOW_S)
    starts = np.arange(0, counts.size, window)
    lengths = np.minimum(window, counts.size - starts)
    rates = np.add.reduceat(counts, starts) / lengths
    per = -(-rates.size // points)
    firsts = np.arange(0, rates.size, per)
    ends = np.minimum(np.append(firsts[1:], rates.size) * window, counts.size)
    return Band(
        at_s=(firsts * window + ends) / 2,
        low_rps=np.minimum.reduceat(rates, firsts),
        high_rps=np.maximum.reduceat(rates, firsts),
    )


def capacity_steps(
    minutes: MinuteSeries, columns: tuple[str, ...], *, end_s: float, steps: int = MAX_STEPS
) -> Steps:
    """Capacity by offering, its columns as `columns`; those not named are summed into one more, the last.

    Over a day and more the mean of equal stretches; rows that repeat the one before are left out.
    """
    index = {name: position for position, name in enumerate(columns)}
    grouped = np.zeros((minutes.capacity_rps.shape[0], len(columns) + 1))
    for position, name in enumerate(minutes.offerings):
        grouped[:, index.get(name, len(columns))] += minutes.capacity_rps[:, position]
    firsts, rows = _thinned(grouped, steps)
    return _steps(firsts.astype(np.float64) * 60.0, rows, end_s)


def forecast_steps(minutes: MinuteSeries, *, end_s: float) -> Steps:
    """The forecast of each minute's maximum, one column: the largest of a stretch, NaN where there was none."""
    values: Floats = minutes.forecast_max_rps.astype(np.float64)
    per = max(1, -(-values.size // MAX_FORECASTS))
    firsts = np.arange(0, values.size, per)
    # -inf stands in for NaN, so that a stretch keeps its largest forecast and an empty one stays empty
    filled = np.where(np.isfinite(values), values, -np.inf)
    peaks: Floats = np.maximum.reduceat(filled, firsts) if values.size else filled
    rows = np.where(np.isfinite(peaks), peaks, np.nan)[:, np.newaxis]
    return _steps(firsts.astype(np.float64) * 60.0, rows, end_s)


def missed_steps(seconds: SecondSeries, *, stretches: int = MAX_SHARES) -> Steps:
    """Share of the arrivals that was late or shed, in stretches of at least a minute; 0 where nobody came."""
    size = seconds.arrivals.size
    per = max(60, -(-size // stretches))
    firsts = np.arange(0, size, per)
    if size == 0:
        return Steps(from_s=np.zeros(0), values=np.zeros((0, 1)))
    missed = np.add.reduceat(seconds.missed.astype(np.float64), firsts)
    arrived = np.add.reduceat(seconds.arrivals.astype(np.float64), firsts)
    return _steps(firsts.astype(np.float64), (missed / np.maximum(arrived, 1.0))[:, np.newaxis], float(size))


def accuracy_steps(seconds: SecondSeries, *, stretches: int = MAX_POINTS) -> Steps | None:
    """Mean accuracy of what instances answered, in <= `stretches` of whole seconds; NaN where nothing was.

    None for a model without variants.
    """
    if seconds.accuracy_sum is None or seconds.arrivals.size == 0:
        return None
    size = seconds.arrivals.size
    firsts = np.arange(0, size, max(1, -(-size // stretches)))
    right = np.add.reduceat(seconds.accuracy_sum, firsts)
    answers = np.add.reduceat((seconds.answered - seconds.to_lambda).astype(np.float64), firsts)
    mean = np.divide(right, answers, out=np.full(firsts.size, np.nan), where=answers > 0)
    return _steps(firsts.astype(np.float64), mean[:, np.newaxis], float(size))


def thinned_ccdf(latency: Latency, *, points: int = MAX_CCDF) -> tuple[Floats, Floats]:
    """The CCDF at <= `points` shares, spread evenly over the decades: a log axis shows each as well.

    Returns latencies in s and shares, both of the same length; shares of 0 have no place on a log axis.
    """
    shown = (latency.ccdf_share > 0) & (latency.ccdf_s > 0)
    at_s, share = latency.ccdf_s[shown], latency.ccdf_share[shown]
    if share.size <= points:
        return at_s, share
    wanted = np.geomspace(share[0], share[-1], points)
    # the first latency at which the share is as low as wanted: a plateau keeps its left end
    kept = np.unique(np.searchsorted(-share, -wanted, side="left").clip(0, share.size - 1))
    return at_s[kept], share[kept]


def _thinned(rows: Floats, steps: int) -> tuple[Ints, Floats]:
    """First indices and means of <= `steps` equal stretches."""
    per = max(1, -(-rows.shape[0] // steps))
    firsts = np.arange(0, rows.shape[0], per)
    if per == 1:
        return firsts, rows
    lengths = np.minimum(per, rows.shape[0] - firsts)
    return firsts, np.add.reduceat(rows, firsts, axis=0) / lengths[:, np.newaxis]


def _steps(from_s: Floats, rows: Floats, end_s: float) -> Steps:
    if from_s.size == 0:
        return Steps(from_s=np.zeros(0), values=np.zeros((0, rows.shape[1])))
    same = np.isclose(rows[1:], rows[:-1], rtol=0, atol=1e-12, equal_nan=True).all(axis=1)
    kept = np.concatenate([[True], ~same])
    return Steps(
        from_s=np.append(from_s[kept], max(end_s, from_s[-1])),
        values=np.vstack([rows[kept], rows[-1:]]),
    )

"""Hazard of a burst's onset: by the clock, times a factor by the time since the last onset.

The clock's period is learned: each of PERIODS_S, one unit long (no clock at all) to a day, counts by its evidence,
the likelihood of all onsets with each position's hazard integrated out. So a cron job at :32 of every other hour
is found, and where bursts keep to no clock the hazard is the same at all times. The factor says whether bursts are
refractory, or come in showers. Both are shrunk towards the simpler rule: by `CLOCK_UNITS` towards the mean hazard,
by `GAP_ONSETS` towards 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from mark.predictors.classical.points import season_units
from mark.predictors.clock_bursts.bursts import Bursts
from mark.predictors.expert import Floats, Ints, Series

PERIODS_S = (0, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400)
"""Periods of a clock; all divide the day, and 0 is none."""
GAPS_S = (300, 600, 900, 1200, 1800, 2700, 4500, 6300, 8100, 9900, 11_700, 13_500, 18_000, 28_800, 43_200, 86_400)
"""Edges between times since the last onset that are told apart: around multiples of half an hour."""
CLOCK_UNITS = 10.0
"""Units at the mean hazard that count beside those seen at each position of a clock."""
GAP_ONSETS = 1.0
"""Onsets as expected that count beside those seen at each time since the last."""
MOST = 0.95
"""Highest hazard of a unit."""


@dataclass(frozen=True, slots=True)
class OnsetHazard:
    """Hazard of an onset in a unit that is in no burst."""

    #: By unit of the day, shape (units a day,).
    clock: Floats
    #: By time since the last onset, shape (len(GAPS_S) + 1,); 1 is as usual.
    gaps: Floats
    unit_s: float

    def at(self, units: Ints, since: Ints) -> Floats:
        """Hazard of absolute units, `since` units after the last onset, negative where there was none."""
        factor = np.where(since >= 0, self.gaps[_bucket(since, self.unit_s)], 1.0)
        hazard: Floats = np.minimum(self.clock[units % len(self.clock)] * factor, MOST)
        return hazard


def learn_hazard(series: Series, start: int, bursts: Bursts, low: int, end: int) -> OnsetHazard:
    """The hazard seen in the units [low, end) of a series whose first unit is `start`, with these bursts in it."""
    day = season_units(series)
    onsets = bursts.onsets[(bursts.onsets >= low) & (bursts.onsets < end)]
    units = np.arange(low, end)
    last = np.searchsorted(onsets, units, side="left") - 1  # an onset's own gap is that to the one before
    ends = bursts.ends[np.searchsorted(bursts.onsets, onsets)]
    inside = (last >= 0) & (units < ends[last]) if len(onsets) else np.zeros(len(units), np.bool_)
    exposed = ~inside
    positions = (units + start) % day
    begun = np.bincount(positions[onsets - low], minlength=day).astype(np.float64)
    seen = np.bincount(positions[exposed], minlength=day).astype(np.float64)
    clock = _clock_hazard(begun, seen, series.unit_s)
    known = exposed & (last >= 0)
    since = units - onsets[np.maximum(last, 0)] if len(onsets) else np.zeros(len(units), np.int64)
    buckets = _bucket(since, series.unit_s)
    expected = np.bincount(buckets[known], weights=clock[positions[known]], minlength=len(GAPS_S) + 1)
    counted = np.bincount(buckets[known & np.isin(units, onsets)], minlength=len(GAPS_S) + 1)
    gaps = (counted + GAP_ONSETS) / (expected + GAP_ONSETS)
    return OnsetHazard(clock, gaps, series.unit_s)


def _bucket(since: Ints, unit_s: float) -> Ints:
    return np.searchsorted(GAPS_S, since * unit_s, side="right").astype(np.int64)


def _clock_hazard(begun: Floats, seen: Floats, unit_s: float) -> Floats:
    """Mean over the periods, by their evidence. begun, seen: onsets and units by unit of the day."""
    day = len(begun)
    mean = begun.sum() / max(1.0, seen.sum())
    if mean <= 0.0:
        return np.zeros(day)
    mean = min(mean, 0.5)
    alpha, beta = CLOCK_UNITS * mean, CLOCK_UNITS * (1.0 - mean)
    hazards, evidence = [], []
    for period_s in PERIODS_S:
        period = max(1, round(period_s / unit_s))
        if day % period:
            continue
        n, m = begun.reshape(-1, period).sum(axis=0), seen.reshape(-1, period).sum(axis=0)
        m = np.maximum(m, n)
        hazards.append(np.tile((n + alpha) / (m + CLOCK_UNITS), day // period))
        evidence.append(float((betaln(n + alpha, m - n + beta) - betaln(alpha, beta)).sum()))
    weights = np.exp(np.array(evidence) - max(evidence))
    found: Floats = weights @ np.array(hazards) / weights.sum()
    return found

"""Features of a regression that forecasts one unit from one origin: log rates relative to the last hour.

Relative rates make a model that has learned at one load's level hold at another. What is known of the *target*
unit (the same time yesterday, in the last days, one and two hours ago) matters more than what the origin shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mark.predictors.classical.points import HOUR_S, day_levels, first_unit, season_units, windows_before
from mark.predictors.classical.points_seasonal import profile_of, rates_at
from mark.predictors.expert import Floats, Ints, Series

FLOOR_SHARE = 0.02
"""Of the last day's mean: added to rates before their logarithm is taken."""
LAST = 5
"""Newest units that are features by themselves."""
PROFILE_DAYS = 7
SMOOTH = 2
"""Units on either side of the same time of another hour or day that count too."""
WIDE = 7
"""The same where a quarter of an hour of yesterday counts."""
LONGEST_LEAD = 60
"""Leads beyond it are taken for it."""

ORIGIN_NAMES = (
    *(f"last {lag}" for lag in range(1, LAST + 1)),
    "mean of 5",
    "mean of 15",
    "median of the hour",
    "lowest of the hour",
    "highest of the hour",
    "hour before",
    "last day",
    "last hour yesterday",
)
TARGET_NAMES = (
    "yesterday",
    "yesterday, around",
    "yesterday, wide",
    "last days",
    "last days, typical",
    "an hour ago",
    "an hour ago, around",
    "two hours ago",
    "two hours ago, around",
    "even hours ago, mean",
    "hours ago, mean",
)
CALENDAR_NAMES = ("lead", "minute of the hour", "hour of the day", "odd hour")
NAMES = (*ORIGIN_NAMES, *TARGET_NAMES, *CALENDAR_NAMES)


@dataclass(frozen=True, slots=True)
class Features:
    """values: shape (origins, horizon, features), in the order of NAMES. levels, floors: (origins,), requests/s.

    A rate r of origin i is seen as log((r + floors[i]) / levels[i]).
    """

    values: Floats
    levels: Floats
    floors: Floats

    def rates(self, relative: Floats) -> Floats:
        """Rates of relative logarithms. relative: shape (origins, ...)."""
        shape = (-1, *(1,) * (relative.ndim - 1))
        most = self.levels.reshape(shape) * np.exp(np.minimum(relative, MOST_LOG))
        rates: Floats = np.maximum(most - self.floors.reshape(shape), 0.0)
        return rates

    def relative(self, rates: Floats) -> Floats:
        """Relative logarithms of rates. rates: shape (origins, ...)."""
        shape = (-1, *(1,) * (rates.ndim - 1))
        return relative_log(rates, self.levels.reshape(shape), self.floors.reshape(shape))


MOST_LOG = 7.0
"""Relative logarithms lie within this, either way: a factor of a thousand."""


def needed_units(day: int) -> int:
    """The history that features need."""
    return day + day // 24 + WIDE + 3


def features_of(series: Series, ends: Ints, leads: Ints) -> Features:
    """The features of these leads of each origin. leads: shape (origins, horizon) or (horizon,), from 1 on.

    Every origin has at least `needed_units`. They look back `PROFILE_DAYS` days and no further.
    """
    if len(ends) == 1:
        key = ("features", int(ends[0]), leads.shape, leads.tobytes())
        return series.once(key, lambda: _features_of(series, ends, leads))
    return _features_of(series, ends, leads)


def _features_of(series: Series, ends: Ints, leads: Ints) -> Features:
    hour, day = max(1, round(HOUR_S / series.unit_s)), season_units(series)
    leads = np.minimum(leads, min(LONGEST_LEAD, day - WIDE - 1))
    leads = np.broadcast_to(leads, (len(ends), leads.shape[-1]))
    floors = np.maximum(FLOOR_SHARE * day_levels(series, ends), np.finfo(np.float64).tiny)
    last, day_before = windows_before(series.rates, ends, hour), windows_before(series.rates, ends - day, hour)
    levels = last.mean(axis=1) + floors
    origin = _of_origin(series, ends, last, day_before, levels, floors)
    target = _of_target(series, ends, leads, day_before, levels, floors)
    units = ends[:, None] + leads - 1 + first_unit(series)
    calendar = (leads, units % hour, units % day // hour, units // hour % 2)
    shape = (*leads.shape, origin.shape[-1])
    values = np.concatenate(
        (np.broadcast_to(origin[:, None], shape), target, np.stack(calendar, axis=-1)), axis=-1
    )
    return Features(values, levels, floors)


def relative_log(rates: Floats, levels: Floats, floors: Floats) -> Floats:
    """log((rate + floor) / level), within reason; floors and levels above 0."""
    logs: Floats = np.clip(np.log(rates + floors) - np.log(levels), -MOST_LOG, MOST_LOG)
    return logs


def _of_origin(
    series: Series, ends: Ints, last: Floats, day_before: Floats, levels: Floats, floors: Floats
) -> Floats:
    """Shape (origins, len(ORIGIN_NAMES))."""
    hour = last.shape[1]
    columns = (
        *(last[:, -lag] for lag in range(1, LAST + 1)),
        last[:, -5:].mean(axis=1),
        last[:, -15:].mean(axis=1),
        np.median(last, axis=1),
        last.min(axis=1),
        last.max(axis=1),
        windows_before(series.rates, ends - hour, hour).mean(axis=1),
        day_levels(series, ends),
        day_before.mean(axis=1),
    )
    return relative_log(np.stack(columns, axis=-1), levels[:, None], floors[:, None])


def _of_target(
    series: Series, ends: Ints, leads: Ints, day_before: Floats, levels: Floats, floors: Floats
) -> Floats:
    """Shape (origins, horizon, len(TARGET_NAMES))."""
    hour, day = day_before.shape[1], season_units(series)
    units = ends[:, None] + leads - 1
    around = np.arange(-SMOOTH, SMOOTH + 1)
    newest = units - -(-leads // hour) * hour  # the same minute of the newest hour that is known
    yesterday, one, two = (
        rates_at(series.rates, indexes[..., None] + around) for indexes in (units - day, newest, newest - hour)
    )
    # Around it there may be units that have not ended yet: then the mean is of those that have.
    one = np.where(newest[..., None] + around < ends[:, None, None], one, np.nan)
    wide = rates_at(series.rates, units[..., None] - day + np.arange(-WIDE, WIDE + 1))
    hours = rates_at(series.rates, newest[..., None] - hour * np.arange(12))
    before = day_before.mean(axis=1)[:, None] + floors[:, None]
    shown = levels[:, None]
    low = int(ends.min()) - hour
    profile = profile_of(series, np.arange(low, int(units.max()) + 1), days=PROFILE_DAYS, smooth=SMOOTH)
    profile_hour = windows_before(profile, ends - low, hour).mean(axis=1)[:, None] + floors[:, None]
    typical = profile_of(
        series, np.arange(low, int(units.max()) + 1), days=PROFILE_DAYS, smooth=SMOOTH, typical=True
    )
    typical_hour = np.median(windows_before(typical, ends - low, hour), axis=1)[:, None] + floors[:, None]
    columns = (
        (yesterday[..., SMOOTH], before),
        (yesterday.mean(axis=-1), before),
        (wide.mean(axis=-1), before),
        (profile[units - low], profile_hour),
        (typical[units - low], typical_hour),
        (one[..., SMOOTH], shown),
        (np.nanmean(one, axis=-1), shown),
        (two[..., SMOOTH], shown),
        (two.mean(axis=-1), shown),
        (hours[..., 1::2].mean(axis=-1), shown),
        (hours.mean(axis=-1), shown),
    )
    return np.stack([relative_log(rates, level, floors[:, None]) for rates, level in columns], axis=-1)

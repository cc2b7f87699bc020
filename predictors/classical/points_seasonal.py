"""Points from the days before: the same minute yesterday, and the profile of the last days at today's level.

For a lead h of up to a day the unit t + h - day is known at origin t, so profiles are functions of a unit alone.
"""

from __future__ import annotations

import math

import numpy as np

from mark.predictors.classical.points import day_levels, season_units, windows_before
from mark.predictors.expert import Floats, Ints, Series

DAYS = 7
"""Days that a profile is made of: a week holds every weekday once."""
SMOOTH = 2
"""Units on either side that a profile is smoothed over."""
LEVEL_UNITS = 60
"""The last hour's level compares today with the profile."""
RECENT_UNITS = 15
"""The first leads follow the last quarter of an hour."""
RECENT_FADES = 8.0
"""Leads after which the last quarter of an hour counts for 1/e."""
FLOOR_SHARE = 0.02
"""Of the last day's mean: added to rates before they are compared."""
MOST_LOG = math.log(10.0)
"""Largest distance of today's level from the profile's; beyond it, today is another kind of day."""


class DayAgo:
    """The same unit a day ago; beyond a day ahead the last day repeats."""

    name = "seasonal-naive"
    is_level = False

    def __init__(self, *, day: int = 1440) -> None:
        """`day`: units of a day."""
        self.needs_units = day

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        day = season_units(series)
        units = ends[:, None] - day + np.arange(horizon) % day
        return rates_at(series.rates, units)


class Seasonal:
    """The profile of the last days at the level of the last hour: the median of how much higher its minutes were.

    The mean profile keeps a share of what happens on some days; `typical` takes the median of the days, which is
    better where floods come at any time and worse where weekdays differ. Beyond (almost) a day ahead the last
    value repeats.
    """

    is_level = False

    def __init__(self, *, typical: bool = False, day: int = 1440) -> None:
        """`day`: units of a day. Profiles need it, and an hour more to be compared with."""
        self.name = "seasonal-median" if typical else "seasonal"
        self.needs_units = day + LEVEL_UNITS + SMOOTH
        self._typical = typical

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        leads = np.minimum(np.arange(horizon), season_units(series) - SMOOTH - 1)
        low, high = int(ends.min()) - LEVEL_UNITS, int(ends.max()) + int(leads[-1]) + 1
        profile = profile_of(series, np.arange(low, high), days=DAYS, smooth=SMOOTH, typical=self._typical)
        floors = np.maximum(FLOOR_SHARE * day_levels(series, ends), np.finfo(np.float64).tiny)[:, None]
        past = np.log(windows_before(profile, ends - low, LEVEL_UNITS) + floors)
        higher = np.clip(
            np.log(windows_before(series.rates, ends, LEVEL_UNITS) + floors) - past, -MOST_LOG, MOST_LOG
        )
        hour = np.median(higher, axis=1)[:, None]
        recent = higher[:, -RECENT_UNITS:].mean(axis=1)[:, None]
        levels = np.exp(hour + (recent - hour) * np.exp(-leads / RECENT_FADES))
        points: Floats = np.maximum(levels * (profile[(ends - low)[:, None] + leads] + floors) - floors, 0.0)
        return points


def profile_of(series: Series, units: Ints, *, days: int, smooth: int, typical: bool = False) -> Floats:
    """The mean (or, if `typical`, median) rate of each unit's time of day over the last `days` days.

    units: any shape, they may lie up to a day beyond the series. `smooth`: units on either side that count too.
    A unit's profile looks at the days before it alone. Returns the shape of `units`, NaN where no day is known.
    """
    day = season_units(series)
    backs = np.arange(1, days + 1) * day
    offs = np.arange(-smooth, smooth + 1)
    values = rates_at(series.rates, units[..., None] - (backs[:, None] - offs).ravel())
    known = ~np.isnan(values)
    count = known.sum(axis=-1)
    if typical:
        values.sort(axis=-1)  # NaN come last
        middle = np.stack((np.maximum(count - 1, 0) // 2, count // 2), axis=-1)
        median: Floats = np.take_along_axis(values, np.minimum(middle, values.shape[-1] - 1), axis=-1).mean(
            axis=-1
        )
        return median
    total = np.where(known, values, 0.0).sum(axis=-1)
    profile: Floats = np.divide(total, count, out=np.full(units.shape, np.nan), where=count > 0)
    return profile


def rates_at(rates: Floats, units: Ints) -> Floats:
    """Rates of these units, NaN outside of the series. Returns the shape of `units`."""
    known = (units >= 0) & (units < len(rates))
    return np.where(known, rates[np.where(known, units, 0)], np.nan)

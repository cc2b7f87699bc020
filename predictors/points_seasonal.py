"""Points from the days before: the same minute yesterday, and the profile of the last days at today's level.

For a lead h of up to a day the unit t + h - day is known at origin t, so profiles are functions of a unit alone.
"""

from __future__ import annotations

import numpy as np

from predictors.expert import Floats, Ints, Series
from predictors.points import season_units, windows_before

DAYS = 7
"""Days that a profile is the mean of: a week holds every weekday once."""
SMOOTH = 5
"""Units on either side that a profile is smoothed over."""
LEVEL_UNITS = 60
"""The last hour says how today compares with the profile."""
RECENT_UNITS = 15
"""The first leads follow the last quarter of an hour."""
RECENT_FADES = 20.0
"""Leads after which the last quarter of an hour counts for 1/e."""
LEAST_RATIO, MOST_RATIO = 0.1, 10.0
"""How far today's level may lie from the profile's; beyond it, today is another kind of day."""


class DayAgo:
    """The same unit a day ago; beyond a day ahead the last day repeats."""

    name = "seasonal-naive"

    def __init__(self, *, day: int = 1440) -> None:
        """`day`: units of a day."""
        self.needs_units = day

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        day = season_units(series)
        units = ends[:, None] - day + np.arange(horizon) % day
        return rates_at(series.rates, units)


class Seasonal:
    """The profile of the last days, times how much higher the last hour was than its profile.

    Beyond (almost) a day ahead the last value repeats.
    """

    name = "seasonal"

    def __init__(self, *, day: int = 1440) -> None:
        """`day`: units of a day. Profiles need it, and an hour more to be compared with."""
        self.needs_units = day + LEVEL_UNITS + SMOOTH

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`."""
        day = season_units(series)
        leads = np.minimum(np.arange(horizon), day - SMOOTH - 1)
        low, high = int(ends.min()) - LEVEL_UNITS, int(ends.max()) + int(leads[-1]) + 1
        profile = profile_of(series, np.arange(low, high), days=DAYS, smooth=SMOOTH)
        past = windows_before(profile, ends - low, LEVEL_UNITS)
        seen = windows_before(series.rates, ends, LEVEL_UNITS)
        hour = _ratio(seen.mean(axis=1), past.mean(axis=1))
        recent = _ratio(seen[:, -RECENT_UNITS:].mean(axis=1), past[:, -RECENT_UNITS:].mean(axis=1))
        share = np.exp(-leads / RECENT_FADES)
        levels = hour[:, None] * (recent / hour)[:, None] ** share
        ahead = profile[(ends - low)[:, None] + leads]
        points: Floats = levels * ahead
        return points


def profile_of(series: Series, units: Ints, *, days: int, smooth: int) -> Floats:
    """The mean over the last `days` days of each unit's time of day, NaN where no such day is known.

    units: any shape, they may lie up to a day beyond the series. `smooth`: units on either side that count too.
    A unit's profile looks at the days before it alone. Returns the shape of `units`.
    """
    day = season_units(series)
    backs = np.arange(1, days + 1) * day
    offs = np.arange(-smooth, smooth + 1)
    values = rates_at(series.rates, units[..., None] - (backs[:, None] - offs).ravel())
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1)
    profile: Floats = np.divide(total, count, out=np.full(units.shape, np.nan), where=count > 0)
    return profile


def rates_at(rates: Floats, units: Ints) -> Floats:
    """Rates of these units, NaN outside of the series. Returns the shape of `units`."""
    known = (units >= 0) & (units < len(rates))
    return np.where(known, rates[np.where(known, units, 0)], np.nan)


def _ratio(seen: Floats, profile: Floats) -> Floats:
    """How today compares with the profile; 1 where the profile is 0."""
    ratio = np.divide(seen, profile, out=np.ones_like(seen), where=profile > 0)
    return np.clip(ratio, LEAST_RATIO, MOST_RATIO)

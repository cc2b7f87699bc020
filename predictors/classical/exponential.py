"""Holt-Winters on log rates with a season of a day, followed minute by minute.

statsmodels fits the smoothing parameters once, on the history before the run: on means of 15 minutes, because what
is best for the very next minute follows its noise, and is a third worse over an hour. The state (level, damped
trend and the season of a day) is then ours to follow: a scalar loop of 0.4 us a unit. It starts afresh at a
midnight some days back: a forecast depends on those days alone and not on when the service was started.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from mark.predictors.classical.points import first_unit, season_units
from mark.predictors.expert import Floats, Ints, Series

BACK_DAYS = 9
"""Whole days before an origin's own that its state depends on."""
FOLLOWED_DAYS = 1
"""Of these the last: they are followed; the season starts as the mean of those before (of one at least)."""
FLOOR_SHARE = 0.02
"""Of the mean: added to rates before their logarithm is taken."""
SMOOTH = 2
"""Units on either side that a season is smoothed over."""
FIT_DAYS = 14
"""Days of history that the parameters are fitted on."""
FIT_UNITS = 15
"""Units whose mean is one step of the fit."""
LEAST_LEVEL = 0.01
"""The least that the level follows, a unit: a level that never moves would miss a load that doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """Holt-Winters' parameters per unit, named as statsmodels does; each lies in [0, 1].

    The defaults are for a history that is too short to fit on.
    """

    level: float = 0.05
    trend: float = 0.0
    seasonal: float = 0.2
    damping: float = 0.98


class HoltWinters:
    """The rule. Not for several threads: it keeps the state that it last followed."""

    name = "holt-winters"
    is_level = False

    def __init__(self, smoothing: Smoothing, *, day: int = 1440) -> None:
        """`day`: units of a day; the first day of all starts the season."""
        self.needs_units = day + day // 24
        self._smoothing = smoothing
        self._state: _State | None = None

    def points(self, series: Series, ends: Ints, horizon: int) -> Floats:
        """Rates after each origin; see `PointRule`. Beyond (almost) a day ahead the last value repeats."""
        day, start = season_units(series), first_unit(series)
        midnights = (ends + start) // day * day - start
        answer = np.empty((len(ends), horizon))
        for midnight in np.unique(midnights):
            rows = midnights == midnight
            begin = max(int(midnight) - BACK_DAYS * day, 0)
            first_days = max(1, (int(midnight) - begin) // day - FOLLOWED_DAYS)
            state = self._followed(series, begin, int(ends[rows].max()), first_days)
            answer[rows] = state.points(ends[rows] - begin, horizon, self._smoothing.damping)
        return answer

    def _followed(self, series: Series, begin: int, end: int, first_days: int) -> _State:
        """The state from `begin` on, at least up to `end`."""
        day, rates, state = season_units(series), series.rates[begin:end], self._state
        key = (first_unit(series) + begin, day, first_days)
        if state is None or state.key != key or not np.array_equal(state.rates, rates[: len(state.rates)]):
            state = self._state = _State.started(key, rates)
        state.follow(rates, self._smoothing)
        return state


@dataclass(slots=True)
class _State:
    """All states of one run of the filter. key: the absolute unit it began at, units of a day, days at its start.

    rates: those that were followed. levels, trends, seasons: one value per unit of these, after it was seen.
    """

    key: tuple[int, int, int]
    floor: float
    rates: Floats
    levels: list[float]
    trends: list[float]
    seasons: list[float]

    @staticmethod
    def started(key: tuple[int, int, int], rates: Floats) -> _State:
        """The state after the first days."""
        _, day, days = key
        first = rates[: days * day]
        floor, logs = logs_of(first)
        level, season = first_state(logs, day)
        return _State(
            key=key,
            floor=floor,
            rates=first,
            levels=[level] * len(first),
            trends=[0.0] * len(first),
            seasons=np.tile(season, days).tolist(),
        )

    def follow(self, rates: Floats, smoothing: Smoothing) -> None:
        """See the units that are new in `rates`."""
        alpha, phi, gamma = smoothing.level, smoothing.damping, smoothing.seasonal
        alpha_beta = alpha * smoothing.trend
        level, trend, seasons, day = self.levels[-1], self.trends[-1], self.seasons, self.key[1]
        for value in np.log(rates[len(self.rates) :] + self.floor).tolist():
            season = seasons[-day]
            held = level + phi * trend
            error = value - held - season
            level = held + alpha * error
            trend = phi * trend + alpha_beta * error
            self.levels.append(level)
            self.trends.append(trend)
            seasons.append(season + gamma * error)
        self.rates = rates

    def points(self, ends: Ints, horizon: int, damping: float) -> Floats:
        """Rates after each end, counted from the state's begin. Returns shape (ends, horizon)."""
        low, high, day = int(ends.min()), int(ends.max()), self.key[1]
        levels = np.array(self.levels[low - 1 : high])[ends - low]
        trends = np.array(self.trends[low - 1 : high])[ends - low]
        leads = np.minimum(np.arange(horizon), day - SMOOTH - 1)
        # The newest seasons lie behind the units ahead, so that the units around a lead are known too.
        seasons = np.array(self.seasons[max(low - day - SMOOTH, 0) : high])
        around = np.arange(-SMOOTH, SMOOTH + 1)
        indexes = (ends - max(low - SMOOTH, day))[:, None, None] + leads[:, None] + around
        ahead = seasons[np.maximum(indexes, 0)].mean(axis=-1)
        damped = np.cumsum(damping ** np.arange(1, horizon + 1))
        rates: Floats = np.exp(levels[:, None] + trends[:, None] * damped + ahead) - self.floor
        return np.maximum(rates, 0.0)


def logs_of(rates: Floats) -> tuple[float, Floats]:
    """The floor added to rates, requests/s, and their logarithms: those of zeros are finite, too."""
    floor = max(FLOOR_SHARE * float(rates.mean()), 1e-9)
    return floor, np.log(rates + floor)


def first_state(logs: Floats, day: int) -> tuple[float, Floats]:
    """The level of the last of these days and the mean season of all. logs: shape (days x day,)."""
    days = logs.reshape(-1, day)
    season: Floats = (days - days.mean(axis=1, keepdims=True)).mean(axis=0)
    return float(days[-1].mean()), season


def fit_smoothing(series: Series) -> Smoothing:
    """The parameters that explain each next quarter of an hour best; the defaults under four days of history."""
    units = season_units(series)
    day, days = units // FIT_UNITS, min(FIT_DAYS, len(series.rates) // units)
    rates = series.rates[len(series.rates) - days * units :]
    if days < 4 or day < 4 or units % FIT_UNITS or not rates.any():
        return Smoothing()
    from statsmodels.tools.sm_exceptions import ConvergenceWarning  # noqa: PLC0415 - as below
    from statsmodels.tsa.holtwinters import ExponentialSmoothing  # noqa: PLC0415 - 100 MiB with pandas, to learn

    _, logs = logs_of(rates.reshape(-1, FIT_UNITS).mean(axis=1))
    first = max(1, days // 2) * day
    level, season = first_state(logs[:first], day)
    model = ExponentialSmoothing(
        logs[first:],
        trend="add",
        damped_trend=True,
        seasonal="add",
        seasonal_periods=day,
        initialization_method="known",
        initial_level=level,
        initial_trend=0.0,
        initial_seasonal=season,
    )
    # A constant load leaves no error to divide by, and any parameters will do.
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = model.fit().params
    return Smoothing(
        level=max(LEAST_LEVEL, 1.0 - (1.0 - float(found["smoothing_level"])) ** (1.0 / FIT_UNITS)),
        trend=0.0,
        seasonal=float(found["smoothing_seasonal"]),
        damping=float(found["damping_trend"]),
    )

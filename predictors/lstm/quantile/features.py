"""Features of the quantile LSTM: its view of a series at an origin.

Rates become logs, and every log is relative to a level that was known at the origin: the last hour's mean
for what happened today, yesterday's same hour for yesterday, the profile's same hour for the profile of the last
seven days. So the network learns shapes, and a load ten times as high is the same to it. Everything hangs on one
table with a row per unit; columns behind the first hold what lies at least an hour back, so that the rows of the
units to come can be read too. A row depends on the eight days before it and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from mark.predictors.expert import Floats, Ints, Series
from mark.predictors.naive import DAY_S

HOUR_S = 3_600.0
HOUR = 60
"""Units whose mean is the level; also the nearest lag that every lead of the horizon knows."""
PROFILE_DAYS = 7
SMOOTH = 5
"""Units on both sides of the same unit yesterday: floods come a few minutes sooner or later from day to day."""
LAST = 5
STEP_COLUMNS = (0, 3, 5)
"""Columns of the table that each step of the window shows: the load, yesterday's, the profile's."""
LAGGED = 6
"""Columns behind the first: an hour and two hours ago, yesterday and the profile, each also smoothed."""
CALENDAR = 7
SLOTS = 120
"""Minutes of two hours: what runs by the clock runs at a minute, in every hour or in every other."""
LOCAL = LAST + 7
FARTHEST = 6.0
"""No log is further from its level than this (a factor of 400), so that no flood throws the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A series as the network sees it from some origins.

    table: shape (rows, 1 + LAGGED), logs of rates; its first column is NaN where nothing is known yet. calendar:
    (rows, CALENDAR); slots: (rows,), the minute of two hours. rows: (origins,), the row of the first unit to
    come. levels: (origins, 1 + LAGGED), what each column is told relative to. days: (origins,), 1 where
    yesterday is known, else 0. local: (origins, LOCAL), the newest values and levels. `floor_rps` was added to
    the rates before the logs.
    """

    table: Floats
    calendar: Floats
    slots: Ints
    rows: Ints
    levels: Floats
    days: Floats
    local: Floats
    floor_rps: float

    def some(self, part: slice | Ints) -> Inputs:
        """The same series from some of the origins."""
        return replace(
            self,
            rows=self.rows[part],
            levels=self.levels[part],
            days=self.days[part],
            local=self.local[part],
        )


def reach(season: int) -> int:
    """Units before an origin that its inputs depend on."""
    return PROFILE_DAYS * season + 4 * HOUR


def season_of(series: Series) -> int:
    """Units of a day."""
    return round(DAY_S / series.unit_s)


def build_inputs(
    series: Series, ends: Ints, *, floor_rps: float, window: int, horizon: int, sees_days: bool
) -> Inputs:
    """Inputs at each origin. ends: shape (origins,), each at least `window` and two hours; `floor_rps` is added.

    Without `sees_days` yesterday and the profile are left out, as they are before there is a day.
    """
    season = season_of(series)
    first = max(0, int(ends.min()) - reach(season))
    rates = series.rates[first : int(ends.max())]
    logs = np.log(rates + floor_rps)
    known = ends - first
    # The table begins where the first window does: a live update needs three hours of the eight days as rows.
    low = int(known.min()) - max(window, 2 * HOUR)
    table = _table(logs, season, low, len(logs) + horizon)
    rows = known - low
    days = ((ends >= season + window + HOUR) & sees_days).astype(np.float64)
    today = _levels(rates, known, floor_rps)
    yesterday = _levels(rates, np.where(days > 0, known - season, known), floor_rps)
    profile = np.where(days > 0, table[:, 5][_hour_before(rows)].mean(axis=1), today)
    seconds = series.start_at + series.unit_s * (first + low + np.arange(len(table)))
    return Inputs(
        table=np.where(np.isnan(table) & (np.arange(table.shape[1]) > 0), 0.0, table),
        calendar=_calendar(seconds),
        slots=(seconds // (2 * HOUR_S / SLOTS)).astype(np.int64) % SLOTS,
        rows=rows,
        levels=np.stack([today, today, today, yesterday, yesterday, profile, profile], axis=1),
        days=days,
        local=_local(rates, known, floor_rps, np.stack([today, yesterday, profile], axis=1), days),
        floor_rps=floor_rps,
    )


def _table(logs: Floats, season: int, low: int, high: int) -> Floats:
    """Logs of the rows [low, high), and what lies behind each; NaN where the series does not reach."""
    smooth = _smoothed(logs)
    columns = [
        _behind(logs, 0, low, high),
        _behind(logs, HOUR, low, high),
        _behind(logs, 2 * HOUR, low, high),
        _behind(logs, season, low, high),
        _behind(smooth, season, low, high),
    ]
    for values in (logs, smooth):
        days = np.stack([_behind(values, day * season, low, high) for day in range(1, PROFILE_DAYS + 1)])
        known = np.isfinite(days)
        total, count = np.where(known, days, 0.0).sum(axis=0), known.sum(axis=0)
        columns.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    return np.stack(columns, axis=1)


def _behind(values: Floats, lag: int, low: int, high: int) -> Floats:
    """Values `lag` units before the rows [low, high), NaN outside of them."""
    found = np.full(high - low, np.nan)
    start, stop = min(max(low - lag, 0), len(values)), min(max(high - lag, 0), len(values))
    found[start + lag - low : stop + lag - low] = values[start:stop]
    return found


def _smoothed(logs: Floats) -> Floats:
    """Mean of the units around each one, SMOOTH on both sides; the edges repeat."""
    padded = np.pad(logs, SMOOTH, mode="edge")
    means: Floats = sliding_window_view(padded, 2 * SMOOTH + 1).mean(axis=1)
    return means


def _hour_before(rows: Ints) -> Ints:
    """The rows of the hour before each row: shape (rows, HOUR)."""
    return rows[:, None] - np.arange(HOUR, 0, -1)


def _levels(rates: Floats, known: Ints, floor_rps: float) -> Floats:
    """The log of the last hour's mean where so many units are known."""
    levels: Floats = np.log(rates[_hour_before(known)].mean(axis=1) + floor_rps)
    return levels


def _calendar(seconds: NDArray[np.floating[Any]]) -> Floats:
    day = 2 * np.pi * seconds / DAY_S
    hour = 2 * np.pi * seconds / HOUR_S
    odd = (seconds // HOUR_S) % 2
    return np.stack(
        [np.sin(day), np.cos(day), np.sin(2 * day), np.cos(2 * day), np.sin(hour), np.cos(hour), odd], axis=1
    )


def _local(rates: Floats, known: Ints, floor_rps: float, levels: Floats, days: Floats) -> Floats:
    """The newest values and levels. levels: shape (origins, 3), those of today, yesterday and the profile."""
    hour = rates[_hour_before(known)]
    parts = [
        hour[:, : -LAST - 1 : -1],
        hour[:, -5:].mean(axis=1, keepdims=True),
        hour[:, -15:].mean(axis=1, keepdims=True),
        hour.max(axis=1, keepdims=True),
        hour.min(axis=1, keepdims=True),
    ]
    logs = np.concatenate([np.log(np.concatenate(parts, axis=1) + floor_rps), levels[:, 1:]], axis=1)
    relative = (logs - levels[:, :1]).clip(-FARTHEST, FARTHEST)
    return np.concatenate([relative, days[:, None]], axis=1)

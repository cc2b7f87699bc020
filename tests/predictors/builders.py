"""Demand for tests of forecasters."""

from __future__ import annotations

import math

from mark.domain.demand import UNIT_S, Demand, Forecast
from mark.predictors.lstm.vanilla_settings import LstmSettings

DAY = 1440
SMALL = LstmSettings(hidden=8, epochs=3)


def ramp(units: int, end_at: float | None = None) -> Demand:
    """Unit i has mean i and maximum 2 i; it starts at 0 s unless `end_at` says otherwise."""
    means = tuple(float(i) for i in range(units))
    return Demand(
        end_at=units * UNIT_S if end_at is None else end_at,
        mean_rps=means,
        max_rps=tuple(2 * mean for mean in means),
    )


def daily_sine(units: int) -> Demand:
    """A noiseless day: mean between 20 and 100, the maximum a quarter higher."""
    means = tuple(60 - 40 * math.cos(2 * math.pi * i / DAY) for i in range(units))
    return Demand(end_at=units * UNIT_S, mean_rps=means, max_rps=tuple(1.25 * mean for mean in means))


def first_units(demand: Demand, units: int) -> Demand:
    """The demand as it was when only `units` had ended."""
    return Demand(
        end_at=demand.end_at - (len(demand) - units) * UNIT_S,
        mean_rps=demand.mean_rps[:units],
        max_rps=demand.max_rps[:units],
    )


def means(forecast: Forecast) -> tuple[float, ...]:
    """The means of a point forecast, shape (horizon,)."""
    assert all(len(row) == 1 for row in forecast.mean_rps)
    return tuple(row[0] for row in forecast.mean_rps)

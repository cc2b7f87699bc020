"""The naive and the seasonal naive forecaster, which learn nothing: the rates of a unit ago and of a day ago."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.demand import Demand, Forecast, point_forecast
from mark.ports import ForecasterSetup

DAY_S = 86_400.0
"""The season: load that people make repeats by the day."""


class LastValue:
    """The last unit's mean and maximum, over the whole horizon."""

    def __init__(self, setup: ForecasterSetup) -> None:
        """Take the setup that every forecaster is given; nothing in it is needed."""
        del setup

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """Rates of the `horizon` units from `history.end_at` on; without history zeros, and `degraded`."""
        if not len(history):
            return without_history("last-value", history, horizon)
        one = point_forecast(
            history.end_at, mean_rps=history.mean_rps[-1:], max_rps=history.max_rps[-1:], source="last-value"
        )
        return replace(one, mean_rps=one.mean_rps * horizon, max_rps=one.max_rps * horizon)


class SeasonalNaive:
    """The value of the same unit one day earlier; where the history does not reach back so far, the last value."""

    def __init__(self, setup: ForecasterSetup) -> None:
        """Take the setup that every forecaster is given; nothing in it is needed."""
        del setup

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """Rates of the `horizon` units from `history.end_at` on; `degraded` says how many lack a day of history.

        Under a day of history the later leads can already be known: with 1,430 units the lead of 11 min falls on
        the first of them. Beyond a day ahead the last day repeats.
        """
        if not len(history):
            return without_history("seasonal-naive", history, horizon)
        season = round(DAY_S / history.unit_s)
        day_before = [len(history) - season + lead % season for lead in range(horizon)]
        rows = [row if row >= 0 else -1 for row in day_before]
        blind = sum(row < 0 for row in day_before)
        return point_forecast(
            history.end_at,
            mean_rps=tuple(history.mean_rps[row] for row in rows),
            max_rps=tuple(history.max_rps[row] for row in rows),
            source="seasonal-naive",
            degraded=f"under a day of history, last value for {blind} of {horizon} units" if blind else None,
        )


def without_history(forecaster: str, history: Demand, horizon: int) -> Forecast:
    """The forecast without any history: zeros, marked as `degraded`."""
    zeros = (0.0,) * horizon
    return point_forecast(
        history.end_at, mean_rps=zeros, max_rps=zeros, source=forecaster, degraded="no history, zeros"
    )

"""A replay's forecasts, hours of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mark.domain.demand import UNIT_S, Demand, Forecast, point_forecast
from mark.simulator.forecast_ahead import AHEAD, asked_ahead

KNOWN = 30
UNITS = KNOWN + 2 * AHEAD + 10


class Summing:
    """Forecasts the sum of all that it is shown; counts how often it is asked."""

    def __init__(self) -> None:
        self.batches = self.alone = 0

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        self.alone += 1
        return self._answer(history, len(history), horizon)

    def forecast_each(self, load: Demand, ends: Sequence[int], horizon: int) -> list[Forecast]:
        self.batches += 1
        return [self._answer(load, end, horizon) for end in ends]

    def _answer(self, load: Demand, end: int, horizon: int) -> Forecast:
        return point_forecast(
            load.end_at - (len(load) - end) * UNIT_S,
            mean_rps=(sum(load.mean_rps[:end]),) * horizon,
            max_rps=(sum(load.max_rps[:end]),) * horizon,
            source="summing",
        )


def demand(units: int) -> Demand:
    rates = tuple(float(unit % 7) for unit in range(units))
    return Demand(end_at=units * UNIT_S, mean_rps=rates, max_rps=tuple(2 * rate for rate in rates))


COMING = demand(UNITS).last(UNITS - KNOWN)


def test_a_run_gets_the_forecaster_s_own_answers_in_a_few_batches() -> None:
    forecaster, alone = Summing(), Summing()
    ahead = asked_ahead(forecaster, COMING, UNIT_S)

    for units in range(KNOWN, UNITS + 1):
        for horizon in (60, 60):  # a plan may be due twice within a unit
            assert ahead.forecast(demand(units), horizon) == alone.forecast(demand(units), horizon)
    assert (forecaster.batches, forecaster.alone) == (3, 0)


def test_another_load_than_the_run_s_is_asked_for_as_usual() -> None:
    forecaster = Summing()
    ahead = asked_ahead(forecaster, COMING, UNIT_S)

    for units in range(KNOWN, KNOWN + 5):
        usual = demand(units)
        usual = replace(usual, mean_rps=(9.0, *usual.mean_rps[1:])) if units > KNOWN + 2 else usual
        assert ahead.forecast(usual, 60) == Summing().forecast(usual, 60)
    assert (forecaster.batches, forecaster.alone) == (1, 2)


def test_where_plans_are_rarer_than_units_nothing_is_asked_ahead() -> None:
    forecaster = Summing()

    assert asked_ahead(forecaster, COMING, 5 * UNIT_S) is forecaster

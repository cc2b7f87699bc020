"""A forecaster that learned a trace's clock forecasts live what it forecasts in a replay of that trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.demand import UNIT_S, Demand, DemandUnit, Forecast, point_forecast
from mark.live.forecasting.own_clock import OwnClock

PAST = Demand(end_at=7200.0, mean_rps=(5.0, 6.0), max_rps=(7.0, 8.0))
HOUR_S = 3600.0


class ByTheClock:
    """Forecasts how far into the hour each unit is, and remembers the histories that it was shown."""

    def __init__(self) -> None:
        self.shown: list[Demand] = []

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        self.shown.append(history)
        rates = tuple((history.end_at + UNIT_S * n) % HOUR_S for n in range(horizon))
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="clock")


@given(began_at=st.floats(1.7e9, 1.9e9), late_s=st.floats(-20.0, 20.0), minutes=st.integers(0, 500))
def test_the_same_minutes_after_the_start_get_the_forecast_of_the_replay(
    began_at: float, late_s: float, minutes: int
) -> None:
    replayed, live = ByTheClock(), ByTheClock()
    moved = OwnClock(live, PAST)
    moved.begin(began_at + late_s)  # a controller that takes over knows the start by its first tick
    here, there = replace(PAST, end_at=began_at), PAST
    for minute in range(minutes % 5):
        for_both = DemandUnit(start_at=0.0, count=0, mean_rps=float(minute), max_rps=minute + 1.0)
        here = here.followed_by(replace(for_both, start_at=here.end_at), 10_000)
        there = there.followed_by(replace(for_both, start_at=there.end_at), 10_000)
    here, there = (replace(one, end_at=one.end_at + UNIT_S * minutes) for one in (here, there))
    found, expected = moved.forecast(here, 8), replayed.forecast(there, 8)
    assert live.shown == replayed.shown
    assert found.start_at == here.end_at
    assert replace(found, start_at=expected.start_at) == expected


@pytest.mark.parametrize("made", ["no forecast", "one of another time"])
def test_what_was_not_asked_for_is_left_for_the_controller_to_refuse(made: str) -> None:
    late = point_forecast(1.0, mean_rps=(1.0,), max_rps=(1.0,), source="late")

    class Wrong:
        def forecast(self, _history: Demand, _horizon: int) -> Forecast:
            return None if made == "no forecast" else late  # type: ignore[return-value]

    moved = OwnClock(Wrong(), PAST)
    moved.begin(1e9)
    assert moved.forecast(replace(PAST, end_at=1e9), 1) == (None if made == "no forecast" else late)

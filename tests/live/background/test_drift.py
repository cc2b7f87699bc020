"""Drift is a ratio of losses: of no unit, found from observations alone, and blind to a fallback's forecasts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.state import Observation
from mark.domain.demand import UNIT_S, DemandUnit, Forecast, point_forecast
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orders import ForecastFailed
from mark.live.forecasting.drift import (
    Drift,
    DriftPolicy,
    KeptForecast,
    UnitLoss,
    pinball_loss,
    update_drift,
    worsening,
)

POLICY = DriftPolicy(lead_units=3, recent_units=5, reference_units=20, least_units=10)
START_AT = 1_700_000_000.0
RATES = st.integers(1, 10_000).map(float)


def forecast(number: int, rate: float, horizon: int = 6) -> Forecast:
    return point_forecast(
        START_AT + number * UNIT_S, mean_rps=(0.0,) * horizon, max_rps=(rate,) * horizon, source="test"
    )


def tick(number: int, rate: float, said: float | None, *, failed: bool = False) -> Observation:
    """The tick at the end of unit `number - 1`, which had this rate; `said` is forecast for all that follow."""
    now = START_AT + number * UNIT_S
    fact = ForecastFailed(forecaster="test", error="late", at=now)
    return Observation(
        now=now,
        fleet=FleetView(),
        demand=DemandUnit(start_at=now - UNIT_S, count=0, mean_rps=0.0, max_rps=rate),
        facts=(fact,) if failed else (),
        forecast=None if said is None else forecast(number, said),
    )


def folded(ticks: list[Observation], start: Drift | None = None) -> Drift:
    drift = start or Drift()
    for seen in ticks:
        drift = update_drift(drift, seen, POLICY)
    return drift


def ticks_of(rates: list[float], says: list[float]) -> list[Observation]:
    return [tick(number, rate, said) for number, (rate, said) in enumerate(zip(rates, says, strict=True))]


def test_a_unit_is_judged_by_what_was_said_of_it_at_the_lead() -> None:
    says = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    drift = folded(ticks_of([100.0] * 6, says))

    # said at tick n of the units n .. n + 5: unit n + 2 is the third ahead, and ends at tick n + 3
    assert drift.losses == tuple(UnitLoss(loss=0.5 * (100.0 - said), max_rps=100.0) for said in (10, 20, 30))
    assert [said.max_rps for said in drift.forecasts] == [(40.0,), (50.0,), (60.0,)]


@pytest.mark.parametrize(("came", "loss"), [(5.0, (0.5 * 5 + 0.1 * 15) / 2), (15.0, (0.5 * 5 + 0.1 * 5) / 2),
                                           (30.0, (0.5 * 20 + 0.9 * 10) / 2)])  # fmt: skip
def test_pinball_loss_weighs_too_low_by_the_level_and_too_high_by_the_rest(came: float, loss: float) -> None:
    said = KeptForecast(start_at=0.0, levels=(0.5, 0.9), max_rps=(10.0, 20.0))
    assert pinball_loss(said, came) == pytest.approx(loss)


def errors(usual: float, late: float) -> Drift:
    """A day of losses of this size, then a recent span of others; the load is 100 throughout."""
    judged = [UnitLoss(loss=usual, max_rps=100.0)] * POLICY.reference_units
    return Drift(losses=(*judged, *[UnitLoss(loss=late, max_rps=100.0)] * POLICY.recent_units))


@given(usual=st.floats(0.01, 100.0), times=st.floats(0.0, 50.0))
def test_it_is_how_many_times_their_usual_size_losses_are(usual: float, times: float) -> None:
    assert worsening(errors(usual, usual * times), POLICY) == pytest.approx(times)


@given(
    rates=st.lists(RATES, min_size=30, max_size=60), scale=st.sampled_from((0.01, 0.3, 7.0, 1e3)), data=st.data()
)
def test_the_scale_of_the_load_is_irrelevant(rates: list[float], scale: float, data: st.DataObject) -> None:
    says = data.draw(st.lists(RATES, min_size=len(rates), max_size=len(rates)))
    found = worsening(folded(ticks_of(rates, says)), POLICY)
    scaled = worsening(folded(ticks_of([scale * r for r in rates], [scale * s for s in says])), POLICY)

    assert (found is None) == (scaled is None)  # without a loss in the reference there is no ratio
    assert (found or 0.0) == pytest.approx(scaled or 0.0, rel=1e-6)


@given(rates=st.lists(RATES, min_size=1, max_size=60), cut=st.integers(0, 60))
def test_memory_is_bounded_and_goes_on_where_it_stopped(rates: list[float], cut: int) -> None:
    seen = ticks_of(rates, rates)
    drift = folded(seen)

    assert len(drift.losses) <= POLICY.recent_units + POLICY.reference_units
    assert len(drift.forecasts) <= POLICY.lead_units
    assert folded(seen[cut:], folded(seen[:cut])) == drift


def test_a_fallbacks_forecast_is_not_judged_nor_one_that_is_too_short() -> None:
    seen = [tick(number, 100.0, 0.0, failed=True) for number in range(10)]
    assert folded(seen) == Drift()
    short = replace(seen[0], facts=(), forecast=forecast(0, 1.0, horizon=2))
    assert folded([short]) == Drift()


def test_a_newer_forecast_of_the_same_unit_counts_and_a_unit_nobody_forecast_does_not() -> None:
    first, again = tick(0, 100.0, 10.0), replace(tick(0, 100.0, 90.0), demand=None)
    later = [tick(number, 100.0, None) for number in range(1, 8)]
    drift = folded([first, again, *later])

    assert drift == Drift(losses=(UnitLoss(loss=5.0, max_rps=100.0),))


def test_it_says_nothing_before_enough_was_judged_or_where_nothing_came() -> None:
    enough = POLICY.recent_units + POLICY.least_units
    judged = (UnitLoss(loss=1.0, max_rps=10.0),) * enough
    assert worsening(Drift(losses=judged[1:]), POLICY) is None
    assert worsening(Drift(losses=judged), POLICY) == pytest.approx(1.0)
    assert worsening(Drift(losses=(UnitLoss(loss=0.0, max_rps=0.0),) * enough), POLICY) is None

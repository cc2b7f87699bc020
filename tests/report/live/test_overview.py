"""The models at a glance: order, sums and states, as the terminal, the page and the document have them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.report.live.overview import make_overview, model_state, says_mean
from mark.report.live.service_status import (
    ArrivalRates,
    FleetStatus,
    ModelState,
    ModelStatus,
    OverheadStatus,
)
from tests.report.live.fakes import busy_model, empty_model, instance, interrupted_model

PLANNED = replace(empty_model(), policy="hedged")
ASKED = replace(busy_model(), fleet=FleetStatus())


def lately(model: ModelStatus, share: float) -> ModelStatus:
    """The model, of late with that share in time."""
    return replace(model, objective=replace(model.objective, attained_lately=share))


@pytest.mark.parametrize(
    ("model", "state"),
    [
        (empty_model(), ModelState.STARTING),
        (PLANNED, ModelState.UNASKED),
        (replace(PLANNED, fleet=FleetStatus(planned={"c5.large:spot": 1})), ModelState.SCALING_UP),
        (
            replace(
                ASKED,
                fleet=FleetStatus(
                    planned={"c5.large:spot": 1},
                    requested={"c5.large:spot": 1},
                    observed=(instance(1, "c5.large:spot"),),
                ),
            ),
            ModelState.SERVING,
        ),
        (busy_model(), ModelState.SCALING_UP),
        (ASKED, ModelState.SERVING),
        (replace(ASKED, rates=ArrivalRates()), ModelState.IDLE),
        (interrupted_model(), ModelState.MISSES),
        (lately(interrupted_model(), 0.99), ModelState.LOSING_SPOT),  # a bad hour is long ago
        (lately(ASKED, 0.97), ModelState.MISSES),
        (replace(interrupted_model(), objective=busy_model().objective), ModelState.LOSING_SPOT),
        (
            replace(ASKED, fleet=FleetStatus(observed=(instance(1, "c5.large:spot", state="broken"),))),
            ModelState.BROKEN,
        ),
    ],
)
def test_trouble_comes_before_change_and_change_before_rest(model: ModelStatus, state: ModelState) -> None:
    assert model_state(model) is state


def test_what_an_hour_costs_is_not_said_in_the_first_minute() -> None:
    early, later = empty_model(), replace(empty_model("later"), usd_per_hour=1.0)
    assert make_overview([later], OverheadStatus(usd_per_hour=0.5)).usd_per_hour == 1.5
    assert make_overview([later, early], OverheadStatus(usd_per_hour=0.5)).usd_per_hour is None
    assert make_overview([later], OverheadStatus()).usd_per_hour is None
    assert not says_mean(59.0)
    assert says_mean(60.0)


@given(st.lists(st.tuples(st.text(max_size=3), st.floats(0, 100)), max_size=20), st.floats(0, 10))
def test_the_dearest_comes_first_and_overhead_counts_once(spent: list[tuple[str, float]], shared: float) -> None:
    models = [replace(empty_model(name), usd_per_hour=usd) for name, usd in spent]
    found = make_overview(models, OverheadStatus(usd_per_hour=shared))
    assert sorted(row.model for row in found.rows) == sorted(name for name, _ in spent)
    assert [row.usd_per_hour for row in found.rows] == sorted((usd for _, usd in spent), reverse=True)
    assert found.usd_per_hour == pytest.approx(shared + sum(usd for _, usd in spent))
    assert make_overview(models[::-1], OverheadStatus(usd_per_hour=shared)) == found

"""The bound on savings: the plan that it spares the search for is the one that the search finds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.demand import Demand, Forecast
from mark.domain.plan import Backup, PlanRequest
from mark.planner.hedged import plan_hedged
from mark.planner.hedging.rates import expect_rates, expected_cases
from mark.planner.hedging.savings_bound import is_surely_empty
from tests.planner.builders import SLO, offering

RATES = st.floats(0.0, 30.0)
LEVELS = (0.1, 0.5, 0.9)


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Some loads that pay for an instance, and some that do not, at prices of Lambda near the edge."""
    units = draw(st.integers(1, 12))
    rows = tuple(tuple(sorted(draw(st.lists(RATES, min_size=3, max_size=3)))) for _ in range(units))
    peak = draw(st.floats(1.0, 20.0))
    forecast = Forecast(
        start_at=0.0,
        mean_rps=rows,
        max_rps=tuple(tuple(peak * rate for rate in row) for row in rows),
        quantiles=LEVELS,
    )
    offerings = tuple(
        replace(
            offering(f"type-{n}", rps=draw(st.floats(0.5, 60.0)), usd_per_hour=draw(st.floats(0.01, 1.0))),
            launch_usd=draw(st.sampled_from((0.0, 0.001, 0.02))),
            boot_s=draw(st.sampled_from((30.0, 150.0))),
        )
        for n in range(draw(st.integers(0, 3)))
    )
    means = tuple(draw(st.lists(RATES, max_size=90)))
    standby = draw(st.sampled_from((None, offering("standby", rps=5.0, usd_per_hour=0.05))))
    return PlanRequest(
        now=0.0,
        history=Demand(end_at=0.0, mean_rps=means, max_rps=tuple(peak * rate for rate in means)),
        forecast=forecast,
        offerings=offerings,
        running=draw(st.sampled_from(((), (("type-0:on-demand", 1),)))) if offerings else (),
        slo=SLO,
        lead_units=draw(st.integers(0, 5)),
        refused=draw(st.sampled_from(((), ("type-0:on-demand",)))),
        backup=Backup(
            lambda_usd=draw(st.floats(1e-7, 1e-4)),
            standby=standby,
            asleep_usd_per_hour=0.001,
            standbys=draw(st.sampled_from((0, 0, 0, 2))) if standby else 0,
        ),
    )


@given(requests())
def test_the_plan_is_the_one_that_the_search_finds(request: PlanRequest) -> None:
    assert plan_hedged(replace(request, explained=False)) == plan_hedged(request)


@given(requests())
def test_no_table_carries_more_than_is_expected(request: PlanRequest) -> None:
    cases, table = expected_cases(request.forecast), expect_rates(request.forecast, wait_s=0.3)
    assert (table.carried <= cases.mean_rps(60.0)[:, None] * (1.0 + 1e-9)).all()
    for unit, carried in enumerate(table.carried):
        assert cases.carried_at_most(unit, unit_s=60.0, wait_s=0.3) == carried[-1]


def test_it_holds_for_a_little_load_and_not_for_one_that_pays_nor_beside_an_instance() -> None:
    little = Forecast(start_at=0.0, mean_rps=((1.0,),) * 60, max_rps=((3.0,),) * 60)
    rented = offering(rps=50.0, usd_per_hour=0.085)
    request = PlanRequest(
        now=0.0,
        history=Demand(end_at=0.0, mean_rps=(), max_rps=()),
        forecast=little,
        offerings=(rented,),
        running=(),
        slo=SLO,
        backup=Backup(lambda_usd=20e-6),
    )
    assert is_surely_empty(request, expected_cases(little))
    assert not is_surely_empty(replace(request, running=((rented.name, 1),)), expected_cases(little))
    much = replace(little, mean_rps=((20.0,),) * 60, max_rps=((20.0,),) * 60)
    assert not is_surely_empty(replace(request, forecast=much), expected_cases(much))

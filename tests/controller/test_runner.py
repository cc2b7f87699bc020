"""One tick over a small world: ports are read, failures become facts, orders are written down before they go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from mark.controller.limits.quotas import SharedQuotas
from mark.controller.plan_request import plan_fleet
from mark.controller.policy import ControllerPolicy
from mark.controller.recovery import Recovered
from mark.controller.runner import Controller, check_forecast
from mark.controller.state import Decision, Observation, State
from mark.domain.demand import Demand, DemandUnit, Forecast, point_forecast
from mark.domain.errors import PlanInfeasible
from mark.domain.fleet.instances import FleetView, Instance
from mark.domain.fleet.orders import (
    Fact,
    ForecastFailed,
    Launch,
    LaunchRefused,
    Order,
    PlanFailed,
    RefusalCause,
)
from mark.domain.load.announced_events import AnnouncedEvent
from mark.domain.models.objective import SloWindow
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import VcpuQuota
from tests.controller.builders import POLICY, SMALL, instances, launched, request_at, unit
from tests.planner.builders import offering

HISTORY = Demand(end_at=0.0, mean_rps=(30.0,), max_rps=(30.0,))


@dataclass
class World:
    """Clock, cloud, data plane, forecaster and journal in one, moved by the test."""

    at: float = 0.0
    fleet: tuple[Instance, ...] = ()
    happened: list[Fact] = field(default_factory=list)
    rate: float = 30.0
    warm: int = 0
    error: BaseException | None = None
    log: list[object] = field(default_factory=list)
    ended: DemandUnit | None = None

    def now(self) -> float:
        return self.at

    def observe(self) -> FleetView:
        return FleetView(instances=self.fleet)

    def drain_facts(self) -> tuple[Fact, ...]:
        facts, self.happened = tuple(self.happened), []
        return facts

    def acknowledge(self) -> None:
        self.log.append("acknowledged")

    def submit(self, order: Order) -> None:
        self.log.append(order)

    def next_unit(self) -> DemandUnit | None:
        return self.ended

    def take_slo_window(self) -> SloWindow | None:
        return None

    def lambda_warm(self) -> int:
        return self.warm

    def recent_rps(self) -> tuple[float, ...]:
        return (1.0, 2.0)

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        if self.error is not None:
            raise self.error
        rates = (self.rate,) * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="world")

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self.log.append((before, seen, decision))

    @property
    def seen(self) -> list[Observation]:
        return [entry[1] for entry in self.log if isinstance(entry, tuple)]


class Last:
    def forecast(self, history: Demand, horizon: int) -> Forecast:
        rates = history.max_rps[-1:] * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="last")


def controller(world: World, **changes: object) -> Controller:
    return controller_of(world, replace(POLICY, offerings=(SMALL,), **changes))  # type: ignore[arg-type]


def controller_of(world: World, policy: ControllerPolicy, **ports: Any) -> Controller:
    """One whose ports are all `world`, but for those that are named."""
    given: dict[str, Any] = {"fallback": Last(), "history": HISTORY, **ports}
    return Controller(
        policy=policy, clock=world, cloud=world, data_plane=world, forecaster=world, journal=world, **given
    )


def test_it_knows_what_the_last_tick_saw() -> None:
    world = World(fleet=instances(2), warm=19)
    made = controller(world)
    made.tick()
    assert (len(made.fleet), made.lambda_warm) == (2, 19)


def test_a_tick_is_written_down_before_its_orders_are_sent_and_its_facts_are_acknowledged() -> None:
    world = World()
    decision = controller(world).tick()
    assert isinstance(world.log[0], tuple)
    assert tuple(world.log[1:]) == (*decision.orders, "acknowledged")
    assert launched(decision.orders)[SMALL.name] >= 3
    assert world.seen[0].recent_rps == (1.0, 2.0)


def test_the_accounts_quotas_are_written_down_when_they_change() -> None:
    old, new = ((VcpuQuota(family="standard", market=Market.ON_DEMAND, vcpus=vcpus),) for vcpus in (4.0, 64.0))
    world, told = World(), [None, old, new, new, old]
    policy = replace(POLICY, offerings=(SMALL,), quotas=old)
    made = controller_of(world, policy, quotas=iter(told).__next__)
    for _ in told:
        made.tick()
    assert [seen.quotas for seen in world.seen] == [None, None, new, None, old]


def test_models_plan_within_what_the_others_leave_of_the_quotas_and_a_new_leader_knows_it_at_once() -> None:
    """Twenty-four vCPUs of two each, where one model wants more than half: what it asked for counts at once."""
    item = replace(SMALL, instance_type=replace(SMALL.instance_type, name="c5.large", vcpus=2))
    quotas = (VcpuQuota(family="standard", market=Market.ON_DEMAND, vcpus=24.0),)

    def made(name: str, world: World, shared: SharedQuotas, recovered: Recovered | None = None) -> Controller:
        return controller_of(
            world,
            replace(POLICY, offerings=(item,), quotas=quotas),
            recovered=recovered,
            quotas=lambda: shared.left_for(name, quotas),
            took=partial(shared.note, name),
        )

    shared, worlds = SharedQuotas((item,)), {name: World(rate=80.0) for name in ("a", "b")}
    both = [made(name, world, shared) for name, world in worlds.items()]
    first, second = (launched(one.tick().orders)[item.name] for one in both)
    assert first + second == 12
    assert first > second > 0
    (seen,) = worlds["b"].seen
    assert seen.quotas is not None
    assert [one.vcpus for one in seen.quotas] == [24.0 - 2.0 * first]

    state = both[0].state
    recovered = Recovered(state=state, fleet=FleetView(), first_at=0.0, planned_at=0.0, units=(), unseen=())
    later = SharedQuotas((item,))
    made("a", World(), later, recovered)
    assert later.left_for("b", quotas) == seen.quotas


def test_it_plans_once_a_period_and_at_once_after_a_refusal() -> None:
    world = World()
    made = controller(world)
    made.tick()
    for at in (1.0, 59.9):
        world.at = at
        made.tick()
    assert [seen.plan is not None for seen in world.seen] == [True, False, False]
    world.at = 59.95
    world.happened = [LaunchRefused(token="t1-1", offering="other", count=1, cause=RefusalCause.CAPACITY, at=59.0)]
    made.tick()
    world.at = 60.0
    made.tick()
    assert [seen.plan is not None for seen in world.seen] == [True, False, False, True, True]


def test_history_grows_by_the_units_that_end() -> None:
    world = World(error=ValueError("blind"))
    made = controller(world)
    world.ended = replace(unit(70.0), start_at=0.0)
    made.tick()
    (seen,) = world.seen
    assert seen.forecast is not None
    assert (seen.forecast.source, seen.forecast.start_at, seen.forecast.max_at(0.5)[0]) == ("last", 60.0, 70.0)


@pytest.mark.parametrize(
    ("error", "said"),
    [(SystemExit(3), "it called exit(3)"), (SystemExit(), "it called exit()"),
     (ValueError("kaboom\nsecond  line"), "ValueError: kaboom second line"), (ValueError(), "ValueError")],
)  # fmt: skip
def test_what_a_forecaster_raised_is_one_line_even_an_exit(error: BaseException, said: str) -> None:
    world = World(error=error)
    controller(world).tick()
    (fact,) = world.seen[0].facts
    assert isinstance(fact, ForecastFailed)
    assert fact.error == said
    assert world.seen[0].plan is not None


def test_a_plan_that_fails_is_a_fact_and_the_last_plan_stays() -> None:
    world = World()
    slow = offering("small", rps=10.0, latency_s=0.5)
    made = controller(world)
    first = made.tick()
    made.policy = replace(made.policy, offerings=(slow,))
    world.at = 60.0
    second = made.tick()
    (fact,) = world.seen[1].facts
    assert isinstance(fact, PlanFailed)
    assert world.seen[1].plan is None
    assert second.state.plan == first.state.plan


def test_what_was_asked_for_is_not_asked_for_again() -> None:
    world = World()
    made = controller(world)
    made.tick()
    token = next(order.token for order in world.log if isinstance(order, Launch))
    world.fleet = instances(2, token=token)
    world.at = 60.0
    assert made.tick().orders == ()
    running = made.state.requested
    assert running[0].seen == 2
    before, seen, _ = [entry for entry in world.log if isinstance(entry, tuple)][1]
    assert (len(before), len(seen.fleet)) == (0, 2)


def test_a_forecast_that_no_cloud_could_serve_is_no_plan() -> None:
    absurd = point_forecast(0.0, mean_rps=(1e12,) * 60, max_rps=(1e12,) * 60, source="test")
    asked = request_at(
        State(),
        Observation(now=0.0, fleet=FleetView()),
        POLICY,
        history=Demand(end_at=0.0, mean_rps=(), max_rps=()),
        forecast=absurd,
    )
    with pytest.raises(PlanInfeasible, match="more than 100,000 instances; check the forecast"):
        plan_fleet(asked, POLICY)


@pytest.mark.parametrize(
    ("rows", "levels"),
    [
        (((1.0, 2.0),), (0.9, 0.5)),
        (((1.0, 2.0),), (0.5, 0.5)),
        (((1.0, 2.0),), (0.5, 1.0)),
        (((),), ()),
        (((float("nan"),),), (0.5,)),
        (((-1.0,),), (0.5,)),
    ],
)
def test_levels_that_do_not_rise_and_rates_that_are_none_are_refused(
    rows: tuple[tuple[float, ...], ...], levels: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=r"quantile levels do not rise|not finite"):
        check_forecast(Forecast(start_at=0.0, mean_rps=rows, max_rps=rows, quantiles=levels), HISTORY, 1)


def test_a_point_forecast_that_is_no_number_is_not_made_a_zero() -> None:
    made = point_forecast(0.0, mean_rps=(float("nan"),), max_rps=(-1.0,), source="")

    assert made.max_rps == ((0.0,),)
    with pytest.raises(ValueError, match="not finite"):
        check_forecast(made, HISTORY, 1)


def test_a_forecast_that_failed_is_known_until_the_next_one() -> None:
    world = World(error=ValueError("x"))
    made = controller(world)
    known = []
    for world.at in (0.0, 1.0):
        made.tick()
        known.append(made.forecast_failed)
    world.at, world.error = 60.0, None
    made.tick()
    known.append(made.forecast_failed)

    assert [fact.error if fact else None for fact in known] == ["ValueError: x", "ValueError: x", None]


def test_a_plan_and_the_journal_have_what_announced_events_expect() -> None:
    def event(name: str, factor: float) -> AnnouncedEvent:
        return AnnouncedEvent(name=name, at=600.0, until=1200.0, factor=factor)

    world = World()
    made = controller_of(
        world,
        replace(POLICY, offerings=(SMALL,), events=(event("of the settings", 2.0),)),
        events=lambda: (event("announced", 3.0), replace(event("later", 9.0), at=7200.0, until=7260.0)),
    )
    made.tick()
    (seen,) = world.seen
    assert seen.forecast is not None
    assert [one.name for one in seen.forecast.events] == ["of the settings", "announced"]
    assert {row[0] for row in seen.forecast.max_rps[10:20]} == {180.0}
    assert {row[0] for row in seen.forecast.max_rps[20:]} == {30.0}


def test_a_forecaster_is_not_shown_what_an_event_brought() -> None:
    shown: list[Demand] = []

    class Watching(World):
        def forecast(self, history: Demand, horizon: int) -> Forecast:
            shown.append(history)
            return super().forecast(history, horizon)

    world = Watching()
    event = AnnouncedEvent(name="over", at=-60.0, until=0.0, factor=3.0)
    made = replace(HISTORY, mean_rps=(30.0, 90.0), max_rps=(30.0, 90.0))
    runs = controller_of(world, replace(POLICY, offerings=(SMALL,), events=(event,)), history=made)
    runs.tick()
    assert shown[0].mean_rps == runs.usual_history.mean_rps == (30.0, 30.0)  # the latter is what is learned from
    assert runs.history.mean_rps == (30.0, 90.0)

"""Fleets, plans, observations and policies with defaults, and a controller that is stepped by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mark.controller.plan_request import plan_request
from mark.controller.policy import ControllerPolicy, MonitorPolicy, StandbyPolicy
from mark.controller.state import Decision, Observation, State
from mark.controller.step import apply_observation, step
from mark.domain.demand import Demand, DemandUnit, Forecast, point_forecast
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Drain, Fact, Launch, Order
from mark.domain.models.objective import SloWindow
from mark.domain.offerings.offering import Market, Offering
from mark.domain.plan import Plan, PlannedCount, PlanRequest
from tests.controller.state_rules import check_state
from tests.planner.builders import SLO, offering, overflow

SMALL = offering("small", rps=10.0)
LARGE = offering("large", rps=40.0, usd_per_hour=1.0)
SLEEPER = offering("sleeper", rps=5.0)
TWIN = replace(SMALL, usd_per_hour=1.0)
SPOT = replace(SMALL, market=Market.SPOT)
POLICY = ControllerPolicy(
    name="test",
    planner="greedy",
    slo=SLO,
    offerings=(SMALL, LARGE),
    overflow=overflow(),
    warm_lambda=False,
)
WITH_STANDBY = replace(POLICY, standby=StandbyPolicy(offering=SLEEPER, cover_share=0.5))
WATCHED = replace(POLICY, monitor=MonitorPolicy(offering=SMALL.name, cooldown_s=300.0))


def plan(small: int = 0, large: int = 0, *, required_rps: float | None = None, at: float = 300.0) -> Plan:
    counts = tuple(
        PlannedCount(
            offering=item.name, count=count, kept=0, usable_rps=item.capacity_rps, usd_per_hour=1.0, launch_usd=0.0
        )
        for item, count in ((LARGE, large), (SMALL, small))
        if count
    )
    capacity_rps = 10.0 * small + 40.0 * large
    needed = capacity_rps if required_rps is None else required_rps
    return Plan(at=at, counts=counts, required_rps=needed, capacity_rps=capacity_rps)


def instances(
    count: int,
    kind: Offering = SMALL,
    *,
    state: InstanceState = InstanceState.READY,
    token: str = "old",
    first: int = 1,
    role: Role = Role.SERVING,
    launched_at: float = 0.0,
) -> tuple[Instance, ...]:
    prefix = "s" if role is Role.STANDBY else "i"
    return tuple(
        Instance(
            id=f"{prefix}-{number:04d}",
            offering=kind.name,
            state=state,
            role=role,
            token=token,
            launched_at=launched_at,
        )
        for number in range(first, first + count)
    )


def unit(max_rps: float) -> DemandUnit:
    return DemandUnit(start_at=0.0, count=int(max_rps * 60), mean_rps=max_rps, max_rps=max_rps)


def forecast(rps: float) -> Forecast:
    return point_forecast(0.0, mean_rps=(rps,) * 60, max_rps=(rps,) * 60, source="test")


def seen(
    now: float,
    fleet: Sequence[Instance] = (),
    *,
    wanted: Plan | None = None,
    load: float | None = None,
    facts: tuple[Fact, ...] = (),
    slo: SloWindow | None = None,
    expected: Forecast | None = None,
    lambda_warm: int = 0,
) -> Observation:
    return Observation(
        now=now,
        fleet=FleetView(instances=tuple(sorted(fleet, key=lambda one: one.id))),
        demand=None if load is None else unit(load),
        forecast=expected,
        plan=wanted,
        facts=facts,
        slo=slo,
        lambda_warm=lambda_warm,
    )


def request_at(
    state: State, observed: Observation, policy: ControllerPolicy, *, history: Demand, forecast: Forecast
) -> PlanRequest:
    """The planner's request at a tick that saw this after that state."""
    known = apply_observation(state, observed, policy)
    return plan_request(known, observed, policy, history=history, forecast=forecast)


class Stepped:
    """`step` over one observation after the other."""

    def __init__(self, policy: ControllerPolicy = POLICY, state: State | None = None) -> None:
        self.policy = policy
        self.state = state or State()
        self.last = Decision(state=self.state)

    def see(self, observation: Observation) -> tuple[Order, ...]:
        self.last = step(self.state, observation, self.policy)
        self.state = self.last.state
        check_state(self.state)
        return self.last.orders


def launched(orders: Sequence[Order], role: Role = Role.SERVING) -> dict[str, int]:
    found: dict[str, int] = {}
    for order in orders:
        if isinstance(order, Launch) and order.role is role:
            found[order.offering] = found.get(order.offering, 0) + order.count
    return found


def drained(orders: Sequence[Order]) -> list[str]:
    return [name for order in orders if isinstance(order, Drain) for name in order.instances]

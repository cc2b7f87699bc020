"""A small world in virtual time that outlives its controllers: a cloud, a journal, a load, and a plug to pull.

What is kept across a crash is what really is: instances by the token of their launch, notices until somebody has
said that they were written down, the journal's lines, and what arrived. What a controller only had in memory goes
with it. All times of the cloud are fixed, and chosen so that nothing ends in the first seconds of a period: what
a next controller orders some seconds later still looks the same at the tick after.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

import numpy as np

from mark.controller.demand_units import counted_unit
from mark.controller.journal import Header, entry_line, header_line, read_journal
from mark.controller.policy import ControllerPolicy, StandbyPolicy
from mark.controller.recovery import recover
from mark.controller.runner import Controller
from mark.controller.state import Decision, Observation
from mark.domain.demand import UNIT_S, Demand, DemandUnit, Forecast, point_forecast
from mark.domain.errors import MarkError
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import (
    Drain,
    Fact,
    Launch,
    LaunchRefused,
    Order,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.domain.models.objective import SloWindow
from mark.domain.offerings.offering import Market
from tests.controller.builders import LARGE, POLICY, SLEEPER, SMALL
from tests.controller.state_rules import check_state

PERIOD_S = 60.0
BOOT_S, WAKE_S, DRAIN_S, NOTICE_S = 85.0, 80.0, 20.0, 140.0
LISTED_S = 2.0
"""How long it takes until a new instance is listed."""
LATEST_NOTICE_S, MOST_LATE_S = 8.0, 8.0
"""Notices come within the first 8 s of a period; a controller is missed for 8 s at most."""
SPOTS = tuple(replace(item, market=Market.SPOT, usd_per_hour=item.usd_per_hour / 3) for item in (SMALL, LARGE))
CRASHED = ControllerPolicy(
    name="crashed",
    planner="greedy",
    slo=POLICY.slo,
    offerings=SPOTS,
    fallbacks=(SMALL, LARGE),
    overflow=POLICY.overflow,
    standby=StandbyPolicy(offering=SLEEPER, cover_share=0.5),
    cooldown_s=180.0,
    horizon=15,
)
HISTORY = Demand(end_at=0.0, mean_rps=(20.0, 20.0), max_rps=(25.0, 25.0))
Answer = TypeVar("Answer")


class Crash(Exception):
    """The process is gone."""


class Fenced(MarkError):
    """Another controller has the lease."""


@dataclass(slots=True)
class Machine:
    """One instance; `due_at` is when it enters `then`."""

    id: str
    offering: str
    role: Role
    token: str
    launched_at: float
    state: InstanceState = InstanceState.PENDING
    due_at: float = math.inf
    then: InstanceState = InstanceState.READY
    terminates_at: float = math.inf


@dataclass(slots=True)
class World:
    """What outlives a controller. `rates`: requests/s of each minute; `warnings`: (at, share), to come.

    `refusals`: (from, to, offering, how many of a launch can be had). `lines`, `epoch`: the journal, and who may
    write it.
    """

    rates: tuple[float, ...]
    warnings: list[tuple[float, float]]
    refusals: tuple[tuple[float, float, str, int], ...]
    now: float = 0.0
    machines: dict[str, Machine] = field(default_factory=dict)
    launched: dict[str, tuple[int, int]] = field(default_factory=dict)
    made: int = 0
    notices: list[SpotWarned] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    epoch: int = 0

    def move_to(self, at: float) -> None:
        """Let time pass, and what is due happen."""
        self.now = at
        while self.warnings and self.warnings[0][0] <= at:
            self._warn(*self.warnings.pop(0))
        for machine in list(self.machines.values()):
            if machine.due_at <= at:
                machine.state, machine.due_at = machine.then, math.inf
            if machine.state is InstanceState.GONE or machine.terminates_at <= at:
                del self.machines[machine.id]

    def _warn(self, at: float, share: float) -> None:
        """Take the oldest of the spot instances that serve."""
        pool = [m for m in self.machines.values() if m.offering.endswith(":spot") and m.terminates_at == math.inf]
        ready = [m for m in pool if m.state is InstanceState.READY]
        for machine in ready[: math.ceil(share * len(ready))]:
            machine.terminates_at = at + NOTICE_S
            self.notices.append(SpotWarned(instance=machine.id, at=at, terminates_at=machine.terminates_at))

    def obtainable(self, offering: str, count: int) -> int:
        """How many of a launch can be had now."""
        for from_s, to_s, refused, most in self.refusals:
            if from_s <= self.now < to_s and refused == offering:
                return min(most, count)
        return count


class Life:
    """One controller's life: its ports, with whatever it only has in memory, and the plug.

    `crash_at` is the port call that does not begin (even) or does not return (odd): 2 * call + side.
    """

    def __init__(self, world: World, *, crash_at: int | None = None) -> None:
        self.world = world
        self.calls = 0
        self._crash_at = crash_at
        self._given: list[SpotWarned] = []
        self._refused: list[Fact] = []
        world.epoch += 1
        self._epoch = world.epoch
        header = Header(policy=CRASHED, catalogue="test", seed=0, history=HISTORY)
        if not world.lines:
            world.lines.append(header_line(header))
        recovered = recover(*read_journal(world.lines))
        history = recovered.history(HISTORY, 1000) if recovered else HISTORY
        self._next_unit_at = history.end_at
        self.controller = Controller(
            policy=CRASHED,
            clock=self,
            cloud=self,
            data_plane=self,
            forecaster=self,
            fallback=self,
            journal=self,
            history=history,
            recovered=recovered,
        )
        self._unseen: Sequence[Order] = recovered.unseen if recovered else ()

    def begin(self) -> None:
        """Take over: submit what the one before may have lost, and tick."""
        for order in self._unseen:
            self.submit(order)
        self._tick()

    def run_until(self, until: float) -> None:
        """Tick at each period's end up to `until`, and at once when something happened."""
        while True:
            noticed = self.world.warnings[0][0] if self.world.warnings else math.inf
            at = min(self.controller.next_at, noticed)
            if at > until:
                return
            self.world.move_to(at)
            self._tick()

    def _tick(self) -> None:
        check_state(self.controller.tick().state)
        while self._refused:
            check_state(self.controller.tick().state)

    # The ports. Whatever is read or done goes through `_call`.

    def _call(self, what: Callable[[], Answer]) -> Answer:
        place, self.calls = 2 * self.calls, self.calls + 1
        if self._crash_at == place:
            raise Crash
        answer = what()
        if self._crash_at == place + 1:
            raise Crash
        return answer

    def now(self) -> float:
        return self._call(lambda: self.world.now)

    def next_unit(self) -> DemandUnit | None:
        return self._call(self._unit)

    def take_slo_window(self) -> SloWindow | None:
        return self._call(lambda: None)

    def lambda_warm(self) -> int:
        return self._call(lambda: 1000)

    def recent_rps(self) -> tuple[float, ...]:
        return self._call(lambda: ())

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """The highest of the last three minutes goes on."""
        rates = (max(history.max_rps[-3:]),) * horizon
        return point_forecast(history.end_at, mean_rps=rates, max_rps=rates, source="test")

    def observe(self) -> FleetView:
        return self._call(self._fleet)

    def drain_facts(self) -> tuple[Fact, ...]:
        return self._call(self._facts)

    def acknowledge(self) -> None:
        self._call(self._forget)

    def submit(self, order: Order) -> None:
        self._call(lambda: self._do(order))

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self._call(lambda: self._write(entry_line(before, seen, decision)))

    def _write(self, line: bytes) -> None:
        if self.world.epoch != self._epoch:
            raise Fenced("another controller has the lease")
        self.world.lines.append(line)

    def _unit(self) -> DemandUnit | None:
        start_at = self._next_unit_at
        if self.world.now < start_at + UNIT_S:
            return None
        self._next_unit_at += UNIT_S
        rate = self.world.rates[round(start_at / UNIT_S) % len(self.world.rates)]
        return counted_unit(start_at, [round(5 * rate)] * 12, [1.0] * 12)

    def _fleet(self) -> FleetView:
        return FleetView(
            instances=tuple(
                Instance(
                    id=m.id,
                    offering=m.offering,
                    state=m.state,
                    role=m.role,
                    token=m.token,
                    launched_at=m.launched_at,
                    terminates_at=None if m.terminates_at == math.inf else m.terminates_at,
                )
                for m in sorted(self.world.machines.values(), key=lambda m: m.id)
                if self.world.now >= m.launched_at + LISTED_S
            )
        )

    def _facts(self) -> tuple[Fact, ...]:
        """A notice stays in the world until it is acknowledged, and each controller is given it once."""
        fresh = [notice for notice in self.world.notices if notice not in self._given]
        self._given += fresh
        refused, self._refused = self._refused, []
        return (*refused, *fresh)

    def _forget(self) -> None:
        self.world.notices = [notice for notice in self.world.notices if notice not in self._given]
        self._given = []

    def _do(self, order: Order) -> None:
        match order:
            case Launch():
                self._launch(order)
            case Drain() | StopStandby():
                for machine in self._named(order.instances):
                    self._leave(machine)
            case Terminate():
                for machine in self._named(order.instances):
                    del self.world.machines[machine.id]
            case StartStandby():
                for machine in self._named(order.instances):
                    if machine.state is InstanceState.STOPPED:
                        machine.state, machine.then = InstanceState.PENDING, InstanceState.READY
                        machine.due_at = self.world.now + WAKE_S
            case WarmLambda() | Withdraw():
                pass
            case _:
                assert_never(order)

    def _launch(self, order: Launch) -> None:
        """Once for each token; the answer to a second call is that to the first."""
        world = self.world
        if order.token not in world.launched:
            count = world.obtainable(order.offering, order.count)
            world.launched[order.token] = (order.count, count)
            for _ in range(count):
                world.made += 1
                machine = Machine(
                    id=f"i-{world.made:05d}",
                    offering=order.offering,
                    role=order.role,
                    token=order.token,
                    launched_at=world.now,
                    due_at=world.now + BOOT_S,
                )
                world.machines[machine.id] = machine
        asked, count = world.launched[order.token]
        assert asked == order.count, "a token stands for one order"
        if count < asked:
            self._refused.append(
                LaunchRefused(
                    token=order.token,
                    offering=order.offering,
                    count=asked - count,
                    cause=RefusalCause.CAPACITY,
                    at=world.now,
                )
            )

    def _leave(self, machine: Machine) -> None:
        """Serving ones end, standbys stop: at once while they boot, else once they are empty."""
        standby = machine.role is Role.STANDBY
        if machine.state is InstanceState.PENDING:
            machine.due_at = math.inf
            machine.state = InstanceState.STOPPED
            if not standby:
                del self.world.machines[machine.id]
        elif machine.state is InstanceState.READY:
            machine.state, machine.due_at = InstanceState.DRAINING, self.world.now + DRAIN_S
            machine.then = InstanceState.STOPPED if standby else InstanceState.GONE

    def _named(self, names: Sequence[str]) -> list[Machine]:
        return [self.world.machines[name] for name in names if name in self.world.machines]


@dataclass(frozen=True, slots=True)
class Standing:
    """What must agree: what is planned, what a controller believes to have, and what there is."""

    planned: dict[str, int]
    requested: Counter[tuple[str, Role]]
    there: Counter[tuple[str, Role]]


def standing(life: Life) -> Standing:
    """Where a controller and its world stand once the orders of a tick are done."""
    state, world = life.controller.state, life.world
    there = Counter[tuple[str, Role]]()
    for machine in world.machines.values():
        if _stays(machine):
            there[machine.offering, machine.role] += 1
    requested = Counter[tuple[str, Role]]()
    for item in state.requested:
        requested[item.offering, item.role] += item.count
    for instance in life.controller.fleet:
        if instance.id in world.machines and _stays(world.machines[instance.id]):
            requested[instance.offering, instance.role] += 1
    planned = {item.offering: item.count for item in state.plan.counts} if state.plan else {}
    return Standing(planned=planned, requested=requested, there=there)


def _stays(machine: Machine) -> bool:
    leaves = machine.terminates_at < math.inf or machine.state is InstanceState.DRAINING
    return machine.role is Role.STANDBY or not leaves


def drawn_world(seed: int) -> World:
    """Ten to twenty minutes of load, some notices and some refusals."""
    rng = np.random.default_rng(seed)
    minutes = int(rng.integers(8, 16))
    level, rates = 20.0, []
    for _ in range(minutes):
        level = float(np.clip(level * rng.choice([0.3, 0.7, 1.0, 1.0, 1.3, 2.5]), 2.0, 300.0))
        rates.append(round(level, 1))
    places = rng.choice(np.arange(2, minutes), size=int(rng.integers(0, 4)), replace=False)
    warnings = sorted(
        (PERIOD_S * int(place) + float(rng.integers(1, LATEST_NOTICE_S)), float(rng.choice([0.2, 0.4, 0.8])))
        for place in places
    )
    refusals = tuple(
        (
            PERIOD_S * int(at) - 1.0,
            PERIOD_S * int(at) + PERIOD_S * int(rng.integers(1, 4)) - 1.0,
            str(rng.choice([item.name for item in SPOTS])),
            int(rng.integers(0, 3)),
        )
        for at in rng.integers(0, minutes, size=int(rng.integers(0, 3)))
    )
    return World(rates=tuple(rates), warnings=warnings, refusals=refusals)

"""A world of shared instances in virtual time that outlives the leaders that place models on them.

What a crash leaves is what really is: instances, what the store holds, what agents have loaded, notices that
nobody has acknowledged. The rest, a leader's memory, goes with it. Calls that change something are counted; before
or after any of them the plug can be pulled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from mark.controller.hosts.placement_journal import (
    Decided,
    PlacementHeader,
    decided,
    placement_header_line,
    read_placements,
)
from mark.controller.hosts.sharing import Sharer
from mark.domain.billing.spending import SpendingLimit
from mark.domain.clock import ClockAnchor
from mark.domain.demand import Demand
from mark.domain.fleet.host_spec import HostSpec
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.lease import Lease
from mark.domain.fleet.member import Member, MemberState
from mark.domain.fleet.orders import Drain, Fact, Launch, Order, SpotWarned
from mark.domain.load.traffic import GatewayReport
from mark.domain.models.objective import ModelSpec, Slo
from mark.live.control.drivers.host_driver import HostDriver
from tests.planner.builders import offering, overflow
from tests.scenarios.crash_world import Crash

LOOK_S = 15.0
LISTED_S, BOOT_S, LOAD_S, DRAIN_S, NOTICE_S = 40.0, 90.0, 20.0, 20.0, 120.0
SLO = Slo(latency_s=0.6, target=0.98)
LARGE = offering("c5.large", rps=20.0, usd_per_hour=0.085)
"""Some six times the load of a model in a quiet hour: MODELS fill one, and twice as many requests a second one."""
MODELS = {"a": None, "b": overflow(), "c": None, "d": overflow(), "e": None, "f": overflow()}
"""Models, with Lambda and without."""


@dataclass(slots=True)
class Machine:
    """An instance, and what its agent has loaded: by model, since when it is there."""

    id: str
    run: str
    token: str
    launched_at: float
    drains_until: float = math.inf
    terminates_at: float = math.inf
    loaded_at: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class World:
    """What outlives a leader. rates: requests/s of each model from an instant on; limits: spending limits so."""

    rates: Mapping[float, Mapping[str, float]]
    notices_at: tuple[float, ...] = ()
    limits: Mapping[float, SpendingLimit] = field(default_factory=lambda: {0.0: SpendingLimit.NONE})
    now: float = 0.0
    machines: dict[str, Machine] = field(default_factory=dict)
    made: int = 0
    notices: list[SpotWarned] = field(default_factory=list)
    told: dict[str, HostSpec] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    epoch: int = 0

    def move_to(self, at: float) -> None:
        """Let time pass, and what is due happen."""
        for due in self.notices_at:
            if self.now < due <= at:
                victim = min(self.serving, key=lambda one: one.id)
                victim.terminates_at = due + NOTICE_S
                self.notices.append(SpotWarned(instance=victim.id, at=due, terminates_at=victim.terminates_at))
        self.now = at
        for machine in list(self.machines.values()):
            if min(machine.drains_until, machine.terminates_at) <= at:
                del self.machines[machine.id]
            elif machine.launched_at + BOOT_S <= at:
                told = {one.model for one in self.told.get(machine.id, HostSpec()).tenants}
                machine.loaded_at = {name: machine.loaded_at.get(name, at + LOAD_S) for name in sorted(told)}

    @property
    def staying(self) -> list[Machine]:
        return [one for one in self.machines.values() if min(one.drains_until, one.terminates_at) == math.inf]

    @property
    def serving(self) -> list[Machine]:
        return [one for one in self.staying if one.launched_at + BOOT_S <= self.now]

    def loaded(self, machine: Machine) -> list[str]:
        return sorted(name for name, at in machine.loaded_at.items() if at <= self.now)

    @property
    def seats(self) -> list[list[str]]:
        """Models that each instance holds, those that boot too."""
        return sorted(self.loaded(machine) for machine in self.staying)


def _since(steps: Mapping[float, Any], at: float) -> Any:
    return steps[max(since for since in steps if since <= at)]


class Life:
    """A leader's life. crash_at: the call that does not begin (even) or does not return (odd): 2 * call + side."""

    def __init__(self, world: World, *, crash_at: int | None = None) -> None:
        self.world, self.calls, self._crash_at = world, 0, crash_at
        world.epoch += 1
        self._run, self._known = f"run-{world.epoch}", set[str]()
        self._given: list[SpotWarned] = []
        self.header = PlacementHeader(
            policy="hedged", models=tuple(MODELS), market="on-demand", catalogue="", seed=1,
            start_at=world.now, run=self._run,
        )  # fmt: skip
        is_new = not world.lines
        if is_new:
            world.lines.append(placement_header_line(self.header))
        clock: Any = SimpleNamespace(now=lambda: world.now, anchor=ClockAnchor())
        store: Any = self
        self.driver = HostDriver(
            [
                Sharer(
                    model=ModelSpec(name=name, slo=SLO, memory_gib=1.0),
                    slo=SLO,
                    offerings=(LARGE,),
                    overflow=backup,
                )
                for name, backup in MODELS.items()
            ],
            store=store,
            lease=Lease(holder="c", epoch=world.epoch, ttl_s=3.0),
            clock=clock,
            cloud=store,
            journal=store,
            header=self.header,
            decided=Decided() if is_new else decided(*read_placements(world.lines)),
            loads={name: partial(self._load, name) for name in MODELS},
            spending_limit=lambda: _since(world.limits, world.now),
            began_at=0.0,
        )
        self.driver.begin()

    def run_until(self, until: float) -> None:
        """Look again and again."""
        while self.world.now < until:
            self.world.move_to(self.world.now + LOOK_S)
            self.driver.look()

    def _load(self, name: str) -> Any:
        rate = _since(self.world.rates, self.world.now)[name]
        whole = Demand(end_at=self.world.now, mean_rps=(rate,) * 60, max_rps=(rate,) * 60)
        return SimpleNamespace(whole=whole, shared_rps=())

    def _call(self, change: Callable[[], object]) -> None:
        place, self.calls = 2 * self.calls, self.calls + 1
        if self._crash_at == place:
            raise Crash
        change()
        if self._crash_at == place + 1:
            raise Crash

    # The store.

    @property
    def leases(self) -> Any:
        return SimpleNamespace(renew=lambda _: None)

    def hosts(self) -> dict[str, HostSpec]:
        return dict(self.world.told)

    def members(self) -> Iterator[Member]:
        for machine in self.world.machines.values():
            told = {one.model: one for one in self.world.told.get(machine.id, HostSpec()).tenants}
            for name in self.world.loaded(machine):
                if name in told:
                    yield Member(
                        instance=machine.id, model=name, offering=LARGE.name, role=Role.SERVING, host="h", port=1,
                        state=MemberState.READY, max_batch=1, batch_s=(0.05,), capacity_rps=20.0, wire_key="k",
                        share_rps=told[name].share_rps,
                    )  # fmt: skip

    def put_host(self, instance: str, spec: HostSpec) -> None:
        self._call(lambda: self.world.told.update({instance: spec}))

    def forget_host(self, instance: str) -> None:
        self._call(lambda: self.world.told.pop(instance))

    def versions(self, _model: str) -> None:
        return None

    def status(self, name: str) -> Any:
        return self.world.documents.get(name)

    def put_status(self, name: str, document: Mapping[str, Any]) -> None:
        """Who writes nothing new does not count."""
        before = self.world.documents.get(name, {})
        if {**before, "at": 0.0} == {**document, "at": 0.0}:
            self.world.documents[name] = document
        else:
            self._call(lambda: self.world.documents.update({name: document}))

    def report(self, report: GatewayReport) -> None:
        pass

    # The journal.

    size_bytes = 0

    def write(self, line: bytes) -> None:
        self._call(lambda: self.world.lines.append(line))

    # The cloud: who launched an instance knows it at once, others once it is listed.

    def observe(self) -> FleetView:
        world = self.world
        return FleetView(
            instances=tuple(
                Instance(
                    id=one.id,
                    offering=LARGE.name,
                    role=Role.SERVING,
                    state=self._state(one),
                    token=one.token if one.run == self._run else f"{one.run}/{one.token}",
                    launched_at=one.launched_at,
                    terminates_at=None if one.terminates_at == math.inf else one.terminates_at,
                )
                for one in sorted(world.machines.values(), key=lambda one: one.id)
                if one.id in self._known or world.now >= one.launched_at + LISTED_S
            )
        )

    def _state(self, machine: Machine) -> InstanceState:
        if machine.drains_until < math.inf:
            return InstanceState.DRAINING
        is_there = machine.launched_at + BOOT_S <= self.world.now
        return InstanceState.READY if is_there else InstanceState.PENDING

    def drain_facts(self) -> Sequence[Fact]:
        fresh = [notice for notice in self.world.notices if notice not in self._given]
        self._given += fresh
        return fresh

    @property
    def has_pending_facts(self) -> bool:
        return any(notice not in self._given for notice in self.world.notices)

    def acknowledge(self) -> None:
        if any(notice in self._given for notice in self.world.notices):
            self._call(self._forget)

    def _forget(self) -> None:
        self.world.notices = [notice for notice in self.world.notices if notice not in self._given]

    def poll_events(self) -> None:
        pass

    def usd_per_hour(self, _instance: Instance) -> float:
        return LARGE.usd_per_hour

    def submit(self, order: Order) -> None:
        self._call(lambda: self._do(order))

    def _do(self, order: Order) -> None:
        world = self.world
        match order:
            case Launch():
                world.made += 1
                name = f"i-{world.made}"
                self._known.add(name)
                world.machines[name] = Machine(id=name, run=self._run, token=order.token, launched_at=world.now)
            case Drain():
                for name in order.instances:
                    world.machines[name].drains_until = world.now + DRAIN_S
            case _:
                raise AssertionError(order)

"""The three clouds behind one port, each with a way to let time pass and to make things go wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import FleetSetup
from mark.aws.inbox import EventInbox
from mark.aws.provision import set_up
from mark.dispatch.policy import DispatchPolicy
from mark.domain.clock import ClockAnchor
from mark.domain.commitments.owned import CapacityReservation, Commitments
from mark.domain.fleet.instances import Instance, InstanceState
from mark.domain.fleet.orders import Fact
from mark.domain.models.objective import ModelSpec
from mark.live.control.observe_mode import ShadowCloud
from mark.ports import Cloud
from mark.service_spec import BackendSpec, ServedModel
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript, Interrupt, Refuse
from mark.store.service import ServiceStore
from tests.aws.builders import OFFERINGS, SLEEPER, FakeAgents, FakeLedger, HandClock, aws, service
from tests.emulator.conftest import TYPES, World, config_for
from tests.planner.builders import SLO
from tests.scenarios.builders import FIXED_WORLD
from tests.simulator.engines import engine, lambda_offering
from tests.waiting import until

BOOTED_S = 1000.0
"""Longer than any boot takes."""
REFUSED_FROM_S, REFUSED_TO_S = 5_000.0, 6_000.0
TAKEN_AT_S = 10_000.0
STAND = 1_800_000_000.0
KEPT = CapacityReservation(
    name="cr-1", instance_type=SLEEPER.instance_type.name, zone="us-east-1b", count=2.0, usd_per_hour=0.0832
)
"""Capacity that the account has reserved."""


class CloudWorld(Protocol):
    """A cloud, and what a test may do to it from outside."""

    cloud: Cloud

    def advance(self, seconds: float) -> None:
        """Let time pass; agents of instances that have booted announce themselves, those that drained leave."""

    def refuse(self) -> None:
        """Launches are refused from now on."""

    def interrupt(self) -> None:
        """All ready spot instances get their notice."""

    def take_over(self) -> None:
        """The controller crashes; another one asks its own Cloud, over the same world."""

    def close(self) -> None: ...


class Simulated(CloudWorld):
    def __init__(self, kernel: Kernel) -> None:
        self._engine = engine(
            kernel, [], dispatch=DispatchPolicy(), overflow=lambda_offering(), duration_s=20_000.0
        )
        self._simulated = SimulatedCloud(
            engine=self._engine,
            offerings=OFFERINGS,
            world=FIXED_WORLD,
            faults=FaultScript(
                stress=0.0,
                interrupts=(Interrupt(at_s=TAKEN_AT_S, share=1.0),),
                refusals=(Refuse(from_s=REFUSED_FROM_S, to_s=REFUSED_TO_S),),
            ),
            seed=1,
            start_at=0.0,
            redispatch=True,
        )
        self._simulated.reserved = lambda: (KEPT,)
        self.cloud = self._simulated

    def advance(self, seconds: float) -> None:
        end = self._engine.now + seconds
        while self._engine.now < end or self._simulated.next_at() <= end:
            stop = min(end, self._simulated.next_at())
            self._engine.run_until(stop)
            self._simulated.fire(stop)

    def refuse(self) -> None:
        self.advance(REFUSED_FROM_S - self._engine.now)

    def interrupt(self) -> None:
        self.advance(TAKEN_AT_S - self._engine.now)

    def take_over(self) -> None:
        """A replay's controller does not crash."""

    def close(self) -> None:
        self._simulated.close(self._engine.now)


class Emulated(CloudWorld):
    """EC2 as `mark.aws.ec2` sees it, on an emulated AWS whose clock the test moves."""

    def __init__(self, folder: Path) -> None:
        self._clock = HandClock(at=STAND)
        types = {**TYPES, "t3.large": replace(TYPES["c5.large"], name="t3.large")}
        owned = Commitments(capacity_reservations=(KEPT,))
        self._world = World(config_for(folder, anchor=self._anchor(), types=types, commitments=owned))
        self._aws = aws(endpoint_url=self._world.url)
        self._resources = set_up(self._aws, service())
        self._agents, self._ledger = FakeAgents(), FakeLedger()
        self._open()

    def _anchor(self) -> ClockAnchor:
        return ClockAnchor(wall_at=time.time(), service_at=self._clock.at, speed=0.0)

    def _open(self) -> None:
        self._inbox = EventInbox(self._aws.sqs, self._resources.events_url, poll_s=1)
        self._inbox.start()
        self.cloud = self._ec2 = Ec2Cloud(
            FleetSetup(
                service="shop", model="m", run="r1", offerings=OFFERINGS, templates=self._resources.templates
            ),
            aws=self._aws,
            clock=self._clock,
            membership=self._agents,
            ledger=self._ledger,
            inbox=self._inbox,
            guard=Guard(Guardrails(max_instances=9, max_usd_per_hour=9.0), OFFERINGS),
        )

    def _leave(self) -> None:
        self._ec2.close()
        self._inbox.close()

    def advance(self, seconds: float) -> None:
        for name in self._agents.drained:
            serves = self._agents.agents.pop(name, None) is not None
            if serves and self._world.instances()[name]["state"] == "running":
                self._world.ask(name, "/off")
                until(lambda name=name: not self._world.instances()[name]["pid"])
        self._clock.at += seconds
        anchor = self._anchor()
        stand = {"wall_at": anchor.wall_at, "service_at": anchor.service_at, "speed": anchor.speed}
        self._world.mark("POST", "clock", stand)
        until(self._is_quiet)
        for name, found in self._world.instances().items():
            if found["state"] != "running":
                self._agents.agents.pop(name, None)
            elif found["ready_at"] <= self._clock.at:
                self._agents.say(name)

    def _is_quiet(self) -> bool:
        """Whether nothing is between two states any more, and every instance that runs has its process."""
        now = self._clock.at
        return all(
            (found["state"] == "pending" and found["ready_at"] > now)
            or found["state"] in ("stopped", "terminated")
            or (found["state"] == "running" and found["pid"] and (found["terminates_at"] or now + 1.0) > now)
            for found in self._world.instances().values()
        )

    def refuse(self) -> None:
        self._world.mark("POST", "faults", {"kind": "capacity", "action": "CreateFleet"})

    def interrupt(self) -> None:
        self._world.mark("POST", "interrupt", {"share": 1.0})

    def take_over(self) -> None:
        self._leave()
        self._open()

    def close(self) -> None:
        self._leave()
        self._aws.close()
        self._world.stop()


class Observed(CloudWorld):
    """Nothing is rented: no launch is refused, and nothing is taken away."""

    def __init__(self, store: ServiceStore) -> None:
        self._clock, self._store = HandClock(at=STAND), store
        self.take_over()

    def advance(self, seconds: float) -> None:
        self._clock.at += seconds

    def take_over(self) -> None:
        served = ServedModel(
            model=ModelSpec(name="m", slo=SLO),
            slo=SLO,
            dispatch=DispatchPolicy(),
            offerings=tuple(OFFERINGS.values()),
            backend=BackendSpec(kind="emulated"),
        )
        self.cloud = ShadowCloud(served, store=self._store, clock=self._clock)

    def close(self) -> None:
        """Nothing to end."""


def fleet_of(world: CloudWorld) -> Mapping[str, Instance]:
    return {instance.id: instance for instance in world.cloud.observe()}


def states_of(world: CloudWorld) -> Sequence[InstanceState]:
    return [instance.state for instance in world.cloud.observe()]


def facts_of(world: CloudWorld) -> list[Fact]:
    """The next facts; EC2's come through a queue."""
    facts: list[Fact] = []
    until(lambda: facts.extend(world.cloud.drain_facts()) or facts)
    return facts

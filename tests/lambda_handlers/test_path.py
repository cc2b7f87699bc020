"""The path of events on the emulated AWS, from EventBridge to the controller; and what cannot be read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mark.accounting.ledger import fleet_usage
from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import FleetSetup
from mark.aws.inbox import EventInbox
from mark.aws.provision import ServiceResources, set_up
from mark.aws.session import Aws
from mark.domain.billing.costs import FleetUsage
from mark.domain.clock import ClockAnchor
from mark.domain.fleet.orders import Fact, RebalanceAdvised, SpotWarned, Terminate
from mark.ports import Clock
from mark.protocols.events import InstanceMessage, StateChanged
from tests.aws.builders import OFFERINGS, SPOT, FakeAgents, FakeLedger, aws, launch, service
from tests.emulator.conftest import World, config_for
from tests.lambda_handlers.records import event_of_message
from tests.waiting import PATIENCE_S, until

WRONG = ({"source": "aws.s3"}, {"time": "soon"}, {"detail": {"instance-id": 7}}, {"detail-type": "Else"})


@dataclass
class ServiceTime(Clock):
    """The emulated AWS's clock."""

    anchor: ClockAnchor

    def now(self) -> float:
        return self.anchor.service_time(time.time())


@dataclass
class Acting:
    """A controller's side of a service that is set up, on an AWS that runs."""

    world: World
    aws: Aws
    resources: ServiceResources
    cloud: Ec2Cloud
    inbox: EventInbox
    ledger: FakeLedger
    clock: ServiceTime
    woken: threading.Event = field(default_factory=threading.Event)

    def move(self, at: float, speed: float) -> None:
        self.clock.anchor = ClockAnchor(wall_at=time.time(), service_at=at, speed=speed)
        fields = {"wall_at": self.clock.anchor.wall_at, "service_at": at, "speed": speed}
        self.world.mark("POST", "clock", fields)

    def rent(self, count: int) -> list[str]:
        """Spot instances, up already; from then on the clock is as fast as the wall."""
        self.cloud.submit(launch(count, kind=SPOT.name))
        names = [instance.id for instance in self.cloud.observe()]
        until(lambda: {self.world.instances()[name]["state"] for name in names} == {"running"})
        self.move(self.clock.now(), 1.0)
        until(lambda: self.facts() == [] and len(self.states("running")) == count)
        return names

    def facts(self) -> Sequence[Fact]:
        """Those of a tick: drained, and acknowledged once the journal would have them."""
        facts = self.cloud.drain_facts()
        self.cloud.acknowledge()
        return facts

    def states(self, state: str) -> list[str]:
        return [told.instance for told in self.ledger.noted if told.state == state]

    def send_raw(self, *bodies: str) -> None:
        for body in bodies:
            self.aws.sqs.send_message(QueueUrl=self.resources.raw_url, MessageBody=body)

    def handled(self) -> int:
        """Calls of the interruption function."""
        return int(self.world.state()["lambda"]["mark-shop-interruption"]["invocations"])

    def visible(self, queue: str) -> float:
        """Messages that wait in a queue of the service."""
        return float(self.world.state()["queues"][f"mark-shop-{queue}"]["ApproximateNumberOfMessagesVisible"])

    def drained(self) -> bool:
        """Whether nothing is under way on either queue."""
        queues = self.world.state()["queues"]
        return not any(sum(queues[f"mark-shop-{name}"].values()) for name in ("raw", "events"))


@pytest.fixture
def acting(tmp_path: Path) -> Iterator[Acting]:
    anchor = ClockAnchor(wall_at=time.time(), service_at=1_700_000_000.0, speed=200.0)
    world = World(config_for(tmp_path / "logs", anchor=anchor))
    there = aws(endpoint_url=world.url)
    resources = set_up(there, service())
    woken = threading.Event()
    inbox = EventInbox(there.sqs, resources.events_url, wake=woken.set, poll_s=1)
    clock, ledger = ServiceTime(anchor), FakeLedger()
    setup = FleetSetup(service="shop", model="m", run="r1", offerings=OFFERINGS, templates=resources.templates)
    cloud = Ec2Cloud(
        setup,
        aws=there,
        clock=clock,
        membership=FakeAgents(),
        ledger=ledger,
        inbox=inbox,
        guard=Guard(Guardrails(max_instances=9, max_usd_per_hour=9.0), OFFERINGS),
    )
    inbox.start()
    yield Acting(world, there, resources, cloud, inbox, ledger, clock, woken)
    cloud.close()
    inbox.close()
    there.close()
    world.stop()


def event(word: InstanceMessage, **changes: Any) -> str:
    return json.dumps(event_of_message(word, id="e", region="us-east-1", account="123456789012") | changes)


def bill(acting: Acting) -> FleetUsage:
    return fleet_usage(acting.ledger.noted, 1.7e9 + 1e6)


def test_a_notice_wakes_the_controller_and_what_comes_twice_late_or_malformed_changes_nothing(
    acting: Acting,
) -> None:
    first, second = acting.rent(2)
    acting.world.mark("POST", "interrupt", {"instances": [first]})
    assert acting.woken.wait(PATIENCE_S)
    facts: list[Fact] = []
    until(lambda: facts.extend(acting.facts()) or facts)
    [notice] = facts
    assert isinstance(notice, SpotWarned)
    assert (notice.instance, notice.terminates_at) == (first, pytest.approx(notice.at + 120.0))
    acting.cloud.submit(Terminate(token="t2-1", reason="r", instances=(second,)))
    acting.move(acting.clock.now(), 200.0)
    until(lambda: acting.facts() == [] and set(acting.states("terminated")) == {first, second})
    acting.move(acting.clock.now(), 0.0)
    until(lambda: acting.facts() == [] and acting.drained())
    seen, billed, calls = acting.cloud.observe(), bill(acting), acting.handled()

    of_second = [told for told in acting.ledger.noted if told.instance == second]
    began_at = min(told.at for told in of_second)
    again = [event(StateChanged(instance=second, at=told.at, state=told.state)) for told in reversed(of_second)]
    late = [
        event(StateChanged(instance=second, at=began_at, state="pending")),
        event(RebalanceAdvised(instance=second, at=began_at)),
    ]
    strangers = [event(SpotWarned(instance="i-0123", at=1.7e9, terminates_at=1.7e9 + 120.0))]
    malformed = ["{", "[]", "null", *(event(notice, **wrong) for wrong in WRONG)]
    acting.send_raw(event(notice), *again, *late, *strangers, *malformed)

    until(lambda: acting.handled() > calls and acting.visible("raw") == 0)
    heard: list[Fact] = []
    until(lambda: heard.extend(acting.facts()) or acting.visible("events") == 0)
    heard.extend(acting.facts())
    assert heard == []
    assert acting.cloud.observe() == seen
    assert bill(acting) == billed

"""The same code on the emulated AWS, by its endpoint URL alone: launch, a notice by the real handler, removal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mark.aws.archive import bucket_name
from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import FleetSetup
from mark.aws.inbox import EventInbox
from mark.aws.permissions.policies import Names
from mark.aws.provision import set_up, tear_down
from mark.aws.session import Aws
from mark.cloudmodel.world import TYPICAL
from mark.domain.clock import ClockAnchor
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.orders import Fact, SpotWarned, Terminate
from mark.emulator.config import ACCOUNT, REGION
from mark.ports import Clock
from tests.aws.builders import OFFERINGS, SPOT, FakeAgents, FakeLedger, aws, launch, service
from tests.emulator.conftest import World, config_for
from tests.waiting import until

ANCHOR = ClockAnchor(wall_at=time.time(), service_at=1_700_000_000.0, speed=200.0)


class ServiceTime(Clock):
    def now(self) -> float:
        return ANCHOR.service_time(time.time())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    names = Names(service="shop", region=REGION, account=ACCOUNT, bucket=bucket_name("shop", ACCOUNT))
    made = World(config_for(tmp_path / "logs", anchor=ANCHOR, names=names))
    yield made
    made.stop()


@pytest.fixture
def there(world: World) -> Iterator[Aws]:
    made = aws(endpoint_url=world.url, role="controller")
    yield made
    made.close()


@pytest.fixture
def setup_aws(world: World) -> Iterator[Aws]:
    made = aws(endpoint_url=world.url, role="setup")
    yield made
    made.close()


def test_a_life_on_the_emulated_aws(world: World, there: Aws, setup_aws: Aws) -> None:
    resources = set_up(setup_aws, service())
    assert set_up(setup_aws, service()) == resources
    setup = FleetSetup(service="shop", model="m", run="r1", offerings=OFFERINGS, templates=resources.templates)
    agents, ledger = FakeAgents(), FakeLedger()
    inbox = EventInbox(there.sqs, resources.events_url, poll_s=1)
    guard = Guard(Guardrails(max_instances=9, max_usd_per_hour=9.0), OFFERINGS)

    def controller(membership: FakeAgents) -> Ec2Cloud:
        return Ec2Cloud(
            setup,
            aws=there,
            clock=ServiceTime(),
            membership=membership,
            ledger=ledger,
            inbox=inbox,
            guard=guard,
        )

    cloud = controller(agents)
    inbox.start()
    try:
        cloud.submit(launch(2, kind=SPOT.name))
        fleet = cloud.observe()
        assert [i.state for i in fleet] == [InstanceState.PENDING] * 2
        assert all(abs(i.launched_at - ServiceTime().now()) < 3600 for i in fleet)
        again = controller(agents)
        again.submit(launch(2, kind=SPOT.name))
        assert [i.id for i in again.observe()] == [i.id for i in fleet]
        again.close()

        first, second = (i.id for i in fleet)
        until(lambda: {world.instances()[name]["state"] for name in (first, second)} == {"running"})
        agents.say(first)
        assert [i.state for i in cloud.observe()] == [InstanceState.READY, InstanceState.PENDING]

        world.mark("POST", "interrupt", {"instances": [first]})
        facts: list[Fact] = []
        until(lambda: facts.extend(cloud.drain_facts()) or facts)
        [notice] = facts
        assert isinstance(notice, SpotWarned)
        assert notice.terminates_at == pytest.approx(notice.at + 120.0)
        assert notice.at == pytest.approx(ServiceTime().now(), abs=2000.0)

        cloud.submit(Terminate(token="t2-1", reason="r", instances=(second,)))
        until(lambda: (cloud.drain_facts() and False) or _states(ledger, second)[-1:] == ["terminated"])
        told = _states(ledger, second)
        assert told[:2] == ["pending", "running"]
        assert told.count("running") == 1

        cloud.submit(replace(launch(1, token="t3-1"), role=Role.STANDBY))
        assert len(tear_down(setup_aws, "shop")) >= 1
        assert tear_down(setup_aws, "shop") == ()
        assert world.state()["permissions"]["refused"] == {}
        gone = ("shutting-down", "terminated")
        until(lambda: all(found["state"] in gone for found in world.instances().values()))
    finally:
        cloud.close()
        inbox.close()


def test_the_ledger_has_the_price_of_the_zone_that_a_spot_instance_started_in(tmp_path: Path) -> None:
    world = World(config_for(tmp_path / "logs", anchor=ANCHOR, world=replace(TYPICAL, spot_refused=0.0)))
    there = aws(endpoint_url=world.url)
    resources, ledger = set_up(there, service()), FakeLedger()
    inbox = EventInbox(there.sqs, resources.events_url, poll_s=1)
    cloud = Ec2Cloud(
        FleetSetup(service="shop", model="m", run="r1", offerings=OFFERINGS, templates=resources.templates),
        aws=there,
        clock=ServiceTime(),
        membership=FakeAgents(),
        ledger=ledger,
        inbox=inbox,
        guard=Guard(Guardrails(max_instances=9, max_usd_per_hour=9.0), OFFERINGS),
    )
    inbox.start()
    try:
        seen = dict(cloud.observe().spot_usd_per_hour)[SPOT.name]
        cloud.submit(launch(1, kind=SPOT.name))
        until(lambda: cloud.poll_events() or "running" in [told.state for told in ledger.noted])
        assert {told.usd_per_hour for told in ledger.noted} == {seen}
        prices = there.ec2.describe_spot_price_history(InstanceTypes=["c5.large"])["SpotPriceHistory"]
        assert seen == pytest.approx(min(float(entry["SpotPrice"]) for entry in prices), rel=0.01)
        assert seen < SPOT.usd_per_hour
    finally:
        cloud.close()
        inbox.close()
        there.close()
        world.stop()


def _states(ledger: FakeLedger, name: str) -> list[str]:
    return [t.state for t in sorted(ledger.noted, key=lambda t: t.at) if t.instance == name]

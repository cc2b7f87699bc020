"""What every Cloud keeps of its port, whoever stands behind it: virtual time, EC2's API, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.orders import (
    Drain,
    Launch,
    LaunchRefused,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
)
from mark.simulator.engine.compiled import Kernel
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.aws.builders import ON_DEMAND, SLEEPER, SPOT, launch
from tests.cloudmodel.clouds import (
    BOOTED_S,
    CloudWorld,
    Emulated,
    Observed,
    Simulated,
    facts_of,
    fleet_of,
    states_of,
)

PENDING, READY, STOPPED = InstanceState.PENDING, InstanceState.READY, InstanceState.STOPPED


@pytest.fixture(params=["simulated", "emulated", "observed"])
def world(request: pytest.FixtureRequest, kernel: Kernel, tmp_path: Path) -> Iterator[CloudWorld]:
    if request.param == "observed":
        with EmbeddedRedis(tmp_path / "store") as server:
            link = connect(server.url)
            yield Observed(ServiceStore(link, "shop"))
            link.close()
        return
    made: CloudWorld = Simulated(kernel) if request.param == "simulated" else Emulated(tmp_path / "logs")
    yield made
    made.close()


rents = pytest.mark.parametrize("world", ["simulated", "emulated"], indirect=True)
"""Of clouds that rent something: only those can be refused, and lose it."""


def boot(world: CloudWorld, order: Launch) -> list[str]:
    """The order's instances, ready."""
    there = set(fleet_of(world))
    world.cloud.submit(order)
    world.advance(BOOTED_S)
    return sorted(set(fleet_of(world)) - there)


def drain(*names: str) -> Drain:
    return Drain(token="d", reason="test", instances=names)


def test_a_launch_is_pending_and_then_ready_and_its_token_launches_once_also_after_a_take_over(
    world: CloudWorld,
) -> None:
    world.cloud.submit(launch(2, token="t1-1"))
    seen = fleet_of(world).values()
    assert [(i.state, i.token, i.offering, i.role) for i in seen] == [
        (PENDING, "t1-1", ON_DEMAND.name, Role.SERVING)
    ] * 2
    launched_at = {i.id: i.launched_at for i in seen}
    world.cloud.submit(launch(2, token="t1-1"))
    world.take_over()
    world.cloud.submit(launch(2, token="t1-1"))
    assert set(fleet_of(world)) == set(launched_at)
    world.advance(BOOTED_S)
    assert states_of(world) == [READY] * 2
    assert {i.id: i.launched_at for i in fleet_of(world).values()} == launched_at
    assert list(fleet_of(world)) == sorted(launched_at)
    world.cloud.submit(launch(1, token="t2-1"))
    assert len(fleet_of(world)) == 3


def test_what_is_drained_or_terminated_leaves_and_the_others_stay(world: CloudWorld) -> None:
    first, second, third = boot(world, launch(3, token="t1-1"))
    world.cloud.submit(drain(first, "i-0123456789abcdef0"))
    assert READY not in {i.state for i in fleet_of(world).values() if i.id == first}
    world.advance(60.0)
    assert list(fleet_of(world)) == [second, third]
    assert states_of(world) == [READY] * 2

    end = Terminate(token="e", reason="test", instances=(second,))
    world.cloud.submit(end)
    assert list(fleet_of(world)) == [third]
    world.cloud.submit(end)
    world.cloud.submit(drain(second))
    world.advance(60.0)
    assert list(fleet_of(world)) == [third]

    world.cloud.submit(launch(1, token="t2-1"))
    world.cloud.submit(drain(*set(fleet_of(world)) - {third}))
    assert list(fleet_of(world)) == [third], "before it serves, it is gone at once"

    world.cloud.submit(Terminate(token="e2", reason="test", instances=(third,)))
    world.advance(1.0)
    world.cloud.submit(launch(3, token="t1-1"))
    world.advance(BOOTED_S)
    world.cloud.observe()  # EC2 answers as it did then; it is believed until its listing denies it
    assert states_of(world) == [], "all that the token launched is gone"


def test_a_standby_sleeps_wakes_and_stops_when_it_is_drained(world: CloudWorld) -> None:
    (name,) = boot(world, launch(1, kind=SLEEPER.name, role=Role.STANDBY))
    rest = StopStandby(token="s", reason="test", instances=(name,))
    wake = StartStandby(token="w", reason="test", instances=(name,))
    for goes_to_sleep in (rest, drain(name)):
        world.cloud.submit(goes_to_sleep)
        world.advance(60.0)
        assert states_of(world) == [STOPPED]
        world.advance(BOOTED_S)
        assert states_of(world) == [STOPPED]
        world.cloud.submit(wake)
        assert states_of(world) == [PENDING]
        world.advance(BOOTED_S)
        assert states_of(world) == [READY]
    assert [i.role for i in fleet_of(world).values()] == [Role.STANDBY]

    world.cloud.submit(rest)
    world.advance(60.0)
    world.cloud.submit(wake)
    world.advance(1.0)
    world.cloud.submit(StopStandby(token="s2", reason="test", instances=(name,)))
    world.advance(BOOTED_S)
    assert states_of(world) == [STOPPED], "told to while it wakes, it sleeps on"
    world.cloud.submit(drain(name))
    assert states_of(world) == []


@rents
def test_a_refused_launch_is_a_fact_given_once_and_reserved_capacity_is_had_all_the_same(
    world: CloudWorld,
) -> None:
    world.refuse()
    world.cloud.submit(launch(3, token="t1-1"))
    world.advance(0.0)
    (fact,) = facts_of(world)
    assert isinstance(fact, LaunchRefused)
    assert (fact.token, fact.offering, fact.count) == ("t1-1", ON_DEMAND.name, 3)
    assert (fact.cause, fact.code) == (RefusalCause.CAPACITY, "InsufficientInstanceCapacity")
    assert states_of(world) == []
    assert list(world.cloud.drain_facts()) == []

    world.cloud.submit(launch(3, token="t2-1", kind=SLEEPER.name))
    world.advance(BOOTED_S)
    assert states_of(world) == [READY, READY]
    (fact,) = facts_of(world)
    assert isinstance(fact, LaunchRefused)
    assert (fact.token, fact.offering, fact.count) == ("t2-1", SLEEPER.name, 1)


@rents
def test_a_notice_is_a_fact_before_the_instance_goes(world: CloudWorld) -> None:
    (kept,) = boot(world, launch(1, token="t1-1"))
    (lost,) = boot(world, launch(1, token="t1-2", kind=SPOT.name))
    world.interrupt()
    (fact,) = facts_of(world)
    assert isinstance(fact, SpotWarned)
    if isinstance(world, Emulated):
        world.take_over()  # before the first controller asked again: nobody wrote the fact down
        assert set(fleet_of(world)) == {kept, lost}
        assert facts_of(world) == [fact]
    assert (fact.instance, fact.terminates_at - fact.at) == (lost, pytest.approx(120.0))
    told = {i.id: i.terminates_at for i in fleet_of(world).values()}
    assert told == {kept: None, lost: pytest.approx(fact.terminates_at)}
    assert list(world.cloud.drain_facts()) == []
    world.advance(119.0)
    assert set(fleet_of(world)) == {kept, lost}
    world.advance(1.5)
    assert set(fleet_of(world)) == {kept}

"""Instances of a service in virtual time: what is loaded, taken away and lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from mark.controller.hosts import host_controller
from mark.controller.hosts.host_controller import HAND_OVER_S, LATE_S, SOON_S
from mark.controller.hosts.placement_journal import placement_mismatches
from mark.controller.hosts.sharing import LOAD_S, PACK_EVERY_S, Sharer
from mark.domain.demand import Demand
from mark.domain.fleet.placement import Host, Tenant
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.offerings.offering import Market
from mark.planner.shared.packing import Packing
from mark.simulator.engine.compiled import DeviceKernel, plain_kernel
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript, Interrupt
from mark.simulator.rng import stream
from mark.simulator.services.shared_hosts import SharedHosts
from tests.planner.builders import offering
from tests.scenarios.builders import FIXED_WORLD
from tests.simulator.engines import engine_setup, lambda_offering

SLO = Slo(latency_s=0.6, target=0.98)
ON_DEMAND = offering("c5.large", rps=20.0, usd_per_hour=0.085)
SPOT = replace(
    ON_DEMAND,
    market=Market.SPOT,
    instance_type=replace(ON_DEMAND.instance_type, spot_usd_per_hour=0.085, spot_interruption_rate=0.5),
)
END_S = 2.0 * PACK_EVERY_S


def hosts_of(
    kernel: DeviceKernel,
    load_rps: Callable[[int, float], float],
    *,
    arrivals: Sequence[Sequence[float]] = ((), (), ()),
    faults: FaultScript,
    with_lambda: bool = True,
    memory_gib: float = 1.0,
) -> tuple[SharedPlane, SharedHosts]:
    """Models with these arrivals, whose past load is `load_rps(model, now)`."""
    plane = SharedPlane(kernel, [engine_setup(plain_kernel(), given, duration_s=END_S) for given in arrivals])

    def history(number: int, at: float, _units: int) -> Demand:
        rates = (load_rps(number, at),) * 60
        return Demand(end_at=at, mean_rps=rates, max_rps=rates)

    sharers = [
        Sharer(
            model=ModelSpec(name=f"m{number}", slo=SLO, memory_gib=memory_gib),
            slo=SLO,
            offerings=(SPOT if with_lambda else ON_DEMAND,),
            overflow=lambda_offering(latency_s=0.4) if with_lambda else None,
        )
        for number in range(len(arrivals))
    ]
    hosts = SharedHosts(plane, sharers, history=history, world=FIXED_WORLD, faults=faults, seed=1, end_s=END_S)
    hosts.begin()
    return plane, hosts


def go(plane: SharedPlane, hosts: SharedHosts, until: float) -> None:
    """Run from event to event, as a replay does."""
    while plane.now < until:
        stop = min(until, hosts.next_at())
        assert plane.run_until(stop) is None
        hosts.reach(stop)
        assert plane.now == END_S or hosts.next_at() > plane.now, "nothing is due for ever"


@pytest.mark.parametrize("into_s", [LOAD_S / 2, LOAD_S * 2])
def test_a_model_may_be_on_its_way_to_an_instance_that_is_lost(device_kernel: DeviceKernel, into_s: float) -> None:
    """The third model has load after an hour, and the instance gets its notice while it is loaded there."""
    faults = FaultScript(stress=0.0, interrupts=(Interrupt(at_s=PACK_EVERY_S + into_s, share=1.0),))
    plane, hosts = hosts_of(device_kernel, lambda number, at: 1.5 if number < 2 or at > 0 else 0.0, faults=faults)
    go(plane, hosts, END_S)
    assert sorted(len(engine.accepting) for engine in plane.engines) == [1, 1, 1]


def test_a_model_that_is_wanted_again_before_its_last_answer_stays(
    device_kernel: DeviceKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is for three of four, and decisions follow each other faster than a request is answered."""
    monkeypatch.setattr(host_controller, "PACK_EVERY_S", 0.03)
    plane, hosts = hosts_of(
        device_kernel,
        lambda number, at: 1.5 if number < 2 or (number == 3) == (0.02 < at < 0.04) else 0.0,
        arrivals=((), (), (0.025, 0.08), ()),
        faults=FaultScript(stress=0.0),
    )
    third = plane.engines[2]
    go(plane, hosts, 0.032)
    assert not third.accepting
    go(plane, hosts, 0.2)
    assert len(third.accepting) == 1
    assert third.served().instance == 2


@pytest.mark.parametrize("seed", range(1, 5))
def test_whom_lambda_does_not_answer_is_never_nowhere_and_memory_is_never_over_committed(
    device_kernel: DeviceKernel, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Four models on two instances or three, whose loads change so that they move."""
    monkeypatch.setattr(host_controller, "PACK_EVERY_S", 600.0)
    monkeypatch.setattr(host_controller, "LATE_S", 0.0)  # as if their own fleets were there
    rates = stream(seed, "moves").uniform(1.0, 6.0, (4, 13))
    plane, hosts = hosts_of(
        device_kernel,
        lambda number, at: float(rates[number, int(at // 600.0)]),
        arrivals=((), (), (), ()),
        faults=FaultScript(stress=0.0),
        with_lambda=False,
    )
    serving, placements = set[int](), set[object]()
    while plane.now < END_S:
        go(plane, hosts, min(END_S, hosts.next_at()))
        held = hosts.tenants()
        assert all(len(models) <= 3 for models in held.values()), "3 GiB hold three"
        placements.add(tuple(sorted(held.items())))
        wanted = {number for number in range(4) if hosts.planned_rps(number) > 0}
        assert all(plane.engines[number].accepting for number in serving & wanted)
        serving = {number for number, engine in enumerate(plane.engines) if engine.accepting}
    assert len(placements) > 1, "something moved"
    decisions = hosts.end().decisions
    assert not list(placement_mismatches(decisions))
    assert {host.name: tuple(one.model for one in host.tenants) for host in decisions[-1].hosts} == held


def script(monkeypatch: pytest.MonkeyPatch, before: Sequence[int], after: Sequence[int]) -> None:
    """Decisions: one instance holds these models until an hour has passed, and those later."""

    def share(
        _sharers: object,
        histories: Sequence[Demand],
        *,
        there: Sequence[Host],
        refused: object,
        owned: object,
    ) -> Packing:
        held = before if histories[0].end_at < PACK_EVERY_S else after
        tenants = tuple(Tenant(model=f"m{number}", capacity_rps=2.0) for number in held)
        host = Host(offering=ON_DEMAND.name, tenants=tenants, name=there[0].name if there else "")
        return Packing(hosts=(host,) if held else (), worth_usd_per_hour=0.0)

    monkeypatch.setattr(host_controller, "share_instances", share)


def test_whom_lambda_does_not_answer_stays_until_its_own_fleet_has_booted_where_nothing_is_shared_any_more(
    device_kernel: DeviceKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance is drained after that, or when it would have booted again."""
    script(monkeypatch, (0, 1), ())
    plane, hosts = hosts_of(
        device_kernel, lambda *_: 1.0, arrivals=((), ()), faults=FaultScript(stress=0.0), with_lambda=False
    )
    leaves_at = PACK_EVERY_S + ON_DEMAND.boot_s + HAND_OVER_S
    go(plane, hosts, leaves_at - 1.0)
    assert [len(engine.accepting) for engine in plane.engines] == [1, 1]
    assert hosts.shared_rps(0) is None, "its own fleet is planned as if nobody else answered"
    plane.engines[0].add(ON_DEMAND, standby=False)
    go(plane, hosts, leaves_at + SOON_S)
    assert list(hosts.tenants().values()) == [("m1",)], "it has no instance of its own yet"
    go(plane, hosts, leaves_at + LATE_S + SOON_S)
    assert not hosts.tenants()


def test_a_model_without_lambda_makes_room_for_another_once_its_own_fleet_is_there(
    device_kernel: DeviceKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance has memory for three. Where nothing can be launched for it, it stays for good."""
    script(monkeypatch, (0, 1, 2), (0, 1, 3))
    plane, hosts = hosts_of(
        device_kernel, lambda *_: 1.0, arrivals=((), (), (), ()), faults=FaultScript(stress=0.0), with_lambda=False
    )
    leaves_at = PACK_EVERY_S + ON_DEMAND.boot_s + HAND_OVER_S
    go(plane, hosts, PACK_EVERY_S + SOON_S)
    hosts._controller._barred = frozenset({ON_DEMAND.name})
    go(plane, hosts, leaves_at + LATE_S + SOON_S)
    assert list(hosts.tenants().values()) == [("m0", "m1", "m2")]
    plane.engines[2].add(ON_DEMAND, standby=False)
    for minute in range(1, 4):  # models' own decisions
        go(plane, hosts, leaves_at + LATE_S + SOON_S + 60.0 * minute)
    assert list(hosts.tenants().values()) == [("m0", "m1", "m3")]


def test_a_model_that_answers_when_its_time_is_over_is_handed_over_once(
    device_kernel: DeviceKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone when its last request is answered, and its memory is free."""
    script(monkeypatch, (0, 1, 2), (0, 1))
    leaves_at = PACK_EVERY_S + ON_DEMAND.boot_s + HAND_OVER_S
    plane, hosts = hosts_of(
        device_kernel,
        lambda *_: 1.0,
        arrivals=((), (), (leaves_at - 0.01,)),
        faults=FaultScript(stress=0.0),
        with_lambda=False,
    )
    go(plane, hosts, leaves_at - 0.005)
    plane.engines[2].add(ON_DEMAND, standby=False)
    go(plane, hosts, leaves_at)
    assert hosts.tenants() == {"i-000001": ("m0", "m1", "m2")}
    go(plane, hosts, leaves_at + SOON_S)
    assert hosts.tenants() == {"i-000001": ("m0", "m1")}
    assert plane.engines[2].served().instance == 1


def test_when_a_run_starts_shared_instances_took_what_they_would_have_of_the_load_before(
    device_kernel: DeviceKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's own fleet may miss a share of that too: none is rented for a request in an hour."""
    script(monkeypatch, (0, 1), (0, 1))
    plane, hosts = hosts_of(
        device_kernel,
        lambda number, _: 1.5 if number else 100.0,
        arrivals=((), (), ()),
        faults=FaultScript(stress=0.0),
        with_lambda=False,
    )
    assert [hosts.shared_rps(number) for number in range(3)] == [hosts.planned_rps(0), 1.5, None]
    go(plane, hosts, 60.0)
    assert [hosts.shared_rps(number) for number in range(3)] == [0.0, 0.0, None]

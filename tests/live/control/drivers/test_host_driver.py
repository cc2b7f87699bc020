"""What shared instances are told in the store, and when models hear of a spending limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mark.controller.hosts.placement_journal import Decided, PlacementDecision, PlacementHeader, read_placements
from mark.controller.limits.launch_breaker import LaunchRecord
from mark.controller.limits.spending_limit import no_spending_limit
from mark.domain.billing.spending import SpendingLimit
from mark.domain.clock import ClockAnchor
from mark.domain.demand import Demand
from mark.domain.fleet.host_spec import HostSpec, TenantSpec
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.lease import Lease
from mark.domain.fleet.member import Member, MemberState
from mark.domain.fleet.placement import Tenant
from mark.live.control.drivers.driver import SEGMENT_BYTES
from mark.live.control.drivers.driver_factory import _left
from mark.live.control.drivers.host_driver import DeviceTime, HostDriver, LiveHosts, PlacementWriter
from mark.ports import ForecasterSetup
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import HOSTS, PublishedHosts
from mark.store.service import ServiceStore

HEADER = PlacementHeader(policy="hedged", models=(), market="spot", catalogue="", seed=1, start_at=0.0)


def driver_of(
    store: ServiceStore,
    lease: Lease,
    limit: Callable[[], SpendingLimit] = no_spending_limit,
    *,
    there: FleetView = FleetView(),  # noqa: B008 - it is frozen
    written: Callable[[bytes], None] = lambda _: None,
) -> HostDriver:
    """The driver of a service that shares nothing. there: its shared instances. written: takes its decisions."""
    cloud: Any = SimpleNamespace(
        observe=lambda: there,
        submit=lambda _: None,
        usd_per_hour=lambda _: 0.1,
        drain_facts=tuple,
        acknowledge=lambda: None,
        poll_events=lambda: None,
        has_pending_facts=False,
    )
    clock: Any = SimpleNamespace(now=lambda: 0.0, anchor=ClockAnchor())
    journal: Any = SimpleNamespace(write=written, size_bytes=0)
    return HostDriver(
        (),
        store=store,
        lease=lease,
        clock=clock,
        cloud=cloud,
        journal=journal,
        header=HEADER,
        decided=Decided(),
        loads={},
        spending_limit=limit,
        began_at=0.0,
    )


def test_what_a_store_has_lost_is_told_again(tmp_path: Path) -> None:
    tenant = TenantSpec(model="m", offering="c5.large", max_batch=2, share_rps=5.0)
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        hosts = LiveHosts(store, versions=lambda _: "", shared_rps=lambda _: 0.0)
        hosts.hold("i-0", [tenant])
        store.forget_host("i-0")
        hosts.look()
        hosts.hold("i-0", [tenant])
        assert store.hosts() == {"i-0": HostSpec(tenants=(tenant,))}


def test_models_rent_again_once_their_shared_instances_are_ordered(tmp_path: Path) -> None:
    """A pause holds at once; its end, when the shared instances have followed."""
    limit = SpendingLimit.NONE
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        lease = store.leases.acquire("c", 60.0)
        assert lease is not None
        driver = driver_of(store, lease, lambda: limit)
        told: list[SpendingLimit] = []
        driver.on_followed = lambda: told.append(driver.spending_limit())
        limit = SpendingLimit.PAUSE
        assert driver.spending_limit() is SpendingLimit.PAUSE
        driver.look()
        limit = SpendingLimit.NONE
        assert driver.spending_limit() is SpendingLimit.PAUSE
        driver.look()
        assert told == [SpendingLimit.PAUSE, SpendingLimit.NONE]


def test_who_takes_over_decides_at_once_about_an_instance_that_was_told_nothing(tmp_path: Path) -> None:
    """Its leader was lost at the launch; models that planned before would each rent an instance of their own."""
    booting = Instance(id="i-0", offering="c5.large", state=InstanceState.PENDING)
    written: list[bytes] = []
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        lease = store.leases.acquire("c", 60.0)
        assert lease is not None
        driver_of(store, lease, there=FleetView(instances=(booting,)), written=written.append).begin()
    assert len(written) == 1


def test_what_became_of_launches_is_kept_for_who_takes_over(tmp_path: Path) -> None:
    failed = LaunchRecord(offering="c5.large", outcomes=(False, False, False), opened_at=5.0, open_s=600.0)
    with EmbeddedRedis(tmp_path / "redis") as server:
        store = ServiceStore(connect(server.url), "shop")
        HOSTS.write(store, PublishedHosts(launches=(failed,)))
        lease = store.leases.acquire("c", 60.0)
        assert lease is not None
        driver_of(store, lease).look()
        told = HOSTS.read(store)
    assert told is not None
    assert told.launches == (failed,)


def test_device_time_is_counted_once_across_restarts_and_leaders() -> None:
    def member(busy_s: float, wire_key: str = "k1") -> Member:
        return Member(
            instance="i-0", model="m", offering="c5.large", role=Role.SERVING, host="h", port=1,
            state=MemberState.READY, max_batch=1, batch_s=(0.1,), capacity_rps=10.0, wire_key=wire_key,
            share_rps=1.0, busy_s=busy_s,
        )  # fmt: skip

    there = {"i-0"}
    counted = DeviceTime([member(100.0)], now=0.0)
    assert counted.take([(member(136.0), 0.1)], there, 100.0) == {"m": pytest.approx(0.001)}
    assert counted.take([], there, 200.0) == {}
    assert counted.take([(member(136.0), 0.1)], there, 300.0) == {}, "it was not announced for a while"
    assert counted.take([(member(72.0, "k2"), 0.1)], there, 400.0) == {"m": pytest.approx(0.002)}, "loaded anew"
    assert counted.take([(member(5000.0, "k3"), 0.1)], there, 436.0) == {"m": pytest.approx(0.001)}


def test_a_long_journal_is_followed_by_one_that_goes_on_from_its_placement() -> None:
    headers: list[bytes] = []
    journal: Any = SimpleNamespace(
        write=lambda _: None,
        size_bytes=SEGMENT_BYTES + 1,
        is_waiting=False,
        rotate=lambda header, **_: headers.append(header),
    )
    after = {"i-0": (Tenant(model="m", capacity_rps=5.0),)}
    decision = PlacementDecision(
        at=0.0,
        fleet=(),
        refused=(),
        loads=(),
        hosts=(),
        orders=(),
        worth_usd_per_hour=0.0,
        unchanged_usd_per_hour=0.0,
    )
    PlacementWriter(journal, HEADER, lambda: after).append(decision)
    (line,) = headers
    assert read_placements([line])[0] == replace(HEADER, placement=after)


def test_the_next_decision_knows_the_load_that_came_before_the_service() -> None:
    before = Demand(end_at=0.0, mean_rps=(10.0, 4.0), max_rps=(12.0, 4.0))
    left = _left(ForecasterSetup(history=before, seed=1), 6.0).history
    assert sum(left.mean_rps) < sum(before.mean_rps)
    assert left.whole.mean_rps == before.mean_rps

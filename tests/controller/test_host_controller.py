"""The controller of shared instances beside what happens between two of its hourly decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from mark.controller.hosts.host_controller import HAND_OVER_S, LATE_S, HostController
from mark.controller.hosts.placement_journal import Decided, PlacementDecision
from mark.controller.hosts.sharing import PACK_EVERY_S, Sharer, within_quotas
from mark.controller.limits.launch_breaker import LaunchBreakerPolicy, LaunchRecord
from mark.controller.limits.quotas import QuotaLimits, takes_alone
from mark.domain.billing.spending import SpendingLimit
from mark.domain.demand import Demand
from mark.domain.fleet.host_spec import TenantSpec
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import (
    Drain,
    Fact,
    Launch,
    LaunchFailed,
    LaunchRefused,
    Order,
    RebalanceAdvised,
    RefusalCause,
)
from mark.domain.fleet.placement import Host, Tenant
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.offerings.offering import Market, Offering
from mark.domain.offerings.quota import STANDARD, VcpuQuota
from mark.planner.shared.packing import Packing
from tests.planner.builders import offering

SLO = Slo(latency_s=0.6, target=0.98)
ON_DEMAND = offering("c5.large", rps=20.0, usd_per_hour=0.085)
GPU = offering("g5.xlarge", rps=20.0, usd_per_hour=1.0)
MODELS = ("m0", "m1")


@dataclass
class FakeCloud:
    """Rents at once, or once `is_throttled` is over."""

    instances: list[Instance] = field(default_factory=list)
    launched: list[Launch] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    is_throttled: bool = False

    def observe(self) -> FleetView:
        return FleetView(instances=tuple(self.instances))

    def drain_facts(self) -> Sequence[Fact]:
        facts, self.facts = self.facts, []
        return facts

    def acknowledge(self) -> None:
        pass

    def submit(self, order: Order) -> None:
        match order:
            case Launch():
                self.launched.append(order)
                if not self.is_throttled:
                    self.rent(order)
            case Drain():
                self.instances = [
                    replace(item, state=InstanceState.DRAINING) if item.id in order.instances else item
                    for item in self.instances
                ]
            case _:
                raise AssertionError(order)

    def rent(self, order: Launch) -> None:
        name = f"i-{len(self.instances)}"
        self.instances.append(
            Instance(
                id=name,
                offering=order.offering,
                role=Role.SERVING,
                state=InstanceState.PENDING,
                token=order.token,
                launched_at=0.0,
            )
        )

    def fail(self, at: float) -> None:
        """The instance ends before its agent has ever been there."""
        (lost,) = self.instances
        self.instances = []
        self.facts.append(LaunchFailed(instance=lost.id, offering=lost.offering, code="", detail="", at=at))

    def boot(self) -> None:
        self.instances = [replace(item, state=InstanceState.READY) for item in self.instances]


class FakeHosts:
    """Holds at once what it is told to."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[TenantSpec, ...]] = {}
        self.own: set[str] = set()

    def loaded(self, instance: str) -> frozenset[str]:
        return frozenset(one.model for one in self.held.get(instance, ()))

    def loading(self, _instance: str) -> frozenset[str]:
        return frozenset()

    def accepts(self, instance: str, model: str) -> bool:
        return model in self.loaded(instance)

    def has_own(self, model: str) -> bool:
        return model in self.own

    def hold(self, instance: str, tenants: Sequence[TenantSpec]) -> None:
        self.held[instance] = tuple(tenants)

    def shared_rps(self, _model: str) -> float:
        return 0.0


def controller(
    cloud: FakeCloud,
    hosts: FakeHosts,
    *,
    launches: Sequence[LaunchRecord] = (),
    begun: Decided | None = None,
    limits: Sequence[SpendingLimit] = (),
    load_rps: Callable[[float], float] = lambda _: 1.5,
    vcpus: float = math.inf,
    gib: float = 1.0,
    took: Callable[[Mapping[str, int]], None] = takes_alone,
    offerings: tuple[Offering, ...] = (ON_DEMAND,),
) -> HostController:
    """Of two models without Lambda. limits: the last one is in force. vcpus: what models leave of the quota.

    There is no quota for GPUs.
    """
    decisions: list[PlacementDecision] = []
    return HostController(
        [
            Sharer(
                model=ModelSpec(name=name, slo=SLO, memory_gib=gib), slo=SLO, offerings=offerings, overflow=None
            )
            for name in MODELS
        ],
        cloud=cloud,
        hosts=hosts,
        history=lambda _number, at, _units: Demand(
            end_at=at, mean_rps=(load_rps(at),) * 60, max_rps=(load_rps(at),) * 60
        ),
        start_at=0.0,
        journal=decisions,
        decided=begun,
        told=hosts.held,
        launches=launches,
        limit=lambda: limits[-1] if limits else SpendingLimit.NONE,
        quotas=lambda: (
            VcpuQuota(family=STANDARD, market=Market.ON_DEMAND, vcpus=vcpus),
            VcpuQuota(family="g", market=Market.ON_DEMAND, vcpus=0.0),
        ),
        took=took,
    )


@pytest.mark.parametrize("vcpus", [1.0, 2.0])
def test_shared_instances_are_planned_where_models_leave_some_of_the_quotas(vcpus: float) -> None:
    """Of two vCPUs each. What there is is told to the models."""
    cloud, told = FakeCloud(), list[Mapping[str, int]]()
    found = controller(cloud, FakeHosts(), vcpus=vcpus, took=told.append)
    found.decide(0.0)
    assert (len(cloud.launched), len(told[-1])) == ((0, 0) if vcpus < 2.0 else (1, 1))


def test_a_decision_keeps_what_is_there_and_adds_what_the_quotas_leave() -> None:
    quota = VcpuQuota(family=STANDARD, market=Market.ON_DEMAND, vcpus=9.0)
    limits = QuotaLimits((quota,), (ON_DEMAND,), {ON_DEMAND.name: 2})
    hosts = [Host(offering=ON_DEMAND.name, tenants=(), name=name) for name in ("", "", "i-0", "", "i-1")]
    cut = within_quotas(Packing(hosts=tuple(hosts), worth_usd_per_hour=0.0), limits)
    assert [host.name for host in cut.hosts] == ["", "", "i-0", "i-1"]


def test_an_instance_that_booted_when_its_leader_was_lost_is_used_at_once() -> None:
    cloud, hosts = FakeCloud(), FakeHosts()
    controller(cloud, hosts).decide(0.0)
    after = controller(cloud, hosts)
    cloud.boot()
    after.tick(5.0)
    assert len(cloud.launched) == 1
    assert hosts.loaded("i-0") == set(MODELS)


def test_a_model_that_is_served_no_longer_leaves_with_the_next_decision() -> None:
    cloud, hosts = FakeCloud(), FakeHosts()
    controller(cloud, hosts).decide(0.0)
    cloud.boot()
    tenants = tuple(Tenant(model=name, capacity_rps=1.0) for name in ("gone", *MODELS))
    after = controller(cloud, hosts, begun=Decided(placement={"i-0": tenants}))
    after.tick(5.0)
    assert after.pulls == {"": 0.0}
    assert {one.model for one in after.placement["i-0"]} == set(MODELS)


@pytest.mark.parametrize(("gib", "fits_beside"), [(1.0, True), (1.1, False)])
def test_a_version_is_loaded_beside_another_where_there_is_memory_for_both(gib: float, fits_beside: bool) -> None:
    """Of 3 GiB, beside the other model."""
    cloud, hosts = FakeCloud(), FakeHosts()
    found = controller(cloud, hosts, gib=gib)
    found.decide(0.0)
    cloud.boot()
    found.tick(5.0)
    assert [one.fits_beside for one in hosts.held["i-0"]] == [fits_beside] * len(MODELS)


def test_an_instance_whose_launch_was_throttled_is_used_once_it_is_there() -> None:
    cloud, hosts = FakeCloud(is_throttled=True), FakeHosts()
    found = controller(cloud, hosts)
    found.decide(0.0)
    (order,) = cloud.launched
    found.tick(5.0)
    assert len(cloud.launched) == 1
    cloud.rent(order)
    cloud.boot()
    found.tick(10.0)
    assert len(cloud.launched) == 1
    assert hosts.loaded("i-0") == set(MODELS)


def test_a_pause_and_its_end_count_at_once() -> None:
    cloud, hosts, limits = FakeCloud(), FakeHosts(), [SpendingLimit.NONE]
    found = controller(cloud, hosts, limits=limits)
    found.decide(0.0)
    cloud.boot()
    found.tick(5.0)
    limits.append(SpendingLimit.PAUSE)
    found.tick(10.0)
    assert not hosts.loaded("i-0")
    assert [item.state for item in cloud.instances] == [InstanceState.DRAINING]
    limits.append(SpendingLimit.NONE)
    found.tick(15.0)
    assert [len(tenants) for tenants in found.placement.values()] == [2]


def test_whom_lambda_does_not_answer_stays_while_its_own_fleet_is_late() -> None:
    cloud, hosts = FakeCloud(), FakeHosts()
    found = controller(cloud, hosts, load_rps=lambda at: 500.0 if at >= PACK_EVERY_S else 1.5)
    found.decide(0.0)
    cloud.boot()
    found.tick(5.0)
    found.tick(PACK_EVERY_S)
    assert not any(found.placement.values())
    hosts.own = {"m0"}
    late_at = PACK_EVERY_S + ON_DEMAND.boot_s + HAND_OVER_S
    found.tick(late_at + 1.0)
    assert hosts.loaded("i-0") == {"m1"}
    found.tick(late_at + LATE_S + 1.0)
    assert not hosts.loaded("i-0")


def test_an_offering_whose_instances_never_become_ready_is_not_launched_again_and_again() -> None:
    cloud, hosts = FakeCloud(), FakeHosts()
    found = controller(cloud, hosts)
    found.decide(0.0)
    for at in (100.0, 200.0, 300.0):
        cloud.fail(at)
        found.tick(at, was_lost=True)
    assert len(cloud.launched) == 3
    found = controller(cloud, hosts, launches=found.launches)
    found.decide(310.0)
    assert len(cloud.launched) == 3, "who takes over leaves it, too"
    found.tick(300.0 + LaunchBreakerPolicy().open_s)
    assert len(cloud.launched) == 4, "one is tried later"


def test_models_without_load_that_lambda_does_not_answer_share_an_instance_too() -> None:
    """Each would rent one of its own otherwise."""
    cloud, hosts = FakeCloud(), FakeHosts()
    found = controller(cloud, hosts, load_rps=lambda _: 0.0)
    found.decide(0.0)
    assert len(cloud.launched) == 1
    assert all(found.planned_rps(name) > 0.0 for name in MODELS)


def test_an_instance_that_boots_is_waited_for_as_long_as_a_boot_may_take() -> None:
    cloud, hosts = FakeCloud(), FakeHosts()
    found = controller(cloud, hosts)
    assert not found.is_booting("m0", 0.0)
    found.decide(0.0)
    longest_s = ON_DEMAND.boot_s + HAND_OVER_S
    assert found.is_booting("m0", longest_s - 1.0)
    assert not found.is_booting("m0", longest_s)
    assert not found.is_booting("other", 1.0)
    cloud.boot()
    found.tick(5.0)
    assert not found.is_booting("m0", 5.0)


def test_instances_that_have_booted_are_not_decided_about_before_the_hour() -> None:
    cloud, hosts, load_rps = FakeCloud(), FakeHosts(), [1.5]
    found = controller(cloud, hosts, load_rps=lambda _: load_rps[-1])
    found.tick(0.0)
    cloud.boot()
    load_rps.append(4.0)
    found.tick(PACK_EVERY_S - 1.0)
    planned_rps = found.planned_rps("m0")
    found.tick(PACK_EVERY_S)
    assert found.planned_rps("m0") > planned_rps


def test_an_instance_at_risk_serves_until_another_has_its_models() -> None:
    cloud, hosts = FakeCloud(), FakeHosts()
    found = controller(cloud, hosts)
    found.decide(0.0)
    cloud.boot()
    found.tick(5.0)
    cloud.facts.append(RebalanceAdvised(instance="i-0", at=60.0))
    found.tick(60.0, was_lost=True)
    assert [len(cloud.launched), hosts.loaded("i-0")] == [2, set(MODELS)]
    cloud.boot()
    for now in (130.0, 200.0, 270.0):
        found.tick(now)
    assert hosts.loaded("i-1") == set(MODELS)
    assert [item.state for item in cloud.instances] == [InstanceState.DRAINING, InstanceState.READY]
    assert len(cloud.launched) == 2


def test_an_instance_at_risk_serves_on_where_no_other_can_be_launched() -> None:
    cloud, hosts = FakeCloud(), FakeHosts()
    found = controller(cloud, hosts)
    found.decide(0.0)
    cloud.boot()
    found.tick(5.0)
    cloud.is_throttled = True
    cloud.facts.append(RebalanceAdvised(instance="i-0", at=60.0))
    for now in (60.0, 70.0, 80.0, 150.0):
        found.tick(now, was_lost=True)
        refused = RefusalCause.CAPACITY
        cloud.facts.append(LaunchRefused(token="", offering=ON_DEMAND.name, count=1, cause=refused, at=now))
    assert hosts.loaded("i-0") == set(MODELS)
    assert [item.state for item in cloud.instances] == [InstanceState.READY]


@pytest.mark.parametrize(("vcpus", "state"), [(math.inf, InstanceState.DRAINING), (3.0, InstanceState.READY)])
def test_an_instance_at_risk_is_kept_for_its_own_quota_alone(vcpus: float, state: InstanceState) -> None:
    """No other can be launched while it runs; that there is no quota for GPUs keeps nothing."""
    cloud, hosts, load_rps = FakeCloud(), FakeHosts(), [1.5]
    found = controller(cloud, hosts, load_rps=lambda _: load_rps[-1], vcpus=vcpus, offerings=(ON_DEMAND, GPU))
    found.decide(0.0)
    cloud.boot()
    found.tick(5.0)
    hosts.own = {*MODELS}
    load_rps.append(500.0)
    cloud.facts.append(RebalanceAdvised(instance="i-0", at=60.0))
    for now in (60.0, 130.0, 60.0 + ON_DEMAND.boot_s + HAND_OVER_S, 500.0):
        found.tick(now, was_lost=True)
    assert [item.state for item in cloud.instances] == [state]


def test_a_pause_ends_an_instance_at_risk_like_any_other() -> None:
    cloud, hosts, limits = FakeCloud(), FakeHosts(), [SpendingLimit.NONE]
    found = controller(cloud, hosts, limits=limits)
    found.decide(0.0)
    cloud.boot()
    found.tick(5.0)
    cloud.facts.append(RebalanceAdvised(instance="i-0", at=60.0))
    limits.append(SpendingLimit.PAUSE)
    for now in (60.0, 130.0):
        found.tick(now, was_lost=True)
    assert [item.state for item in cloud.instances] == [InstanceState.DRAINING]

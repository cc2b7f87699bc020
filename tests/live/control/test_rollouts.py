"""The shell of a rollout: the controller sees the stable version alone, and commands outlive no service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mark.controller.service_time_ratios import ServiceTimeRatios, measured_ratios
from mark.domain.billing.spending import SpendingLimit
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.lease import Lease
from mark.domain.fleet.member import Member
from mark.domain.fleet.orders import Fact, Launch, LaunchFailed, LaunchRefused, Order, RefusalCause
from mark.domain.load.traffic import ModelTraffic
from mark.domain.models.versions import (
    ModelVersions,
    Rollout,
    RolloutCommand,
    RolloutPhase,
    RolloutVerb,
    VersionLaunch,
)
from mark.live.control.rollouts import RolloutDriver, VersionedCloud
from mark.store.published_status import ROLLOUT_COMMAND
from tests.controller.builders import POLICY, SMALL
from tests.controller.test_service_time_ratios import members

if TYPE_CHECKING:
    from mark.live.clock import ServiceClock
    from mark.service_spec import ServedModel
    from mark.store.service import ServiceStore

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
VERSIONS = ModelVersions(
    model="m", stable=OLD, rollout=Rollout(id="7", before=OLD, candidate=NEW, began_at=0.0, since=0.0)
)


class OpenCloud:
    """A cloud that shows what it is given and keeps what it is told."""

    def __init__(self, *instances: Instance) -> None:
        self.instances = instances
        self.facts: list[Fact] = []
        self.orders: list[Order] = []
        self.has_pending_facts = False
        self.troubles = ()

    def observe(self) -> FleetView:
        return FleetView(instances=self.instances)

    def drain_facts(self) -> Sequence[Fact]:
        taken, self.facts = self.facts, []
        return taken

    def submit(self, order: Order) -> None:
        self.orders.append(order)

    def acknowledge(self) -> None: ...

    def usd_per_hour(self, instance: Instance) -> float | None:
        return None

    def poll_events(self) -> None: ...

    def close(self) -> None: ...


def one(name: str, version: str, *, role: Role = Role.SERVING) -> Instance:
    return Instance(id=name, offering="small", state=InstanceState.READY, version=version, role=role)


def test_a_controller_sees_the_stable_version_alone() -> None:
    inner = OpenCloud(one("i-1", OLD), one("i-2", NEW), one("i-3", ""), one("s-1", NEW, role=Role.STANDBY))
    cloud = VersionedCloud(inner, VERSIONS)
    assert [i.id for i in cloud.observe()] == ["i-1", "i-3", "s-1"]
    assert [i.id for i in cloud.observe() if i.outdated] == ["s-1"], "it is replaced while it sleeps"
    assert len(cloud.whole) == 4
    cloud.versions = replace(VERSIONS, stable=NEW)
    assert [i.id for i in cloud.observe()] == ["i-2", "i-3", "s-1"]


def test_what_a_controller_launches_serves_the_stable_version() -> None:
    inner = OpenCloud()
    cloud = VersionedCloud(inner, VERSIONS)
    order = Launch(token="t", reason="r", offering="small", count=1)
    cloud.submit(order)
    cloud.submit_rollouts(replace(order, version=NEW))
    assert [o.version for o in inner.orders if isinstance(o, Launch)] == [OLD, NEW]


def test_failures_of_the_candidate_are_no_failures_of_the_fleet() -> None:
    inner = OpenCloud(one("i-1", OLD), one("i-2", NEW))
    cloud = VersionedCloud(inner, VERSIONS)
    cloud.observe()
    inner.instances = ()
    cloud.observe()
    stable, new = (LaunchFailed(instance=name, offering="small", at=0.0) for name in ("i-1", "i-2"))
    refused = [
        LaunchRefused(token=token, offering="small", count=1, cause=RefusalCause.CAPACITY, at=0.0)
        for token in ("t1-1", "r7-1")
    ]
    inner.facts = [stable, new, *refused]
    assert cloud.drain_facts() == [stable, refused[0]]
    assert cloud.take_refused() == (refused[1],)
    assert cloud.take_refused() == ()


class KeptStore:
    """A store with one command; it keeps the versions that it is given."""

    def __init__(self, command: RolloutCommand) -> None:
        self.command = command
        self.kept: list[ModelVersions] = []

    def status(self, _name: str) -> dict[str, Any]:
        return ROLLOUT_COMMAND.dump(self.command)

    def put_versions(self, versions: ModelVersions, _lease: Lease) -> None:
        self.kept.append(versions)

    def traffic(self, model: str) -> ModelTraffic:
        return ModelTraffic(model=model)


@pytest.mark.parametrize(("verb", "launched"), [(RolloutVerb.ABORT, []), (RolloutVerb.PROMOTE, ["r7-1"])])
def test_who_takes_over_sends_launches_again_unless_their_version_is_aborted_first(
    verb: RolloutVerb, launched: list[str]
) -> None:
    asked = VersionLaunch(token="r7-1", offering="small", count=1, at=0.0)
    assert VERSIONS.rollout is not None
    inner, store = OpenCloud(), KeptStore(RolloutCommand(id="c", verb=verb))
    driver = RolloutDriver(
        cast(
            "ServedModel", SimpleNamespace(name="m", offerings=(), slo=SimpleNamespace(target=0.98, judged_s=1.0))
        ),
        store=cast("ServiceStore", store),
        lease=Lease(holder="c-1", epoch=1, ttl_s=3.0),
        clock=cast("ServiceClock", SimpleNamespace(now=lambda: 1.0)),
        cloud=VersionedCloud(inner, replace(VERSIONS, rollout=replace(VERSIONS.rollout, requested=(asked,)))),
        spending_limit=lambda: SpendingLimit.NONE,
        notes=[],
    )
    driver.poll()
    assert [order.token for order in inner.orders] == launched
    assert store.kept[0].command == "c"


@pytest.mark.parametrize("versions", [None, replace(VERSIONS, stable="", rollout=None)])
def test_a_service_without_versions_sees_everything(versions: ModelVersions | None) -> None:
    inner = OpenCloud(one("i-1", OLD), one("i-2", NEW))
    cloud = VersionedCloud(inner, versions)
    assert len(cloud.observe()) == 2


def measuring(version: str, ratio: float, count: int) -> list[Member]:
    """Agents of a version whose batches take so many times what the profile says."""
    return [replace(one, version=version, instance=f"{version}-{one.instance}") for one in members(ratio, count)]


def test_measured_service_times_are_kept_by_version() -> None:
    """A candidate that takes longer slows no plan of the stable version; a promotion brings its own figures."""
    cloud = VersionedCloud(OpenCloud(), VERSIONS)
    found = [*measuring(OLD, 1.0, 3), *measuring(NEW, 1.8, 30)]

    def told(versions: ModelVersions) -> ServiceTimeRatios:
        cloud.versions = versions
        return measured_ratios(cloud.stable_members(found), POLICY)

    assert told(VERSIONS) == ()
    aborted = replace(VERSIONS, rollout=replace(VERSIONS.rollout, phase=RolloutPhase.ABORTED))  # type: ignore[type-var]
    assert told(aborted) == ()
    assert told(replace(VERSIONS, stable=NEW)) == ((SMALL.name, 1.8),)
    assert told(VERSIONS) == (), "who goes back plans as before at once"


def test_phases_and_roles_of_versions() -> None:
    over = replace(VERSIONS, rollout=replace(VERSIONS.rollout, phase=RolloutPhase.ABORTED))  # type: ignore[type-var]
    assert VERSIONS.candidate == NEW
    assert not over.candidate
    assert over.is_aborted(NEW)
    assert over.is_retired(NEW)
    assert not over.is_retired("")
    assert over.is_stable("")

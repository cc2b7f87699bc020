"""The controller's and the command line's side of the store: synchronous, whole service in view."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from mark.domain.billing.costs import LedgerRecord, Transition
from mark.domain.clock import ClockAnchor
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured, RetryLater
from mark.domain.fleet.host_spec import SHARED, HostSpec
from mark.domain.fleet.lease import Lease, LeaseLost
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import Member, Peer
from mark.domain.load.traffic import GatewayReport, ModelTraffic, Warmed
from mark.domain.models.versions import ModelVersions, outdated_versions
from mark.ports import JournalTail, LeaseKeeper
from mark.service_spec import AgentSpec, ServedModel, ServiceSpec
from mark.store.clients import TRIES, StoredClients
from mark.store.codec import AGENT_SPEC, CLOCK, HOST_SPEC, LISTED, PEER, SPEC, VERSIONS, WARMED
from mark.store.connect import Link
from mark.store.documents import MEMBER_TTL_S, clock_of, decoded, members_of, spec_of, ttl_ms
from mark.store.hosts import forget_wall, share_wall
from mark.store.journal import StoreJournal, journal_lines, journal_segments, restore_journal
from mark.store.keys import Keys
from mark.store.lease import Leases
from mark.store.ledger import StoredLedger
from mark.store.published_status import ROLLOUT_COMMAND
from mark.store.scripts import DRAIN, FENCE, LEAVE, LIST, MEMBERS, PUT_VERSIONS, REPORT, SWAP, TRAFFIC
from mark.store.traffic import (
    ARRIVED,
    GATEWAY_TTL_S,
    report_args,
    report_keys,
    traffic_keys,
    traffic_totals,
    version_counts,
)
from mark.store.users import UNSENT

_log = logging.getLogger(__name__)

KEEP_CLOCKS = 50
"""Anchors of the clock that are kept: what came lately was counted at their speeds."""
RETIRED_S = 40 * 86400.0
"""For how long a model is remembered that is served no more, in wall seconds: as far as reports look back."""
KEEP_DRAINS_S = 86400.0
"""Wall seconds that a request to drain is kept which no agent follows."""


def _agent_spec(served: ServedModel, spec: ServiceSpec) -> bytes:
    return AGENT_SPEC.encode(AgentSpec(served=served, seed=spec.seed, telemetry=spec.telemetry))


class ServiceStore:
    """All that is stored of one service. It is the Ledger port itself; `membership` gives the Membership port."""

    def __init__(
        self,
        link: Link,
        service: str,
        *,
        member_ttl_s: float = MEMBER_TTL_S,
        leases: LeaseKeeper | None = None,
        tail: JournalTail | None = None,
    ) -> None:
        """`leases` and `tail`: where they are kept elsewhere than in this store."""
        self._link = link
        self._keys = Keys(service)
        self._member_ttl_s = member_ttl_s
        self.leases: LeaseKeeper = leases or Leases(link, self._keys)
        self._tail = tail
        self.clients = StoredClients(link, self._keys, tail)
        self._ledgers: dict[str, StoredLedger] = {}
        self._opening = Lock()

    @property
    def service(self) -> str:
        """The service's name."""
        return self._keys.service

    def ping(self) -> None:
        """RetryLater where the store does not answer."""
        self._link.call("EXISTS", self._keys.of("spec"))

    def put_spec(self, spec: ServiceSpec) -> None:
        """Say what the service is. What was kept of a model that is back is kept again."""
        names = [model.name for model in spec.billed]
        known = {*names, *self._served_before()}
        if known:
            self._link.call("SADD", self._keys.of("models"), *sorted(known))
        for name in names:
            if self._link.call("SREM", self._keys.of("retired"), name):
                for key in self._model_keys(name):
                    self._link.call("PERSIST", key)
        for served in spec.models:
            self._link.call("SET", self._keys.of("served", served.name), _agent_spec(served, spec))
            self.put_version(served, spec)
        self._link.call("SET", self._keys.of("spec"), SPEC.encode(spec))
        if not spec.shares:  # nobody lists what nobody shares, and gateways would take any agent for a shared one
            self.list_instances(SHARED, {})

    def retire_models(self) -> tuple[str, ...]:
        """Have what is kept of models that are served no more expire RETIRED_S from now on; those that are new."""
        served = {model.name for model in self.spec().billed}
        known = {name.decode() for name in self._link.call("SMEMBERS", self._keys.of("models"))}
        gone = sorted(name for name in known - served if self._link.call("SADD", self._keys.of("retired"), name))
        for name in gone:
            for key in self._model_keys(name):
                self._link.call("EXPIRE", key, round(RETIRED_S))
            warmed = (f"{name}/{version}" for version in self._kept_versions(name))
            self._link.call("HDEL", self._keys.of("warmed"), name, *warmed)
            if name != SHARED:  # `put_spec` has said that there are none
                self._list(self._keys.listing[0], name)
        for name in known - served - set(gone):
            if not self._link.call("EXISTS", *self._model_keys(name)):
                self._link.call("SREM", self._keys.of("models"), name)
                self._link.call("SREM", self._keys.of("retired"), name)
        return tuple(gone)

    def _served_before(self) -> list[str]:
        """Models of the spec that is stored; none where there is none that can be read."""
        try:
            return [model.name for model in self.spec().billed]
        except Misconfigured:
            return []

    def _model_keys(self, model: str) -> tuple[str, ...]:
        kept = self._keys.of("kept-versions", model)
        told = (self._keys.of_version(model, version) for version in self._kept_versions(model))
        return (*self._keys.of_model(model, self.journal_segments(model)), kept, *told)

    @property
    def is_described(self) -> bool:
        """True where it knows what the service is; a store that has lost its data does not."""
        return bool(self._link.call("EXISTS", self._keys.of("spec")))

    def spec(self) -> ServiceSpec:
        """Read the service's spec; Misconfigured where there is none."""
        return spec_of(self._keys, self._link.call("GET", self._keys.of("spec")))

    def put_version(self, served: ServedModel, spec: ServiceSpec) -> None:
        """Keep what agents of a model's version are told. spec: of the service that it belongs to."""
        self._link.call("SET", self._keys.of_version(served.name, served.version), _agent_spec(served, spec))
        if served.version:
            kept = self._keys.of("kept-versions", served.name)
            self._link.call("LREM", kept, 0, served.version)
            self._link.call("RPUSH", kept, served.version)

    def _kept_versions(self, model: str) -> list[str]:
        """Versions that agents may be told of, by when they were put there last, oldest first."""
        return [name.decode() for name in self._link.call("LRANGE", self._keys.of("kept-versions", model), 0, -1)]

    def forget_versions(self, model: str) -> tuple[str, ...]:
        """Forget the versions of long ago that are not in use, and what was counted of them; their names."""
        found = self.versions(model)
        rollout = found.rollout if found is not None else None
        used = {member.version for member in self.membership(model).members()}
        used |= {found.stable} if found is not None else set()
        used |= {rollout.before, rollout.candidate} if rollout is not None else set()
        gone = outdated_versions(self._kept_versions(model), used)
        for version in gone:
            self._link.call("HDEL", self._keys.of("warmed"), f"{model}/{version}")
            self._link.call("HDEL", self._keys.of("traffic", model), *version_counts(version))
            self._link.call("DEL", self._keys.of_version(model, version))
            self._link.call("LREM", self._keys.of("kept-versions", model), 0, version)
        return gone

    def begin_versions(self, models: Sequence[ServedModel]) -> None:
        """Make these versions the stable ones, whatever was rolled out before: a service that starts."""
        self._link.call("DEL", self._keys.of("versions"))
        for served in models:
            self._link.call("DEL", self._keys.of("status", ROLLOUT_COMMAND.name(served.name)))
            if served.version:
                versions = ModelVersions(model=served.name, stable=served.version)
                self._link.call("HSET", self._keys.of("versions"), served.name, VERSIONS.encode(versions))

    def continue_versions(self, models: Sequence[ServedModel], spec: ServiceSpec) -> None:
        """Go on with the versions that serve, told what their models are now; a model without any begins with its.

        models: the versions with which they would begin. spec: of the service.
        """
        for served in models:
            self.put_version(served, spec)
            if self.versions(served.name) is None:
                begun = ModelVersions(model=served.name, stable=served.version)
                self._link.call("HSET", self._keys.of("versions"), served.name, VERSIONS.encode(begun))
            for known in self.served_versions(served.name):
                if known.version != served.version:
                    self.put_version(replace(served, version=known.version, backend=known.backend), spec)

    def served_versions(self, model: str) -> tuple[ServedModel, ...]:
        """Facts for agents of the version that serves, and of the one that a rollout brings in."""
        found = self.versions(model)
        names = (found.stable, found.candidate) if found is not None else ()
        keys = [self._keys.of_version(model, name) for name in names if name]
        told = [self._link.call("GET", key) for key in keys]
        return tuple(AGENT_SPEC.decode(data).served for data in told if data is not None)

    def versions(self, model: str) -> ModelVersions | None:
        """The versions of a model; None where they are not told apart."""
        found = self._link.call("HGET", self._keys.of("versions"), model)
        return None if found is None else VERSIONS.decode(found)

    def put_versions(self, versions: ModelVersions, lease: Lease) -> None:
        """Write a model's versions in place of those before. LeaseLost where another has the lease."""
        keys = (self._keys.of("epoch"), self._keys.of("versions"))
        if not self._link.run(PUT_VERSIONS, keys, (lease.epoch, versions.model, VERSIONS.encode(versions))):
            raise LeaseLost(f"{lease.holder} no longer holds the lease (epoch {lease.epoch})")

    def put_clock(self, anchor: ClockAnchor) -> None:
        """Set the service's clock."""
        self._link.call("SET", self._keys.of("clock"), CLOCK.encode(anchor))
        self._link.call("RPUSH", self._keys.of("clocks"), CLOCK.encode(anchor))
        self._link.call("LTRIM", self._keys.of("clocks"), -KEEP_CLOCKS, -1)

    def put_acted_at(self, now: float) -> None:
        """Say to agents that a controller acts, `now` in service time."""
        self._link.call("SET", self._keys.of("acted-at"), repr(now))

    def clock(self) -> ClockAnchor:
        """The service's clock; the wall's own where none is set."""
        return clock_of(self._link.call("GET", self._keys.of("clock")))

    def clocks(self) -> tuple[ClockAnchor, ...]:
        """The anchors that the clock had, the last KEEP_CLOCKS of them, oldest first."""
        return tuple(map(CLOCK.decode, self._link.call("LRANGE", self._keys.of("clocks"), 0, -1)))

    def share_wall(self, offset_s: float) -> float:
        """Share the host's offset of wall from monotonic clock, seconds; `offset_s` where none is stored yet."""
        return share_wall(self._link, self._keys, offset_s)

    def forget_wall(self) -> None:
        """Have it read from this host's system clock anew: the service begins here."""
        forget_wall(self._link, self._keys)

    def members(self) -> tuple[Member, ...]:
        """All agents that announced themselves lately, by instance id."""
        answer = self._link.run(MEMBERS, self._keys.members, (ttl_ms(self._member_ttl_s), 0))
        return members_of(answer)

    def forget_members(self) -> None:
        """Forget all announced agents: a service that starts has none yet."""
        for member in self.members():
            self._link.run(LEAVE, self._keys.members, (ttl_ms(self._member_ttl_s), member.name))

    def put_host(self, instance: str, spec: HostSpec) -> None:
        """Say which models a shared instance is to hold."""
        encoded = HOST_SPEC.encode(spec)
        self._link.call("SET", self._keys.of("host", instance), encoded)
        self._list(self._keys.listing[1], instance, encoded)

    def hosts(self) -> dict[str, HostSpec]:
        """What each shared instance is to hold, by instance."""
        return decoded(self._link.call("HGETALL", self._keys.listing[1]), HOST_SPEC)

    def forget_host(self, instance: str) -> None:
        """Forget what a shared instance that is gone was to hold."""
        self._link.call("DEL", self._keys.of("host", instance))
        self._list(self._keys.listing[1], instance)

    def list_instances(self, model: str, instances: Mapping[str, ListedInstance]) -> None:
        """Say which instances of a model there are, by id: gateways take no agent of another."""
        self._list(self._keys.listing[0], model, LISTED.encode(dict(instances)))

    def _list(self, part: str, name: str, said: bytes = b"") -> None:
        self._link.run(LIST, (part, self._keys.members[2]), (name, said))

    def gateways(self) -> tuple[Peer, ...]:
        """Gateways that announced themselves lately, by name."""
        found = self._link.call("HVALS", self._keys.peers[0])
        return tuple(sorted(map(PEER.decode, found), key=lambda peer: peer.name))

    def membership(self, model: str) -> StoreMembership:
        """The agents of one model."""
        return StoreMembership(self, self._link, self._keys, model)

    def arrivals(self, model: str, first: int, last: int) -> list[int]:
        """Requests in each window from `first` to `last`, both included; 0 where none came or it is long ago."""
        return self._windows("arrivals", model, first, last)

    def shared(self, model: str, first: int, last: int) -> list[int]:
        """The same of those that shared instances took."""
        return self._windows("shared", model, first, last)

    def _windows(self, name: str, model: str, first: int, last: int) -> list[int]:
        counts = self._link.call("HMGET", self._keys.of(name, model), *range(first, last + 1))
        return [int(count or 0) for count in counts]

    def arrived(self, model: str) -> int:
        """All requests that ever came."""
        return int(self._link.call("HGET", self._keys.of("traffic", model), ARRIVED) or 0)

    def traffic(self, model: str) -> ModelTraffic:
        """Totals of all gateways since the service began, without counts by window; gauges of live gateways."""
        keys = traffic_keys(self._keys, model)
        return traffic_totals(model, self._link.run(TRAFFIC, keys, (ttl_ms(GATEWAY_TTL_S),)))

    def report(self, report: GatewayReport) -> None:
        """Count a report that is not a gateway's, once: warm-up pings are billed too."""
        self._link.run(REPORT, report_keys(self._keys, report), report_args(report))

    def put_warmed(self, warmed: Warmed) -> None:
        """Say that environments of a model were warmed."""
        of = f"{warmed.model}/{warmed.version}" if warmed.version else warmed.model
        self._link.call("HSET", self._keys.of("warmed"), of, WARMED.encode(warmed))

    def warmed(self, model: str, version: str = "") -> Warmed | None:
        """The last warm-up of a version's environments; of the model's, where versions are not told apart."""
        found = self._link.call("HGET", self._keys.of("warmed"), f"{model}/{version}" if version else model)
        return None if found is None else WARMED.decode(found)

    def open_journal(
        self, model: str, header: bytes, lease: Lease, *, may_drop: Callable[[int], bool] = lambda _: True
    ) -> StoreJournal:
        """A model's journal to write: its last segment, or a first one that opens with this header.

        may_drop: whether a segment, by its number, was copied to where it is kept.
        """
        return StoreJournal(
            self._link, self._keys, model, header=header, lease=lease, may_drop=may_drop, tail=self._tail
        )

    def take_over(self, lease: Lease, models: Sequence[str]) -> None:
        """Begin a term under a lease that is kept elsewhere: fence the store, and restore what it lost.

        LeaseLost where a later holder was here. Where the store keeps the lease itself there is nothing to do.
        """
        if self._tail is None:
            self.keep_scripts()
            return
        self._link.relocate()  # the node that led may still answer
        if not self._link.run(FENCE, (self._keys.of("epoch"),), (lease.epoch,)):
            raise LeaseLost(f"{lease.holder} no longer holds the lease (epoch {lease.epoch})")
        self.keep_scripts()
        self.clients.restore_copy()
        for model in models:
            restore_journal(self._link, self._keys, model, lease=lease, tail=self._tail)

    def keep_scripts(self) -> None:
        """Have the store know the scripts of those who may not send any: it forgets them when it starts again."""
        known = self._link.call("SCRIPT EXISTS", *(script.sha for script in UNSENT))
        for script, is_known in zip(UNSENT, known, strict=True):
            if not is_known:
                self._link.call("SCRIPT LOAD", script.text)

    def journal_segments(self, model: str) -> range:
        """The numbers of the journal's segments that are kept."""
        return journal_segments(self._link, self._keys, model)

    def journal_lines(self, model: str, segment: int | None = None) -> Iterator[bytes]:
        """The lines of a segment, a header first; the last one by default. Misconfigured where there is none."""
        return journal_lines(self._link, self._keys, model, segment)

    def note(self, transition: Transition) -> None:
        """Write a transition down, once for each instance, state and instant; none of what was compacted."""
        self._ledger_of(transition.model).note(transition)

    def ledger(self, model: str) -> LedgerRecord:
        """A model's ledger; the same record as before where nothing is new: asking again costs little."""
        return self._ledger_of(model).record()

    def transitions(self, model: str) -> tuple[Transition, ...]:
        """The transitions that are kept one by one, by time; those of one instant in order of arrival."""
        return self.ledger(model).transitions

    def compact_ledger(self, model: str, end: float, *, least: int) -> int:
        """Fold what ended before `end` where that takes out `least` transitions; how many it took out."""
        return self._ledger_of(model).compact(end, least)

    def _ledger_of(self, model: str) -> StoredLedger:
        with self._opening:
            if model not in self._ledgers:
                self._ledgers[model] = StoredLedger(self._link, self._keys, model)
            return self._ledgers[model]

    def put_status(self, name: str, document: Mapping[str, Any], *, keep_s: float | None = None) -> None:
        """Keep a JSON document under a name, in place of the one before, for good or for `keep_s` wall seconds."""
        words = () if keep_s is None else ("EX", round(keep_s))
        self._link.call("SET", self._keys.of("status", name), json_text(document, allow_nan=True), *words)

    def status(self, name: str) -> dict[str, Any] | None:
        """The document of that name, if there is one."""
        data = self._link.call("GET", self._keys.of("status", name))
        return None if data is None else dict(json.loads(data))

    def change_status(self, name: str, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]]) -> None:
        """Put `change(document)` in its place; called again where another command changed it meanwhile.

        RetryLater where others change it all the time.
        """
        key = self._keys.of("status", name)
        for _ in range(TRIES):
            kept = self._link.call("GET", key)
            changed = change(None if kept is None else dict(json.loads(kept)))
            if self._link.run(SWAP, (key,), (kept or b"", json_text(changed, allow_nan=True))):
                return
        raise RetryLater(f"the document {name} is changed by others all the time; try again")


class StoreMembership:
    """The Membership port of one model."""

    def __init__(self, store: ServiceStore, link: Link, keys: Keys, model: str) -> None:
        self._store = store
        self._link = link
        self._drains = keys.drains
        self._model = model

    def members(self) -> tuple[Member, ...]:
        """Agents that announced themselves lately, by instance id."""
        return tuple(member for member in self._store.members() if member.model == self._model)

    def list_instances(self, instances: Mapping[str, ListedInstance]) -> None:
        """Say which instances there are, by id: gateways take no agent of another."""
        self._store.list_instances(self._model, instances)

    def drain(self, instances: Sequence[str]) -> None:
        """Request that these drain: their agents get it with each announcement."""
        if instances:
            self._link.run(DRAIN, self._drains, (ttl_ms(KEEP_DRAINS_S), *instances))

    def undrain(self, instances: Sequence[str]) -> None:
        """Forget such requests: a standby that is woken again may serve, whatever became of it before."""
        if instances:
            self._link.call("SREM", self._drains[0], *instances)
            self._link.call("ZREM", self._drains[1], *instances)

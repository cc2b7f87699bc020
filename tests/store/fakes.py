"""The store's ports in memory, for tests of those who use them. It passes the same contract as the real one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mark.domain.billing.spending import SpendingLimit
from mark.domain.clients import ClientDirectory
from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import Member, Peer
from mark.domain.load.traffic import GatewayReport, Warmed
from mark.domain.models.versions import ModelVersions


class FakeStore:
    """One service's store: GatewayLink and AgentLink at once; `membership` gives Membership.

    `now` tells the wall's seconds by which silent agents expire. `reports` holds what was counted.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic, member_ttl_s: float = 3.0) -> None:
        self.anchor = ClockAnchor()
        self.acted: float | None = None
        self.directory = ClientDirectory()
        self.reports: list[GatewayReport] = []
        self._now = now
        self._ttl_s = member_ttl_s
        self.warmings: dict[tuple[str, str], Warmed] = {}
        self._members: dict[str, Member] = {}
        self._seen_at: dict[str, float] = {}
        self._draining: set[str] = set()
        self._sequences: dict[str, int] = {}
        self._version = 0
        self._failures: list[MarkError] = []
        self._peers: dict[str, tuple[Peer, float]] = {}

    def fail_next(self, *errors: MarkError) -> None:
        """Have the next calls raise these, one each."""
        self._failures += errors

    async def members_version(self) -> int:
        self._before_each_call()
        return self._version

    async def members(self) -> Sequence[Member]:
        self._before_each_call()
        return self.members_now()

    async def clock(self) -> ClockAnchor:
        self._before_each_call()
        return self.anchor

    async def acted_at(self) -> float | None:
        self._before_each_call()
        return self.acted

    async def spending_limit(self) -> SpendingLimit:
        return SpendingLimit.NONE

    async def versions(self) -> Sequence[ModelVersions]:
        self._before_each_call()
        return ()

    async def clients(self) -> ClientDirectory:
        self._before_each_call()
        return self.directory

    async def warmed(self) -> Sequence[Warmed]:
        self._before_each_call()
        return tuple(self.warmings[whose] for whose in sorted(self.warmings))

    def put_warmed(self, warmed: Warmed) -> None:
        self.warmings[warmed.model, warmed.version] = warmed

    async def report(self, report: GatewayReport) -> None:
        self._before_each_call()
        if report.sequence > self._sequences.get(report.gateway, -1):
            self._sequences[report.gateway] = report.sequence
            self.reports.append(report)

    async def announce_gateway(self, peer: Peer) -> Sequence[Peer]:
        self._before_each_call()
        self._peers[peer.name] = peer, self._now()
        silent = [name for name, (_, seen_at) in self._peers.items() if self._now() - seen_at > self._ttl_s]
        for name in silent:
            del self._peers[name]
        return tuple(self._peers[name][0] for name in sorted(self._peers))

    async def leave_gateways(self, name: str) -> None:
        self._before_each_call()
        self._peers.pop(name, None)

    async def announce(self, member: Member) -> bool:
        self._before_each_call()
        self._seen_at[member.instance] = self._now()
        if self._members.get(member.instance) != member:
            self._members[member.instance] = member
            self._version += 1
        return member.instance in self._draining

    async def leave(self, instance: str) -> None:
        self._before_each_call()
        if self._members.pop(instance, None):
            self._version += 1

    def membership(self, model: str) -> FakeMembership:
        return FakeMembership(self, model)

    def drain(self, instances: Sequence[str]) -> None:
        self._before_each_call()
        self._draining.update(instances)

    def undrain(self, instances: Sequence[str]) -> None:
        self._draining.difference_update(instances)

    def members_now(self) -> tuple[Member, ...]:
        self._expire()
        return tuple(self._members[instance] for instance in sorted(self._members))

    def arrivals(self, model: str, first: int, last: int) -> list[int]:
        counts = Counter[int]()
        for seen in (seen for report in self.reports for seen in report.models if seen.model == model):
            for window, requests in seen.arrivals:
                counts[window] += requests
        return [counts[window] for window in range(first, last + 1)]

    def _before_each_call(self) -> None:
        if self._failures:
            raise self._failures.pop(0)
        self._expire()

    def _expire(self) -> None:
        silent = [i for i in self._members if self._now() - self._seen_at[i] > self._ttl_s]
        for instance in silent:
            del self._members[instance]
        self._version += bool(silent)


class FakeMembership:
    """The Membership port of one model of a FakeStore."""

    def __init__(self, store: FakeStore, model: str) -> None:
        self._store = store
        self._model = model

    def members(self) -> Sequence[Member]:
        return tuple(member for member in self._store.members_now() if member.model == self._model)

    def drain(self, instances: Sequence[str]) -> None:
        self._store.drain(instances)

    def undrain(self, instances: Sequence[str]) -> None:
        self._store.undrain(instances)

    def list_instances(self, _: Mapping[str, ListedInstance]) -> None:
        """The fake takes every member."""

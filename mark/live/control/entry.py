"""Where requests come in, live: zones of the gateways that are up, and what the instances in each zone pull."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.member import Member, MemberState, Peer
from mark.domain.front import Front, entry_shares, steered_shares
from mark.domain.load.traffic import ModelTraffic
from mark.live.models import LiveModel

LOOK_EACH_S = 1.0
"""Real seconds between two looks at gateways and agents: models ask one after another."""
MEASURE_EACH_S = 60.0
"""Real seconds over which the gateways' parts of the load are measured."""
HOUR_S = 3600.0


class EntryStore(Protocol):
    """The part of the store that tells it."""

    def gateways(self) -> Sequence[Peer]:
        """Gateways that announced themselves lately."""
        ...

    def members(self) -> Sequence[Member]:
        """Agents that announced themselves lately."""
        ...

    def traffic(self, model: str, /) -> ModelTraffic:
        """Totals of all gateways."""
        ...


class LiveFront:
    """Where requests come in, as controllers and the nodes' name need it. Errors: RetryLater.

    crossing_usd: what a request of each model costs that crosses. is_steered: a name that clients call follows
    `shares`; else requests come in evenly or as a balancer has it, which gateways count.
    """

    def __init__(
        self,
        store: EntryStore,
        crossing_usd: Mapping[str, float],
        *,
        is_steered: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._crossing_usd, self._is_steered = store, crossing_usd, is_steered
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._look_at = self._measure_at = -math.inf
        self._zones: list[str] = []
        self._pulls: dict[str, dict[str, float]] = {}
        self._counted: Counter[str] | None = None
        self._entered: Counter[str] = Counter()

    def of(self, model: str) -> Front | None:
        """The front as a model's controller sees it, `SHARED` for shared instances; None without zones."""
        with self._lock:
            self._look()
            if not self._zones:
                return None
            beside = _added(pulls for name, pulls in self._pulls.items() if name != model)
            shares = tuple(sorted(entry_shares(self._zones, self._entered).items()))
            return Front(shares=shares, is_steered=self._is_steered, beside=tuple(sorted(beside.items())))

    def shares(self) -> dict[str, float]:
        """The share of the requests that each zone with a gateway is to get; empty without zones."""
        with self._lock:
            self._look()
            pulls = _added(self._pulls.values()) if self._is_steered else {}
            return steered_shares(pulls, sorted(set(self._zones)))

    def _look(self) -> None:
        now = self._monotonic()
        if now < self._look_at:
            return
        self._zones = [peer.zone for peer in self._store.gateways() if peer.zone]
        self._pulls = self._pulled()
        if not self._is_steered and now >= self._measure_at:
            self._measure_at = now + MEASURE_EACH_S
            self._measure()
        self._look_at = now + LOOK_EACH_S

    def _pulled(self) -> dict[str, dict[str, float]]:
        """What instances that serve pull by zone, USD an hour: of each model's own, and of the shared ones."""
        found: dict[str, dict[str, float]] = {}
        for member in self._store.members():
            rps = member.capacity_rps if member.share_rps is None else member.share_rps
            usd = HOUR_S * rps * self._crossing_usd.get(member.model, 0.0)
            if member.zone and usd and member.state is MemberState.READY:
                of = found.setdefault(SHARED if member.is_tenant else member.model, {})
                of[member.zone] = of.get(member.zone, 0.0) + usd
        return found

    def _measure(self) -> None:
        counted: Counter[str] = Counter()
        for model in self._crossing_usd:
            counted.update(dict(self._store.traffic(model).entered))
        if self._counted is not None:
            self._entered = counted - self._counted
        self._counted = counted


def _added(pulls: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in pulls:
        for zone, usd in one.items():
            found[zone] = found.get(zone, 0.0) + usd
    return found


def front_of(store: EntryStore, models: Sequence[LiveModel], *, is_steered: bool) -> LiveFront:
    """Where the requests of these models come in.

    Gateways that keep central queues share instances equally, so requests come in evenly there.
    """
    steered = is_steered and not any(one.served.has_central_queue for one in models)
    return LiveFront(store, {one.name: one.served.crossing_usd for one in models}, is_steered=steered)

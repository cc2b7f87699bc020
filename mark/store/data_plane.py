"""The data plane's side of the store: what gateways and agents ask of it, without blocking their loops."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from mark.domain.billing.spending import SpendingLimit
from mark.domain.clients import ClientDirectory
from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured
from mark.domain.fleet.host_spec import HostSpec
from mark.domain.fleet.listing import Listing
from mark.domain.fleet.member import Member, Peer
from mark.domain.load.traffic import GatewayReport, Warmed
from mark.domain.models.versions import ModelVersions
from mark.service_spec import AgentSpec, ServiceSpec
from mark.store.clients import clients_of
from mark.store.codec import AGENT_SPEC, HOST_SPEC, LISTED, MEMBER, PEER, VERSIONS, WARMED
from mark.store.connect import AsyncLink
from mark.store.documents import MEMBER_TTL_S, clock_of, decoded, members_of, spec_of, ttl_ms
from mark.store.hosts import share_wall_async
from mark.store.keys import Keys
from mark.store.scripts import ANNOUNCE, LEAVE, LEAVE_PEERS, MEMBERS, PEERS, REPORT, VERSION
from mark.store.traffic import report_args, report_keys


class GatewayStore:
    """The GatewayLink port."""

    def __init__(self, link: AsyncLink, service: str, *, member_ttl_s: float = MEMBER_TTL_S) -> None:
        self._link = link
        self._listing = Listing()
        self._keys = Keys(service)
        self._ttl_ms = ttl_ms(member_ttl_s)

    async def share_wall(self, offset_s: float) -> float:
        """Share the host's offset of wall from monotonic clock, seconds; `offset_s` where none is stored yet."""
        return await share_wall_async(self._link, self._keys, offset_s)

    async def spec(self) -> ServiceSpec:
        """Read the service's spec; Misconfigured where there is none."""
        return spec_of(self._keys, await self._link.call("GET", self._keys.of("spec")))

    async def members_version(self) -> int:
        """Rises when a member appears, changes, leaves or has been silent for too long; 0 before the first."""
        return int(await self._link.run(VERSION, self._keys.members, (self._ttl_ms,)))

    async def members(self) -> tuple[Member, ...]:
        """Members that announced themselves lately, by name, of instances that controllers list."""
        members = members_of(await self._link.run(MEMBERS, self._keys.members, (self._ttl_ms, 1)))
        fleet, held = [await self._link.call("HGETALL", key) for key in self._keys.listing]
        models = decoded(fleet, LISTED)
        self._listing = self._listing.updated(Listing(models=models, held=decoded(held, HOST_SPEC)))
        return self._listing.of(members)

    async def clock(self) -> ClockAnchor:
        """The service's clock; the wall's own where none is set."""
        return clock_of(await self._link.call("GET", self._keys.of("clock")))

    async def warmed(self) -> tuple[Warmed, ...]:
        """The last warm-up of each model's function and of its versions, by model and version."""
        found = await self._link.call("HVALS", self._keys.of("warmed"))
        return tuple(sorted(map(WARMED.decode, found), key=lambda warmed: (warmed.model, warmed.version)))

    async def spending_limit(self) -> SpendingLimit:
        """The limit that a budget or a pause sets; none before a controller has counted."""
        told = await self._link.call("GET", self._keys.of("status", "budget"))
        return SpendingLimit.NONE if told is None else SpendingLimit(json.loads(told)["limited_by"])

    async def versions(self) -> tuple[ModelVersions, ...]:
        """The versions of each model that has some, by model."""
        found = await self._link.call("HVALS", self._keys.of("versions"))
        return tuple(sorted(map(VERSIONS.decode, found), key=lambda one: one.model))

    async def clients(self) -> ClientDirectory:
        """The clients and their keys' hashes; version 0 where there never was one."""
        return clients_of(await self._link.call("GET", self._keys.of("clients")))

    async def report(self, report: GatewayReport) -> None:
        """Have it counted, once however often it is sent. Reports of one gateway are sent one after another."""
        await self._link.run(REPORT, report_keys(self._keys, report), report_args(report))

    async def announce_gateway(self, peer: Peer) -> tuple[Peer, ...]:
        """Say that this gateway is there (and again four times a second); those that said so lately, by name."""
        found = await self._link.run(PEERS, self._keys.peers, (self._ttl_ms, peer.name, PEER.encode(peer)))
        return tuple(sorted(map(PEER.decode, found), key=lambda other: other.name))

    async def leave_gateways(self, name: str) -> None:
        """Say that this gateway is there no more."""
        await self._link.run(LEAVE_PEERS, self._keys.peers, (name,))


class AgentStore:
    """The AgentLink port."""

    def __init__(self, link: AsyncLink, service: str, *, member_ttl_s: float = MEMBER_TTL_S) -> None:
        self._link = link
        self._keys = Keys(service)
        self._ttl_ms = ttl_ms(member_ttl_s)

    async def share_wall(self, offset_s: float) -> float:
        """Share the host's offset of wall from monotonic clock, seconds; `offset_s` where none is stored yet."""
        return await share_wall_async(self._link, self._keys, offset_s)

    async def spec(self, model: str, version: str = "") -> AgentSpec:
        """Read what agents of the model are told, no more of the service; Misconfigured where nothing is.

        version: of the model; empty for the one with which the service began.
        """
        data = await self._link.call("GET", self._keys.of_version(model, version))
        if data is None:
            named = f"model {model!r}" + (f" in version {version}" if version else "")
            raise Misconfigured(f"the store has no {named} of the service {self._keys.service!r}")
        return AGENT_SPEC.decode(data)

    async def announce(self, member: Member) -> bool:
        """Say that it is there (and again each second); whether it shall drain."""
        encoded = MEMBER.encode(member)
        # what a model took of its device is no news to gateways, and changes with each batch
        news = MEMBER.encode(replace(member, busy_s=0.0)) if member.busy_s else encoded
        args = (self._ttl_ms, member.name, encoded, _digest(news))
        return bool(await self._link.run(ANNOUNCE, self._keys.announced, args))

    async def leave(self, name: str) -> None:
        """Say that this member is there no more."""
        await self._link.run(LEAVE, self._keys.members, (self._ttl_ms, name))

    async def host(self, instance: str) -> HostSpec | None:
        """The models that a shared instance is to hold; None before anybody has said."""
        data = await self._link.call("GET", self._keys.of("host", instance))
        return None if data is None else HOST_SPEC.decode(data)

    async def clock(self) -> ClockAnchor:
        """The service's clock; the wall's own where none is set."""
        return clock_of(await self._link.call("GET", self._keys.of("clock")))

    async def acted_at(self) -> float | None:
        """The last sign of a controller that acts, service time; None before the first."""
        told = await self._link.call("GET", self._keys.of("acted-at"))
        return None if told is None else float(told)


def _digest(encoded: bytes) -> int:
    """48 bits of a hash, which a score of Redis holds exactly."""
    return int.from_bytes(hashlib.sha256(encoded).digest()[:6])

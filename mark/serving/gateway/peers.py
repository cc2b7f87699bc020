"""Ownership of idempotency keys among the gateways of a service.

Each id that a client chose has one owner. Another gateway forwards a request with that id to the owner's HTTP
port, where it finds the execution in flight or its response. Requests without such an id are not affected. A
gateway reads its peers from the store four times a second and health-checks each once a second; those that are up
share the ids by rendezvous hashing, so that a gateway which comes or goes moves only its own.

An id may be executed more than once while gateways disagree about who is up: for a fraction of a second when one
joins, as long as they cannot reach each other (partition), and where an owner crashes with the request. While the
store is unreachable they keep the last known peers.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from mark.domain.errors import RetryLater
from mark.domain.fleet.member import Peer
from mark.ports import GatewayLink
from mark.serving.gateway.central.shares import draw
from mark.serving.gateway.held_requests import MOST_HELD
from mark.serving.gateway.request import InferenceRequest
from mark.serving.http.client import HttpAnswer, HttpClient
from mark.serving.unexpected_errors import UnexpectedErrors

log = logging.getLogger("mark.gateway")
PEERS_S = 0.25
"""Period of a gateway's announcement, and of reading its peers."""
PROBE_S = 1.0
"""Period and time-out of the health check of each peer."""
ALIVE = "/v2/health/live"
OK = 200
SLOTS = 256
MOST_CONNECTIONS = 256
"""To each peer; requests beyond them wait."""
FORWARDED = "x-mark-forwarded"
"""Header with the sender's name: a forwarded request is never forwarded again."""
_OWN = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding"})
_NOT_PASSED_ON = frozenset({"connection", "content-length", "content-type", "date", "transfer-encoding"})


class PeerGateway:
    """A peer gateway. `is_up`: the result of the last health check."""

    def __init__(self, peer: Peer) -> None:
        host = f"[{peer.host}]" if ":" in peer.host else peer.host
        self.peer = peer
        url = f"http://{host}:{peer.port}"
        self.client = HttpClient(url, connections=MOST_CONNECTIONS, certificate=peer.certificate)
        #: for requests of the async class, which take their connections for hours
        self.client_of_held = HttpClient(url, connections=MOST_HELD, certificate=peer.certificate)
        self.is_up = False
        self.unlisted = 0

    async def is_alive(self) -> bool:
        """Health check."""
        try:
            return (await self.client.request("GET", ALIVE, timeout_s=PROBE_S)).status == 200
        except RetryLater:
            return False

    async def forward(
        self, request: InferenceRequest, by: str, within_s: float, *, is_held: bool = False
    ) -> HttpAnswer:
        """Send a client's request to this peer. is_held: it waits there for capacity. Errors: RetryLater.

        One for the head alone asks the peer for the whole: the client waits for the body that an answer announces.
        """
        headers = {
            name: value.decode("latin-1") for name, value in request.headers.items() if name not in _OWN
        } | {FORWARDED: by}
        if request.trace is not None:
            headers |= request.trace.context.headers
        method = "GET" if request.method == b"HEAD" else request.method.decode()
        target = request.target.decode("latin-1")
        client = self.client_of_held if is_held else self.client
        return await client.request(method, target, timeout_s=within_s, body=request.body, headers=headers)

    async def close(self) -> None:
        """Close the connections; calls in flight get RetryLater."""
        await self.client.close()
        await self.client_of_held.close()


def forwarded_headers(headers: Mapping[str, str]) -> bytes:
    """Header lines of the owner's response that the client gets."""
    return b"".join(
        f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items() if name not in _NOT_PASSED_ON
    )


class Peers:
    """Membership and health of the peer gateways. Made and used in one event loop.

    changed: called with the gateways that are up, this one among them, and their zones, where they change.
    """

    def __init__(
        self, unexpected: UnexpectedErrors, changed: Callable[[Mapping[str, str]], None] | None = None
    ) -> None:
        self._unexpected = unexpected
        self._changed = changed
        self._me: Peer | None = None
        self._left = False
        self._others: dict[str, PeerGateway] = {}
        self._slots: list[PeerGateway | None] = []
        self._probes: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """This gateway's name among its peers."""
        return self._me.name if self._me is not None else ""

    @property
    def count(self) -> int:
        """Peers that are up."""
        return sum(other.is_up for other in self._others.values())

    @property
    def up(self) -> list[Peer]:
        """The gateways that are up as they announced themselves last, this one first."""
        others = [other.peer for other in self._others.values() if other.is_up]
        return others if self._me is None else [self._me, *others]

    def owner(self, request_id: bytes) -> PeerGateway | None:
        """The owner of an id; None for this gateway itself."""
        slots = self._slots
        return slots[zlib.crc32(request_id) % SLOTS] if slots else None

    async def join(self, me: Peer, link: GatewayLink) -> None:
        """Announce this gateway; with peers, wait until they have had time to see it."""
        self._me = me
        await self.follow(link)
        if self._others:
            await asyncio.gather(*self._probes)
            await asyncio.sleep(2 * PEERS_S)

    async def follow(self, link: GatewayLink, loads: tuple[tuple[str, float], ...] = ()) -> None:
        """Announce this gateway again, with its load by model, and read the peers. Errors: RetryLater."""
        if self._me is None or self._left:
            return
        self._me = replace(self._me, loads=loads)
        listed = {peer.name: peer for peer in await link.announce_gateway(self._me) if peer != self._me}
        for name, peer in listed.items():
            if name not in self._others:
                self._others[name] = PeerGateway(peer)
                self._probe(self._others[name])
            self._others[name].peer = peer
        for name, other in tuple(self._others.items()):
            other.unlisted = 0 if name in listed else other.unlisted + 1
            if other.unlisted > 1:  # once may be a store that lost all and gets it back at once
                del self._others[name]
                self._assign_slots()
                await other.close()

    async def ask_all(self, request: InferenceRequest) -> list[bytes]:
        """Answers of the peers that are up to a client's own request; one that gives none is left out."""
        found = await asyncio.gather(
            *(other.forward(request, self.name, PROBE_S) for other in self._others.values() if other.is_up),
            return_exceptions=True,
        )
        for error in found:
            if isinstance(error, BaseException) and not isinstance(error, RetryLater):
                raise error
        return [one.body for one in found if isinstance(one, HttpAnswer) and one.status == OK]

    async def probe(self) -> None:
        """Start a health check of each peer."""
        for other in self._others.values():
            self._probe(other)

    async def leave(self, link: GatewayLink) -> None:
        """Withdraw the announcement; this gateway still answers. Errors: RetryLater."""
        self._left = True
        if self._me is not None:
            await link.leave_gateways(self._me.name)

    async def close(self) -> None:
        """Close the connections to the peers."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        for other in self._others.values():
            await other.close()

    def lost(self, other: PeerGateway) -> None:
        """Failover after an unanswered request: other gateways own its ids until a health check succeeds."""
        self._note(other, is_up=False)

    def _probe(self, other: PeerGateway) -> None:
        task = asyncio.get_running_loop().create_task(self._check(other))
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    async def _check(self, other: PeerGateway) -> None:
        try:
            self._note(other, is_up=await other.is_alive())
        except Exception as error:  # noqa: BLE001 - the driver of one health check: the next is in a second
            self._unexpected.note(error, gateway=other.peer.name)

    def _note(self, other: PeerGateway, *, is_up: bool) -> None:
        if other.is_up != is_up:
            other.is_up = is_up
            log.info(
                "peer gateway up" if is_up else "peer gateway down",
                extra={"gateway": other.peer.name},
            )
            self._assign_slots()

    def _assign_slots(self) -> None:
        """Assign each slot of ids to the gateway that is up and has the highest hash (rendezvous hashing)."""
        up: list[PeerGateway | None] = [other for other in self._others.values() if other.is_up]
        me = self._me
        self._slots = [] if not up or me is None else [
            max([None, *up], key=lambda other: draw(me.name if other is None else other.peer.name, slot))
            for slot in range(SLOTS)
        ]  # fmt: skip
        if self._changed is not None and me is not None:
            self._changed({peer.name: peer.zone for peer in self.up})

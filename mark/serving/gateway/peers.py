"""The gateways of a service among themselves: which of them runs a request whose client chose its id.

Each id has one owner, the same in all gateways' eyes: a repetition that arrives elsewhere is asked of the owner,
over its HTTP port, and so finds the request in flight or its answer. Requests without an id of the client's know
nothing of this. A gateway learns the others from the store four times a second and asks each whether it is there;
those that are share the ids by rendezvous hashing, so that one which comes or goes moves its own only.

While the gateways do not agree who is there, an id may run once on each side: for a fraction of a second when one
comes, as long as they cannot reach each other, and where the owner crashes with what it ran. Where the store is
away they go on with those they knew.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Mapping
from hashlib import blake2b

from mark.domain.errors import RetryLater
from mark.domain.member import Peer
from mark.ports import GatewayLink
from mark.serving.backends.http_client import HttpAnswer, HttpClient
from mark.serving.gateway.request import InferenceRequest
from mark.serving.unexpected_errors import UnexpectedErrors

log = logging.getLogger("mark.gateway")
PEERS_S = 0.25
"""How often a gateway says that it is there, and asks who else is."""
PROBE_S = 1.0
"""How often each other gateway is asked whether it is there, and how long it may take to say so."""
ALIVE = "/v2/health/live"
SLOTS = 256
MOST_CONNECTIONS = 256
"""To each other gateway; what comes beyond them waits for one."""
FORWARDED = "x-mark-forwarded"
"""Names the gateway that asks: whoever is asked runs the request, so that none goes round."""
_OWN = frozenset({"connection", "content-length", "expect", "host", "transfer-encoding"})
_NOT_PASSED_ON = frozenset({"connection", "content-length", "content-type", "date", "transfer-encoding"})


class OtherGateway:
    """One of the others. `is_up`: it answered when it was last asked."""

    def __init__(self, peer: Peer) -> None:
        host = f"[{peer.host}]" if ":" in peer.host else peer.host
        self.peer = peer
        self.client = HttpClient(f"http://{host}:{peer.port}", connections=MOST_CONNECTIONS)
        self.is_up = False
        self.unlisted = 0

    async def answers(self) -> bool:
        """Whether it is there."""
        try:
            return (await self.client.request("GET", ALIVE, timeout_s=PROBE_S)).status == 200
        except RetryLater:
            return False

    async def ask(self, request: InferenceRequest, by: str, within_s: float) -> HttpAnswer:
        """What it answers to a client's request. Errors: RetryLater."""
        headers = {
            name: value.decode("latin-1") for name, value in request.headers.items() if name not in _OWN
        } | {FORWARDED: by}
        method, target = request.method.decode(), request.target.decode("latin-1")
        return await self.client.request(method, target, timeout_s=within_s, body=request.body, headers=headers)


def passed_on(headers: Mapping[str, str]) -> bytes:
    """The header lines of an owner's answer that its client gets."""
    return b"".join(
        f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items() if name not in _NOT_PASSED_ON
    )


class Peers:
    """The other gateways, as one sees them. Made and used in one event loop."""

    def __init__(self, unexpected: UnexpectedErrors) -> None:
        self._unexpected = unexpected
        self._me: Peer | None = None
        self._left = False
        self._others: dict[str, OtherGateway] = {}
        self._slots: list[OtherGateway | None] = []
        self._probes: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """This gateway's, as the others know it."""
        return self._me.name if self._me is not None else ""

    @property
    def count(self) -> int:
        """Others that share the ids with this one."""
        return sum(other.is_up for other in self._others.values())

    def owner(self, request_id: bytes) -> OtherGateway | None:
        """Who runs requests with this id; None for this gateway itself."""
        slots = self._slots
        return slots[zlib.crc32(request_id) % SLOTS] if slots else None

    async def join(self, me: Peer, link: GatewayLink) -> None:
        """Announce this gateway; where there are others, wait until they have had time to see it."""
        self._me = me
        await self.follow(link)
        if self._others:
            await asyncio.gather(*self._probes)
            await asyncio.sleep(2 * PEERS_S)

    async def follow(self, link: GatewayLink) -> None:
        """Announce this gateway again, and see who else is there. Errors: RetryLater."""
        if self._me is None or self._left:
            return
        listed = {peer.name: peer for peer in await link.announce_gateway(self._me) if peer != self._me}
        for name, peer in listed.items():
            if name not in self._others:
                self._others[name] = OtherGateway(peer)
                self._probe(self._others[name])
        for name, other in tuple(self._others.items()):
            other.unlisted = 0 if name in listed else other.unlisted + 1
            if other.unlisted > 1:  # the first time the store may have lost all, and hear it again at once
                del self._others[name]
                self._share_out()
                await other.client.close()

    async def probe(self) -> None:
        """Ask the others whether they are there."""
        for other in self._others.values():
            self._probe(other)

    async def leave(self, link: GatewayLink) -> None:
        """Say that this gateway is there no more; it still answers. Errors: RetryLater."""
        self._left = True
        if self._me is not None:
            await link.leave_gateways(self._me.name)

    async def close(self) -> None:
        """Break the connections to the others."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        for other in self._others.values():
            await other.client.close()

    def lost(self, other: OtherGateway) -> None:
        """It did not answer a request: others own its ids until it answers again."""
        self._note(other, is_up=False)

    def _probe(self, other: OtherGateway) -> None:
        task = asyncio.get_running_loop().create_task(self._look(other))
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    async def _look(self, other: OtherGateway) -> None:
        try:
            self._note(other, is_up=await other.answers())
        except Exception as error:  # noqa: BLE001 - the driver of one look: the next is in a second
            self._unexpected.note(error, gateway=other.peer.name)

    def _note(self, other: OtherGateway, *, is_up: bool) -> None:
        if other.is_up != is_up:
            other.is_up = is_up
            log.info(
                "peer gateway up" if is_up else "peer gateway down",
                extra={"gateway": other.peer.name},
            )
            self._share_out()

    def _share_out(self) -> None:
        """Who owns which slot of ids: of those that are there, the one with the highest draw."""
        up: list[OtherGateway | None] = [other for other in self._others.values() if other.is_up]
        me = self._me
        self._slots = [] if not up or me is None else [
            max([None, *up], key=lambda other: _draw(me.name if other is None else other.peer.name, slot))
            for slot in range(SLOTS)
        ]  # fmt: skip


def _draw(name: str, slot: int) -> bytes:
    return blake2b(f"{name}/{slot}".encode(), digest_size=8).digest()

"""Configuration of a gateway's process."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mark.serving.http.http_server import HttpServer
from mark.serving.http.limits import HttpLimits


class Listener(Protocol):
    """A way in beside HTTP, to the same handler."""

    async def start(self) -> None:
        """Take requests."""

    async def stop(self, grace_s: float) -> None:
        """Take no more requests, and end those that are not answered after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Address, access and limits of a gateway. `name` tells gateways apart in the store and in metrics.

    port: 0 takes a free one. own_address: where clients and other gateways reach this one and no other, on `port`
    (an instance's private address); None where several share the port: each then has one more, on loopback. token:
    what clients must present as `Authorization: Bearer`; None for all comers. local_only: refuse requests whose
    Host is neither an address nor localhost.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 0
    own_address: str | None = None
    token: str | None = None
    local_only: bool = False
    tls: ssl.SSLContext | None = None
    #: The availability zone that it stands in; empty where it is not known.
    zone: str = ""
    #: Where peers reach a gateway whose clients use TLS, on `own_address`; 0 takes a free one.
    peer_port: int = 0
    #: Name among those that share the port, the same in each life; empty where it is scraped by itself.
    shared_as: str = ""
    #: Makes another way in, bound to its port. Errors: Misconfigured.
    beside: Callable[[HttpServer], Listener] | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReader:
    """Reads which tokens count, by a call that may wait; errors: MarkError."""

    read: Callable[[], Sequence[str]]
    #: Seconds between two readings, and after one that failed.
    each_s: float
    again_s: float

"""HTTP/1.1 in front of gateway and agent: the connections of one port, their limits and time-outs."""

from __future__ import annotations

import asyncio
import logging

from mark.serving.http.body_budget import BodyBudget
from mark.serving.http.connection import HttpConnection
from mark.serving.http.exchange import HttpExchange
from mark.serving.http.limits import Admits, Handler, HttpLimits, OnError
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors


def _admits_all(_target: bytes, _headers: dict[str, bytes]) -> bool:
    return True


class HttpServer:
    """All connections of one listening port. `make` makes an HttpExchange or a subclass of it.

    on_defect: answers a request on which the handler raised, if it has no answer yet. admits: whether the handler
    will do more than refuse a request with this target and these headers; if not, a large body is not read.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        make: type[HttpExchange] = HttpExchange,
        limits: HttpLimits | None = None,
        on_error: OnError | None = None,
        admits: Admits | None = None,
        unexpected: UnexpectedErrors | None = None,
    ) -> None:
        self.handler, self.make = handler, make or HttpExchange
        self.admits = admits or _admits_all
        self.unexpected = unexpected or UnexpectedErrors(logging.getLogger("mark.http"))
        self.on_error = on_error or self._refuse
        self.limits = limits or HttpLimits()
        self.budget = BodyBudget(self.limits.bodies_bytes)
        self.connections: set[HttpConnection] = set()
        self.refused = 0
        self.is_leaving = False
        self._sweeping: asyncio.TimerHandle | None = None

    def connection(self) -> HttpConnection:
        """For `create_server`."""
        return HttpConnection(self)

    def start(self) -> None:
        """Begin to look for slow connections."""
        self._sweeping = asyncio.get_running_loop().call_later(self.limits.sweep_s, self._sweep)

    def leave(self) -> None:
        """Let each connection go with its last answer, so that its client calls another server from then on."""
        self.is_leaving = True

    def close_idle(self) -> None:
        """Close the connections that wait for no answer."""
        for connection in tuple(self.connections):
            connection.close_if_idle()

    async def close(self) -> None:
        """Drop all connections, and wait until the loop has let go of them."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in tuple(self.connections):
            connection.abort()
        while self.connections:
            await asyncio.sleep(0)

    def _sweep(self) -> None:
        self.start()
        for connection in tuple(self.connections):
            try:
                connection.check_timeouts(self.limits.sweep_s)
            except Exception as error:  # noqa: BLE001 - the others are to be looked at all the same
                self.unexpected.note(error)
                connection.abort()

    def _refuse(self, exchange: HttpExchange, error: Exception) -> None:
        self.unexpected.note(error, target=exchange.target[:200].decode("latin-1"))
        exchange.refuse(500, INTERNAL_ERROR)

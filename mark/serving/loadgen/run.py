"""An open loop of requests: each is sent when it is due, whatever became of the ones before.

Latency counts from the intended instant, so a service that stalls cannot hide it by slowing the sender down. One
whose connection was reset is sent once more with the same id; its latency still counts from the first intent.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from mark.domain.errors import Misconfigured
from mark.domain.load.traffic import is_rejection
from mark.serving.http.client import ClientConnection, HttpAnswer, Lost

GIVE_UP_S = 65.0
"""Longer than any service of ours keeps a request before it gives up itself."""
MAX_CONNECTIONS = 2000
REPORT_EACH_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The gateway to load: host and port, a path, and the body of each request."""

    host: str
    port: int
    path: str
    body: bytes
    token: str | None = None
    tls: ssl.SSLContext | None = None


@dataclass(slots=True)
class LoadResult:
    """Counts and latencies of one load.

    latencies_s: one value for each answer, seconds since it was due. `rejected`: client errors (4xx); they are in
    `errors` too, and the objective does not count them. variants: answers by the variant that gave them.
    """

    objective_s: float
    sent: int = 0
    in_time: int = 0
    in_flight: int = 0
    rejected: int = 0
    by: Counter[str] = field(default_factory=Counter)
    variants: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """Requests that a model answered."""
        return len(self.latencies_s)

    @property
    def attained(self) -> float | None:
        """Share of the finished requests that were answered within the objective; None where none finished."""
        finished = self.sent - self.in_flight - self.rejected
        return self.in_time / finished if finished else None


@dataclass(slots=True)
class _Sent:
    number: int
    due_at: float
    size: int
    again: bool = False


class Load:
    """One run of requests against a target."""

    def __init__(self, target: Target, *, objective_s: float, run_id: str) -> None:
        self.result = LoadResult(objective_s=objective_s)
        self._target = target
        self._run_id = run_id
        self._idle: deque[ClientConnection] = deque()
        self._open: set[ClientConnection] = set()
        self._opening = 0
        self._waiting: deque[_Sent] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def run(
        self,
        due_s: Sequence[float],
        sizes: Sequence[int] | None = None,
        *,
        stop: asyncio.Event,
        progress: Callable[[LoadResult, float], None] = lambda _result, _share: None,
    ) -> LoadResult:
        """Send a request at each of `due_s`, seconds from now, rising. `progress` gets the share sent, in [0, 1].

        sizes: items of each; None where all have one. Setting `stop` ends it early; what is in flight is awaited.
        """
        began = self._loop.time()
        reported = began
        total = len(due_s)
        position = 0
        while position < total and not stop.is_set():
            now = self._loop.time() - began
            while position < total and due_s[position] <= now:
                size = 1 if sizes is None else sizes[position]
                self._send(_Sent(position, began + due_s[position], size))
                position += 1
            if position < total:
                await self._pause(stop, min(REPORT_EACH_S, began + due_s[position] - self._loop.time()))
            if self._loop.time() - reported >= REPORT_EACH_S:
                reported = self._loop.time()
                progress(self.result, position / total)
        await self._drain()
        progress(self.result, 1.0)
        return self.result

    async def _pause(self, stop: asyncio.Event, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
        elif not stop.is_set():
            await asyncio.sleep(seconds)

    async def connect(self) -> None:
        """Open the first connection. Misconfigured where nobody listens."""
        target = self._target
        try:
            connection = await self._new_connection()
        except OSError as error:
            raise Misconfigured(f"nobody listens at {target.host}:{target.port}; is the service up?") from error
        self._idle.append(connection)

    async def _new_connection(self) -> ClientConnection:
        target = self._target
        _, connection = await self._loop.create_connection(
            ClientConnection, target.host, target.port, ssl=target.tls
        )
        self._open.add(connection)
        return connection

    def _send(self, sent: _Sent) -> None:
        if not sent.again:
            self.result.sent += 1
            self.result.in_flight += 1
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                self._ask(connection, sent)
                return
            self._open.discard(connection)
        self._waiting.append(sent)
        if len(self._open) + self._opening < MAX_CONNECTIONS:
            self._opening += 1
            task = self._loop.create_task(self._open_one())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open_one(self) -> None:
        try:
            connection = await self._new_connection()
        except OSError:
            self._opening -= 1
            if self._waiting:
                self._lost(self._waiting.popleft(), "refused")
            return
        self._opening -= 1
        self._free(connection)

    def _free(self, connection: ClientConnection) -> None:
        """The connection may carry what waits, or rests."""
        if self._waiting and connection.is_open:
            self._ask(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)

    def _ask(self, connection: ClientConnection, sent: _Sent) -> None:
        timer = self._loop.call_later(GIVE_UP_S, connection.lose, "timeout")
        connection.ask(self._request(sent), partial(self._done, connection, sent, timer))

    def _request(self, sent: _Sent) -> bytes:
        target = self._target
        head = (
            f"POST {target.path} HTTP/1.1\r\nhost: {target.host}:{target.port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(target.body)}\r\n"
            f"x-mark-request-id: {self._run_id}-{sent.number}\r\n"
        )
        if sent.size != 1:
            head += f"x-mark-size: {sent.size}\r\n"
        if target.token:
            head += f"authorization: Bearer {target.token}\r\n"
        return head.encode("ascii") + b"\r\n" + target.body

    def _done(
        self, connection: ClientConnection, sent: _Sent, timer: asyncio.TimerHandle, outcome: HttpAnswer | Lost
    ) -> None:
        timer.cancel()
        if isinstance(outcome, Lost):
            self._open.discard(connection)
            self._lost(sent, outcome.why)
            return
        self.result.in_flight -= 1
        latency_s = self._loop.time() - sent.due_at
        if outcome.status == 200:
            self.result.latencies_s.append(latency_s)
            self.result.by[outcome.header(b"x-mark-served-by") or "instance"] += 1
            if variant := outcome.header(b"x-mark-variant"):
                self.result.variants[variant] += 1
            self.result.in_time += latency_s <= self.result.objective_s
        elif outcome.status == 503:
            self.result.by["shed"] += 1
        else:
            self.result.errors[f"http_{outcome.status}"] += 1
            self.result.rejected += is_rejection(outcome.status)
        if connection.is_open:
            self._free(connection)
        else:
            self._open.discard(connection)

    def _lost(self, sent: _Sent, why: str) -> None:
        """A connection was reset under it: once more with the same id, else it is an error."""
        if why == "timeout" or sent.again:
            self.result.in_flight -= 1
            self.result.errors[why] += 1
            return
        self.result.errors["retried"] += 1
        sent.again = True
        self._loop.call_later(0.02, self._send, sent)

    async def _drain(self) -> None:
        """Wait for what is in flight, then close."""
        until = self._loop.time() + GIVE_UP_S
        while self.result.in_flight and self._loop.time() < until:
            await asyncio.sleep(0.01)
        for task in list(self._tasks):
            task.cancel()
        for connection in chain(list(self._open), list(self._idle)):
            connection.lose("closed")
        await asyncio.sleep(0)

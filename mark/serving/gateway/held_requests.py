"""Requests of clients of the async class, held here until an instance is idle or their deadline makes them load.

The rules are those of `mark.dispatch.backlog`. One that runs on idle capacity is no arrival, so that no instance
is rented for it, and no objective counts it; one that became load is both. A client that has gone is answered by
nobody. While it waits a request holds its connection and its body, so that a gateway holds only so many.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from mark.dispatch.backlog import LOAD_SHARE, Backlog, Waiting
from mark.domain.load.traffic import CLIENT_GONE
from mark.serving.gateway.agent import Agent
from mark.serving.gateway.clients import ClientUse
from mark.serving.gateway.held_use import HeldUse
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.telemetry.traffic_tally import Tally
from mark.serving.unexpected_errors import UnexpectedErrors

MOST_HELD = 4096
"""Requests that one gateway holds: a quarter of its connections."""
MOST_HELD_BYTES = 64 * 1024 * 1024
"""Bytes of their bodies: a quarter of the memory for bodies."""
LOOK_S = 0.01
"""Seconds between two looks for idle instances while requests wait."""
LOAD_LOOK_S = 0.1
"""The same for what is load, of which all that wait are looked at; half an objective where that is shorter."""
TAIL_OBJECTIVES = 2.0
"""Objectives that are left of a deadline when a request is sent whatever the load."""
FULL = "too many requests of the async class wait; retry later"
LEAVING = "this gateway ends; send the request again"


class HeldRoom:
    """Places that all models' held requests take of one gateway, by client.

    A client holds no more than what is left: half of all where it is alone, so that none keeps out the others.
    """

    def __init__(self) -> None:
        self._requests = Counter[str]()
        self._bytes = Counter[str]()

    def take(self, client: str, body_bytes: int) -> bool:
        """Take the place of one more request; False where there is none."""
        left, bytes_left = MOST_HELD - self._requests.total(), MOST_HELD_BYTES - self._bytes.total()
        if self._requests[client] >= left or self._bytes[client] + body_bytes > bytes_left:
            return False
        self.put_back(client, body_bytes)
        return True

    def put_back(self, client: str, body_bytes: int) -> None:
        """Take the place of one that had one before, whatever is left."""
        self._requests[client] += 1
        self._bytes[client] += body_bytes

    def free(self, client: str, body_bytes: int) -> None:
        """A request waits no more."""
        self._requests[client] -= 1
        self._bytes[client] -= body_bytes


class HeldRoute(Protocol):
    """The model's router, which owns the agents: here it is asked for room and given what has waited."""

    name: str
    objective_s: float
    tally: Tally
    unexpected: UnexpectedErrors

    def idle_agents(self) -> Iterable[tuple[Agent, int]]:
        """Agents with idle capacity, each with the items that it takes."""
        ...

    def send_to(self, request: InferenceRequest, agent: Agent, now: float) -> None:
        """Send a request to that agent."""
        ...

    def offer(self, request: InferenceRequest, now: float) -> None:
        """Route a request as one that has just arrived."""
        ...

    def fail(self, request: InferenceRequest, status: int, text: str) -> None:
        """Answer with an error of the service."""
        ...


class HeldRequests:
    """The async requests that wait for one model at this gateway."""

    def __init__(self, router: HeldRoute, room: HeldRoom) -> None:
        self._router, self._room = router, room
        self._backlog: Backlog[InferenceRequest] = Backlog()
        self._looking: asyncio.TimerHandle | None = None
        self._load_look_at = 0.0
        self._is_leaving = False

    def __len__(self) -> int:
        return len(self._backlog)

    def hold(self, request: InferenceRequest, use: ClientUse, now: float) -> None:
        """Hold a request that its client's limits admitted; 503 where too many wait, or the gateway ends."""
        if self._is_leaving or not self._room.take(use.name, len(request.body)):
            request.client = use
            self._router.fail(request, 503, LEAVING if self._is_leaving else FULL)
            return
        due_at, load_at = now + use.deadline_s, now + LOAD_SHARE * use.deadline_s
        held = HeldUse(use, due_at, load_at, keeps_alive=request.keep_alive)
        request.client = held
        self._wait(request, held)

    def put_back(self, request: InferenceRequest, now: float) -> bool:
        """Hold a request again that found no room at an instance; False where its deadline leaves no time."""
        held = request.client
        if not isinstance(held, HeldUse) or self._is_leaving or now >= held.due_at - self._tail_s:
            return False
        self._room.put_back(held.name, len(request.body))
        self._wait(request, held)
        return True

    def leave(self) -> None:
        """Answer all that wait with 503, and all that come: the gateway ends."""
        self._is_leaving = True
        for one in self._take(self._backlog.take_if(lambda _: True)):
            self._router.fail(one, 503, LEAVING)
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def forget_gone(self) -> None:
        """Give back the places of those whose clients have gone."""
        self._take(self._backlog.take_if(_is_gone))

    @property
    def _tail_s(self) -> float:
        return TAIL_OBJECTIVES * self._router.objective_s

    def _wait(self, request: InferenceRequest, held: HeldUse) -> None:
        self._backlog.add(request, size=request.size, due_at=held.due_at, load_at=held.load_at)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Send what idle instances take, and what is load."""
        self._looking = None
        try:
            self._send(time.monotonic())
        except Exception as error:  # noqa: BLE001 - the driver of held requests: it looks again
            self._router.unexpected.note(error, model=self._router.name)
        if len(self._backlog):
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _send(self, now: float) -> None:
        router = self._router
        for agent, room in router.idle_agents():
            for request in self._take(self._backlog.take_for_idle(room)):
                self._start(request, now)
                router.send_to(request, agent, now)
            if not len(self._backlog):
                return
        if now < self._load_look_at:
            return
        self._load_look_at = now + min(LOAD_LOOK_S, router.objective_s / 2)
        for request in self._take(self._backlog.take_load(now, self._tail_s)):
            held = self._start(request, now)
            if not held.is_load:
                held.is_load = True
                router.tally.arrived(request.size)
            if now < held.due_at - self._tail_s:  # in line with other requests, not before them for an hour
                request.deadline_at = now + router.objective_s
            router.offer(request, now)

    def _take(self, waiting: list[Waiting[InferenceRequest]]) -> list[InferenceRequest]:
        """Those whose clients are still there; nobody works for the others."""
        found = []
        for one in waiting:
            request = one.item
            self._room.free(_held(request).name, len(request.body))
            if _is_gone(request):
                self._router.tally.left += 1
                self._router.fail(request, CLIENT_GONE, "the client has gone")
            else:
                found.append(request)
        return found

    @staticmethod
    def _start(request: InferenceRequest, now: float) -> HeldUse:
        """Have the service's time-out and the model's latency count from now on."""
        held = _held(request)
        request.arrived_at, request.deadline_at = now, held.due_at
        return held


class ForwardedWait:
    """A request that is held by another gateway: its client's leaving ends the wait, and is seen there by that."""

    def __init__(self, request: InferenceRequest, forwarding: asyncio.Task[None]) -> None:
        self._request, self._forwarding = request, forwarding

    def on_writable(self) -> None:
        """Nothing is held back: its answer comes whole."""

    def on_left(self) -> None:
        """The client has gone."""
        self._forwarding.cancel()
        if self._request.trace is not None:
            self._request.trace.failed(CLIENT_GONE)

    def leave(self) -> None:
        """Answer with 503: this gateway ends."""
        self._forwarding.cancel()
        self._request.fail(503, LEAVING)


def _held(request: InferenceRequest) -> HeldUse:
    held = request.client
    assert isinstance(held, HeldUse), "a held request keeps its use until it is answered"
    return held


def _is_gone(request: InferenceRequest) -> bool:
    """True where neither the client nor one with the same request id waits for the answer.

    A kept connection on which the client has sent its last counts as gone, as nginx sees it, though it may be
    half-closed.
    """
    if request.connection is not None and request.keep_alive is _held(request).keeps_alive:
        return False
    record = request.idempotency
    return record is None or all(one.connection is None for one in record.duplicates or ())

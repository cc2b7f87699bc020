"""Connections to agents: one each, kept open, with all requests multiplexed on it.

Liveness: an agent that sends nothing for SILENCE_S counts as lost, as does one whose connection breaks; its
requests are dispatched again (failover). An agent that announced a certificate is called over TLS and has to show
that one: no authority signs it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from mark.dispatch.batcher import places_after
from mark.dispatch.instance.device_share import part_of_share
from mark.domain.fleet.member import Member, MemberState, Peer
from mark.domain.models.versions import ModelVersions
from mark.protocols.frames import (
    Begin,
    Bounced,
    Cancel,
    Credit,
    Frame,
    FrameError,
    Goodbye,
    Response,
    State,
    StreamEnd,
    StreamHead,
    StreamPart,
    encode,
    encode_request,
    with_details,
)
from mark.protocols.handshake import GatewayHandshake, new_nonce
from mark.serving.certificate import any_certificate, is_shown
from mark.serving.frame_link import HANDSHAKE_S, FrameLink
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.shared_device import SharedDevice
from mark.serving.gateway.streams import StreamedAnswer
from mark.serving.gateway.versions.router import VersionRouter, VersionRouters
from mark.serving.gateway.versions.shadow import ShadowRequest
from mark.serving.unexpected_errors import INTERNAL_ERROR

if TYPE_CHECKING:
    from mark.serving.gateway.model_router import ModelRouter

log = logging.getLogger("mark.gateway")
SILENCE_S = 5.0
"""Limit without a frame; agents publish their state four times a second."""
CONNECT_S = 2.0
BACKOFF_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class AgentConnection(FrameLink):
    """One connection to one agent. changed: called when the agent begins or ends to accept requests.

    token: which clients must send. zone: the gateway's.
    """

    def __init__(
        self, member: Member, router: ModelRouter, token: str | None, zone: str, changed: Callable[[], None]
    ) -> None:
        super().__init__(log, router.unexpected, "agent", instance=member.instance)
        self._handshake = GatewayHandshake(member.wire_key, new_nonce(), token)
        self.member = member
        self.view = AgentView(member.instance, router.profile_s(member.offering))
        self.view.is_shared = member.share_rps is not None
        self.view.is_far = bool(zone and member.zone) and member.zone != zone
        self.offering = member.offering
        self.router = router
        self.version = member.version
        self.in_flight: dict[int, InferenceRequest] = {}
        #: answers that have begun: they end here, whatever becomes of the agent
        self._streams: dict[int, StreamedAnswer] = {}
        #: copies of requests, whose answers are compared
        self.shadows: dict[int, ShadowRequest] = {}
        self.closed = asyncio.Event()
        self._changed = changed
        self._write_request = self.write_now if router.decides_late else self.write
        self._sent = self._last_sized = 0
        #: items of sized requests that were given up, by id: the agent may yet answer them
        self._expired: dict[int, int] = {}
        self._idle_s = 0.0

    @property
    def held(self) -> int:
        """Requests that it has, streams that have begun among them."""
        return len(self.in_flight) + len(self._streams)

    @property
    def is_accepting(self) -> bool:
        """True while the agent is connected and accepts requests."""
        return self._transport is not None and self.view.accepting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        super().connection_made(transport)
        if self.member.certificate and not is_shown(transport, self.member.certificate):
            self.give_up("%s refused", "its certificate is not the one that stands in the store")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop: requests in flight here are dispatched again."""
        super().connection_lost(exc)
        self.view.accepting = False
        self.closed.set()
        lost = list(self.in_flight.values())
        self.in_flight.clear()
        for request in lost:
            self.router.tally.gave_back(request)
        streams = self.end_streams("the instance was lost in the middle of the answer")
        self.drop_shadows()
        try:
            self._changed()
        except Exception as error:  # noqa: BLE001 - what was in flight is to be looked after all the same
            self.router.unexpected.note(error, instance=self.view.instance)
        if lost or streams:
            fields = {
                "instance": self.view.instance,
                "in_flight": len(lost),
                "streams": streams,
                "reason": str(exc or "closed"),
            }
            log.warning("agent lost with requests in flight", extra=fields)
        self.router.agent_lost(self.view, lost)

    def send(self, request: InferenceRequest, now: float, *, forced: bool, batch_id: int = 0) -> None:
        """Send a request; the router gets its response, its bounce or its loss.

        batch_id: of the batch that it belongs to, which waits for `begin`; 0 for one by itself.
        """
        id_ = self._sent + 1
        client, size = request.client, request.size
        pinned = request.variant if self.router.accuracy_of else b""
        has_details = size != 1 or request.accuracy_floor or pinned or batch_id
        if request.trace is not None:
            request.traceparent = request.trace.sent_to_agent(
                self.view.instance, self.offering, now, forced=forced
            )
        frame = encode_request(
            id_,
            int((now - request.arrived_at) * 1e6),
            int((request.deadline_at - now) * 1e6),
            request.path,
            request.content_type,
            request.header_length,
            request.request_id,
            request.traceparent,
            request.body,
            forced,
            request.accept,
            b"" if client is None or has_details else client.details,
        )
        self._sent = id_
        request.is_forced = forced
        if self.view.share_rps and not forced and self.router.spares_own(self.view, request, now):
            self.router.tally.took_shared(request)
        self.in_flight[id_] = request
        request.sent_to, request.sent_as = self, id_
        if request.stream is not None:
            cast("StreamedAnswer", request.stream).sent_to(self, id_)
        view = self.view
        if size == 1:
            view.sent(now, view.single_s)
        else:
            self._last_sized = id_
            view.sent(now, view.alone_s(size), size)
        if has_details:
            frame = with_details(
                frame, size, request.accuracy_floor, b"" if client is None else client.client, pinned, batch_id
            )
        if batch_id:
            self.write(frame)
        else:
            self._write_request(frame)

    def begin(self, batch_id: int, variant: str) -> None:
        """Have a batch answered that was sent, by this variant."""
        self.write_now(encode(Begin(batch_id, variant.encode())))

    def credit(self, id_: int, size: int) -> None:
        """Let the agent send so many bytes more of a stream."""
        self.write(encode(Credit(id_, size)))

    def cancel(self, id_: int, request: InferenceRequest) -> None:
        """Withdraw a request, or a stream that has begun: its client has gone."""
        if self.in_flight.get(id_) is request:
            del self.in_flight[id_]
        else:
            self._streams.pop(id_, None)
        self.write(encode(Cancel(id_)))

    def withdraw(self, id_: int, request: InferenceRequest) -> None:
        """Cancel a request that nobody waits for: the agent drops it from its queue, unless its batch runs."""
        if self.in_flight.get(id_) is not request:
            return
        self.cancel(id_, request)
        if request.size != 1:
            self._expired[id_] = request.size
        self.router.forget(request)

    def end_streams(self, error: str) -> int:
        """End all streams that have begun with an error, and count them."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._end_stream(stream, error)
        return len(streams)

    def send_shadow(self, shadow: ShadowRequest, now: float) -> None:
        """Send a copy of a request; its answer, its bounce or its loss is its own matter."""
        self.send(shadow, now, forced=False)
        self.shadows[self._sent] = shadow
        del self.in_flight[self._sent]
        self.router.tally.gave_back(shadow)
        if shadow.size != 1:
            self._expired[self._sent] = shadow.size

    def drop_shadows(self, before: float = math.inf) -> None:
        """Withdraw the copies that were sent before then."""
        for id_, shadow in tuple(self.shadows.items()):
            if shadow.arrived_at < before:
                del self.shadows[id_]
                self.write(encode(Cancel(id_)))
                shadow.shadows.dropped(shadow)

    def take_back(self, router: VersionRouter) -> None:
        """Have what is in flight answered by another version: this one was aborted.

        A model that forbids automatic retries keeps what may be worked on.
        """
        if not router.served.model.redispatch:
            return
        taken, self.in_flight = self.in_flight, {}
        for id_, request in taken.items():
            self.write(encode(Cancel(id_)))
            if request.size != 1:
                self._expired[id_] = request.size
            router.take_back(request)

    def check_timeouts(self, passed_s: float, now: float) -> None:
        """Expire requests past the time-out, and close the connection of a silent agent."""
        self._idle_s = 0.0 if self.received else self._idle_s + passed_s
        self.received = False
        self.check_progress(passed_s)
        if self.is_known and self._idle_s > SILENCE_S and self._transport is not None:
            log.warning(
                "agent silent; closing its connection",
                extra={"instance": self.view.instance, "idle_s": self._idle_s},
            )
            self.abort()
        give_up_at = now - self.router.give_up_s
        overdue = [id_ for id_, request in self.in_flight.items() if request.arrived_at < give_up_at]
        for id_ in overdue:
            self.write(encode(Cancel(id_)))
            request = self.in_flight.pop(id_)
            if request.size != 1:
                self._expired[id_] = request.size
            self.router.expire(request)
        if self.shadows:
            self.drop_shadows(before=give_up_at)

    def on_frame_error(self, frame: Frame, error: Exception, now: float) -> None:
        """Answer the frame's request with 500."""
        id_ = frame.id if isinstance(frame, Response | Bounced | StreamHead | StreamPart | StreamEnd) else 0
        request = self.in_flight.pop(id_, None)
        stream = self._streams.pop(id_, None)
        if stream is not None:
            super().on_frame_error(frame, error, now)
            self.write(encode(Cancel(id_)))
            self._end_stream(stream, INTERNAL_ERROR)
            return
        if request is not None:
            self.router.fail_unexpected(request, error)
        else:
            super().on_frame_error(frame, error, now)

    def on_greeting(self, frame: Frame) -> bool:
        """Answer the agent's challenge, then check its answer to this gateway's."""
        if self._handshake.said_hello:
            self._handshake.check(frame)
            return True
        self.write(encode(self._handshake.hello(frame)))
        return False

    def on_frame(self, frame: Frame, now: float) -> None:
        """Take a response, or the agent's state."""
        if type(frame) is not Response:
            if not self._takes_stream(frame, now):
                self._on_control_frame(frame, now)
            return
        view = self.view
        request = self.in_flight.get(frame.id)
        size = self._expired.pop(frame.id, 1) if request is None else request.size
        view.answered(now, view.full_batch_s, size)
        if request is not None:
            del self.in_flight[frame.id]
            is_late = now > request.deadline_at
            if request.is_forced and view.share_rps and not is_late and self.router.spares_own(view, request, now):
                self.router.tally.took_shared(request)
            if view.is_far:
                self.router.tally.crossed += 1
            self.router.answer(request, frame, "standby" if view.standby else "instance", now)
            return
        if (shadow := self.shadows.pop(frame.id, None)) is not None:
            shadow.shadows.answered(shadow, frame, now)
        self.router.agent_changed(view)

    def _takes_stream(self, frame: Frame, now: float) -> bool:
        """Take a frame of a stream; False for any other. Streams that were cancelled still send some."""
        if type(frame) is StreamPart:
            stream = self._streams.get(frame.id)
            if stream is not None:
                stream.part(frame.body)
        elif type(frame) is StreamHead:
            request = self.in_flight.get(frame.id)
            if request is not None:
                self._begin_stream(request, frame, now)
        elif type(frame) is StreamEnd:
            self.view.answered(now, self.view.full_batch_s)
            stream = self._streams.pop(frame.id, None)
            if stream is not None:
                stream.end(frame.error.decode("utf-8", "replace"), now)
            self.router.agent_changed(self.view)
        else:
            return False
        return True

    def _begin_stream(self, request: InferenceRequest, head: StreamHead, now: float) -> None:
        stream = request.stream
        if not isinstance(stream, StreamedAnswer):
            raise FrameError("the agent streams the answer of a model that does not")
        del self.in_flight[head.id]
        self._streams[head.id] = stream
        self.router.tally.crossed += self.view.is_far
        stream.begin(head, "standby" if self.view.standby else "instance", self.router, now)

    def _end_stream(self, stream: StreamedAnswer, error: str) -> None:
        """End a stream with an error; one that raises keeps no other from its end."""
        try:
            stream.end(error, time.monotonic())
        except Exception as unexpected:  # noqa: BLE001 - the others are to be ended all the same
            self.router.unexpected.note(unexpected, instance=self.view.instance)

    def _unseen_places(self, state: State) -> int:
        """Places that the requests on their way to the agent add to its queue."""
        if self._last_sized <= state.seen:
            return max(0, self._sent - state.seen)
        waiting, max_batch = state.waiting, len(state.batch_s)
        for id_, request in sorted({**self.in_flight, **self.shadows}.items()):
            if id_ > state.seen:
                waiting = places_after(waiting, request.size, max_batch)
        return waiting - state.waiting

    def _on_control_frame(self, frame: Frame, now: float) -> None:
        match frame:
            case State():
                accepted = self.view.accepting
                if not frame.in_service and not frame.waiting:  # what it has seen is answered or withdrawn
                    self._expired = {id_: size for id_, size in self._expired.items() if id_ > frame.seen}
                self.view.on_state(frame, self._unseen_places(frame), now)
                if self.view.accepting != accepted:
                    self._changed()
                self.router.agent_changed(self.view)
            case Bounced(id=id_):
                request = self.in_flight.pop(id_, None)
                if request is not None:
                    self.router.gave_back(request)
                    if request.trace is not None:
                        request.trace.returned("bounced", now)
                    if self.router.crosses and not self.view.is_far and not request.is_forced:
                        self.router.bounced_near(request, now, was_shared=self.view.is_shared)
                    elif self.view.is_shared:
                        self.router.bounced_by_neighbours(request, now)
                    else:
                        self.router.bounced(request, now)
                elif (shadow := self.shadows.pop(id_, None)) is not None:
                    shadow.shadows.dropped(shadow)
            case Goodbye():
                self.view.accepting = False
                self._changed()
            case _:
                raise FrameError(f"unexpected frame from agent: {type(frame).__name__}")


class AgentConnections:
    """All agents of all models, connected while they are members or still answer.

    token, zone: as in AgentConnection.
    """

    def __init__(self, routers: dict[str, ModelRouter], token: str | None, zone: str = "") -> None:
        self._routers, self._token, self._zone = routers, token, zone
        self._versions = {name: VersionRouters(router) for name, router in routers.items()}
        self._tls = any_certificate()
        self._members: dict[str, Member] = {}
        self._loads: Sequence[Mapping[str, float]] = ({},)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: of shared instances
        self._devices: dict[str, SharedDevice] = {}
        self.open: dict[str, AgentConnection] = {}

    def set_token(self, token: str) -> None:
        """Tell agents that token on later connections; those that are connected go by the one they know."""
        self._token = token

    def set_members(self, members: dict[str, Member]) -> None:
        """Connect to new members. An agent that is no longer a member stays while its connection does."""
        self._members = members
        self._tell_ready()
        for name, member in members.items():
            if name not in self._tasks and member.model in self._routers:
                task = asyncio.get_running_loop().create_task(self._keep_connected(name))
                self._tasks[name] = task
                task.add_done_callback(functools.partial(self._ended, name))
        self._give_shares()

    def _tell_ready(self) -> None:
        here = {name: one.member for name, one in self.open.items() if one.is_accepting} | self._members
        ready = [member for member in here.values() if member.state is MemberState.READY]
        for name, router in self._routers.items():
            router.set_members({member.instance: member for member in ready if member.model == name})

    def measure_loads(self, now: float) -> tuple[tuple[str, float], ...]:
        """Requests/s that come in here lately, of each model that shares instances."""
        models = sorted(
            {member.model for member in self._members.values() if member.is_tenant} & set(self._routers)
        )
        return tuple((model, round(self._routers[model].tally.measure_rps(now), 3)) for model in models)

    def set_gateways(self, up: Sequence[Peer]) -> None:
        """Divide the shares of tenants among the gateways that are up, this one first, by their loads."""
        self._loads = [dict(peer.loads) for peer in up]
        self._give_shares()

    def _give_shares(self) -> None:
        now = time.monotonic()
        for name, connection in self.open.items():
            member = self._members.get(name)
            if member is not None and member.share_rps is not None:
                loads = [one.get(member.model, 0.0) for one in self._loads]
                part_rps = part_of_share(member.share_rps, loads[0], sum(loads), len(loads))
                connection.view.give_share(part_rps, now)

    def set_versions(self, versions: ModelVersions) -> None:
        """Route a model's requests by these versions, and move each of its agents to the router of its own."""
        routers = self._versions[versions.model]
        routers.take(versions)
        mine = [found for found in self.open.values() if found.router in routers.all]
        for connection in mine:
            if not versions.shadow:
                connection.drop_shadows()
            connection.router = routers.of(connection.version)
        for router in routers.all:
            self._list_accepting(router)
        for connection in mine:
            if isinstance(connection.router, VersionRouter) and connection.router.is_aborted:
                connection.take_back(connection.router)

    def check_timeouts(self, passed_s: float, now: float) -> None:
        """Check the time-outs of every connection."""
        for connection in tuple(self.open.values()):
            try:
                connection.check_timeouts(passed_s, now)
            except Exception as error:  # noqa: BLE001 - the others are to be looked at all the same
                connection.router.unexpected.note(error, instance=connection.view.instance)
        for router in self._routers.values():
            try:
                router.check_timeouts(now)
            except Exception as error:  # noqa: BLE001 - as above
                router.unexpected.note(error, model=router.name)

    def end_streams(self) -> None:
        """End the streams that have not ended by themselves: this gateway ends."""
        for connection in self.open.values():
            connection.end_streams("the gateway ended in the middle of the answer; ask again")

    async def close(self) -> None:
        """Close all connections."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        connected = [connection for connection in self.open.values() if connection.abort()]
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connected:
            await connection.closed.wait()

    async def _keep_connected(self, name: str) -> None:
        failures = 0
        while (member := self._members.get(name)) is not None:
            try:
                if await self._connected(member):
                    failures = 0
            except Exception as error:  # noqa: BLE001 - the driver of one connection: it tries again
                self._routers[member.model].unexpected.note(error, instance=member.instance)
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1

    def _ended(self, name: str, _: asyncio.Task[None]) -> None:
        del self._tasks[name]
        self._tell_ready()

    async def _connected(self, member: Member) -> bool:
        """Connect and wait until the connection ends; False where no agent was there, or it was refused."""
        router = self._versions[member.model].of(member.version)
        connection = AgentConnection(
            member, router, self._token, self._zone, lambda: self._list_accepting(connection.router)
        )
        loop = asyncio.get_running_loop()
        self.open[member.name] = connection
        device = self._devices.setdefault(member.instance, SharedDevice()) if member.is_tenant else None
        if device is not None:
            device.join(connection)
        self._give_shares()
        try:
            # the kernel connects for an agent whose model lets no thread run meanwhile; TLS waits for its loop
            async with asyncio.timeout(CONNECT_S + HANDSHAKE_S if member.certificate else CONNECT_S):
                await loop.create_connection(
                    lambda: connection, member.host, member.port, ssl=self._tls if member.certificate else None
                )
            await connection.closed.wait()
        except (OSError, TimeoutError):
            return False
        finally:
            del self.open[member.name]
            if device is not None and device.leave(connection):
                self._devices.pop(member.instance, None)
        return connection.is_known

    def _list_accepting(self, router: ModelRouter) -> None:
        router.set_agents([found for found in self.open.values() if found.router is router and found.is_accepting])

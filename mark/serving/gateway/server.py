"""The gateway's process: HTTP in, frames to agents, calls to Lambda, traffic reports to the store.

A gateway has no state but the requests in flight, and many share one port. `serve_gateway` runs it. A request
passes `Gateway.handle`, `ModelRouter.offer` and `AgentConnection.send`; its response `ModelRouter.answer`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import math
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import mark
from mark.dispatch.central.queue import PLAIN, CentralCode
from mark.dispatch.client_limits import FORBIDDEN, TOO_MANY
from mark.domain.errors import MarkError, RetryLater
from mark.domain.fleet.member import Peer
from mark.domain.models.versions import ModelVersions
from mark.ports import GatewayLink, Overflow
from mark.protocols.local_names import REFUSAL, is_local_name
from mark.protocols.oip import bodies as oip
from mark.protocols.trace_context import carried
from mark.service_spec import ServedModel, ServiceSpec
from mark.serving.accuracy_floor import pinned_variant, stricter_floor
from mark.serving.certificate import make_certificate
from mark.serving.gateway import triton_documents as triton
from mark.serving.gateway.agent_pool import AgentConnections
from mark.serving.gateway.central.router import CentralRouter
from mark.serving.gateway.clients import Account, ClientUse
from mark.serving.gateway.config import GatewayConfig, TokenReader
from mark.serving.gateway.held_requests import ForwardedWait, HeldRequests, HeldRoom
from mark.serving.gateway.idempotency import IdempotencyCache
from mark.serving.gateway.lambda_overflow import LambdaCalls
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.parsed_head import MAX_ID_BYTES, ParsedHead, parse_head
from mark.serving.gateway.peers import FORWARDED, PeerGateway, Peers, forwarded_headers
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.store_sync import StoreSync
from mark.serving.gateway.streams import NO_STREAM, StreamedAnswer
from mark.serving.gateway.telemetry.gateway_metrics import gateway_families, render_gateway, render_shared
from mark.serving.gateway.telemetry.request_trace import GatewayTracing
from mark.serving.http.body_budget import HELD, UNCOUNTED_BYTES
from mark.serving.http.content_codings import ACCEPTED, decode, decode_small, is_plain
from mark.serving.http.http_server import HttpServer
from mark.serving.routes import (
    OF_OPERATORS,
    OPEN_TO_ALL,
    Endpoint,
    Route,
    Routes,
    not_supported,
    shape_of,
    versions_of,
)
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors
from mark.telemetry.metrics import CONTENT_TYPE
from mark.telemetry.otlp.sender import TelemetrySender

log = logging.getLogger("mark.gateway")

SWEEP_S = 0.5
EXTENSIONS = ("binary_tensor_data", "model_configuration", "statistics")
"""Triton's, as `GET /v2` lists them."""
OWNER_GRACE_S = 5.0
"""Grace beyond the model's time-out for the response of a forwarded request."""
_JSON = oip.JSON_TYPE.encode()
DRAIN_S = 5.0
"""Most time of a gateway that ends to answer what it has."""
PROBE_AFTER_S = 60
"""Silence after which the kernel probes a connection: less than the 350 s of a network load balancer."""
LOOPBACK = "127.0.0.1"
BEARER_REQUIRED = b"www-authenticate: Bearer\r\n"
TOKEN_REQUIRED = "a bearer token is required"  # noqa: S105 - a message
KEY_REQUIRED = "a client's key is required, as `Authorization: Bearer KEY`"
TOO_MANY_TEXT = "the client {} is above its rate or has too many requests in flight; retry later"


class Gateway:
    """Handles the requests of one process. Made and used in one event loop."""

    def __init__(
        self,
        config: GatewayConfig,
        spec: ServiceSpec,
        *,
        overflow: Overflow | None,
        central: CentralCode = PLAIN,
        telemetry: TelemetrySender | None = None,
    ) -> None:
        self.config, self.spec = config, spec
        self.telemetry, self.tracing = telemetry, None
        if telemetry is not None and telemetry.spans is not None:
            self.tracing = GatewayTracing(telemetry.spans, telemetry.ratio)
        self._routes = Routes(spec)
        self.unexpected = UnexpectedErrors(log)
        self._idempotency = IdempotencyCache(self.unexpected)
        self.peers = Peers(self.unexpected, self._share_agents)
        self._tasks: set[asyncio.Task[None]] = set()
        self._forwarded_waits: set[ForwardedWait] = set()
        self.sync = StoreSync(config.name, self.unexpected, config.zone)
        self.routers: dict[str, ModelRouter] = {}
        for served in spec.models:
            calls = None
            if overflow is not None and served.overflow is not None and served.function:
                calls = LambdaCalls(overflow, served.overflow, served.function, clock=self.sync)
            self.routers[served.name] = self._router(served, calls, central)
        room = HeldRoom()
        for router in self.routers.values():
            if not router.served.has_central_queue:
                router.held = HeldRequests(router, room)
        self.sync.routers = self.routers
        self.clients = self.sync.clients
        self.clients.set_tokens(() if config.token is None else (config.token,))
        self.sync.on_clients = self._forget_heads
        self.sync.on_versions = self._take_versions
        self.agents = AgentConnections(self.routers, config.token, config.zone)
        self.http = HttpServer(
            self.handle,
            make=InferenceRequest,
            limits=config.limits,
            on_error=self._fail_unexpected,
            admits=self._admits,
            unexpected=self.unexpected,
        )
        self._ids = f"{config.name}-{secrets.token_hex(4)}-".encode()
        self._count = 0

    def _router(self, served: ServedModel, calls: LambdaCalls | None, code: CentralCode) -> ModelRouter:
        kept, unexpected = self._idempotency, self.unexpected
        if not served.has_central_queue:
            return ModelRouter(served, overflow=calls, idempotency=kept, unexpected=unexpected)
        return CentralRouter(served, overflow=calls, idempotency=kept, unexpected=unexpected, code=code)

    def _share_agents(self, gateways: Mapping[str, str]) -> None:
        self.clients.set_gateways(len(gateways), time.monotonic())
        self.agents.set_gateways(self.peers.up)
        for router in self.routers.values():
            router.set_gateways(self.peers.name, gateways)

    def leave_waits(self) -> None:
        """Answer what waits for hours with 503, here and at other gateways: this one ends."""
        for router in self.routers.values():
            if router.held is not None:
                router.held.leave()
        for wait in tuple(self._forwarded_waits):
            wait.leave()

    def handle(self, request: InferenceRequest) -> None:
        """Handle a client's request; a known head skips routing and parsing."""
        head = request.head
        if head is not None and head.parsed is not None and head.parsed.header_length <= len(request.body):
            self._offer(request, head.parsed)
            return
        route = self._routes.find(request.target)
        account = self.clients.identify(request.headers)
        request.shape = shape_of(request.target) if route is None else route.shape
        request.request_id = request.headers.get("x-mark-request-id", b"")[:MAX_ID_BYTES] or self._next_id()
        if self.config.local_only and not is_local_name(request.headers.get("host", b"").decode("latin-1")):
            request.fail(421, REFUSAL)
        elif self._is_refused(request, route, account):
            return
        elif route is None:
            self._miss(request)
        elif route.endpoint is Endpoint.INFER and account is not None:
            self._infer(request, route, account)
        elif route.endpoint is Endpoint.INDEX:
            self._handle_index(request)
        else:
            self._handle_get(request, route)

    def accept(self, tokens: Sequence[str]) -> None:
        """Accept these tokens and no other; agents are told the first. Nothing for a gateway open to all."""
        if self.clients.asks_token:
            self.clients.set_tokens(tokens)
            self._forget_heads()
            self.agents.set_token(tokens[0])

    def _take_versions(self, versions: ModelVersions) -> None:
        """Route by a model's versions, and have paths name them."""
        self.agents.set_versions(versions)
        names = tuple(name for name in (versions.stable, versions.candidate) if name)
        if self._routes.set_versions(versions.model, names):
            self._forget_heads()

    def _forget_heads(self) -> None:
        """Have each request's token or key looked at again."""
        for connection in self.http.connections:
            connection.forget_head()

    def _is_refused(self, request: InferenceRequest, route: Route | None, account: Account | None) -> bool:
        """True where the request was answered with 401 or 403."""
        endpoint = None if route is None else route.endpoint
        if endpoint in OPEN_TO_ALL:
            return False
        if account is None:
            if not self.clients.asks_token and endpoint is not Endpoint.INFER:
                return False
            request.fail(401, KEY_REQUIRED if self.clients.exist else TOKEN_REQUIRED, BEARER_REQUIRED)
            return True
        if account.client is None or route is None:
            return False
        if account.status_for(route.model) == FORBIDDEN:
            request.fail(403, f"the client {account.client.name} may not use the model {route.model}")
        elif self.clients.asks_token and endpoint in OF_OPERATORS:
            request.fail(403, "this path needs the service's token; a client's key opens its models' paths")
        else:
            return False
        return True

    def _miss(self, request: InferenceRequest) -> None:
        """Answer 501 for a feature that is not supported, else 404 with the models that are served."""
        if (part := not_supported(request.target)) is not None:
            request.fail(501, f"not supported: {part}")
        else:
            known = ", ".join(self.routers)
            request.fail(404, f"no route for {request.target[:200].decode('latin-1')}; models: {known}")

    def _fail_unexpected(self, request: InferenceRequest, error: BaseException) -> None:
        """Answer 500 where something raised before a router had the request; its head may not be parsed yet."""
        request.request_id = request.headers.get("x-mark-request-id", b"")[:MAX_ID_BYTES] or self._next_id()
        self.unexpected.note(error, request_id=request.request_id.decode("latin-1"))
        request.fail(500, INTERNAL_ERROR)
        _end_use(request)
        if request.idempotency is not None:
            self._idempotency.discard(request.idempotency, 500, INTERNAL_ERROR)

    def _next_id(self) -> bytes:
        self._count += 1
        return b"%b%x" % (self._ids, self._count)

    def _admits(self, _target: bytes, headers: dict[str, bytes]) -> bool:
        """True where the body is to be read, decided when the head is complete: with a valid token or key.

        Endpoints that need none, such as health, take no body.
        """
        return not self.clients.asks_token or self.clients.identify(headers) is not None

    def _infer(self, request: InferenceRequest, route: Route, account: Account) -> None:
        if request.method != b"POST":
            request.fail(405, "use POST", b"allow: POST\r\n")
            return
        coding = request.headers.get("content-encoding")
        if not is_plain(coding):
            self._decode(request, route, account, coding or b"")
            return
        try:
            use = account.use_of(route.model) if self.clients.exist else None
            parsed = parse_head(request, route, self.routers[route.model], use)
        except oip.BadRequest as error:
            request.fail(error.status, str(error))
            return
        if request.head is not None:
            request.head.parsed = parsed
        self._offer(request, parsed)

    def _decode(self, request: InferenceRequest, route: Route, account: Account, coding: bytes) -> None:
        """Decompress the body, a large one in a thread, and go on as if it had come so."""
        try:
            body = decode_small(coding, request.body)
        except oip.BadRequest as error:
            request.fail(error.status, str(error), ACCEPTED if error.status == 415 else b"")
            return
        if body is None:
            self._in_background(request, self._decode_large(request, route, account, coding))
            return
        if len(body) > UNCOUNTED_BYTES:
            lease = self.http.budget.take(len(body), is_here=True)
            if lease is None:
                request.fail(503, HELD)
                return
            request.lease = lease
        self._decoded(request, route, account, body)

    async def _decode_large(
        self, request: InferenceRequest, route: Route, account: Account, coding: bytes
    ) -> None:
        limit = self.config.limits.body_bytes
        lease = self.http.budget.take(limit, is_here=True)
        if lease is None:
            request.fail(503, HELD)
            return
        try:
            body = await asyncio.get_running_loop().run_in_executor(None, decode, coding, request.body, limit)
        except oip.BadRequest as error:
            request.fail(error.status, str(error))
            return
        lease.shrink(len(body))
        request.lease = lease
        self._decoded(request, route, account, body)

    def _decoded(self, request: InferenceRequest, route: Route, account: Account, body: bytes) -> None:
        if request.connection is None:
            return  # the client left meanwhile
        request.body, request.head = body, None  # no other request with this head has its length
        request.headers = {name: value for name, value in request.headers.items() if name != "content-encoding"}
        self._infer(request, route, account)

    def _in_background(self, request: InferenceRequest, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine for a request; an exception there fails this request alone."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._ended, request))
        return task

    def _ended(self, request: InferenceRequest, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail_unexpected(request, error)

    def _offer(self, request: InferenceRequest, parsed: ParsedHead) -> None:
        (
            router, request.shape, request.path, request.content_type, request.header_length, has_trace,
            request.variant, allowed_s, has_id, request.accept, request.size, request.accuracy_floor, use,
            request.version,
        ) = parsed  # fmt: skip
        if not request.size:
            request.size = oip.count_rows(request.body, request.header_length)
            if request.size > router.largest:
                request.request_id = request.headers.get("x-mark-request-id") or self._next_id()
                request.fail(400, f"a request has at most {router.largest} rows")
                return
        if router.accuracy_of and not self._take_floor(request, router):
            return
        request.traceparent = _carried(request.headers) if has_trace else b""
        request.arrived_at = now = time.monotonic()
        request.deadline_at = now + allowed_s
        sync = self.sync
        if now >= sync.window_ends_at:
            sync.roll_window(now)
        if self.tracing is not None:
            self.tracing.begin(request, router, "" if use is None else use.name)
        if router.streams:
            if not self._make_stream(request, router, has_id=has_id):
                return
        elif has_id:
            self._offer_by_id(request, router, use, now)
            return
        else:
            self._count += 1
            request.request_id = b"%b%x" % (self._ids, self._count)
        if use is None:
            router.tally.arrived(request.size)
            router.offer(request, now)
        elif wait_s := use.limits.admit(now):
            _refuse_limited(request, use, wait_s)
        else:
            request.client = use
            self._offer_of(use, request, router, now)

    def _make_stream(self, request: InferenceRequest, router: ModelRouter, *, has_id: bool) -> bool:
        """Have the answer stream; False where it was answered with 505, because its client cannot take a stream.

        Its id keeps no duplicate from running: what was sent cannot be kept.
        """
        request.request_id = request.headers["x-mark-request-id"] if has_id else self._next_id()
        if request.connection is None or not request.connection.can_stream:
            request.fail(505, NO_STREAM)
            return False
        request.stream = StreamedAnswer(request, router)
        return True

    def _offer_by_id(
        self, request: InferenceRequest, router: ModelRouter, use: ClientUse | None, now: float
    ) -> None:
        """Offer a request that has a client's id here, or have the gateway answer it that owns the id."""
        request.request_id = request.headers["x-mark-request-id"]
        owner = self.peers.owner(request.request_id)
        client = "" if use is None else use.name
        is_forwarded = FORWARDED in request.headers
        if owner is None or is_forwarded or self._idempotency.knows(router.name, request, client):
            self._offer_once(request, router, use, now)
        else:
            self._forward(request, router, use, owner)

    def _offer_of(self, use: ClientUse, request: InferenceRequest, router: ModelRouter, now: float) -> None:
        """Offer a client's request where the queue has room for its class; hold one of the async class."""
        if router.held is not None and _is_held(use, request, router):
            router.held.hold(request, use, now)
            return
        router.tally.arrived(request.size)
        if use.queue_share < 1.0 and not router.may_queue(request, now, use.queue_share):
            router.give_way(request, now)
        else:
            router.offer(request, now)

    def _take_floor(self, request: InferenceRequest, router: ModelRouter) -> bool:
        """Take the accuracy floor among the body's parameters; False where it was answered with 400."""
        floor, body = request.accuracy_floor, request.body
        try:
            found = stricter_floor(floor, body, request.header_length, request.shape, router.served)
            if found > floor:
                pinned_variant(request.headers, found, router.served)
        except oip.BadRequest as error:
            request.request_id = request.headers.get("x-mark-request-id") or self._next_id()
            request.fail(error.status, str(error))
            return False
        request.accuracy_floor = found
        return True

    def _offer_once(
        self, request: InferenceRequest, router: ModelRouter, use: ClientUse | None, now: float
    ) -> None:
        """Offer a request with a client's id unless it is a duplicate, which counts towards its rate as well."""
        if use is not None:
            if wait_s := use.limits.admit(now):
                _refuse_limited(request, use, wait_s)
                return
            request.client = use
        if not self._idempotency.begin(router.name, request, now):
            router.tally.deduplicated += 1
            if use is not None:
                request.client = None
                use.limits.end()
        elif use is not None:
            self._offer_of(use, request, router, now)
        else:
            router.tally.arrived(request.size)
            router.offer(request, now)

    def _forward(
        self, request: InferenceRequest, router: ModelRouter, use: ClientUse | None, owner: PeerGateway
    ) -> None:
        router.tally.forwarded += 1
        task = self._in_background(request, self._forward_to_owner(request, router, use, owner))
        if use is not None and _is_held(use, request, router):
            request.stream = wait = ForwardedWait(request, task)
            self._forwarded_waits.add(wait)
            task.add_done_callback(lambda _: self._forwarded_waits.discard(wait))
            if self.http.is_leaving:
                wait.leave()

    async def _forward_to_owner(
        self, request: InferenceRequest, router: ModelRouter, use: ClientUse | None, owner: PeerGateway
    ) -> None:
        """Have the owner of the id answer; where it is lost, this gateway does, if the model allows it.

        The gateway that has it executed counts it towards its client's limits.
        """
        within_s, is_held = router.give_up_s + OWNER_GRACE_S, False
        if use is not None and _is_held(use, request, router):
            within_s, is_held = within_s + use.deadline_s, True
        try:
            answer = await owner.forward(request, self.peers.name, within_s, is_held=is_held)
        except RetryLater as error:
            request.stream = None
            if isinstance(error.__cause__, TimeoutError):
                router.time_out(request)
                return
            self.peers.lost(owner)
            never_sent = isinstance(error.__cause__, ConnectionRefusedError)
            if never_sent or router.served.model.redispatch:
                self._offer_once(request, router, use, time.monotonic())
            else:
                router.fail(
                    request,
                    502,
                    "the owner of the id was lost; the model does not allow an automatic retry",
                )
            return
        kind = answer.headers.get("content-type", oip.JSON_TYPE).encode("latin-1")
        request.reply(answer.status, kind, answer.body, forwarded_headers(answer.headers))
        if request.trace is not None:
            request.trace.forwarded(answer.status)

    def _handle_metrics(self, request: InferenceRequest) -> None:
        if self.config.shared_as and self.peers.count and FORWARDED not in request.headers:
            self._in_background(request, self._reply_shared_metrics(request))
        else:
            request.reply(200, CONTENT_TYPE.encode(), render_gateway(self))

    async def _reply_shared_metrics(self, request: InferenceRequest) -> None:
        request.reply(200, CONTENT_TYPE.encode(), await render_shared(self, request))

    def _versions_of(self, served: ServedModel) -> Sequence[str]:
        """Names in paths after `/versions/`: variants, or the one, and versions by their hash."""
        return (*versions_of(served), *self._routes.versions(served.name))

    def _handle_index(self, request: InferenceRequest) -> None:
        """The models, and whether they are ready."""
        if request.method != b"POST":
            request.fail(405, "use POST", b"allow: POST\r\n")
            return
        try:
            found = triton.repository_index(
                [(router.served, router.is_ready) for router in self.routers.values()], request.body
            )
        except oip.BadRequest as error:
            request.fail(error.status, str(error))
        else:
            request.reply(200, _JSON, json.dumps(found).encode())

    def _handle_get(self, request: InferenceRequest, route: Route) -> None:
        """Health, metadata, statistics, metrics."""
        if request.method not in (b"GET", b"HEAD"):
            request.fail(405, "use GET", b"allow: GET, HEAD\r\n")
            return
        document: dict[str, Any] = {}
        ready = True
        match route.endpoint:
            case Endpoint.READY:
                ready = all(router.is_ready for router in self.routers.values())
            case Endpoint.MODEL_READY:
                ready = self.routers[route.model].is_ready
            case Endpoint.SERVER:
                document = oip.server_metadata("mark", mark.__version__, EXTENSIONS)
            case Endpoint.MODEL:
                served = self.spec.served(route.model)
                document = oip.model_metadata(
                    served.name, served.inputs, served.outputs, self._versions_of(served)
                )
            case Endpoint.CONFIG:
                document = triton.model_config(self.spec.served(route.model))
            case Endpoint.STATISTICS:
                routers = [self.routers[route.model]] if route.model else self.routers.values()
                document = {
                    "model_stats": [triton.model_statistics(router.served, router.tally) for router in routers]
                }
            case Endpoint.METRICS:
                self._handle_metrics(request)
                return
            case _:
                document = {"live": True}
        if not ready:
            request.fail(503, "not ready: no instance accepts requests")
        else:
            request.reply(200, _JSON, json.dumps(document or {"ready": True}).encode())


def _is_held(use: ClientUse, request: InferenceRequest, router: ModelRouter) -> bool:
    """True for a request of the async class that is to wait; others of that class are ordinary ones."""
    return bool(use.deadline_s) and router.held is not None and not request.version and not router.streams


def _carried(headers: dict[str, bytes]) -> bytes:
    return carried(headers["traceparent"], headers.get("tracestate", b""))


def _refuse_limited(request: InferenceRequest, use: ClientUse, wait_s: float) -> None:
    """Answer 429: the client is above its limits for that long."""
    use.limited += 1
    request.fail(TOO_MANY, TOO_MANY_TEXT.format(use.name), b"retry-after: %d\r\n" % math.ceil(wait_s))


def _end_use(request: InferenceRequest) -> None:
    """A request that no router answers any more is in flight no more."""
    if request.client is not None:
        request.client.refused(500)
        request.client = None


async def serve_gateway(  # noqa: PLR0913 it is given every port
    config: GatewayConfig,
    *,
    spec: ServiceSpec,
    link: GatewayLink,
    overflow: Overflow | None,
    stop: asyncio.Event,
    on_bound: Callable[[int], None] | None = None,
    tokens: TokenReader | None = None,
    central: CentralCode = PLAIN,
    telemetry: TelemetrySender | None = None,
) -> None:
    """Serve until `stop`. on_bound: called with the port once requests are taken. tokens: those that count.

    central: compiled decisions of central queues. telemetry: where spans and metrics go; the caller closes it.
    """
    gateway = Gateway(config, spec, overflow=overflow, central=central, telemetry=telemetry)
    loop = asyncio.get_running_loop()
    pause_s = await _read_tokens(gateway, tokens) if tokens is not None else 0.0
    listening = listen(config.host, config.port)
    try:
        listener = None if config.beside is None else config.beside(gateway.http)
        me, own = await _own_port(gateway, listening)
        following = await gateway.sync.begin(link, gateway.agents, gateway.peers, stop, me)
        if tokens is not None:
            following = (*following, loop.create_task(_follow_tokens(gateway, tokens, pause_s)))
        if telemetry is not None and telemetry.sends_metrics:
            sending = telemetry.send_metrics(functools.partial(gateway_families, gateway))
            following = (*following, loop.create_task(sending))
        if listener is not None:
            await listener.start()
        server = await loop.create_server(gateway.http.connection, sock=listening, ssl=config.tls, backlog=4096)
    except BaseException:
        listening.close()
        raise
    gateway.http.start()
    sweeping = loop.create_task(_sweep(gateway))
    if on_bound is not None:
        on_bound(listening.getsockname()[1])
    await stop.wait()
    server.close()
    await gateway.sync.leave(link, gateway.peers)
    if listener is None:
        await _drain(gateway)
    else:
        await asyncio.gather(_drain(gateway), listener.stop(DRAIN_S))
    gateway.agents.end_streams()
    if own is not None:
        own.close()
    for task in (sweeping, *following):
        task.cancel()
    await asyncio.gather(sweeping, *following, return_exceptions=True)
    await gateway.sync.report_last(link)
    await gateway.http.close()
    await gateway.peers.close()
    await gateway.agents.close()
    for router in gateway.routers.values():
        if router.overflow is not None:
            await router.overflow.close()
    await server.wait_closed()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket that other gateways may share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Connections inherit it: one that waits for an answer for long stays open, and one that was lost is found.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_AFTER_S)
        listening.setblocking(False)
        listening.bind((host, port))
    except BaseException:
        listening.close()
        raise
    return listening


async def _own_port(gateway: Gateway, shared: socket.socket) -> tuple[Peer, asyncio.Server | None]:
    """The address at which peers reach this gateway alone: over TLS where its clients do, but for loopback."""
    config = gateway.config
    if config.own_address is not None and config.tls is None:
        return Peer(
            name=config.name, host=config.own_address, port=shared.getsockname()[1], zone=config.zone
        ), None
    host, port = (LOOPBACK, 0) if config.own_address is None else (config.own_address, config.peer_port)
    tls = None if config.own_address is None else make_certificate()
    own = await asyncio.get_running_loop().create_server(
        gateway.http.connection, host, port, ssl=None if tls is None else tls.context
    )
    me = Peer(
        name=config.name,
        host=host,
        port=own.sockets[0].getsockname()[1],
        zone=config.zone,
        certificate="" if tls is None else tls.fingerprint,
    )
    return me, own


async def _follow_tokens(gateway: Gateway, tokens: TokenReader, pause_s: float) -> None:
    while True:
        await asyncio.sleep(pause_s)
        pause_s = await _read_tokens(gateway, tokens)


async def _read_tokens(gateway: Gateway, tokens: TokenReader) -> float:
    """Accept what is read now; seconds until the next reading. What cannot be read leaves things as they are."""
    try:
        gateway.accept(await asyncio.to_thread(tokens.read))
    except MarkError as error:
        log.warning("tokens cannot be read; the last ones count", extra={"reason": str(error)})
        return tokens.again_s
    return tokens.each_s


async def _sweep(gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        now = time.monotonic()
        gateway.agents.check_timeouts(SWEEP_S, now)
        gateway.clients.refresh_shares(gateway.routers, now)


async def _drain(gateway: Gateway) -> None:
    """Wait until requests in flight are answered; no new connection is accepted meanwhile.

    Clients that keep a connection learn from an answer that it closes. Those that ask for nothing meanwhile find
    it closed, and a request that they send at that very moment gets no answer.
    """
    began, http = time.monotonic(), gateway.http
    http.leave()
    gateway.leave_waits()
    while (passed_s := time.monotonic() - began) < max(DRAIN_S, http.limits.leave_s):
        if passed_s > http.limits.leave_s:
            http.close_idle()
        flying = sum(len(agent.in_flight) for agent in gateway.agents.open.values())
        flying += sum(
            router.overflow.in_flight for router in gateway.routers.values() if router.overflow is not None
        )
        flying += sum(connection.is_busy for connection in http.connections)
        if not flying and not http.connections:
            return
        await asyncio.sleep(0.01)

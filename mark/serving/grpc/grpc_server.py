"""gRPC in front of a gateway: each call becomes the HTTP request that asks the same, and goes the same way.

So keys, limits, priorities, versions, variants, floors and ids are decided where they are for HTTP, and nowhere
else. Here is what is gRPC's own: messages, deadlines, cancellation, and limits on what a connection may do. The
methods are declared as streams that bring one message, because a stream's handler reads when it wants to: a
stranger's message is never read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import grpc
from google.protobuf import json_format
from grpc import aio

from mark.domain.errors import Misconfigured
from mark.protocols.oip import bodies as oip
from mark.protocols.oip.bodies import BadRequest
from mark.serving.grpc.messages import CLASSES, HEALTH, SERVICE, SERVING
from mark.serving.grpc.status import code_of, details_of, headers_of, read_lines, trailing_of
from mark.serving.grpc.translation import SMALL_BYTES, Translated, compose_response, model_target, parse, translate
from mark.serving.http.body_budget import HELD, UNCOUNTED_BYTES, BodyLease
from mark.serving.http.exchange import HttpExchange
from mark.serving.http.http_server import HttpServer
from mark.serving.http.limits import HttpLimits

STREAMS = 256
"""Calls at once on one connection; a client's further ones wait in it."""
PING_EACH_S = 20.0
"""A connection without traffic is asked so often whether it is there, and closed when no answer comes as long."""
PINGS_ALLOWED_EACH_S = 10.0
"""Clients that ask more often have their connection closed."""
CONNECTION_S = 600.0
"""Age of a connection that takes no more calls: the client's next one may reach another gateway."""
HANDSHAKE_S = 10.0
AT_ONCE_S = 0.05
"""A message that is here within it takes no memory that it might need."""
Messages: TypeAlias = AsyncIterable[bytes]
Context: TypeAlias = Any
"""grpcio's ServicerContext: it has no types."""
Method: TypeAlias = Callable[[Messages, Context], Awaitable[bytes]]
Result = TypeVar("Result")
TOO_SLOW = "the message did not come within {:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcConfig:
    """Where gRPC is served. identity: private key and certificate chain (PEM); None for plain HTTP/2.

    port: 0 takes a free one; several gateways may share one.
    """

    host: str
    port: int
    identity: tuple[bytes, bytes] | None = None


class Document(NamedTuple):
    """A method that answers a document."""

    #: its path; of a model's document, one that a stranger may name
    target: bytes
    #: end of the path of the model that the message names; None where it names none
    of_model: str | None = None
    #: the response's field for the document; empty where the document is the response
    field: str = ""
    #: path of all models' documents, where the message may name none
    of_all: bytes = b""


LIVE = b"/v2/health/live"
INDEX = b"/v2/repository/index"
ANY = b"/"
"""Path of a request whose message is not read, because its sender is refused."""
DOCUMENTS: Mapping[str, Document] = MappingProxyType(
    {
        "ServerLive": Document(LIVE),
        "ServerReady": Document(b"/v2/health/ready"),
        "ServerMetadata": Document(b"/v2"),
        "ModelReady": Document(ANY, "/ready"),
        "ModelMetadata": Document(ANY, ""),
        "ModelConfig": Document(ANY, "/config", "config"),
        "ModelStatistics": Document(ANY, "/stats", of_all=b"/v2/models/stats"),
    }
)


class Answer(NamedTuple):
    """An HTTP response. headers: by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


NOTHING = Translated(ANY, b"", 0, typed=False)
RETRY: Mapping[str, str] = MappingProxyType({"retry-after": "1"})


class _Waiting:
    """The connection of a request, as far as the gateway knows: takes its answer, which does not stream."""

    __slots__ = ("answer",)
    is_writable = can_stream = False

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def send(self, exchange: HttpExchange, status: int, content_type: bytes, body: bytes, extra: bytes) -> None:
        """Hand on the answer, unless nobody waits for it any more."""
        del content_type  # the message says it
        exchange.connection = None
        if not self.answer.done():
            self.answer.set_result(Answer(status, read_lines(extra), body))

    def begin(self, exchange: HttpExchange, status: int, content_type: bytes, extra: bytes) -> None:
        """Never called: the gateway refuses a request whose answer would stream."""

    def write_part(self, body: bytes) -> None:
        """Never called: nothing begins."""

    def finish(self, exchange: HttpExchange) -> None:
        """Never called."""

    def cut(self) -> None:
        """Never called."""


class GrpcServer:
    """`inference.GRPCInferenceService` in front of an HTTP server's handler. Made and used in one event loop."""

    def __init__(self, config: GrpcConfig, http: HttpServer) -> None:
        """Bind the port. Errors: Misconfigured where it cannot be used."""
        self._http = http
        self._server = aio.server(options=_options(http.limits))
        methods: dict[str, Method] = {name: partial(self._document, name, one) for name, one in DOCUMENTS.items()}
        methods["ModelInfer"] = self._infer
        methods["RepositoryIndex"] = self._index
        handlers = {name: grpc.stream_unary_rpc_method_handler(method) for name, method in methods.items()}
        health = {"Check": grpc.stream_unary_rpc_method_handler(self._check)}
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                grpc.method_handlers_generic_handler(HEALTH, health),
            )
        )
        self.port = bind(self._server, config)

    async def start(self) -> None:
        """Take calls."""
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and end those that are not answered after so long."""
        await self._server.stop(grace_s)

    async def _document(self, name: str, document: Document, messages: Messages, context: Context) -> bytes:
        """Answer with what the gateway has at a path."""
        try:
            headers, target = _headers(context), document.target
            if document.of_model is not None and self._http.admits(target, headers):
                message = parse(f"{name}Request", (await self._read(messages))[0])
                named = message.name or not document.of_all
                path = model_target(message.name, message.version, document.of_model)
                target = path if named else document.of_all
        except BadRequest as error:
            return await _refuse(context, error)
        answer = await self._ask(b"GET", target, headers, b"")
        if name.endswith("Ready") and answer.status == 503:
            return bytes(CLASSES[f"{name}Response"](ready=False).SerializeToString())
        if answer.status >= 400:
            return await _fail(context, answer)
        return _of_document(f"{name}Response", answer.body, document.field)

    async def _index(self, messages: Messages, context: Context) -> bytes:
        """Answer with the models and whether they are ready."""
        asked = b""
        try:
            headers = _headers(context)
            if self._http.admits(INDEX, headers):
                message = parse("RepositoryIndexRequest", (await self._read(messages))[0])
                asked = oip.dump_json({"ready": message.ready})
        except BadRequest as error:
            return await _refuse(context, error)
        answer = await self._ask(b"POST", INDEX, headers, asked)
        if answer.status >= 400:
            return await _fail(context, answer)
        return _of_document("RepositoryIndexResponse", answer.body, "models")

    async def _check(self, messages: Messages, context: Context) -> bytes:
        """Answer gRPC's own health check, of the server and of its one service: live, as by HTTP.

        Not ready, which it would not be while one model of many has no instance: load balancers ask.
        """
        name = ""
        try:
            headers = _headers(context)
            if self._http.admits(LIVE, headers):  # a stranger's message is not read
                name = parse("HealthCheckRequest", (await self._read(messages))[0]).service
        except BadRequest as error:
            return await _refuse(context, error)
        if name not in ("", SERVICE):
            return await _refuse(context, BadRequest(f"no service {name[:200]!r}; known: {SERVICE}", 404))
        answer = await self._ask(b"GET", LIVE, headers, b"")
        if answer.status >= 400:
            return await _fail(context, answer)
        return bytes(CLASSES["HealthCheckResponse"](status=SERVING).SerializeToString())

    async def _infer(self, messages: Messages, context: Context) -> bytes:
        """Answer an inference request. A stranger's is refused by its metadata, as a large body is over HTTP."""
        asked, lease = NOTHING, None
        try:
            headers = _headers(context)
            if self._http.admits(asked.target, headers):
                data, lease = await self._read(messages)
                asked = await _off_loop(len(data), partial(_understood, data))
                del data
        except BadRequest as error:
            return await _refuse(context, error)
        headers["content-type"] = oip.BINARY_TYPE.encode()
        headers[oip.HEADER_LENGTH] = b"%d" % asked.header_length
        answer = await self._ask(b"POST", asked.target, headers, asked.body, lease)
        if answer.status >= 400:
            return await _fail(context, answer)
        context.set_trailing_metadata(trailing_of(answer.headers))
        length = int(answer.headers.get(oip.HEADER_LENGTH, 0))
        composed = partial(compose_response, answer.body, length, typed=asked.typed)
        try:
            return await _off_loop(len(answer.body), composed)
        except BadRequest as error:
            return await _refuse(context, BadRequest(str(error), 500))

    async def _read(self, messages: Messages) -> tuple[bytes, BodyLease | None]:
        """The call's one message, and its share of the memory for bodies; None where it is too small to count.

        gRPC holds what has come of a message and does not say how long it will be. So one that is not here at once
        counts as the longest that there may be until it is. Errors: BadRequest.
        """
        limits, lease = self._http.limits, None
        reading = asyncio.ensure_future(_first(messages))
        try:
            await asyncio.wait({reading}, timeout=AT_ONCE_S)
            if not reading.done():
                lease = self._take(limits.body_bytes, is_here=False)
                await asyncio.wait({reading}, timeout=limits.slow_s)
            if not reading.done():
                raise BadRequest(TOO_SLOW.format(limits.slow_s), 408)  # noqa: TRY301 - as what else ends it
            data = reading.result()
        except BaseException:
            lease = None  # a cancelled call's traceback lives until garbage is collected, its memory must not
            raise
        finally:
            reading.cancel()
        if len(data) <= UNCOUNTED_BYTES:
            return data, None
        if lease is None:
            return data, self._take(len(data), is_here=True)
        lease.shrink(len(data))
        return data, lease

    def _take(self, size: int, *, is_here: bool) -> BodyLease:
        lease = self._http.budget.take(size, is_here=is_here)
        if lease is None:
            raise BadRequest(HELD, 503)
        return lease

    async def _ask(
        self, method: bytes, target: bytes, headers: dict[str, bytes], body: bytes, lease: BodyLease | None = None
    ) -> Answer:
        """Have the handler answer; where the client goes meanwhile, nobody waits for that."""
        waiting = _Waiting()
        exchange = self._http.make(waiting, method, target, headers, body, keep_alive=True)
        if lease is not None:
            exchange.lease = lease
        try:
            self._http.handler(exchange)
        except Exception as error:  # noqa: BLE001 - as a connection of HTTP: the request gets its answer
            self._http.on_error(exchange, error)
        try:
            return await waiting.answer
        finally:
            if exchange.connection is not None:
                exchange.leave()


def bind(server: Any, config: GrpcConfig) -> int:
    """Have a server of grpcio listen; the port. Errors: Misconfigured where it cannot be used."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = f"{host}:{config.port}"
    try:
        if config.identity is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, grpc.ssl_server_credentials([config.identity])))
    except RuntimeError as error:
        raise Misconfigured(f"cannot serve gRPC on {address}: {error}; choose another port") from error


def _of_document(name: str, body: bytes, field: str) -> bytes:
    """The message that a document is, or that has it in a field; what only HTTP has is left out."""
    found, message = oip.load_json(body), CLASSES[name]()
    json_format.ParseDict({field: found} if field else found, message, ignore_unknown_fields=True)
    return bytes(message.SerializeToString())


async def _first(messages: Messages) -> bytes:
    async for message in messages:
        return message
    raise BadRequest("the call has no message")


def _understood(data: bytes) -> Translated:
    return translate(parse("ModelInferRequest", data))


async def _off_loop(size: int, work: Callable[[], Result]) -> Result:
    """Do the work, in a thread where so many bytes would hold up the others."""
    return work() if size <= SMALL_BYTES else await asyncio.to_thread(work)


def _headers(context: Context) -> dict[str, bytes]:
    """The call's metadata as headers. A web page cannot speak gRPC: there is no foreign host to be afraid of."""
    return {**headers_of(context.invocation_metadata() or (), context.time_remaining()), "host": b"localhost"}


async def _refuse(context: Context, error: BadRequest) -> bytes:
    return await _fail(context, Answer(error.status, RETRY if error.status == 503 else {}, str(error).encode()))


async def _fail(context: Context, answer: Answer) -> bytes:
    """End the call with an error: this raises."""
    await context.abort(code_of(answer.status), details_of(answer.body), trailing_of(answer.headers))
    raise AssertionError


def _options(limits: HttpLimits) -> list[tuple[str, int]]:
    """Limits of HTTP by their names in gRPC, and of those that only its connections need."""
    ms = 1000
    return [
        ("grpc.max_receive_message_length", limits.body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.head_bytes),
        ("grpc.absolute_max_metadata_size", limits.head_bytes),
        ("grpc.max_concurrent_streams", STREAMS),
        # it would count calls that are answered but not yet cleared away: a burst of good clients' was refused
        ("grpc.http.overload_protection", 0),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * ms)),
        ("grpc.keepalive_time_ms", int(PING_EACH_S * ms)),
        ("grpc.keepalive_timeout_ms", int(PING_EACH_S * ms)),
        ("grpc.http2.min_ping_interval_without_data_ms", int(PINGS_ALLOWED_EACH_S * ms)),
        ("grpc.max_connection_idle_ms", int(limits.idle_s * ms)),
        ("grpc.max_connection_age_ms", int(CONNECTION_S * ms)),
        ("grpc.so_reuseport", 1),
    ]

"""An agent's HTTP port: health checks, metrics, and inference without a gateway.

It asks for the same token as the gateways, which say by its digest which one that is (`protocols/handshake.py`).
"""

from __future__ import annotations

import functools
import hmac
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from prometheus_client import Metric

import mark
from mark.ports import InferReply, InferRequest
from mark.protocols.handshake import token_digest
from mark.protocols.oip import bodies as oip
from mark.protocols.stream_window import ReceiveWindow
from mark.service_spec import ServedModel, ServiceSpec
from mark.serving.accuracy_floor import VARIANT, floor_of, pinned_variant, stricter_floor
from mark.serving.agent.queue import AgentCore, Job
from mark.serving.agent.streams import StreamCore
from mark.serving.http.exchange import HttpExchange
from mark.serving.inference_headers import MAX_TYPE_BYTES, accept_of, size_of
from mark.serving.routes import OPEN_TO_ALL, Endpoint, Route, Routes, versions_of
from mark.telemetry.metrics import CONTENT_TYPE, counter, exposition, gauge
from mark.telemetry.otlp.sender import TelemetrySender

_JSON = oip.JSON_TYPE.encode()
_OF_GATEWAYS = frozenset({Endpoint.CONFIG, Endpoint.STATISTICS, Endpoint.INDEX})
_LENGTH = oip.HEADER_LENGTH.encode()


class AgentAccess:
    """Access rule of the HTTP port.

    key: the agent's. digest: of the token, under that key; empty for all comers, None while unknown.
    """

    def __init__(self, key: str, digest: bytes | None = None) -> None:
        self._key, self._digest = key, digest

    def set_digest(self, digest: bytes) -> None:
        """Take what a gateway says; the last one counts."""
        self._digest = digest

    @property
    def is_known(self) -> bool:
        """True once a gateway has said which token counts."""
        return self._digest is not None

    def allows(self, headers: dict[str, bytes]) -> bool:
        """True where a request with these headers may be answered."""
        if not self._digest:
            return self._digest is not None
        scheme, _, token = headers.get("authorization", b"").partition(b" ")
        sent = token_digest(self._key, token.lstrip(b" ").decode("latin-1"))
        return scheme.lower() == b"bearer" and hmac.compare_digest(sent, self._digest)


class AgentExchange(HttpExchange):
    """A request to this port. `withdraw` is set once it waits for the model: called where its client leaves."""

    __slots__ = ("withdraw",)

    withdraw: Callable[[], None]

    def leave(self) -> None:
        """Note that the client has gone: nobody waits for the model."""
        HttpExchange.leave(self)
        if hasattr(self, "withdraw"):
            self.withdraw()


class _HttpStream:
    """A streamed answer to a client of this port: credit for what was written, as its client reads."""

    def __init__(self, http: AgentHttp, core: StreamCore, id_: int, exchange: AgentExchange) -> None:
        self._http, self._core, self._id, self._exchange = http, core, id_, exchange
        self._window = ReceiveWindow()

    def wrote(self, size: int) -> None:
        """Count a part."""
        self._window.received(size)
        self.on_writable()

    def on_writable(self) -> None:
        """Give credit, unless the client does not read."""
        connection = self._exchange.connection
        if connection is not None and connection.is_writable and (credit := self._window.credit()):
            self._core.credit(self._http, self._id, credit)

    def on_left(self) -> None:
        """The client has gone: nobody waits for the model."""
        self._http.forget(self._id)


class AgentHttp:
    """Answers requests of the agent's HTTP port. It is the client of the jobs that come this way."""

    def __init__(
        self,
        core: AgentCore,
        served: ServedModel,
        *,
        instance: str,
        is_ready: Callable[[], bool],
        access: AgentAccess,
        telemetry: TelemetrySender | None = None,
    ) -> None:
        self._core, self._served, self._instance, self._access = core, served, instance, access
        self._routes = Routes(ServiceSpec(name="agent", models=(served,)))
        self._is_ready, self._telemetry = is_ready, telemetry
        self._jobs: dict[int, AgentExchange] = {}
        self._count = 0

    def handle(self, exchange: AgentExchange) -> None:
        """Handle one request."""
        route = self._routes.find(exchange.target)
        is_open = route is not None and route.endpoint in OPEN_TO_ALL
        if not is_open and not self._access.allows(exchange.headers):
            self._refuse(exchange)
        elif route is None or route.endpoint in _OF_GATEWAYS:
            exchange.refuse(404, f"no route for {exchange.target[:200].decode('latin-1')}")
        elif route.endpoint is Endpoint.INFER:
            self._infer(exchange, route)
        elif exchange.method not in (b"GET", b"HEAD"):
            exchange.refuse(405, "use GET", b"allow: GET, HEAD\r\n")
        else:
            self._handle_get(exchange, route)

    def admits(self, _target: bytes, headers: dict[str, bytes]) -> bool:
        """True where a request's body is to be read."""
        return self._access.allows(headers)

    def _refuse(self, exchange: AgentExchange) -> None:
        if self._access.is_known:
            exchange.refuse(401, "a bearer token is required", b"www-authenticate: Bearer\r\n")
        else:
            text = "no gateway has said yet which token counts here; retry after 1 s"
            exchange.refuse(503, text, b"retry-after: 1\r\n")

    def answered(self, job: Job, reply: InferReply) -> None:
        """Answer with the model's response."""
        exchange = self._jobs.get(job.id)
        if exchange is None:
            return  # its client left while the batch ran
        extra = b"%b: %d\r\n" % (_LENGTH, reply.header_length) if reply.header_length else b""
        if reply.variant:
            extra += b"%b: %b\r\n" % (VARIANT, reply.variant.encode())
        exchange.reply(reply.status, reply.content_type.encode("latin-1"), reply.body, extra)
        del self._jobs[job.id]

    def began(self, job: Job, status: int, content_type: str) -> None:
        """Begin an answer that streams."""
        exchange = self._jobs[job.id]
        assert exchange.connection is not None, "one that has left is withdrawn"
        exchange.connection.begin(exchange, status, content_type.encode("latin-1"), b"")

    def part(self, job: Job, body: bytes) -> None:
        """Write a part of it."""
        exchange = self._jobs.get(job.id)
        if exchange is not None and exchange.connection is not None:
            exchange.connection.write_part(body)
            cast("_HttpStream", exchange.stream).wrote(len(body))

    def ended(self, job: Job, error: str = "") -> None:
        """End it, or close its connection where it is not whole."""
        exchange = self._jobs.pop(job.id, None)
        if exchange is None or exchange.connection is None:
            return
        if error:
            exchange.connection.cut()
        else:
            exchange.connection.finish(exchange)

    def forget(self, id_: int) -> None:
        """The client of that job has gone."""
        self._jobs.pop(id_, None)
        self._core.withdraw(self, id_)
        self._core.publish_if_changed()

    def bounced(self, job: Job) -> None:
        """Answer 503: the job was not run here."""
        self._jobs.pop(job.id).refuse(
            503, "the instance did not run the request; retry after 1 s", b"retry-after: 1\r\n"
        )

    def publish_if_changed(self) -> None:
        """Nothing to publish: HTTP clients keep no estimate of the queue."""

    def _infer(self, exchange: AgentExchange, route: Route) -> None:
        headers, now = exchange.headers, time.monotonic()
        length = headers.get("inference-header-content-length", b"0")
        can_stream = exchange.connection is not None and exchange.connection.can_stream
        if exchange.method != b"POST":
            exchange.refuse(405, "use POST", b"allow: POST\r\n")
            return
        if isinstance(self._core, StreamCore) and not can_stream:
            exchange.refuse(505, "streamed answers need HTTP/1.1")
            return
        if headers.get("content-encoding", b"identity").lower() != b"identity":
            exchange.refuse(415, "compressed bodies are not supported here; send the body uncompressed")
            return
        if not length.isdigit() or len(length) > 10 or int(length) > len(exchange.body):
            exchange.refuse(400, "inference-header-content-length does not fit the body")
            return
        try:
            size = size_of(headers, self._core.largest)
            floor = stricter_floor(
                floor_of(headers, self._served), exchange.body, int(length), route.shape, self._served
            )
            pinned = pinned_variant(headers, floor, self._served)
        except oip.BadRequest as error:
            exchange.refuse(error.status, str(error))
            return
        request = InferRequest(
            path=route.forward.decode(),
            content_type=headers.get("content-type", b"").decode("latin-1"),
            body=exchange.body,
            header_length=int(length),
            accept=accept_of(headers, route)[:MAX_TYPE_BYTES].decode("latin-1"),
            size=size,
        )
        self._count += 1
        deadline_at, number = now + self._served.slo.latency_s, self._core.floor_number(floor) if floor else 0
        if pinned:
            number = self._core.pinned_number(pinned.decode("latin-1"))
        job = Job(self, self._count, now, deadline_at, request, floor=number, is_pinned=bool(pinned))
        if self._core.take(job, now) is not None:
            exchange.refuse(503, "no capacity to meet the deadline; retry after 1 s", b"retry-after: 1\r\n")
            return
        self._jobs[job.id] = exchange
        if isinstance(self._core, StreamCore):
            exchange.stream = _HttpStream(self, self._core, job.id, exchange)
        else:
            exchange.withdraw = functools.partial(self.forget, job.id)
        self._core.start()
        self._core.publish_if_changed()

    def _handle_get(self, exchange: AgentExchange, route: Route) -> None:
        served = self._served
        document: dict[str, Any] = {"live": True}
        match route.endpoint:
            case Endpoint.READY | Endpoint.MODEL_READY if not self._is_ready():
                exchange.refuse(503, "not ready")
                return
            case Endpoint.SERVER:
                document = oip.server_metadata("mark agent", mark.__version__)
            case Endpoint.MODEL:
                document = oip.model_metadata(served.name, served.inputs, served.outputs, versions_of(served))
            case Endpoint.METRICS:
                exchange.reply(200, CONTENT_TYPE.encode(), exposition(self.families()))
                return
            case _:
                pass
        exchange.reply(200, _JSON, json.dumps(document).encode())

    def families(self) -> Iterator[Metric]:
        """The agent's metrics as they are now."""
        core = self._core
        names, labels = ("model", "instance"), (self._served.name, self._instance)
        counters = (
            ("responses", "Requests answered", core.answered),
            ("bounced", "Requests that the Bouncer did not admit", core.bounced),
            ("failed", "Requests that the backend failed to answer", core.failed),
            ("internal_errors", "Unexpected exceptions; the log has their tracebacks", core.unexpected.count),
            ("batches", "Batches that ended", core.batches),
            ("busy_seconds", "Seconds in which a batch ran", core.busy_s),
        )
        gauges = (
            ("waiting", "Requests in the queue", len(core.waiting)),
            ("in_service", "Items in the batch that runs", core.in_service),
            ("single_seconds", "Service time of a batch of one", core.measured.single_s),
            ("full_batch_seconds", "Service time of a full batch", core.measured.full_batch_s),
        )
        yield from (counter(f"agent_{name}", text, names, [(labels, value)]) for name, text, value in counters)
        yield from (gauge(f"agent_{name}", text, names, [(labels, value)]) for name, text, value in gauges)
        if self._telemetry is not None:
            yield from self._telemetry.families("agent")

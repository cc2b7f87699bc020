"""An agent's HTTP port: health checks, metrics, and inference without a gateway.

It asks for the same token as the gateways, which say by its digest which one that is (`protocols/handshake.py`).
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from prometheus_client import Metric

import mark
from mark.ports import InferReply, InferRequest
from mark.protocols.oip import bodies as oip
from mark.protocols.stream_window import ReceiveWindow
from mark.service_spec import ServiceSpec
from mark.serving.accuracy_floor import VARIANT, floor_of, pinned_variant, stricter_floor
from mark.serving.agent.access import AgentAccess
from mark.serving.agent.queue import AgentCore, Job
from mark.serving.agent.streams import StreamCore
from mark.serving.agent.tenant import Tenant
from mark.serving.http.exchange import HttpExchange
from mark.serving.inference_headers import MAX_TYPE_BYTES, accept_of, size_of
from mark.serving.routes import OPEN_TO_ALL, Endpoint, Route, Routes, versions_of
from mark.telemetry.metrics import CONTENT_TYPE, counter, exposition, gauge
from mark.telemetry.otlp.sender import TelemetrySender

_JSON = oip.JSON_TYPE.encode()
_OF_GATEWAYS = frozenset({Endpoint.CONFIG, Endpoint.STATISTICS, Endpoint.INDEX})
_LENGTH = oip.HEADER_LENGTH.encode()


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
        self, *, instance: str, is_ready: Callable[[], bool], telemetry: TelemetrySender | None = None
    ) -> None:
        self._instance, self._is_ready, self._telemetry = instance, is_ready, telemetry
        self._tenants: dict[str, Tenant] = {}
        self._routes = Routes(ServiceSpec(name="agent", models=()))
        self._jobs: dict[int, tuple[AgentCore, AgentExchange]] = {}
        self._count = 0

    def set_tenants(self, tenants: Sequence[Tenant]) -> None:
        """Answer for these models from now on."""
        # while one is loaded beside another of its model, the ready one answers
        self._tenants = {tenant.served.name: tenant for tenant in sorted(tenants, key=lambda one: one.is_ready)}
        models = tuple(tenant.served for tenant in self._tenants.values())
        self._routes = Routes(ServiceSpec(name="agent", models=models))

    def handle(self, exchange: AgentExchange) -> None:
        """Handle one request."""
        route = self._routes.find(exchange.target)
        is_open = route is not None and route.endpoint in OPEN_TO_ALL
        if not is_open and not self.admits(exchange.target, exchange.headers):
            self._refuse(exchange)
        elif route is None or route.endpoint in _OF_GATEWAYS:
            exchange.refuse(404, f"no route for {exchange.target[:200].decode('latin-1')}")
        elif route.endpoint is Endpoint.INFER:
            self._infer(exchange, route, self._tenants[route.model])
        elif exchange.method not in (b"GET", b"HEAD"):
            exchange.refuse(405, "use GET", b"allow: GET, HEAD\r\n")
        else:
            self._handle_get(exchange, route)

    def admits(self, target: bytes, headers: dict[str, bytes]) -> bool:
        """True where a request's body is to be read."""
        return any(access.allows(headers) for access in self._accesses(target))

    def _accesses(self, target: bytes) -> list[AgentAccess]:
        """The rules of the model that a path names, or of each model."""
        route = self._routes.find(target)
        named = self._tenants.get(route.model) if route is not None else None
        return [tenant.access for tenant in ([named] if named else self._tenants.values())]

    def _refuse(self, exchange: AgentExchange) -> None:
        if any(access.is_known for access in self._accesses(exchange.target)):
            exchange.refuse(401, "a bearer token is required", b"www-authenticate: Bearer\r\n")
        else:
            text = "no gateway has said yet which token counts here; retry after 1 s"
            exchange.refuse(503, text, b"retry-after: 1\r\n")

    def answered(self, job: Job, reply: InferReply) -> None:
        """Answer with the model's response."""
        _, exchange = self._jobs.get(job.id, (None, None))
        if exchange is None:
            return  # its client left while the batch ran
        extra = b"%b: %d\r\n" % (_LENGTH, reply.header_length) if reply.header_length else b""
        if reply.variant:
            extra += b"%b: %b\r\n" % (VARIANT, reply.variant.encode())
        exchange.reply(reply.status, reply.content_type.encode("latin-1"), reply.body, extra)
        del self._jobs[job.id]

    def began(self, job: Job, status: int, content_type: str) -> None:
        """Begin an answer that streams."""
        _, exchange = self._jobs[job.id]
        assert exchange.connection is not None, "one that has left is withdrawn"
        exchange.connection.begin(exchange, status, content_type.encode("latin-1"), b"")

    def part(self, job: Job, body: bytes) -> None:
        """Write a part of it."""
        _, exchange = self._jobs.get(job.id, (None, None))
        if exchange is not None and exchange.connection is not None:
            exchange.connection.write_part(body)
            cast("_HttpStream", exchange.stream).wrote(len(body))

    def ended(self, job: Job, error: str = "") -> None:
        """End it, or close its connection where it is not whole."""
        _, exchange = self._jobs.pop(job.id, (None, None))
        if exchange is None or exchange.connection is None:
            return
        if error:
            exchange.connection.cut()
        else:
            exchange.connection.finish(exchange)

    def forget(self, id_: int) -> None:
        """The client of that job has gone."""
        core, _ = self._jobs.pop(id_, (None, None))
        if core is not None:
            core.withdraw(self, id_)
            core.publish_if_changed()

    def bounced(self, job: Job) -> None:
        """Answer 503: the job was not run here."""
        _, exchange = self._jobs.pop(job.id)
        exchange.refuse(503, "the instance did not run the request; retry after 1 s", b"retry-after: 1\r\n")

    def publish_if_changed(self) -> None:
        """Nothing to publish: HTTP clients keep no estimate of the queue."""

    def _infer(self, exchange: AgentExchange, route: Route, tenant: Tenant) -> None:
        core, served = tenant.core, tenant.served
        headers, now = exchange.headers, time.monotonic()
        length = headers.get("inference-header-content-length", b"0")
        can_stream = exchange.connection is not None and exchange.connection.can_stream
        if exchange.method != b"POST":
            exchange.refuse(405, "use POST", b"allow: POST\r\n")
            return
        if isinstance(core, StreamCore) and not can_stream:
            exchange.refuse(505, "streamed answers need HTTP/1.1")
            return
        if headers.get("content-encoding", b"identity").lower() != b"identity":
            exchange.refuse(415, "compressed bodies are not supported here; send the body uncompressed")
            return
        if not length.isdigit() or len(length) > 10 or int(length) > len(exchange.body):
            exchange.refuse(400, "inference-header-content-length does not fit the body")
            return
        try:
            size = size_of(headers, core.largest)
            floor = stricter_floor(floor_of(headers, served), exchange.body, int(length), route.shape, served)
            pinned = pinned_variant(headers, floor, served)
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
        deadline_at, number = now + served.slo.latency_s, core.floor_number(floor) if floor else 0
        if pinned:
            number = core.pinned_number(pinned.decode("latin-1"))
        job = Job(self, self._count, now, deadline_at, request, floor=number, is_pinned=bool(pinned))
        if core.take(job, now) is not None:
            exchange.refuse(503, "no capacity to meet the deadline; retry after 1 s", b"retry-after: 1\r\n")
            return
        self._jobs[job.id] = core, exchange
        if isinstance(core, StreamCore):
            exchange.stream = _HttpStream(self, core, job.id, exchange)
        else:
            exchange.withdraw = functools.partial(self.forget, job.id)
        core.start()
        core.publish_if_changed()

    def _handle_get(self, exchange: AgentExchange, route: Route) -> None:
        document: dict[str, Any] = {"live": True}
        match route.endpoint:
            case Endpoint.READY if not self._is_ready():
                exchange.refuse(503, "not ready")
                return
            case Endpoint.MODEL_READY if not self._tenants[route.model].is_ready:
                exchange.refuse(503, "not ready")
                return
            case Endpoint.SERVER:
                document = oip.server_metadata("mark agent", mark.__version__)
            case Endpoint.MODEL:
                served = self._tenants[route.model].served
                document = oip.model_metadata(served.name, served.inputs, served.outputs, versions_of(served))
            case Endpoint.METRICS:
                exchange.reply(200, CONTENT_TYPE.encode(), exposition(self.families()))
                return
            case _:
                pass
        exchange.reply(200, _JSON, json.dumps(document).encode())

    def families(self) -> Iterator[Metric]:
        """The agent's metrics as they are now, of each model."""
        names, tenants = ("model", "instance"), list(self._tenants.values())
        for kind, name, text, value_of in _METRICS:
            rows = [((one.served.name, self._instance), value_of(one.core)) for one in tenants]
            yield kind(f"agent_{name}", text, names, rows)
        variants = [
            ((one.served.name, self._instance, variant), count)
            for one in tenants
            for variant, count in one.core.variant_batches.items()
        ]
        yield counter(
            "agent_variant_batches", "Batches by the variant that ran them", (*names, "variant"), variants
        )
        if self._telemetry is not None:
            yield from self._telemetry.families("agent")


_Value = Callable[[AgentCore], float]
_METRICS: tuple[tuple[Callable[..., Metric], str, str, _Value], ...] = (
    (counter, "responses", "Requests answered", lambda core: core.answered),
    (counter, "bounced", "Requests that the Bouncer did not admit", lambda core: core.bounced),
    (counter, "failed", "Requests that the backend failed to answer", lambda core: core.failed),
    (
        counter,
        "internal_errors",
        "Unexpected exceptions; the log has their tracebacks",
        lambda core: core.unexpected.count,
    ),
    (counter, "batches", "Batches that ended", lambda core: core.batches),
    (counter, "busy_seconds", "Seconds in which a batch ran", lambda core: core.busy_s),
    (gauge, "waiting", "Requests in the queue", lambda core: len(core.waiting)),
    (gauge, "in_service", "Items in the batch that runs", lambda core: core.in_service),
    (gauge, "single_seconds", "Service time of a batch of one", lambda core: core.measured.single_s),
    (gauge, "full_batch_seconds", "Service time of a full batch", lambda core: core.measured.full_batch_s),
)

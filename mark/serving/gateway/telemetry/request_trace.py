"""A gateway's spans of one sampled request.

    infer MODEL           from its arrival to its answer; with an event at the first byte of one that streams
      dispatch            until it is sent somewhere, again after each bounce or loss: the wait in the gateway
      agent               from when it is sent to one until the answer, the bounce or the loss
      lambda              the same for a call of Lambda

What the agent does is below `agent` (`serving/agent/batch_trace.py`). Instants are the event loop's clock.
"""

from __future__ import annotations

import time
from typing import Protocol

from mark.domain.load.traffic import CLIENT_ERROR, CLIENT_GONE
from mark.protocols.trace_context import TraceContext, carried, is_in_ratio, parse_context
from mark.service_spec import ServedModel
from mark.serving.gateway.held_use import HeldUse
from mark.telemetry.otlp.queue import SpanQueue
from mark.telemetry.otlp.span import Kind, Span, SpanId, epoch_ns, new_span_id, new_trace_id

Values = dict[str, str | bool | int | float]
REJECTED = "rejected"
FIRST_BYTE = "first byte"
FAILURES = {
    400: REJECTED, 404: REJECTED, 409: REJECTED, 429: "limited", CLIENT_GONE: "client gone", 503: "shed",
    504: "expired",
}  # fmt: skip
"""Outcomes of requests that the service answers with an error; of others: failed."""


class TracedModel(Protocol):
    """The model of a request."""

    name: str
    served: ServedModel


class TracedRequest(Protocol):
    """A request, which owns its trace."""

    arrived_at: float
    headers: dict[str, bytes]
    request_id: bytes
    size: int
    target: bytes
    trace: RequestTrace | None
    traceparent: bytes

    @property
    def client(self) -> object:
        """Its client's use; a `HeldUse` while it is held."""
        ...


class GatewayTracing:
    """Decides which requests are traced: those of a sampled parent, and `ratio` of those without a parent."""

    def __init__(self, spans: SpanQueue, ratio: float) -> None:
        self._spans, self._ratio = spans, ratio

    def begin(self, request: TracedRequest, router: TracedModel, client: str) -> None:
        """Trace the request, which has just arrived, if it is sampled. client: its name, empty without one."""
        parent = None
        if request.traceparent:
            headers = request.headers
            parent = parse_context(headers["traceparent"], headers.get("tracestate", b""))
        if parent is None:
            trace_id = new_trace_id()
            if not is_in_ratio(trace_id, self._ratio):
                return
            parent = TraceContext(trace_id, 0, True)
        elif not parent.sampled:
            return
        request.trace = RequestTrace(self._spans, parent, request, router, client)


class RequestTrace:
    """Spans of one request. `_try`: of the agent or the function that has it now; None while the gateway does."""

    __slots__ = (
        "_began_at",
        "_client",
        "_first_at",
        "_parent",
        "_request",
        "_router",
        "_since",
        "_spans",
        "_try",
        "_try_id",
        "_try_name",
        "id",
    )

    def __init__(
        self,
        spans: SpanQueue,
        parent: TraceContext,
        request: TracedRequest,
        router: TracedModel,
        client: str,
    ) -> None:
        self._spans, self._parent, self._client = spans, parent, client
        self._request, self._router = request, router
        self.id = new_span_id()
        self._began_at = self._since = request.arrived_at
        self._first_at: float | None = None
        self._try: Values | None = None
        self._try_id, self._try_name = 0, ""

    @property
    def context(self) -> TraceContext:
        """Of the request's span."""
        return self._parent._replace(span_id=self.id)

    @property
    def try_context(self) -> TraceContext:
        """Of the agent or the function that has it now."""
        return self._parent._replace(span_id=self._try_id)

    def sent(self, name: str, now: float, attributes: Values) -> None:
        """The request leaves for an agent or a function; `try_context` is its place there from now on."""
        if self._try is not None:  # it was withdrawn from an agent of an aborted version
            self.returned("taken back", now)
        self._add("dispatch", Kind.INTERNAL, new_span_id(), self._since, now, {})
        self._try, self._try_id, self._try_name, self._since = attributes, new_span_id(), name, now

    def sent_to_agent(self, instance: str, offering: str, now: float, *, forced: bool) -> bytes:
        """The request leaves for an agent; gives the trace field of its frame."""
        attributes: Values = {"mark.instance": instance, "mark.offering": offering, "mark.forced": forced}
        self.sent("agent", now, attributes)
        context = self.try_context
        return carried(context.traceparent, context.state)

    def note(self, **attributes: str | bool | float) -> None:
        """Say more of where the request is."""
        if self._try is not None:
            self._try |= {f"mark.{name}": value for name, value in attributes.items()}

    def returned(self, outcome: str, now: float) -> None:
        """The request is at the agent or the function no more.

        outcome: answered, bounced, lost, taken back, refused, cancelled, expired or failed.
        """
        attributes, self._try = self._try, None
        if attributes is None:
            return
        attributes["mark.outcome"] = outcome
        failed = outcome in ("lost", "failed")
        self._add(self._try_name, Kind.CLIENT, self._try_id, self._since, now, attributes, failed=failed)
        self._since = now

    def began(self, now: float) -> None:
        """The first byte of an answer that streams goes out; `answered`, `cut_short` or `failed` ends it."""
        self._first_at = now

    def cut_short(self, status: int, by: bytes, version: bytes) -> None:
        """An answer that streams ended after its first part, and is not whole."""
        self._end(status, "cut short", "failed", _served(by, b"", version) | {"error.type": "cut_short"})

    def answered(self, status: int, by: bytes, variant: bytes, version: bytes) -> None:
        """The client has a server's answer. by: instance, standby or lambda."""
        outcome = "answered" if status < CLIENT_ERROR else REJECTED if status < 500 else "failed"
        of_try = "failed" if outcome == "failed" else "answered"
        self._end(status, outcome, of_try, _served(by, variant, version))

    def failed(self, status: int) -> None:
        """The client has an error of the service's."""
        of_try = {CLIENT_GONE: "cancelled", 504: "expired"}.get(status, "failed")
        self._end(status, FAILURES.get(status, "failed"), of_try, {})

    def forwarded(self, status: int) -> None:
        """The gateway that owns the request's id has answered; its own span says what became of the request."""
        self._end(status, "forwarded", "answered", {})

    def _end(self, status: int, outcome: str, of_try: str, values: Values) -> None:
        now, request = time.monotonic(), self._request
        request.trace = None
        self.returned(of_try, now)
        held = request.client if isinstance(request.client, HeldUse) else None
        slo, first_at = self._router.served.slo, self._first_at
        due_at = request.arrived_at + slo.judged_s if held is None else held.due_at
        is_late = (now if first_at is None or slo.first_byte_s is None else first_at) > due_at
        is_error = status >= 500 or outcome == "cut short"
        values |= {
            "http.request.method": "POST",
            "http.response.status_code": status,
            "url.path": request.target.partition(b"?")[0][:256].decode("latin-1"),
            "mark.model": self._router.name,
            "mark.request_id": request.request_id.decode("latin-1"),
            "mark.size": request.size,
            "mark.objective_ms": 1000 * slo.judged_s,
            "mark.outcome": outcome,
            "mark.attained": outcome == "answered" and not is_late,
            "mark.late": outcome == "answered" and is_late,
        }
        if self._client:
            values["mark.client"] = self._client
        if is_error:
            values.setdefault("error.type", str(status))
        self._add(
            f"infer {self._router.name}",
            Kind.SERVER,
            self.id,
            self._began_at,
            now,
            values,
            failed=is_error,
            parent_id=self._parent.span_id,
            events=() if first_at is None else ((FIRST_BYTE, epoch_ns(first_at)),),
        )

    def _add(  # noqa: PLR0913 it is given all of a span
        self,
        name: str,
        kind: Kind,
        id_: int,
        began_at: float,
        ended_at: float,
        attributes: Values,
        *,
        failed: bool = False,
        parent_id: int | None = None,
        events: tuple[tuple[str, int], ...] = (),
    ) -> None:
        parent = self._parent
        self._spans.add(
            Span(
                name,
                kind,
                SpanId(parent.trace_id, id_),
                self.id if parent_id is None else parent_id,
                epoch_ns(began_at),
                epoch_ns(ended_at),
                attributes,
                failed=failed,
                state=parent.state,
                events=events,
            )
        )


def _served(by: bytes, variant: bytes, version: bytes) -> Values:
    """Attributes that say what answered."""
    values: Values = {"mark.served_by": by.decode()}
    if variant:
        values["mark.variant"] = variant.decode("latin-1")
    if version:
        values["mark.version"] = version.decode("latin-1")
    return values

"""An agent's spans of the sampled requests of a batch.

    queue                 from a request's arrival at the agent to its batch; linked to the batch
    batch                 from its start to its answers: below the first sampled request, linked to all of them;
                          `stream`, of one request, where answers stream
      model               one call of the model, as the backend makes it

A batch is one span, however many requests it answers: it stands in the trace of the first, and the others' `queue`
leads there. Instants are the event loop's clock, which a model's thread shares.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mark.ports import InferRequest, Trace
from mark.protocols.trace_context import TraceContext, parse_carried
from mark.serving.passed_on_trace import PassedOn
from mark.telemetry.otlp.queue import SpanQueue
from mark.telemetry.otlp.span import Kind, Span, SpanId, epoch_ns, new_span_id


class AgentTracing:
    """Spans of one agent, which go to `spans`."""

    def __init__(self, spans: SpanQueue, *, model: str, instance: str) -> None:
        self._spans = spans
        self._labels = {"mark.model": model, "mark.instance": instance}

    def trace_of(self, field: bytes, now: float) -> Trace | None:
        """The trace of a request that has just come with this in its frame."""
        context = parse_carried(field)
        if context is None or not context.sampled:
            return None if context is None else PassedOn(context)
        return JobTrace(self._spans, context, now)

    def begin(self, requests: Sequence[InferRequest], now: float, name: str = "batch") -> BatchTrace | None:
        """Begin a batch, or one stream by that name; None where none of its requests is sampled."""
        traces = [request.trace for request in requests if isinstance(request.trace, JobTrace)]
        if not traces:
            return None
        labels: dict[str, str | int] = {**self._labels, "mark.batch.requests": len(requests)}
        return BatchTrace(self._spans, traces, labels, now, name)


class JobTrace:
    """A sampled request at the agent; once its batch has begun, what is called for it is below the batch."""

    __slots__ = ("_spans", "batch", "came_at", "context")

    is_recorded = True

    def __init__(self, spans: SpanQueue, context: TraceContext, came_at: float) -> None:
        self._spans, self.context, self.came_at = spans, context, came_at
        self.batch: TraceContext | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Of its place now."""
        return (self.batch or self.context).headers

    @contextmanager
    def call(self, *, remote: bool = False) -> Iterator[Mapping[str, str]]:
        """Record one call of the model."""
        parent, began_at, failed = self.batch or self.context, time.monotonic(), True
        own = parent._replace(span_id=new_span_id())
        try:
            yield own.headers
            failed = False
        finally:
            span = Span(
                "model",
                Kind.CLIENT if remote else Kind.INTERNAL,
                SpanId(own.trace_id, own.span_id),
                parent.span_id,
                epoch_ns(began_at),
                epoch_ns(time.monotonic()),
                {},
                failed=failed,
                state=own.state,
            )
            self._spans.add(span)


class BatchTrace:
    """A batch that runs, with the sampled ones of its requests."""

    def __init__(
        self,
        spans: SpanQueue,
        traces: Sequence[JobTrace],
        labels: Mapping[str, str | int],
        now: float,
        name: str,
    ) -> None:
        self._spans, self._traces, self._labels, self._began_at = spans, traces, labels, now
        self._name = name
        self._context = traces[0].context._replace(span_id=new_span_id())
        for trace in traces:
            trace.batch = self._context

    def ended(self, *, items: int, variant: str | None, failed: bool) -> None:
        """The batch's requests have their answers."""
        own = self._context
        id_, began_ns = SpanId(own.trace_id, own.span_id), epoch_ns(self._began_at)
        for trace in self._traces:
            asked = trace.context
            queue_id = SpanId(asked.trace_id, new_span_id())
            came_ns = epoch_ns(trace.came_at)
            self._spans.add(
                Span(
                    "queue",
                    Kind.INTERNAL,
                    queue_id,
                    asked.span_id,
                    came_ns,
                    began_ns,
                    {},
                    (id_,),
                    False,
                    asked.state,
                )
            )
        labels = {**self._labels, "mark.batch.items": items} | ({"mark.variant": variant} if variant else {})
        links = tuple(SpanId(trace.context.trace_id, trace.context.span_id) for trace in self._traces)
        parent_id, ended_ns = self._traces[0].context.span_id, epoch_ns(time.monotonic())
        self._spans.add(
            Span(self._name, Kind.INTERNAL, id_, parent_id, began_ns, ended_ns, labels, links, failed, own.state)
        )

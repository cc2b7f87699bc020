"""The collector by OpenTelemetry's own exporters: with `families.py` the only code that knows the library."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from prometheus_client import Metric as Family

from mark.telemetry.otlp.families import otlp_metrics
from mark.telemetry.otlp.span import Span, SpanId

SCOPE = "mark"
ANSWER_WITHIN_S = 5.0
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Collector:
    """One collector. resource: OpenTelemetry's resource attributes of this process."""

    def __init__(self, endpoint: str, *, headers: Mapping[str, str], resource: Mapping[str, str]) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # each failure a line; ours say it once
        base = endpoint.rstrip("/")
        self._spans = OTLPSpanExporter(
            f"{base}/v1/traces", headers=headers, timeout=ANSWER_WITHIN_S, compression=Compression.Gzip
        )
        self._metrics = OTLPMetricExporter(
            f"{base}/v1/metrics", headers=headers, timeout=ANSWER_WITHIN_S, compression=Compression.Gzip
        )
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope(SCOPE, resource.get("service.version"))
        self._began_ns = time.time_ns()

    def send_spans(self, spans: Sequence[Span]) -> bool:
        """True where the collector took them; tries again for some seconds."""
        return self._spans.export([self._readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def send_metrics(self, families: Iterable[Family]) -> bool:
        """True where the collector took them."""
        metrics = list(otlp_metrics(families, began_ns=self._began_ns, now_ns=time.time_ns()))
        scoped = [ScopeMetrics(self._scope, metrics, "")]
        found = self._metrics.export(MetricsData([ResourceMetrics(self._resource, scoped, "")]))
        return found is MetricExportResult.SUCCESS

    def close(self) -> None:
        """End what is being tried."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        state = TraceState.from_header([span.state.decode("latin-1")]) if span.state else None
        parent = None
        if span.parent_id:
            parent = _context(SpanId(span.id.trace_id, span.parent_id), is_remote=span.kind.name == "SERVER")
        return ReadableSpan(
            span.name,
            context=_context(span.id, state),
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            links=[Link(_context(link)) for link in span.links],
            events=[Event(name, timestamp=at_ns) for name, at_ns in span.events],
            kind=SpanKind[span.kind.value],
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.began_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )


def _context(id_: SpanId, state: TraceState | None = None, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(id_.trace_id, id_.span_id, is_remote, _SAMPLED, state)

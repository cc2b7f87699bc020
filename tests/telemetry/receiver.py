"""A collector for tests: OTLP over HTTP on loopback, which keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Received:
    """A span as it came."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    failed: bool
    resource: dict[str, str]
    state: str
    events: dict[str, int]


@dataclass
class Receiver:
    """All that came: spans in the order they were sent, metrics by name, headers of each call."""

    url: str = ""
    #: HTTP's status of each answer
    status: int = 200
    spans: list[Received] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Received:
        (found,) = self.named(name)
        return found

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            for of_resource in request.resource_spans:
                resource = _values(of_resource.resource.attributes)
                for scoped in of_resource.scope_spans:
                    self.spans += [_received(span, resource) for span in scoped.spans]
        else:
            assert path == "/v1/metrics"
            for of_resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scoped_metrics in of_resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scoped_metrics.metrics}


def _received(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _values(span.attributes),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        span.status.code == 2,
        resource,
        span.trace_state,
        {event.name: event.time_unix_nano for event in span.events},
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}


@contextmanager
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            if found.status == 200:
                found.take(self.path, body)
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

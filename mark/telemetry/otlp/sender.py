"""Spans and metrics of a process on their way to a collector; without one OpenTelemetry is not imported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Protocol

from prometheus_client import Metric

import mark
from mark.domain.errors import Misconfigured
from mark.domain.telemetry import Telemetry
from mark.telemetry.metrics import counter
from mark.telemetry.otlp.queue import SpanQueue
from mark.telemetry.otlp.span import Span

log = logging.getLogger("mark.telemetry")
EXTRA = "sending telemetry takes OpenTelemetry: pip install 'mark-serving[otel]', or leave `telemetry` out"


class CollectorPort(Protocol):
    """A taker of spans and metrics; its calls give True where it took them."""

    def send_spans(self, spans: Sequence[Span]) -> bool:
        """Send spans, and wait for the answer."""
        ...

    def send_metrics(self, families: Iterable[Metric]) -> bool:
        """Send metrics, and wait for the answer."""
        ...

    def close(self) -> None:
        """End what is being tried."""
        ...


class TelemetrySender:
    """Spans and metrics of one process, on their way to a collector.

    `ratio`: share of new traces that are recorded; `spans` is None where it is 0.
    """

    def __init__(self, telemetry: Telemetry, collector: CollectorPort) -> None:
        self._collector, self._every_s = collector, telemetry.metrics_every_s
        self.ratio = telemetry.trace_ratio
        self._is_away = False
        self.spans = SpanQueue(collector.send_spans) if self.ratio > 0 else None

    def families(self, room: str) -> Iterator[Metric]:
        """Its own metrics. room: gateway or agent."""
        if self.spans is not None:
            yield counter(f"{room}_spans_sent", "Spans that the collector took", (), [((), self.spans.sent)])
            dropped = "Spans dropped: the collector was away, or slower than they came"
            yield counter(f"{room}_spans_dropped", dropped, (), [((), self.spans.dropped)])

    @property
    def sends_metrics(self) -> bool:
        """True where metrics are sent."""
        return self._every_s is not None

    async def send_metrics(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Send the metrics again and again. read: called on the event loop's thread."""
        assert self._every_s is not None, "asked before"
        while True:
            await asyncio.sleep(self._every_s)
            try:
                taken = await asyncio.to_thread(self._collector.send_metrics, list(read()))
            except Exception:  # the driver of one reading: the next one is tried
                log.exception("metrics could not be sent")
                continue
            if taken is self._is_away:
                self._is_away = not taken
                log.warning("collector takes metrics again" if taken else "collector takes no metrics")

    async def close(self) -> None:
        """Send what waits, for some seconds at most."""
        if self.spans is not None:
            await asyncio.to_thread(self.spans.close)
        self._collector.close()


def check_installed(telemetry: Telemetry | None) -> None:
    """Misconfigured where something is to be sent, and OpenTelemetry is not installed."""
    if telemetry is not None and not _is_installed():
        raise Misconfigured(EXTRA)


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def open_telemetry(
    telemetry: Telemetry | None,
    *,
    process: str,
    namespace: str,
    instance: str,
    headers: Mapping[str, str],
) -> TelemetrySender | None:
    """The process's sender; None where nothing is sent, or OpenTelemetry is not installed.

    process, namespace, instance: `service.name`, `service.namespace` and `service.instance.id` of OpenTelemetry's
    resource. headers: of each call of the collector.
    """
    if telemetry is None or not telemetry.is_on:
        return None
    if not _is_installed():  # an image of before: requests are served all the same
        log.error("nothing is sent to the collector: %s", EXTRA)
        return None
    from mark.telemetry.otlp.collector import Collector  # noqa: PLC0415 - 0.2 s of CPU and 6 MiB

    resource = {
        "service.name": process,
        "service.namespace": namespace,
        "service.instance.id": instance,
        "service.version": mark.__version__,
    }
    return TelemetrySender(telemetry, Collector(telemetry.endpoint, headers=headers, resource=resource))

"""Telemetry that a service sends to a collector (OpenTelemetry)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Address of the collector (OTLP over HTTP), and what is sent there."""

    #: base URL; spans go to `/v1/traces` below it, metrics to `/v1/metrics`
    endpoint: str
    #: share of the requests without a sampled parent that are traced; 0: no spans at all
    trace_ratio: float = 0.0
    #: seconds between two readings of the metrics; None: they are not sent
    metrics_every_s: float | None = None

    @property
    def is_on(self) -> bool:
        """True where anything is sent."""
        return self.trace_ratio > 0 or self.metrics_every_s is not None

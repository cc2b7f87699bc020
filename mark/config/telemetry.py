"""Settings of what a service sends to a collector by OpenTelemetry's protocol (docs/telemetry.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from mark.config.parts import Part, Positive
from mark.config.rollout import Arn
from mark.domain.telemetry import Telemetry


def _base_url(text: str) -> str:
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url or url.query or url.fragment:
        raise PydanticCustomError("pattern", "should read like http://10.0.0.5:4318")
    if url.username is not None:
        raise ValueError("telemetry.endpoint: an address has no password in it; give headers instead")
    return text


class SpanSettings(Part):
    """Spans of requests."""

    ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0.0,
        description="Share of the requests that are traced, where the client has not decided: one with a sampled "
        "traceparent is traced. 0 records no spans at all.",
    )


class MetricsSettings(Part):
    """Metrics of gateways and agents, as their `/metrics` have them."""

    every_s: Positive | None = Field(
        None, description="Seconds between two readings that are sent; left out, none is."
    )


class TelemetrySettings(Part):
    """Spans and metrics for a collector, by OTLP over HTTP (docs/telemetry.md)."""

    endpoint: Annotated[str, AfterValidator(_base_url)] | None = Field(
        None, description="The collector's base URL, such as http://127.0.0.1:4318."
    )
    headers_file: Path | None = Field(
        None,
        description="On this machine: file with headers for the collector, name=value with commas between them. "
        "Gateways alone send them: agents run model code.",
    )
    headers_secret: Arn | None = Field(
        None, description="In an AWS account: secret (ARN) that holds the same text, on one line."
    )
    traces: SpanSettings = Field(SpanSettings(), description="Spans of requests.")
    metrics: MetricsSettings = Field(MetricsSettings(), description="Metrics.")

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if self.endpoint is None and (self.traces.ratio > 0 or self.metrics.every_s is not None):
            raise ValueError("telemetry.endpoint is missing: it says where spans and metrics are sent")
        return self


def telemetry_of(settings: TelemetrySettings) -> Telemetry | None:
    """Telemetry as processes are told of it; None where nothing is sent."""
    if settings.endpoint is None:
        return None
    found = Telemetry(
        endpoint=settings.endpoint, trace_ratio=settings.traces.ratio, metrics_every_s=settings.metrics.every_s
    )
    return found if found.is_on else None

"""The process's Prometheus metric families as OTLP's metrics: the same counters, read and never counted again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

Labels = tuple[tuple[str, str], ...]
CUMULATIVE = AggregationTemporality.CUMULATIVE


def otlp_metrics(families: Iterable[Family], *, began_ns: int, now_ns: int) -> Iterator[Metric]:
    """The families' metrics; a counter keeps its name without `_total`. began_ns: since when counters count."""
    for family in families:
        if family.type == "histogram":
            histogram = Histogram(_histograms(family, began_ns, now_ns), CUMULATIVE)
            yield Metric(family.name, family.documentation, "", histogram)
            continue
        is_counter = family.type == "counter"
        points = [
            NumberDataPoint(sample.labels, began_ns if is_counter else 0, now_ns, sample.value)
            for sample in family.samples
        ]
        yield Metric(
            family.name, family.documentation, "", Sum(points, CUMULATIVE, True) if is_counter else Gauge(points)
        )


def _histograms(family: Family, began_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """One point for each set of labels; Prometheus counts what is below an edge, OTLP what is between two."""
    found: dict[Labels, dict[str, list[Sample]]] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        found.setdefault(labels, {}).setdefault(sample.name.removeprefix(family.name), []).append(sample)
    points = []
    for labels, parts in found.items():
        below = [int(sample.value) for sample in parts["_bucket"]]
        points.append(
            HistogramDataPoint(
                dict(labels),
                began_ns,
                now_ns,
                below[-1],
                parts["_sum"][0].value,
                [below[0], *(upper - lower for lower, upper in pairwise(below))],
                [float(sample.labels["le"]) for sample in parts["_bucket"][:-1]],
                min=None,  # type: ignore[arg-type] # not known, which OTLP allows and the SDK's type does not
                max=None,  # type: ignore[arg-type] # as above
            )
        )
    return points

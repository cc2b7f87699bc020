"""Metric families as Prometheus' text."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
Labels = tuple[str, ...]
Rows = Iterable[tuple[Labels, float | None]]


def exposition(families: Iterable[Metric]) -> bytes:
    """Families as Prometheus' text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(families))
    return generate_latest(registry)


class _Snapshot(Collector):
    """Families that are there already; prometheus_client asks for them once."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The families."""
        return self._families


def gauge(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    """A family of gauges, `mark_NAME`; numbers that are not known are left out."""
    return _filled(GaugeMetricFamily(f"mark_{name}", text, labels=labels), rows)


def counter(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    """A family of counters, `mark_NAME_total`; numbers that are not known are left out."""
    return _filled(CounterMetricFamily(f"mark_{name}", text, labels=labels), rows)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, rows: Rows) -> Metric:
    for values, number in rows:
        if number is not None and math.isfinite(number):
            family.add_metric(values, float(number))
    return family

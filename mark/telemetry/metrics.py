"""Metric families as Prometheus' text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
HELP = b"# HELP "
Labels = tuple[str, ...]
Rows = Iterable[tuple[Labels, float | None]]


def exposition(families: Iterable[Metric]) -> bytes:
    """Families as Prometheus' text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(families))
    return generate_latest(registry)


def labelled(families: Iterable[Metric], name: str, value: str) -> Iterator[Metric]:
    """Families with one more label on all their samples."""
    for family in families:
        family.samples = [one._replace(labels={**one.labels, name: value}) for one in family.samples]
        yield family


def merged(texts: Iterable[bytes]) -> bytes:
    """One exposition of several, as `exposition` writes them; of a series that comes twice the first counts."""
    families: dict[bytes, tuple[bytes, dict[bytes, bytes]]] = {}
    for text in texts:
        for block in text.split(HELP)[1:]:
            about, kind, *samples = block.splitlines(keepends=True)
            _, series = families.setdefault(about.split(b" ", 1)[0], (HELP + about + kind, {}))
            for line in samples:
                series.setdefault(line.rpartition(b" ")[0], line)
    return b"".join(head + b"".join(series.values()) for head, series in families.values())


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

"""The controller's side in Prometheus' text: fleet, rates, objective and spend of each model.

Everything is read from the live document at the moment of the scrape, so that whoever answers it needs no counters
of its own. Labels are bounded: offerings beyond `MOST_OFFERINGS` of a model are summed as `other`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MOST_OFFERINGS = 64
OTHER = "other"
Labels = tuple[str, ...]
Rows = Iterable[tuple[Labels, Any]]


def service_metrics(document: Mapping[str, Any]) -> bytes:
    """The live document as Prometheus' text; what is not known is left out."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(document))
    return generate_latest(registry)


class _Snapshot(Collector):
    """One document; prometheus_client asks it for its families."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def collect(self) -> Iterator[Metric]:
        """All families of the document."""
        yield from _service_families(self._document)
        models = self._document["models"]
        yield from _fleet_families(models)
        yield from _rate_families(models)
        yield from _answer_families(models)
        yield from _spend_families(models)


def _gauge(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"mark_{name}", text, labels=labels)
    for values, number in rows:
        if isinstance(number, (int, float)) and math.isfinite(number):
            family.add_metric(values, float(number))
    return family


def _counter(name: str, text: str, labels: Labels, rows: Rows) -> Metric:
    family = CounterMetricFamily(f"mark_{name}", text, labels=labels)
    for values, number in rows:
        if isinstance(number, (int, float)) and math.isfinite(number):
            family.add_metric(values, float(number))
    return family


def _service_families(document: Mapping[str, Any]) -> Iterator[Metric]:
    controller = document.get("controller") or {}
    reachable = (document.get("store") or {}).get("reachable", True)
    yield _gauge("store_reachable", "1 while the store answers.", (), [((), int(reachable))])
    yield _gauge("clock_speed", "Service seconds a second of the wall.", (), [((), document.get("speed"))])
    held = int(controller.get("holder") is not None)
    yield _gauge("controller_holds_lease", "1 while a controller acts.", (), [((), held)])
    silent = controller.get("silent_s")
    yield _gauge("controller_silent_seconds", "Service time since its last tick.", (), [((), silent)])


def _fleet_families(models: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    observed: Counter[Labels] = Counter()
    views: dict[str, Counter[Labels]] = {"planned": Counter(), "requested": Counter()}
    capacity: Counter[Labels] = Counter()
    for model in models:
        name, fleet = str(model["name"]), model["fleet"]
        known = _bounded(model)
        for row in fleet["observed"]:
            observed[name, known.get(row["offering"], OTHER), row["role"], row["state"]] += 1
        for view, counts in views.items():
            for offering, count in fleet[view].items():
                counts[name, known.get(offering, OTHER)] += count
        for row in model["capacity"]:
            capacity[name, known.get(row["offering"], OTHER)] += row["rps"]
    labels = ("model", "offering", "role", "state")
    yield _gauge("fleet_instances", "Instances observed.", labels, observed.items())
    for view, counts in views.items():
        yield _gauge(f"fleet_{view}", f"Instances {view}.", ("model", "offering"), counts.items())
    yield _gauge("capacity_rps", "Requests/s the ready carry.", ("model", "offering"), capacity.items())


def _bounded(model: Mapping[str, Any]) -> dict[str, str]:
    """Offerings that keep their names as a label: the first by name."""
    fleet = model["fleet"]
    names = {*fleet["planned"], *fleet["requested"], *(row["offering"] for row in fleet["observed"])}
    names |= {row["offering"] for row in model["capacity"]}
    return {name: name for name in sorted(names)[:MOST_OFFERINGS]}


def _rate_families(models: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    arrivals = {"now": "now_rps", "last_minute": "last_minute_rps", "max": "max_rps"}
    rows = [((str(m["name"]), span), m["rates"].get(key)) for m in models for span, key in arrivals.items()]
    yield _gauge("arrivals_rps", "Requests/s that arrive.", ("model", "span"), rows)
    plans = [(str(m["name"]), m["plan"]) for m in models if m.get("plan")]
    for key, text in (("required_rps", "Requests/s the plan is for."), ("capacity_rps", "Requests/s it carries.")):
        yield _gauge(f"plan_{key}", text, ("model",), [((name,), plan.get(key)) for name, plan in plans])
    ahead = [(m["name"], [v for v in m["series"]["forecast_max_rps"] if v is not None]) for m in models]
    peaks = [((name,), max(values)) for name, values in ahead if values]
    yield _gauge("forecast_max_rps", "Highest forecast maximum ahead, requests/s.", ("model",), peaks)


def _answer_families(models: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    def each(section: str, key: str) -> Rows:
        return [((str(m["name"]),), m[section].get(key)) for m in models]

    yield _gauge("objective_target", "Share to be answered in time.", ("model",), each("objective", "target"))
    yield _gauge("objective_attained", "Share answered in time.", ("model",), each("objective", "attained"))
    by = [((str(m["name"]), place), count) for m in models for place, count in m["by"].items()]
    yield _counter("requests", "Requests by who answered.", ("model", "by"), by)
    yield _counter("late", "Answers after the objective.", ("model",), each("objective", "late"))
    kinds = {
        "failed": "Requests that failed.",
        "rejected": "Requests that the model refused as wrong in themselves.",
        "redispatched": "Requests dispatched again.",
    }
    for key, text in kinds.items():
        yield _counter(key, text, ("model",), [((str(m["name"]),), m.get(key)) for m in models])
    quantiles = {"p50": "0.5", "p95": "0.95", "p98": "0.98", "p99": "0.99"}
    rows = [
        ((str(m["name"]), number), ms / 1000)
        for m in models
        for key, number in quantiles.items()
        if (ms := m["latency_ms"].get(key)) is not None
    ]
    yield _gauge("latency_seconds", "Latency of what was answered.", ("model", "quantile"), rows)
    yield _counter("lambda_invocations", "Lambda invocations.", ("model",), each("lambda", "invocations"))
    yield _counter("lambda_cold_starts", "Invocations that started cold.", ("model",), each("lambda", "cold"))


def _spend_families(models: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    parts = ("instances", "standby", "lambda", "overhead")
    rows = [((str(m["name"]), part), m["cost_usd"].get(part)) for m in models for part in parts]
    # a gauge: a late correction of usage may lower it
    yield _gauge("cost_usd", "Spent so far by component.", ("model", "component"), rows)
    an_hour = [((str(m["name"]),), m.get("usd_per_hour")) for m in models]
    yield _gauge("usd_per_hour", "Spent an hour at present.", ("model",), an_hour)

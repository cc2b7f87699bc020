"""The live status as Prometheus' text: fleet, rates, objective and spend of each model.

Everything is read from the live status at the moment of the scrape, so that whoever answers it needs no counters
of its own. Labels are bounded: offerings beyond `MOST_OFFERINGS` of a model are summed as `other`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from mark.report.live.service_status import LatencyStatus, ModelStatus, ServiceStatus, SharedStatus
from mark.telemetry.metrics import Labels, Rows, counter, exposition, gauge

MOST_OFFERINGS = 64
OTHER = "other"


def service_metrics(status: ServiceStatus) -> bytes:
    """The live status as Prometheus' text; what is not known is left out."""
    return exposition(_status_families(status))


def _status_families(status: ServiceStatus) -> Iterator[Metric]:
    yield from _service_families(status)
    models = status.models
    if status.shared is not None:
        yield from _shared_families(status.shared)
        parts = [((model.name,), model.shared_usd) for model in models]
        yield gauge("shared_model_cost_usd", "Part of shared_cost_usd, by device time.", ("model",), parts)
    yield from _fleet_families(models)
    yield from _rate_families(models)
    yield from _answer_families(models)
    yield from _spend_families(models)


def _service_families(status: ServiceStatus) -> Iterator[Metric]:
    controller = status.controller
    yield gauge("store_reachable", "1 while the store answers.", (), [((), int(status.store.reachable))])
    yield gauge("clock_speed", "Service seconds a second of the wall.", (), [((), status.speed)])
    held = int(controller.holder is not None)
    yield gauge("controller_holds_lease", "1 while a controller acts.", (), [((), held)])
    silent = controller.silent_s
    yield gauge("controller_silent_seconds", "Service time since its last tick.", (), [((), silent)])
    shared = status.overhead
    yield gauge("overhead_cost_usd", "Spent so far on what models share.", (), [((), shared.usd)])
    yield gauge("overhead_usd_per_hour", "The same an hour, as a mean.", (), [((), shared.usd_per_hour)])


def _shared_families(shared: SharedStatus) -> Iterator[Metric]:
    """Shared instances, and the models on them. Instances come and go, so they are counted and never named."""
    names = {name: name for name in sorted({row.offering for row in shared.instances})[:MOST_OFFERINGS]}
    hosts = Counter[Labels]((names.get(row.offering, OTHER), row.state) for row in shared.instances)
    yield gauge("shared_instances", "Shared instances observed.", ("offering", "state"), hosts.items())
    tenants = [one for row in shared.instances for one in row.tenants]
    seats = Counter[Labels]((one.model, one.state) for one in tenants)
    yield gauge("shared_tenants", "Shared instances that hold a model.", ("model", "state"), seats.items())
    takes: defaultdict[Labels, float] = defaultdict(float)
    for one in tenants:
        takes[one.model,] += one.share_rps if one.state == "ready" else 0.0
    text = "Requests/s that shared instances take of a model before its own; part of capacity_rps."
    yield gauge("shared_rps", text, ("model",), takes.items())
    yield gauge("shared_cost_usd", "Spent so far on shared instances.", (), [((), shared.cost_usd.total)])
    yield gauge("shared_usd_per_hour", "Spent an hour on them at present.", (), [((), shared.usd_per_hour)])


def _fleet_families(models: Iterable[ModelStatus]) -> Iterator[Metric]:
    observed: Counter[Labels] = Counter()
    planned: Counter[Labels] = Counter()
    requested: Counter[Labels] = Counter()
    capacity: defaultdict[Labels, float] = defaultdict(float)
    for model in models:
        name, fleet = model.name, model.fleet
        known = _bounded(model)
        for row in fleet.observed:
            observed[name, known.get(row.offering, OTHER), row.role, row.state] += 1
        for counts, view in ((planned, fleet.planned), (requested, fleet.requested)):
            for offering, count in view.items():
                counts[name, known.get(offering, OTHER)] += count
        for there in model.capacity:
            capacity[name, known.get(there.offering, OTHER)] += there.rps
    labels = ("model", "offering", "role", "state")
    yield gauge("fleet_instances", "Instances observed.", labels, observed.items())
    yield gauge("fleet_planned", "Instances planned.", ("model", "offering"), planned.items())
    yield gauge("fleet_requested", "Instances requested.", ("model", "offering"), requested.items())
    yield gauge(
        "capacity_rps",
        "Requests/s the ready carry, shares of shared instances too.",
        ("model", "offering"),
        capacity.items(),
    )


def _bounded(model: ModelStatus) -> dict[str, str]:
    """Offerings that keep their names as a label: the first by name."""
    names = {*model.fleet.planned, *model.fleet.requested, *(row.offering for row in model.fleet.observed)}
    names |= {row.offering for row in model.capacity}
    return {name: name for name in sorted(names)[:MOST_OFFERINGS]}


def _rate_families(models: Iterable[ModelStatus]) -> Iterator[Metric]:
    rows = [
        ((m.name, span), rate)
        for m in models
        for span, rate in (
            ("now", m.rates.now_rps), ("last_minute", m.rates.last_minute_rps), ("max", m.rates.max_rps)
        )
    ]  # fmt: skip
    yield gauge("arrivals_rps", "Requests/s that arrive.", ("model", "span"), rows)
    plans = [((m.name,), m.plan) for m in models if m.plan is not None]
    required = [(labels, plan.required_rps) for labels, plan in plans]
    yield gauge("plan_required_rps", "Requests/s the plan is for.", ("model",), required)
    carried = [(labels, plan.capacity_rps) for labels, plan in plans]
    yield gauge("plan_capacity_rps", "Requests/s it carries.", ("model",), carried)
    ahead = [((m.name,), [v for v in m.series.forecast_max_rps if v is not None]) for m in models]
    peaks = [(labels, max(values)) for labels, values in ahead if values]
    yield gauge("forecast_max_rps", "Highest forecast maximum ahead, requests/s.", ("model",), peaks)


def _answer_families(models: Iterable[ModelStatus]) -> Iterator[Metric]:
    def each(value: Callable[[ModelStatus], float | None]) -> Rows:
        return [((m.name,), value(m)) for m in models]

    model = ("model",)
    yield gauge("objective_target", "Share to be answered in time.", model, each(lambda m: m.objective.target))
    yield gauge("objective_attained", "Share answered in time.", model, each(lambda m: m.objective.attained))
    right = [((m.name,), m.objective.accuracy) for m in models if m.objective.accuracy is not None]
    yield gauge("accuracy", "Mean accuracy of the variants that answered.", model, right)
    now = [((m.name,), m.objective.accuracy_now) for m in models if m.objective.accuracy_now is not None]
    yield gauge("accuracy_now", "The same of the last 5 s.", model, now)
    by = [
        ((m.name, who), count)
        for m in models
        for who, count in (
            ("instance", m.by.instance), ("standby", m.by.standby), ("lambda", m.by.lambda_), ("shed", m.by.shed)
        )
    ]  # fmt: skip
    yield counter("requests", "Requests by who answered.", ("model", "by"), by)
    yield from _client_families(models)
    yield counter("late", "Answers after the objective.", model, each(lambda m: m.objective.late))
    yield counter("failed", "Requests that failed.", model, each(lambda m: m.failed))
    refused = "Requests that the model refused as wrong in themselves."
    yield counter("rejected", refused, model, each(lambda m: m.rejected))
    yield counter(
        "crossed",
        "Responses of instances in another zone than the request came in.",
        model,
        each(lambda m: m.crossed),
    )
    yield counter("redispatched", "Requests dispatched again.", model, each(lambda m: m.redispatched))
    quantile = ("model", "quantile")
    whole = _quantiles((m.name, m.latency_ms) for m in models)
    yield gauge("latency_seconds", "Latency of what was answered.", quantile, whole)
    first = _quantiles((m.name, m.first_byte_ms) for m in models if m.first_byte_ms.mean is not None)
    yield gauge("first_byte_seconds", "Time to the first byte of answers that streamed.", quantile, first)
    yield counter("lambda_invocations", "Lambda invocations.", model, each(lambda m: m.lambda_.invocations))
    yield counter("lambda_cold_starts", "Invocations that started cold.", model, each(lambda m: m.lambda_.cold))


def _client_families(models: Iterable[ModelStatus]) -> Iterator[Metric]:
    """Requests, attainment and cost by client; left out where the service has none. They are bounded in number."""
    rows = [((m.name, one.client), one) for m in models for one in m.clients]
    if not rows:
        return
    outcomes = [
        ((*names, outcome), count)
        for names, one in rows
        for outcome, count in (
            ("in_time", one.answered - one.late), ("late", one.late), ("shed", one.shed), ("failed", one.failed),
            ("limited", one.limited),
        )
    ]  # fmt: skip
    labels = ("model", "client")
    text = "Requests by client and what became of them; limited: refused by its own limits."
    yield counter("client_requests", text, (*labels, "outcome"), outcomes)
    attained = [(names, one.attained) for names, one in rows if one.attained is not None]
    yield gauge("client_attained", "Share answered in time, by client.", labels, attained)
    usd = [(names, one.cost_usd) for names, one in rows]
    yield gauge("client_cost_usd", "Part of the cost of serving, by client.", labels, usd)


def _spend_families(models: Iterable[ModelStatus]) -> Iterator[Metric]:
    rows = [
        ((m.name, part), usd)
        for m in models
        for part, usd in (
            ("instances", m.cost_usd.instances), ("standby", m.cost_usd.standby), ("lambda", m.cost_usd.lambda_),
            ("overhead", m.cost_usd.overhead),
        )
    ]  # fmt: skip
    # a gauge: a late correction of usage may lower it
    yield gauge("cost_usd", "Spent so far by component, without what models share.", ("model", "component"), rows)
    an_hour = [((m.name,), m.usd_per_hour) for m in models]
    yield gauge("usd_per_hour", "Spent an hour at present, without what models share.", ("model",), an_hour)


def _quantiles(latencies: Iterable[tuple[str, LatencyStatus]]) -> list[tuple[tuple[str, str], float | None]]:
    """Seconds by model and quantile."""
    return [
        ((name, quantile), ms and ms / 1000)
        for name, one in latencies
        for quantile, ms in (("0.5", one.p50), ("0.95", one.p95), ("0.98", one.p98), ("0.99", one.p99))
    ]

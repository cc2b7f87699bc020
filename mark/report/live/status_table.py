"""The live status in a terminal: compact, at most 100 columns, the same words as the status page.

The table of models comes first. One model is told in full: the one that was asked for, else the most expensive.
"""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mark.report.formatting import MISSING, format_count, usd
from mark.report.live import formatting
from mark.report.live.overview import model_state
from mark.report.live.processes import format_restarts, process_banners
from mark.report.live.service_status import LatencyStatus, ModelStatus, ServiceStatus, SharedStatus
from mark.report.tables import figures, make_table, texts
from mark.store.published_status import OrderStatus

WIDTH = 100
DECISIONS = 4
"""The latest; all of them stand on the status page and in `mark explain`."""
INSTANCES = 20
"""Shared instances that are shown; all of them stand on the status page."""


def status_table(status: ServiceStatus, *, model: str | None = None) -> list[RenderableType]:
    """The service's line, what is wrong, the table of models, and one model in full.

    model: the one that is told in full; by default the most expensive.
    """
    parts: list[RenderableType] = [_service_line(status)]
    parts += [_banner(banner) for banner in (*formatting.banners(status), *process_banners(status))]
    if status.overview.rows:
        parts += [Text(""), _models(status), Text(formatting.format_overhead(status), style="dim")]
    if status.shared is not None and (status.shared.instances or status.shared.cost_usd.total):
        parts += [Text(""), _shared(status.shared)] if status.shared.instances else []
        parts += [Text(f"Shared instances: {formatting.format_shared_cost(status.shared)}", style="dim")]
        parts += [Text(f"note: {note}", style="dim") for note in status.shared.notes]
    opened = next((one for one in status.models if one.name == (model or status.overview.opened)), None)
    if opened is not None:
        parts += [Text(""), *_model(opened, status.now)]
    if len(status.models) > 1:
        parts += [Text(""), Text("another model in full: mark status --model NAME", style="dim")]
    return parts


def _models(status: ServiceStatus) -> Table:
    """One row a model, the most expensive first."""
    columns = [*texts("model", max_width=40), *figures("req/s", "in time", "USD/h"), *texts("state", max_width=24)]
    table = make_table(columns, gap=2)
    for row in status.overview.rows:
        table.add_row(
            Text(row.model),
            formatting.format_rps(row.rps),
            formatting.format_share(row.attained),
            formatting.format_usd_per_hour(row.usd_per_hour),
            Text(row.state.value, style="bold red" if row.state.is_bad else ""),
        )
    return table


def _shared(shared: SharedStatus) -> Table:
    """One row a shared instance, with the models on it."""
    columns = [
        *texts("shared instance", max_width=20),
        *texts("offering", max_width=24),
        *texts("state", max_width=12),
        *figures("USD/h"),
        *texts("models, requests/s", max_width=36),
    ]
    table = make_table(columns, gap=2)
    for host in shared.instances[:INSTANCES]:
        leaving = "" if host.gone_in_s is None else f", gone in {formatting.format_span(host.gone_in_s)}"
        table.add_row(
            Text(host.id),
            Text(host.offering),
            Text(f"{host.state}{leaving}", style="yellow" if leaving else ""),
            formatting.format_usd_per_hour(host.usd_per_hour),
            Text(", ".join(f"{one.model} {formatting.format_tenant(one)}" for one in host.tenants) or "none"),
        )
    return table


def _model(model: ModelStatus, now: float) -> list[RenderableType]:
    """A model's figures, fleet, clients, decisions and notes."""
    parts: list[RenderableType] = [_model_line(model), _figures(model)]
    said = (f"failed {formatting.format_failure(failure, now)}" for failure in model.failures)
    parts += [*(Text(words, style="red") for words in said), _fleet(model)]
    parts += [_clients(model)] if model.clients else []
    parts += [_decision(row) for row in model.decisions[:DECISIONS]]
    return [*parts, *(Text(f"note: {note}", style="dim") for note in model.notes)]


def _banner(banner: formatting.Banner) -> Text:
    return Text(f"! {banner.text}", style="bold red" if banner.bad else "yellow")


def _service_line(status: ServiceStatus) -> Text:
    line = Text.assemble((status.service, "bold"), f"  {formatting.format_clock(status)}")
    line.append(f"\ncontroller {formatting.format_controller(status)}")
    spent = formatting.format_spent(status)
    if spent:
        line.append(f"\nspent {spent}")
    if month := formatting.format_counterfactual(status) or formatting.format_month(status):
        line.append(f"\n{month}")
    restarted = format_restarts(status)
    return line.append(f"\nrestarted {restarted}") if restarted else line


def _model_line(model: ModelStatus) -> Text:
    aspects = ", ".join(filter(None, (model.policy, model.market)))
    state, objective = model_state(model), model.objective
    objective_text = formatting.format_objective(
        target=objective.target, latency_ms=objective.latency_ms, measured=objective.measured
    )
    line = Text.assemble((model.name, "bold"), f"  {objective_text}")
    if aspects:
        line.append(f"  {aspects}")
    return line.append(f"  {state.value}", style="bold red" if state.is_bad else "")


def _quantiles(latency: LatencyStatus) -> Text:
    shown = (
        formatting.format_ms(ms).replace(",", "") for name, ms in formatting.quantiles(latency) if name != "mean"
    )
    return Text(f"p50/p95/p98/p99 {'/'.join(shown)} ms")


def _figures(model: ModelStatus) -> Table:
    """A grid of names and figures, two by two."""
    budget, rates = formatting.budget_of(model), model.rates
    answered = ", ".join(f"{label} {format_count(count)}" for _, label, count in formatting.outcomes(model))
    spent = ", ".join(f"{label} {usd(amount)}" for _, label, amount in formatting.components(model.cost_usd))
    spent += formatting.format_shared_part(model)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold", max_width=WIDTH - 10)
    now, minute, top = map(formatting.format_rps, (rates.now_rps, rates.last_minute_rps, rates.max_rps))
    load = [f"{now} requests/s; last minute {minute}, maximum {top}", formatting.format_assumed_load(model)]
    grid.add_row("load", Text("; ".join(filter(None, load))))
    grid.add_row("ready", Text(formatting.format_capacity(model)))
    attained = formatting.format_share(model.objective.attained)
    if trained := formatting.format_training(model):
        grid.add_row("forecast", Text(trained))
    grid.add_row("in time", Text(f"{attained}; {formatting.format_budget(budget)}"))
    if accuracy := formatting.format_accuracy(model.objective):
        grid.add_row("accuracy", Text(accuracy))
    grid.add_row("latency", _quantiles(model.latency_ms))
    if model.first_byte_ms.mean is not None:
        grid.add_row("first byte", _quantiles(model.first_byte_ms))
    grid.add_row("served", Text(answered))
    hourly = formatting.format_hourly(model)
    if seats := formatting.format_tenancies(model):
        grid.add_row("shared", Text(seats))
    if pool := formatting.format_pool_status(model):
        grid.add_row("pool", Text(pool))
    if shares := formatting.format_gateway_shares(model):
        grid.add_row("gateways", Text(shares))
    grid.add_row(
        "spend",
        Text(f"{formatting.format_usd_per_hour(model.usd_per_hour)} USD/h ({hourly}); USD so far: {spent}"),
    )
    return grid


def _fleet(model: ModelStatus) -> RenderableType:
    """One row an offering in its three views."""
    rows = formatting.fleet_rows(model)
    if not rows:
        return Text("no instance is planned, requested or there", style="dim")
    columns = [
        *texts("offering", max_width=30),
        *figures("planned", "requested", "observed"),
        *texts("of which", max_width=30),
        *figures("req/s", "USD/h"),
    ]
    table = make_table(columns, gap=2)
    for row in rows:
        counts = (row.planned, row.requested, row.observed)
        table.add_row(
            Text(row.offering),
            *(str(count) if count else MISSING for count in counts),
            Text(row.states_text, style="yellow" if row.leaving else ""),
            formatting.format_rps(row.rps),
            usd(row.usd_per_hour),
        )
    return table


def _clients(model: ModelStatus) -> Table:
    """One row a client."""
    columns = [
        *texts("client", max_width=30),
        *figures("received", "in time", "late", "refused", "failed", "limited", "USD"),
    ]
    table = make_table(columns, gap=2)
    for one in model.clients:
        counts = (one.late, one.shed, one.failed, one.limited)
        table.add_row(
            Text(one.client),
            format_count(one.requests),
            formatting.format_share(one.attained),
            *(format_count(count) if count else MISSING for count in counts),
            usd(one.cost_usd),
        )
    return table


def _decision(row: OrderStatus) -> Text:
    return Text.assemble(
        (f"{formatting.format_time(row.at)}  ", "dim"), (f"{row.kind} ", "bold"), f"{row.what}: {row.reason}"
    )

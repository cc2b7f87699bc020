"""The live status in a terminal: compact, at most 100 columns, the same words as the status page."""

from __future__ import annotations

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mark.report.formatting import MISSING, count_words, usd
from mark.report.live import formatting as words
from mark.report.live.processes import process_banners, restart_words
from mark.telemetry.status_document import ModelStatus, OrderStatus, ServiceStatus

WIDTH = 100
DECISIONS = 4
"""The latest; all of them stand on the status page and in `mark explain`."""


def status_table(status: ServiceStatus) -> list[RenderableType]:
    """The service's line, what is wrong, and for each model its figures, fleet, decisions and notes."""
    parts: list[RenderableType] = [_service_line(status)]
    parts += [_banner(banner) for banner in (*words.banners(status), *process_banners(status))]
    for model in status.models:
        parts += [Text(""), _model_line(model), _figures(model), _fleet(model)]
        parts += [_decision(row) for row in model.decisions[:DECISIONS]]
        parts += [Text(f"note: {note}", style="dim") for note in model.notes]
    return parts


def _banner(banner: words.Banner) -> Text:
    return Text(f"! {banner.text}", style="bold red" if banner.bad else "yellow")


def _service_line(status: ServiceStatus) -> Text:
    line = Text.assemble((status.service, "bold"), f"  {words.time_words(status.now)} UTC")
    speed = words.speed_words(status)
    if speed:
        line.append(f"  {speed}", style="bold")
    line.append(f"  controller {words.controller_words(status)}")
    spent = words.spent_words(status)
    if spent:
        line.append(f"\nspent {spent}")
    restarted = restart_words(status)
    return line.append(f"\nrestarted {restarted}") if restarted else line


def _model_line(model: ModelStatus) -> Text:
    aspects = ", ".join(filter(None, (model.policy, model.market)))
    kept, objective = words.keeps_objective(model), model.objective
    said = words.objective_words(target=objective.target, latency_ms=objective.latency_ms)
    line = Text.assemble((model.name, "bold"), f"  {said}")
    if aspects:
        line.append(f"  {aspects}")
    return line if kept else line.append("  MISSES ITS OBJECTIVE", style="bold red")


def _figures(model: ModelStatus) -> Table:
    """A grid of names and figures, two by two."""
    budget, rates = words.budget_of(model), model.rates
    counts = [(label, count) for _, label, count in words.answerers(model.by)]
    counts += [(name, count) for name, count in (("failed", model.failed), ("rejected", model.rejected)) if count]
    answered = ", ".join(f"{label} {count_words(count)}" for label, count in counts)
    shown = (
        words.ms_words(ms).replace(",", "") for name, ms in words.quantiles(model.latency_ms) if name != "mean"
    )
    spent = ", ".join(f"{label} {usd(amount)}" for _, label, amount in words.components(model.cost_usd))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold", max_width=WIDTH - 10)
    now, minute, top = map(words.rps_words, (rates.now_rps, rates.last_minute_rps, rates.max_rps))
    load = [f"{now} requests/s; last minute {minute}, maximum {top}", words.assumed_words(model)]
    grid.add_row("load", Text("; ".join(filter(None, load))))
    grid.add_row("ready", Text(words.capacity_words(model)))
    attained = words.share_words(model.objective.attained)
    if trained := words.trained_words(model):
        grid.add_row("forecast", Text(trained))
    grid.add_row("in time", Text(f"{attained}; {words.budget_words(budget)}"))
    grid.add_row("latency", Text(f"p50/p95/p98/p99 {'/'.join(shown)} ms"))
    grid.add_row("served", Text(answered))
    hourly = words.hourly_words(model)
    grid.add_row("spend", Text(f"{usd(model.usd_per_hour)} USD/h ({hourly}); USD so far: {spent}"))
    return grid


def _fleet(model: ModelStatus) -> RenderableType:
    """One row an offering in its three views."""
    rows = words.fleet_rows(model)
    if not rows:
        return Text("no instance is planned, requested or there", style="dim")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("offering", overflow="fold", max_width=30)
    for name in ("planned", "requested", "observed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("of which", overflow="fold", max_width=30)
    table.add_column("req/s", justify="right", no_wrap=True)
    table.add_column("USD/h", justify="right", no_wrap=True)
    for row in rows:
        counts = (row.planned, row.requested, row.observed)
        table.add_row(
            Text(row.offering),
            *(str(count) if count else MISSING for count in counts),
            Text(row.state_words, style="yellow" if row.leaving else ""),
            words.rps_words(row.rps),
            usd(row.usd_per_hour),
        )
    return table


def _decision(row: OrderStatus) -> Text:
    return Text.assemble(
        (f"{words.time_words(row.at)}  ", "dim"), (f"{row.kind} ", "bold"), f"{row.what}: {row.reason}"
    )

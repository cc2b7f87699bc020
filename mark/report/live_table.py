"""The live document in a terminal: compact, at most 100 columns, the same words as the status page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mark.report import live_words as words
from mark.report.live_processes import process_banners, restart_words
from mark.report.wording import MISSING, count_words, usd

WIDTH = 100
DECISIONS = 4
"""The latest; all of them stand on the status page and in `mark explain`."""


def status_table(document: Mapping[str, Any]) -> list[RenderableType]:
    """The service's line, what is wrong, and for each model its figures, fleet, decisions and notes."""
    parts: list[RenderableType] = [_service_line(document)]
    parts += [_banner(banner) for banner in (*words.banners(document), *process_banners(document))]
    for model in document["models"]:
        parts += [Text(""), _model_line(model), _figures(model), _fleet(model)]
        parts += [_decision(row) for row in model["decisions"][:DECISIONS]]
        parts += [Text(f"note: {note}", style="dim") for note in model["notes"]]
    return parts


def _banner(banner: words.Banner) -> Text:
    return Text(f"! {banner.text}", style="bold red" if banner.bad else "yellow")


def _service_line(document: Mapping[str, Any]) -> Text:
    line = Text.assemble((str(document["service"]), "bold"), f"  {words.time_words(document['now'])} UTC")
    speed = words.speed_words(document)
    if speed:
        line.append(f"  {speed}", style="bold")
    line.append(f"  controller {words.controller_words(document)}")
    spent = words.spent_words(document)
    if spent:
        line.append(f"\nspent {spent}")
    restarted = restart_words(document)
    return line.append(f"\nrestarted {restarted}") if restarted else line


def _model_line(model: Mapping[str, Any]) -> Text:
    aspects = ", ".join(str(model[key]) for key in ("policy", "market") if model.get(key))
    kept = words.keeps_objective(model)
    line = Text.assemble((str(model["name"]), "bold"), f"  {words.objective_words(model)}")
    if aspects:
        line.append(f"  {aspects}")
    return line if kept else line.append("  MISSES ITS OBJECTIVE", style="bold red")


def _figures(model: Mapping[str, Any]) -> Table:
    """A grid of names and figures, two by two."""
    rates, latency, by, cost = model["rates"], model["latency_ms"], model["by"], model["cost_usd"]
    budget = words.budget_of(model)
    answered = ", ".join(f"{label} {count_words(int(by.get(key) or 0))}" for key, label in words.ANSWERERS)
    for name in ("failed", "rejected"):
        if model.get(name):
            answered += f", {name} {count_words(int(model[name]))}"
    shown = (words.ms_words(latency.get(name)).replace(",", "") for name in ("p50", "p95", "p98", "p99"))
    spent = ", ".join(f"{label} {_usd(cost.get(key))}" for key, label in words.COMPONENTS)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold", max_width=WIDTH - 10)
    now, minute, top = (words.rps_words(rates.get(key)) for key in ("now_rps", "last_minute_rps", "max_rps"))
    load = [f"{now} requests/s; last minute {minute}, maximum {top}", words.assumed_words(model)]
    grid.add_row("load", Text("; ".join(filter(None, load))))
    grid.add_row("ready", Text(words.capacity_words(model)))
    attained = words.share_words(model["objective"].get("attained"))
    if trained := words.trained_words(model):
        grid.add_row("forecast", Text(trained))
    grid.add_row("in time", Text(f"{attained}; {words.budget_words(budget)}"))
    grid.add_row("latency", Text(f"p50/p95/p98/p99 {'/'.join(shown)} ms"))
    grid.add_row("served", Text(answered))
    hourly = words.hourly_words(model)
    now = f"{_usd(model.get('usd_per_hour'))} USD/h" + (f" ({hourly})" if hourly else "")
    grid.add_row("spend", Text(f"{now}; USD so far: {spent}"))
    return grid


def _fleet(model: Mapping[str, Any]) -> RenderableType:
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


def _decision(row: Mapping[str, Any]) -> Text:
    return Text.assemble(
        (f"{words.time_words(row['at'])}  ", "dim"), (f"{row['kind']} ", "bold"), f"{row['what']}: {row['reason']}"
    )


def _usd(amount: Any) -> str:
    number = words.finite(amount)
    return MISSING if number is None else usd(number)

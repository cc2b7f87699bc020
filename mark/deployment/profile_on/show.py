"""`mark profile --on` on the terminal: its estimate and question before, its table and document after."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import typer
from rich.table import Table

from mark.deployment.profile_on.cost import Meter, Price
from mark.deployment.profile_on.options import ProfileOnOptions
from mark.domain.errors import Misconfigured
from mark.offline.own_model.profile import point_document
from mark.report.tables import Column, make_table
from mark.report.terminal import note, show, show_json
from mark.serving.profiling import MeasuredPoint


def confirm(prices: Sequence[Price], seconds: float, estimate_usd: float) -> None:
    """Show the estimate and ask whether to go on. Misconfigured where nobody can answer."""
    for price in prices:
        note(
            f"{price.name}: {price.usd_per_hour:.4f} USD an hour, "
            f"about {format_usd(price.estimate_usd(seconds))} USD"
        )
    if not sys.stdin.isatty():
        raise Misconfigured(
            f"this will cost about {format_usd(estimate_usd)} USD: give --yes to go on without a question"
        )
    typer.confirm(f"Rent these for about {format_usd(estimate_usd)} USD?", abort=True, err=True)


def show_result(
    model: str,
    options: ProfileOnOptions,
    points: Mapping[str, Sequence[MeasuredPoint]],
    skipped: Mapping[str, str],
    meter: Meter,
    *,
    as_json: bool,
) -> None:
    """Print what was measured, its cost, and what was left out."""
    for name, why in skipped.items():
        note(f"{name} was not measured: {why}")
    if as_json:
        show_json(_document(model, points, skipped, meter))
    else:
        show(_table(points, meter), f"spent about {format_usd(sum(meter.done.values()))} of {meter.max_usd:g} USD")
        if options.to is not None and points:
            show(f"wrote {options.to}; name it under profiles in the settings")
    if not points:
        raise Misconfigured("nothing was measured")


def format_usd(usd: float) -> str:
    """An amount that may be a fraction of a cent."""
    return f"{usd:.2f}" if usd >= 1 else f"{usd:.4f}"


def _document(
    model: str, points: Mapping[str, Sequence[MeasuredPoint]], skipped: Mapping[str, str], meter: Meter
) -> dict[str, object]:
    """The document of `mark profile --on --json` (docs/json.md)."""
    return {
        "model": model,
        "max_usd": meter.max_usd,
        "spent_usd": sum(meter.done.values()),
        "measured": [
            {"instance_type": name, "usd": meter.done[name], "points": [point_document(point) for point in found]}
            for name, found in points.items()
        ],
        "skipped": [{"instance_type": name, "why": why} for name, why in skipped.items()],
    }


def _table(points: Mapping[str, Sequence[MeasuredPoint]], meter: Meter) -> Table:
    names = ("batch", "median ms", "p95 ms", "items/s", "calls", "USD")
    table = make_table([Column(title="type"), *(Column(title=name, is_figure=True) for name in names)])
    for name, found in points.items():
        for number, point in enumerate(found):
            table.add_row(
                "" if number else name,
                str(point.batch),
                f"{point.median_s * 1000:.3f}",
                f"{point.p95_s * 1000:.3f}",
                f"{point.batch / point.median_s:,.0f}",
                str(point.calls),
                "" if number else format_usd(meter.done[name]),
            )
    return table

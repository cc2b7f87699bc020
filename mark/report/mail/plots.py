"""The plots of a mail as PNG, on white: they read as well in a dark mail program.

Mail programs show no SVG. Letters are large, because a telephone shows the plot at half its width.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import matplotlib as mpl
import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mark.accounting.hourly_spend import HOUR_S, HourSpend
from mark.report.cost.cost_report import CostReport, LoadAhead, ModelReport, spend_by_day
from mark.report.figures import LIGHT, OTHER, SERIES, add_legend, drawing_rules, new_figure, percents, style_axes
from mark.report.formatting import percent
from mark.report.live.chart import LEAST_HOURS, ChartSeries, Stretch
from mark.report.mail.formatting import DAY_S, format_own_policy, money_of
from mark.report.mail.view import COMPONENTS

WIDTH_IN, DPI = 5.6, 200
"""560 CSS pixels at two dots a pixel."""
FONT_SIZE = 11.0
MOST_MARKS = 7
"""Days that are named on an axis; more would overlap."""
TIMES = ["%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%H:%M:%S"]
"""Of years, months, days, hours, minutes and seconds on an axis."""
TOP_BURN = 3.0
"""The axis of used error budgets ends here at most: beyond it a bar is only told to be higher."""


def mail_plots(report: CostReport) -> tuple[tuple[str, bytes], ...]:
    """(name, PNG) of what there is to draw.

    `spend`, `hours`, `objective`, and of model N `ahead-N`, `accuracy-N` and `baselines-N`.
    """
    found: list[tuple[str, bytes]] = []
    with drawing_rules("mail"), mpl.rc_context({"font.size": FONT_SIZE}):
        if report.lines:
            found.append(("spend", _spend(report)))
        if report.hours:
            found.append(("hours", _hours(report.hours)))
        used = [model for model in report.models if model.days]
        if used:
            found.append(("objective", _objective(used)))
        for number, model in enumerate(report.models):
            if model.ahead:
                found.append((f"ahead-{number}", _ahead(model.ahead)))
            if model.accuracy:
                found.append((f"accuracy-{number}", _accuracy(model)))
            if model.baselines:
                found.append((f"baselines-{number}", _baselines(report, model)))
    return tuple(found)


def _spend(report: CostReport) -> bytes:
    """A bar a day, its components on one another."""
    days = spend_by_day(report.lines)
    figure, (axes,) = new_figure(2.7, theme=LIGHT, width_in=WIDTH_IN)
    places, below = np.arange(len(days)), np.zeros(len(days))
    width = 0.3 if len(days) == 1 else 0.72  # one bar alone is no wall
    for number, (key, name) in enumerate(COMPONENTS):
        amounts = np.array([getattr(cost, key) for cost in days.values()])
        if not amounts.any():
            continue
        colour = OTHER if key == "overhead" else SERIES[number]
        axes.bar(places, amounts, bottom=below, width=width, color=colour, label=name)
        below = below + amounts
    _days(axes, [f"{day:%-d %b}" for day in days])
    axes.set_ylabel("USD", color=LIGHT.ink)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    return _png(figure, columns=4)


def _objective(models: Sequence[ModelReport]) -> bytes:
    """The share of the allowed misses that each day used, a line a model; above 1 the objective was missed."""
    days = sorted({item.day for model in models for item in model.days})
    figure, (axes,) = new_figure(2.5, theme=LIGHT, width_in=WIDTH_IN)
    for number, model in enumerate(models):
        burns = {item.day: item.answers.burn(model.slo.target) for item in model.days}
        values = [min(TOP_BURN, burn) if (burn := burns.get(day)) is not None else np.nan for day in days]
        label = f"{model.name}, target {percent(model.slo.target)}"
        axes.plot(range(len(days)), values, "o-", color=SERIES[number], markersize=5, label=label)
    axes.axhline(1.0, color=LIGHT.ink, linewidth=1.0, linestyle=(0, (4, 3)), label="all that the target allows")
    axes.set_ylim(0, max(1.25, axes.get_ylim()[1]))
    _days(axes, [f"{day:%-d %b}" for day in days])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    percents(axes.yaxis)
    axes.set_ylabel("error budget used", color=LIGHT.ink)
    return _png(figure, columns=2)


def _accuracy(model: ModelReport) -> bytes:
    """Accuracy of the answers as a line over the load, each with an axis of its own."""
    edges = [datetime.fromtimestamp(item.since, UTC) for item in model.accuracy]
    edges.append(datetime.fromtimestamp(model.accuracy[-1].until, UTC))
    load = [item.mean_rps for item in model.accuracy]
    shares = [math.nan if item.answered is None else item.answered.mean for item in model.accuracy]
    figure, (axes,) = new_figure(2.7, theme=LIGHT, width_in=WIDTH_IN)
    places: Any = mdates.date2num(edges)  # type: ignore[no-untyped-call]
    axes.stairs(load, places, fill=True, color=OTHER, alpha=0.55, label="requests/s")
    axes.set_ylim(0, 1.08 * max(load) or 1.0)
    axes.set_ylabel("requests/s", color=LIGHT.ink)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    right = axes.twinx()
    style_axes(right, LIGHT)
    right.grid(visible=False)
    right.patch.set_visible(False)
    right.step(places, [*shares, shares[-1]], where="post", color=SERIES[0], linewidth=2.0, label="accuracy")
    right.yaxis.set_major_locator(MaxNLocator(4))
    percents(right.yaxis)
    _times(axes)
    axes.set_xlim(places[0], places[-1])
    return _png(figure, columns=2)


def _hours(hours: Sequence[HourSpend]) -> bytes:
    """A column an hour: instances, Lambda, the overhead, and on top commitments beyond what they cover."""
    hours = [hour.net for hour in hours]
    figure, (axes,) = new_figure(2.5, theme=LIGHT, width_in=WIDTH_IN)
    places, below = np.array([_day_number(hour.at) for hour in hours]), np.zeros(len(hours))
    parts = (
        ("Instances", [hour.instances for hour in hours], SERIES[0]),
        ("Lambda", [hour.lambda_usd for hour in hours], SERIES[2]),
        ("Overhead", [hour.overhead for hour in hours], OTHER),
        ("Commitments", [hour.commitments for hour in hours], SERIES[3]),
    )
    width = HOUR_S / DAY_S
    for name, amounts, colour in parts:
        if any(amounts):
            axes.bar(places, amounts, bottom=below, width=0.8 * width, align="edge", color=colour, label=name)
            below = below + amounts
    _times(axes)
    axes.set_xlim(places[0], max(places[-1] + width, places[0] + LEAST_HOURS * width))
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("USD an hour", color=LIGHT.ink)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    return _png(figure, columns=3 if below.any() else 0)


def _ahead(ahead: LoadAhead) -> bytes:
    """Load of the last hour and the forecast's fan, over what the fleet carries and the plan's will."""
    load = ChartSeries.of(ahead.series, ahead.planned_rps)
    figure, (axes,) = new_figure(2.9, theme=LIGHT, width_in=WIDTH_IN)

    def line(stretch: Stretch, label: str, colour: str, style: str = "-") -> None:
        for number, piece in enumerate(stretch.edges()):
            times, rates = zip(*piece, strict=True)
            axes.plot(
                [_day_number(at) for at in times], rates, style, color=colour, linewidth=1.6,
                label=label if number == 0 else None,
            )  # fmt: skip

    line(load.capacity, "ready capacity", SERIES[0])
    if load.planned is not None:
        line(load.planned, "planned capacity", SERIES[0], ":")
    for low, high in load.fan:
        for below, above in zip(low.edges(), high.edges(), strict=False):
            times = [_day_number(at) for at, _ in below]
            lows, highs = [rate for _, rate in below], [rate for _, rate in above]
            axes.fill_between(times, lows, highs, color=SERIES[5], alpha=0.18, linewidth=0)
    line(load.highest, "load, maximum of 5 s", LIGHT.ink)
    line(load.forecast, "forecast, with its quantiles" if load.fan else "forecast", SERIES[5], "--")
    axes.set_xlim(_day_number(load.mean.start_at), _day_number(load.forecast.end_at))
    axes.set_ylim(0, 1.08 * max(load.load_rps, load.capacity_rps) or 1.0)
    _times(axes)
    axes.set_ylabel("requests/s", color=LIGHT.ink)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    return _png(figure, columns=2)


def _day_number(at: float) -> float:
    """Matplotlib's number of an instant, epoch seconds: days since the epoch."""
    return at / DAY_S


def _times(axes: Axes) -> None:
    """Times of UTC along the axis."""
    locator = mdates.AutoDateLocator(minticks=3, maxticks=MOST_MARKS, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formats = mdates.ConciseDateFormatter(locator, tz=UTC, formats=TIMES, show_offset=False)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formats)


def _baselines(report: CostReport, model: ModelReport) -> bytes:
    """A bar a policy, ours first; whose objective was missed is hatched."""
    first, money = model.baselines[0], money_of(report.cost)
    bars = [(format_own_policy(report, model), first.measured_usd, first.measured_attained)]
    bars += [(one.policy, one.usd, one.attained) for one in model.baselines]
    figure, (axes,) = new_figure(0.75 + 0.36 * len(bars), theme=LIGHT, width_in=WIDTH_IN)
    for row, (_, usd, attained) in enumerate(bars):
        missed = attained is not None and attained < model.slo.target
        style: dict[str, Any] = {"hatch": "////" if missed else "", "edgecolor": LIGHT.surface, "linewidth": 0}
        axes.barh(row, usd, height=0.62, color=SERIES[0] if row == 0 else OTHER, **style)
        words = f"{money(usd)}{', missed the objective' if missed else ''}"
        inside = missed and usd > 0.55 * max(bar[1] for bar in bars)
        axes.annotate(
            words, (usd, row), (-5 if inside else 5, 0), textcoords="offset points", va="center",
            ha="right" if inside else "left", color=LIGHT.surface if inside else LIGHT.ink,
            backgroundcolor=OTHER if inside else "none",
        )  # fmt: skip
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, 1.2 * max(1e-9, *(bar[1] for bar in bars)))
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("USD", color=LIGHT.ink)
    return _png(figure, columns=0)


def _days(axes: Axes, names: Sequence[str]) -> None:
    step = -(-len(names) // MOST_MARKS)
    shown = range(0, len(names), step)
    axes.set_xticks(list(shown), [names[place] for place in shown])
    axes.set_xlim(-0.6, max(len(names), 2) - 0.4 if len(names) > 1 else 0.6)
    axes.grid(visible=False, axis="x")


def _png(figure: Figure, *, columns: int) -> bytes:
    if columns:
        add_legend(figure, columns=columns, theme=LIGHT, fontsize=FONT_SIZE, columnspacing=1.2, handlelength=1.2)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, facecolor=LIGHT.surface, metadata={"Software": None})
    return buffer.getvalue()

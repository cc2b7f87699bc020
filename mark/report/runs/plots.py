"""The four figures of a report, each an inline SVG. Figures are objects of their own: pyplot is never touched.

What tells two series apart is never colour alone: stacks keep the order of their legend, lines have dashes and
their name, limits are labelled where they are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from mark.report.cost_bars import ROW_IN, Part, draw_cost_bars
from mark.report.figures import (
    INK,
    OTHER,
    SERIES,
    SURFACE,
    WIDTH_IN,
    add_legend,
    drawing_rules,
    inline_svg,
    line_style,
    new_figure,
    percents,
    time_axis,
)
from mark.report.formatting import format_duration, format_rps, percent
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.series import (
    MAX_POINTS,
    MAX_STEPS,
    Steps,
    accuracy_steps,
    arrivals_band,
    capacity_steps,
    forecast_steps,
    missed_steps,
    thinned_ccdf,
)
from mark.simulator.results import MinuteSeries, RunResult

FORECAST = SERIES[5]
OFFERINGS = tuple(colour for colour in SERIES if colour != FORECAST)
HATCHES = ("", "", "", "///", "\\\\\\", "...", "xx")
"""From the fourth offering on a pattern helps the colour."""
COMPONENTS = (("instances", "instances"), ("standby", "standby"), ("lambda_", "Lambda"), ("overhead", "overhead"))
MOST_TICKS = 24
"""Of the latency axis: three a decade, from a millisecond to a day; with more decades they thin out."""
LABEL_BOX = {"facecolor": SURFACE, "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
"""Behind a label among curves, so that it is read wherever they go."""
MOST_STRETCHES = 300
"""Stretches of the run whose accuracy is drawn: more would look like noise."""
MOST_ROOM = 4.0
"""Times the load that a figure has room for."""
SMALLEST_SHARE = 1e-4
"""Where the missed share's log axis ends: below it a stretch counts as clean."""
Labelled = Sequence[tuple[str, ComparedRun]]


def named_offerings(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """The offerings with a colour of their own in every load figure: those that carried most, over all runs."""
    carried: dict[str, float] = {}
    for run in runs:
        minutes = run.result.minutes
        for name, capacity in zip(minutes.offerings, minutes.capacity_rps.sum(axis=0), strict=True):
            carried[name] = carried.get(name, 0.0) + float(capacity)
    used = [name for name, capacity in carried.items() if capacity > 0]
    return tuple(sorted(used, key=lambda name: (-carried[name], name))[: len(OFFERINGS)])


def top_rps(runs: Sequence[ComparedRun]) -> float:
    """The rate that the load figures share as the end of their axes, so that they compare by eye."""
    load, capacity = _tops(runs)
    # a load that would lie on the axis is drawn as large as it can be, and capacity leaves the figure
    return 1.5 * load if is_small(runs) else 1.05 * max(load, capacity)


def is_small(runs: Sequence[ComparedRun]) -> bool:
    """True for a load that is next to nothing beside the capacity of the least that can be rented."""
    load, capacity = _tops(runs)
    return capacity > MOST_ROOM * load


def _tops(runs: Sequence[ComparedRun]) -> tuple[float, float]:
    """The highest load or forecast of it, and the highest capacity, over all runs."""
    load, capacity = 1.0, 0.0
    for run in runs:
        result = run.result
        band, minutes = arrivals_band(result.seconds, stands_for=result.speed), result.minutes
        finite = minutes.forecast_max_rps[np.isfinite(minutes.forecast_max_rps)]
        load = max(load, float(band.high_rps.max(initial=0.0)), float(finite.max(initial=0.0)))
        capacity = max(capacity, _most_capacity(minutes))
    return load, capacity


def _most_capacity(minutes: MinuteSeries) -> float:
    return float(minutes.capacity_rps.sum(axis=1).max(initial=0.0))


def load_figure(
    label: str,
    run: ComparedRun,
    *,
    offerings: tuple[str, ...],
    end_rps: float,
    prefix: str,
    width_in: float = WIDTH_IN,
) -> str:
    """Arrivals, the forecast of them, and the capacity ready by offering, over the time of the run."""
    result = run.result
    accuracy = accuracy_steps(result.seconds, stretches=MOST_STRETCHES)
    with drawing_rules(prefix):
        if accuracy is None:
            figure, (axes,) = new_figure(3.3, width_in=width_in)
        else:
            figure, (axes, below) = new_figure(4.4, rows=2, sharex=True, height_ratios=(3, 1), width_in=width_in)
            _draw_accuracy(below, accuracy, end_s=result.duration_s)
        shown = min(1.0, width_in / WIDTH_IN)  # a narrow figure has room for fewer points
        legend = _draw_capacity(
            axes, result.minutes, offerings, end_s=result.duration_s, steps=round(MAX_STEPS * shown)
        )
        legend = _draw_load(axes, result, points=round(MAX_POINTS * shown)) + legend
        if accuracy is None:
            time_axis(axes, result.duration_s)
        else:
            axes.tick_params(labelbottom=False)
        axes.set_ylim(0, end_rps)
        most = _most_capacity(result.minutes)
        if most > end_rps:
            axes.annotate(
                f"capacity up to {format_rps(most)} requests/s, above this figure", (0.0, 1.0), (6, -6), va="top",
                xycoords="axes fraction", textcoords="offset points", color=INK, bbox=LABEL_BOX,
            )  # fmt: skip
        axes.set_ylabel("requests per second", color=INK)
        add_legend(figure, columns=3, handles=legend)
        return inline_svg(figure, prefix=prefix, description=f"Load, forecast and capacity of {label}")


def _draw_capacity(
    axes: Axes, minutes: MinuteSeries, offerings: tuple[str, ...], *, end_s: float, steps: int
) -> list[Patch | Line2D]:
    """Stacked areas in the order of `offerings`; the legend names only what this run used."""
    found = capacity_steps(minutes, offerings, end_s=end_s, steps=steps)
    below = np.zeros(found.from_s.size)
    legend: list[Patch | Line2D] = []
    for column in range(found.values.shape[1]):
        amount = found.values[:, column]
        if not amount.any():
            continue
        named = column < len(offerings)
        style: dict[str, Any] = {
            "facecolor": OFFERINGS[column] if named else OTHER,
            "hatch": HATCHES[column] if named else "++",
            "edgecolor": SURFACE,
            "linewidth": 0.0,
            "alpha": 0.75,
        }
        axes.fill_between(found.from_s, below, below + amount, step="post", **style)
        legend.append(Patch(label=f"capacity {offerings[column] if named else 'of others'}", **style))
        below = below + amount
    return legend


def _draw_load(axes: Axes, result: RunResult, *, points: int) -> list[Patch | Line2D]:
    band = arrivals_band(result.seconds, points=points, stands_for=result.speed)
    axes.fill_between(
        band.at_s, band.low_rps, band.high_rps, facecolor=INK, alpha=0.45, edgecolor=INK, linewidth=0.5
    )
    legend: list[Patch | Line2D] = [Patch(facecolor=INK, alpha=0.45, label="arrivals, lowest to highest 5 s rate")]
    forecast = forecast_steps(result.minutes, end_s=result.duration_s)
    if np.isfinite(forecast.values).any():
        # a halo in the page's colour keeps the line visible on any capacity
        axes.step(forecast.from_s, forecast.values[:, 0], where="post", color=SURFACE, linewidth=2.2)
        axes.step(forecast.from_s, forecast.values[:, 0], where="post", color=FORECAST, linewidth=1.2)
        legend.append(
            Line2D([], [], color=FORECAST, linewidth=1.6, label="forecast maximum, made one lead before")
        )
    return legend


def _draw_accuracy(axes: Axes, accuracy: Steps, *, end_s: float) -> None:
    """Accuracy of the answers on the load's time axis; a gap where nothing was answered."""
    axes.step(accuracy.from_s, accuracy.values[:, 0], where="post", color=INK, linewidth=1.3)
    time_axis(axes, end_s)
    axes.set_ylabel("answers right", color=INK)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    percents(axes.yaxis)


def cost_figure(runs: Labelled, *, prefix: str, width_in: float = WIDTH_IN) -> str:
    """One bar a run, cost of serving and overhead on top of it, the two lower limits drawn across the bar."""
    parts = [
        Part(
            name,
            [getattr(run.result.cost, field) for _, run in runs],
            *((OTHER, "////") if field == "overhead" else (SERIES[number], "")),
        )
        for number, (field, name) in enumerate(COMPONENTS)
    ]
    with drawing_rules(prefix):
        figure, (axes,) = new_figure(0.95 + ROW_IN * len(runs), width_in=width_in)
        legend: list[Patch | Line2D] = [*draw_cost_bars(axes, [label for label, _ in runs], parts)]
        legend += _draw_limits(axes, [run for _, run in runs])
        add_legend(figure, columns=6, handles=legend)
        return inline_svg(figure, prefix=prefix, description="Cost by component and policy")


def _draw_limits(axes: Axes, runs: Sequence[ComparedRun]) -> list[Line2D]:
    """Reference and floor of each run as strokes across its bar, higher than the bar so that they stand out."""
    legend = []
    for name, dashes in (("reference", "-"), ("floor", (0, (1.5, 1.2)))):
        values = [run.reference_usd if name == "reference" else run.floor_usd for run in runs]
        style: dict[str, Any] = {"color": INK, "linewidth": 1.6, "linestyle": dashes}
        for row, value in enumerate(values):
            if value is not None and np.isfinite(value):
                axes.plot([value, value], [row - 0.42, row + 0.42], **style)
        if any(value is not None and np.isfinite(value) for value in values):
            legend.append(Line2D([], [], label=name, **style))
    return legend


def latency_figure(runs: Labelled, *, prefix: str, width_in: float = WIDTH_IN) -> str:
    """Share of the answers slower than a latency, both axes logarithmic, the objective drawn."""
    with drawing_rules(prefix):
        figure, (axes,) = new_figure(4.0, width_in=width_in)
        for number, (label, run) in enumerate(runs):
            at_s, share = thinned_ccdf(run.result.latency)
            if at_s.size:
                axes.step(at_s * 1000, share, where="post", label=label, **line_style(number))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(1e-5, 1.3)
        for latency_s, target in sorted({(r.result.slo.latency_s, r.result.slo.target) for _, r in runs}):
            _draw_objective(axes, latency_s, target)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=MOST_TICKS))
        if width_in < WIDTH_IN:
            axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value / 1000)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        percents(axes.yaxis)
        axes.set_xlabel("latency", color=INK)
        axes.set_ylabel("share of answers slower", color=INK)
        if axes.get_legend_handles_labels()[0]:  # nobody was answered: no curve
            add_legend(figure, columns=min(6, len(runs)), handlelength=3.2)
        return inline_svg(figure, prefix=prefix, description="Latency of all policies against the objective")


def _draw_objective(axes: Axes, latency_s: float, target: float) -> None:
    """The corner that a curve must pass below: at most `1 - target` of the answers slower than `latency_s`."""
    stroke: dict[str, Any] = {"color": INK, "linewidth": 1.1, "linestyle": (0, (4, 3))}
    axes.axvline(latency_s * 1000, **stroke)
    axes.annotate(
        f"objective {format_duration(latency_s)}", (latency_s * 1000, 0.0), (4, 4), va="bottom",
        xycoords=("data", "axes fraction"), textcoords="offset points", color=INK, bbox=LABEL_BOX,
    )  # fmt: skip
    if target < 1:
        axes.axhline(1 - target, **stroke)
        axes.annotate(
            f"{percent(1 - target)} may be slower", (0.0, 1 - target), (4, 3), va="bottom",
            xycoords=("axes fraction", "data"), textcoords="offset points", color=INK, bbox=LABEL_BOX,
        )  # fmt: skip


def missed_figure(runs: Labelled, *, prefix: str, width_in: float = WIDTH_IN) -> str:
    """Share of the requests that missed the objective over time, a strip a run, on one logarithmic scale."""
    with drawing_rules(prefix):
        figure, strips = new_figure(0.6 + 0.72 * len(runs), rows=len(runs), sharex=True, width_in=width_in)
        for axes, (label, run) in zip(strips, runs, strict=True):
            _draw_missed(axes, label, run)
            axes.tick_params(axis="x", length=0)
        time_axis(strips[-1], max(run.result.duration_s for _, run in runs))
        figure.supylabel("share of requests that missed the objective", color=INK, fontsize=9)
        return inline_svg(figure, prefix=prefix, description="Missed share over time by policy")


def _draw_missed(axes: Axes, label: str, run: ComparedRun) -> None:
    steps = missed_steps(run.result.seconds)
    shown = np.maximum(steps.values[:, 0], SMALLEST_SHARE)
    axes.set_yscale("log")
    allowed = 1 - run.result.slo.target
    # above what the objective allows it is a breach: another colour and another pattern
    axes.fill_between(
        steps.from_s, SMALLEST_SHARE, shown, step="post", facecolor=SERIES[4], linewidth=0, alpha=0.9
    )
    if allowed > SMALLEST_SHARE:
        axes.fill_between(
            steps.from_s, allowed, np.maximum(shown, allowed), step="post",
            facecolor=SERIES[5], linewidth=0, hatch="////", edgecolor=SURFACE,
        )  # fmt: skip
        axes.axhline(allowed, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_ylim(SMALLEST_SHARE, 1.0)
    axes.yaxis.set_major_locator(FixedLocator([1e-4, 1e-2, 1.0]))
    axes.yaxis.set_minor_locator(FixedLocator([]))
    percents(axes.yaxis)
    axes.set_title(
        f"{label}: {percent(run.result.attained, digits=2)} in time over the run",
        loc="left", fontsize=9, color=INK, pad=3,
    )  # fmt: skip

"""Figures of forecasts: what came and what was said, how honest quantiles are, how losses grow with the lead.

A forecaster keeps its colour and its dashes in all figures of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mark.report.figures import (
    INK,
    MUTED,
    WIDTH_IN,
    add_legend,
    drawing_rules,
    inline_svg,
    line_style,
    new_figure,
    percents,
    time_axis,
)
from mark.report.forecast.forecast_documents import BacktestRun, observed_shares, scored_runs
from mark.simulator.backtest import KEPT_LEVELS, MEDIAN, LeadPath
from mark.simulator.scores import Floats

MAX_POINTS = 720
"""More than one point for two pixels of a 1200 px page."""
CLOSE_S = 6 * 3600.0
"""What is drawn once more, close to: this much around the highest minute."""
BANDS = ((0.1, 0.9, 0.22), (0.25, 0.75, 0.4))
"""Lower level, upper level, opacity: the wider one first."""
UPPER_BANDS = ((0.5, 0.9, 0.22), (0.5, 0.75, 0.4))
"""The same for forecasters that give nothing below the median."""
LEVEL_DASHES = ((4, 2), (1, 1), (6, 2, 1, 2), (2, 2))
HONEST = (0.88, 0.92)
"""Where the 90 % quantile's coverage should lie."""
LEGEND_SIGNS = 112
"""Letters that a legend's line has room for; each name has a line and a gap beside it."""
LEAD_TICKS = (1, 5, 10, 15, 20, 30, 40, 50, 60)


def path_figure(
    run: BacktestRun,
    path: LeadPath,
    *,
    number: int,
    end_rps: float,
    prefix: str,
    width_in: float = WIDTH_IN,
) -> str:
    """Actual load against one forecaster's quantiles, over the span, and close to around its highest minute."""
    colour = line_style(number)["color"]
    length_s = float(path.at_s[-1]) + 60.0
    with drawing_rules(prefix):
        rows = 2 if length_s > 2 * CLOSE_S else 1
        figure, strips = new_figure(0.7 + 2.5 * rows, rows=rows, width_in=width_in)
        legend = _draw_path(strips[0], path, colour, end_rps)
        time_axis(strips[0], length_s)
        strips[0].set_xlabel(strips[0].get_xlabel().replace("run", "span"))
        if rows == 2:
            from_s = _close_from(path, length_s)
            _draw_path(strips[1], _cut(path, from_s), colour, None)
            time_axis(strips[1], CLOSE_S)
            strips[1].set_xlabel(f"hours since hour {from_s / 3600:g} of the span")
        figure.supylabel("requests per second", color=INK, fontsize=9)
        add_legend(figure, columns=5, handles=legend)
        return inline_svg(figure, prefix=prefix, description=f"Actual load and the forecasts of {run.predictor}")


def top_rps(runs: Sequence[BacktestRun]) -> float:
    """The rate at which the figures of a page end, so that they compare by eye: above all that came."""
    return 1.15 * max((float(scores.path.actual.max()) for _, scores in scored_runs(runs)), default=1.0)


def _close_from(path: LeadPath, length_s: float) -> float:
    """A whole hour, so that the highest minute lies in the middle of what is drawn close to."""
    highest_s = float(path.at_s[int(np.argmax(path.actual))])
    hour = round((highest_s - CLOSE_S / 2) / 3600)
    return float(np.clip(hour * 3600.0, 0.0, max(0.0, length_s - CLOSE_S)))


def _cut(path: LeadPath, from_s: float) -> LeadPath:
    here = (path.at_s >= from_s) & (path.at_s < from_s + CLOSE_S)
    return LeadPath(
        lead=path.lead, at_s=path.at_s[here] - from_s, actual=path.actual[here], quantiles=path.quantiles[here]
    )


def _draw_path(axes: Axes, path: LeadPath, colour: str, end_rps: float | None) -> list[Patch | Line2D]:
    starts = np.arange(0, len(path.at_s), -(-len(path.at_s) // MAX_POINTS))
    sizes = np.diff(np.append(starts, len(path.at_s)))
    at_s = path.at_s[starts]
    predicted: Floats = np.add.reduceat(path.quantiles, starts, axis=0) / sizes[:, None]
    given = _given(path.quantiles)
    legend = _draw_quantiles(axes, at_s, predicted[:, given], [KEPT_LEVELS[column] for column in given], colour)
    if len(starts) < len(path.at_s):
        low, high = np.minimum.reduceat(path.actual, starts), np.maximum.reduceat(path.actual, starts)
        axes.fill_between(at_s, low, high, facecolor=INK, alpha=0.55, linewidth=0.4, edgecolor=INK)
        actual: Patch | Line2D = Patch(
            facecolor=INK, alpha=0.55, label=f"came, lowest to highest of {sizes[0]} min"
        )
    else:
        axes.plot(at_s, path.actual, color=INK, linewidth=0.9)
        actual = Line2D([], [], color=INK, linewidth=1.2, label="came")
    axes.set_ylim(0, end_rps)
    return [actual, *legend]


def _draw_quantiles(
    axes: Axes, at_s: Floats, predicted: Floats, levels: Sequence[float], colour: str
) -> list[Patch | Line2D]:
    """Bands, the median, and lines, each named by its levels. said: shape (points, levels).

    Only what was given is drawn: bands from the median where nothing below it was, and a line for each level
    where there are no bands. A point forecast is one line.
    """
    legend: list[Patch | Line2D] = []
    columns = {level: predicted[:, column] for column, level in enumerate(levels)}
    whole, upper = ([band for band in some if columns.keys() >= set(band[:2])] for some in (BANDS, UPPER_BANDS))
    bands = whole or upper
    for low, high, alpha in bands:
        axes.fill_between(at_s, columns[low], columns[high], facecolor=colour, alpha=alpha, linewidth=0)
        legend.append(Patch(facecolor=colour, alpha=alpha, label=f"{100 * low:g} to {100 * high:g} %"))
    if 0.5 in columns or len(columns) == 1:
        main = columns[0.5] if 0.5 in columns else predicted[:, 0]
        axes.plot(at_s, main, color=colour, linewidth=1.3)
        name = "forecast" if len(columns) == 1 else "median"
        legend.append(Line2D([], [], color=colour, linewidth=1.6, label=name))
    others = [] if len(columns) == 1 else [level for level in levels if level == 0.95 or not bands]
    for number, level in enumerate(level for level in others if level != 0.5):
        dashes = LEVEL_DASHES[number % len(LEVEL_DASHES)]
        style: dict[str, Any] = {"color": colour, "linewidth": 0.8, "linestyle": (0, dashes)}
        axes.plot(at_s, columns[level], **style)
        legend.append(Line2D([], [], label=f"{100 * level:g} %", **style))
    return legend


def _given(predicted: Floats) -> list[int]:
    """Columns of the kept levels between the lowest and the highest level that a forecaster gave.

    Beyond those its outermost quantile was repeated (`at_levels`). said: shape (points, kept levels).
    """
    first, last = MEDIAN, MEDIAN
    while first > 0 and (predicted[:, first - 1] != predicted[:, first]).any():
        first -= 1
    while last < predicted.shape[1] - 1 and (predicted[:, last + 1] != predicted[:, last]).any():
        last += 1
    return list(range(first, last + 1))


def lead_figure(runs: Sequence[BacktestRun], *, prefix: str, width_in: float = WIDTH_IN) -> str:
    """Weighted quantile loss by lead, a line a forecaster."""
    with drawing_rules(prefix):
        figure, (axes,) = new_figure(3.6, width_in=width_in)
        shown = [item.lead for _, scores in scored_runs(runs) for item in scores.by_lead]
        for number, run in enumerate(runs):
            if run.scores is None:
                continue
            leads = [item.lead for item in run.scores.by_lead]
            marker = "o" if len(leads) < 12 else ""
            axes.plot(
                leads, [item.wql for item in run.scores.by_lead],
                label=run.predictor, marker=marker, **line_style(number),
            )  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, max(shown, default=1) + 1)
        axes.set_xticks([tick for tick in LEAD_TICKS if tick <= max(shown, default=1)])
        axes.set_xlabel("lead, minutes", color=INK)
        axes.set_ylabel("weighted quantile loss", color=INK)
        add_legend(figure, columns=_columns(runs), handlelength=3.2)
        return inline_svg(figure, prefix=prefix, description="Weighted quantile loss by lead")


def _columns(runs: Sequence[BacktestRun]) -> int:
    """Columns of a legend, by the longest name: `path/file.py:Name` takes more than `drift`."""
    longest = max((len(run.predictor) for run in runs), default=0)
    return max(1, min(6, LEGEND_SIGNS // (longest + 9)))


def honesty_figure(runs: Sequence[BacktestRun], *, prefix: str, width_in: float = WIDTH_IN) -> str:
    """Left: how much came at or below each quantile. Right: at or below the 90 % quantile, day by day.

    A narrow figure has the second one below the first.
    """
    is_narrow = width_in < WIDTH_IN
    with drawing_rules(prefix):
        rows, columns, height_in = (2, 1, 7.2) if is_narrow else (1, 2, 3.9)
        figure, (left, right) = new_figure(height_in, width_in=width_in, rows=rows, columns=columns)
        left.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        right.axhspan(*HONEST, facecolor=MUTED, alpha=0.18, linewidth=0)
        column = KEPT_LEVELS.index(0.9)
        for number, run in enumerate(runs):
            if run.scores is None or run.scores.levels == 1:
                continue
            nominal, observed = zip(*observed_shares(run.scores), strict=True)
            left.plot(nominal, observed, label=run.predictor, marker="o", markersize=3, **line_style(number))
            days = [item.day for item in run.scores.by_day]
            shares = [float(item.coverage[column]) for item in run.scores.by_day]
            right.plot(days, shares, marker="o", markersize=4, **line_style(number))
        left.set_xlim(0, 1)
        left.set_ylim(0, 1)
        left.set_xlabel("level of the quantile", color=INK)
        left.set_ylabel("share at or below it", color=INK)
        right.set_ylim(top=1)
        right.set_xlabel("day of the span", color=INK)
        right.set_ylabel("share at or below the 90 % quantile", color=INK)
        right.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
        percents(left.xaxis, left.yaxis, right.yaxis)
        add_legend(figure, columns=_columns(runs), handlelength=3.2)
        return inline_svg(figure, prefix=prefix, description="Coverage of the quantiles")

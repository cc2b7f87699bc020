"""Cost against attainment, a figure a group: every row a point with its range over the seeds, the front a line.

Up and to the left is better. The share in time is drawn as what is missing to 100 %, on a logarithmic scale:
between 99 % and 99.9 % lies as much as between 90 % and 99 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from mark.report.figures import (
    INK,
    MUTED,
    SERIES,
    SURFACE,
    WIDTH_IN,
    add_legend,
    drawing_rules,
    inline_svg,
    new_figure,
)
from mark.report.formatting import percent, usd
from mark.report.sweep.pareto import ParetoRow

HEIGHT_IN = 4.6
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
SMALLEST_MISS = 1e-5
"""Where the axis ends: 99.999 % in time, or better."""
TICKS = (0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001, SMALLEST_MISS)
WIDE = 6.0
"""Costs that differ by more than this factor are drawn on a logarithmic axis."""


def pareto_figure(
    rows: Sequence[ParetoRow], *, policies: Sequence[str], prefix: str, width_in: float = WIDTH_IN
) -> str:
    """The rows of one group that have a share in time, as an inline SVG.

    `policies` gives each policy the same colour and mark in all figures of a page.
    """
    shown = [row for row in rows if row.attained is not None]
    with drawing_rules(prefix):
        figure, (axes,) = new_figure(HEIGHT_IN, width_in=width_in)
        legend = [_draw_policy(axes, name, shown, policies) for name in policies if _of(name, shown)]
        legend += _draw_front(axes, [row for row in shown if row.front])
        legend += _draw_target(axes, shown)
        _scale(axes, shown)
        add_legend(figure, columns=6 if width_in == WIDTH_IN else 4, handles=legend)
        return inline_svg(figure, prefix=prefix, description="Cost against the share answered in time")


def _of(policy: str, rows: Sequence[ParetoRow]) -> list[ParetoRow]:
    return [row for row in rows if row.policy == policy]


def _missed(attained: float) -> float:
    return min(1.0, max(SMALLEST_MISS, 1 - attained))


def _draw_policy(axes: Axes, policy: str, rows: Sequence[ParetoRow], policies: Sequence[str]) -> Line2D:
    """The policy's points: filled on the front, hollow beside it."""
    number = list(policies).index(policy)
    style: dict[str, Any] = {
        "color": SERIES[number % len(SERIES)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": "none",
        "markersize": 8.0,
    }
    for row in _of(policy, rows):
        assert row.attained is not None
        cost, missed = row.total_usd, _missed(row.attained.mean)
        low, high = _missed(row.attained.high), _missed(row.attained.low)
        axes.errorbar(
            cost.mean, missed,
            xerr=[[cost.mean - cost.low], [cost.high - cost.mean]],
            yerr=[[max(0.0, missed - low)], [max(0.0, high - missed)]],
            elinewidth=1.0, zorder=3, markeredgewidth=1.6,
            markerfacecolor=style["color"] if row.front else SURFACE, **style,
        )  # fmt: skip
    return Line2D([], [], label=policy, **style)


def _draw_front(axes: Axes, front: Sequence[ParetoRow]) -> list[Line2D]:
    """Steps through the front, with the rows' numbers: what a cost buys is the last row at or below it."""
    if not front:
        return []
    style: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (5, 2))}
    costs = [row.total_usd.mean for row in front]
    missed = [_missed(row.attained.mean) for row in front if row.attained is not None]
    axes.step(costs, missed, where="post", zorder=2, **style)
    numbers: dict[tuple[float, float], list[str]] = {}
    for row, point in zip(front, zip(costs, missed, strict=True), strict=True):
        numbers.setdefault(point, []).append(f"{row.front}")
    for point, labels in numbers.items():
        axes.annotate(
            ", ".join(labels), point, (7, 5), textcoords="offset points", color=INK, fontweight="bold", zorder=5
        )
    return [Line2D([], [], label="front (numbers as in the table)", **style)]


def _draw_target(axes: Axes, rows: Sequence[ParetoRow]) -> list[Line2D]:
    style: dict[str, Any] = {"color": MUTED, "linewidth": 1.1, "linestyle": (0, (1.5, 1.5))}
    targets = sorted({row.target for row in rows if row.target < 1})
    for target in targets:
        axes.axhline(1 - target, zorder=1, **style)
    words = ", ".join(percent(target) for target in targets)
    return [Line2D([], [], label=f"objective {words}", **style)] if targets else []


def _scale(axes: Axes, rows: Sequence[ParetoRow]) -> None:
    missed = [_missed(spread) for row in rows if row.attained for spread in (row.attained.low, row.attained.high)]
    missed += [max(SMALLEST_MISS, 1 - row.target) for row in rows]
    axes.set_yscale("log")
    axes.set_ylim(min(1.15, 1.8 * max(missed, default=1.0)), 0.6 * min(missed, default=SMALLEST_MISS))
    axes.yaxis.set_major_locator(FixedLocator(list(TICKS)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _format_share(value)))
    axes.set_ylabel("answered in time", color=INK)
    costs = np.array([row.total_usd.mean for row in rows])
    if costs.size and costs.min() > 0 and costs.max() / costs.min() > WIDE:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(_round_costs(float(costs.min()), float(costs.max()))))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: usd(value)))
    axes.margins(x=0.06)
    axes.set_xlabel("total cost of the run (USD)", color=INK)


def _format_share(missed: float) -> str:
    words = f"{round(100 * (1 - missed), 4):g} %"
    return f"{words} or more" if missed <= SMALLEST_MISS else words


def _round_costs(low: float, high: float) -> list[float]:
    """1, 2, 3, 5 and 7 times the powers of ten around [low, high]."""
    powers = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    return [float(digit * 10.0**power) for power in powers for digit in (1, 2, 3, 5, 7)]

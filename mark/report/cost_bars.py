"""Bars of what policies cost, one a policy, made of parts that lie behind each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from mark.report.figures import INK, OTHER, SURFACE, WIDTH_IN
from mark.report.formatting import usd

ROW_IN = 0.42
"""Height of a bar with its gap, inches."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of each bar. amounts_usd: shape (bars,), none below 0."""

    name: str
    amounts_usd: Sequence[float]
    colour: str = OTHER
    hatch: str = ""


def draw_cost_bars(
    axes: Axes, labels: Sequence[str], parts: Sequence[Part], totals_usd: Sequence[float] | None = None
) -> list[Patch]:
    """Draw a bar a label, the first on top, with its total behind it; the legend's patches.

    totals_usd: shape (bars,); left out, the sum of the parts.
    """
    is_narrow = axes.get_figure(root=True).get_figwidth() < WIDTH_IN  # type: ignore[union-attr]
    legend: list[Patch] = []
    left, rows = np.zeros(len(labels)), np.arange(len(labels))
    for part in parts:
        style: dict[str, Any] = {
            "facecolor": part.colour,
            "hatch": part.hatch,
            "edgecolor": SURFACE,
            "linewidth": 0.6,
        }
        axes.barh(rows, part.amounts_usd, left=left, height=0.62, **style)
        legend.append(Patch(label=part.name, **style))
        left = left + np.array(part.amounts_usd)
    for row, (end, total) in enumerate(zip(left, left if totals_usd is None else totals_usd, strict=True)):
        axes.annotate(
            f"{usd(float(total))} USD", (float(end), row), (5, 0), textcoords="offset points",
            va="center", color=INK,
        )  # fmt: skip
    axes.set_yticks(rows, labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, (1.45 if is_narrow else 1.16) * max(1e-9, float(left.max())))
    axes.set_xlabel("cost of the run (USD)", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(4 if is_narrow else 8))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    return legend

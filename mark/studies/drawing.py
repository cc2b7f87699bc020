"""A study's plots as SVG files that stand alone."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from mark.studies.study import Plot

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#6a51a3")
"""Okabe and Ito's colour-blind safe palette without its black and yellow."""
STYLES = ("-", "--", "-.", ":")


def svg_of(plot: Plot) -> str:
    """The plot as the text of an SVG file; the same plot gives the same text."""
    rules: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": plot.name,
        "text.parse_math": False,
        "font.size": 9.0,
        "axes.titlesize": 9.0,
        "axes.titlepad": 14.0,
    }
    with mpl.rc_context(rules):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for place, curve in enumerate(plot.curves):
            colour, style = COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)]
            axes.plot(curve.x, curve.y, style, color=colour, linewidth=1.2, label=curve.label)
        if plot.level is not None:
            axes.axhline(plot.level[0], color="#555555", linewidth=0.8)
            axes.annotate(
                plot.level[1], (1, plot.level[0]), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
        for at, text in plot.marks:
            axes.axvline(at, color="#999999", linewidth=0.8)
            axes.annotate(text, (at, 1), xycoords=("data", "axes fraction"), ha="left", va="top")
        axes.set(
            title=plot.title,
            xlabel=plot.x_label,
            ylabel=plot.y_label,
            xscale=_scale(plot.log_x),
            yscale=_scale(plot.log_y),
        )
        axes.spines[["top", "right"]].set_visible(False)
        for axis in (axes.xaxis, axes.yaxis):
            # A log axis labels itself in mathematics, which is off: names may hold a dollar sign.
            axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        figure.legend(loc="outside lower center", ncols=len(plot.curves), frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _scale(logarithmic: bool) -> str:
    return "log" if logarithmic else "linear"

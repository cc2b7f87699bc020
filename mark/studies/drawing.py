"""A study's plots as SVG files that stand alone."""

from __future__ import annotations

import io

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, NullFormatter

from mark.report.figures import LIGHT, OTHER, drawing_rules, line_style, new_figure
from mark.studies.plot import Plot


def svg_of(plot: Plot) -> str:
    """The plot as the text of an SVG file; the same plot gives the same text."""
    with drawing_rules(plot.name), mpl.rc_context({"axes.titlesize": 9.0, "axes.titlepad": 14.0}):
        figure, (axes,) = new_figure(3.6, width_in=7.2, theme=LIGHT)
        for place, curve in enumerate(plot.curves):
            axes.plot(curve.x, curve.y, label=curve.label, **line_style(place))
        if plot.level is not None:
            axes.axhline(plot.level[0], color=LIGHT.ink, linewidth=0.8)
            axes.annotate(
                plot.level[1], (1, plot.level[0]), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
        for at, text in plot.marks:
            axes.axvline(at, color=OTHER, linewidth=0.8)
            axes.annotate(text, (at, 1), xycoords=("data", "axes fraction"), ha="left", va="top")
        axes.set(
            title=plot.title,
            xlabel=plot.x_label,
            ylabel=plot.y_label,
            xscale="log" if plot.log_x else "linear",
            yscale="log" if plot.log_y else "linear",
        )
        for axis in (axes.xaxis, axes.yaxis):
            # A log axis labels itself in mathematics, which is off: names may hold a dollar sign.
            axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        figure.legend(loc="outside lower center", ncols=len(plot.curves), frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()

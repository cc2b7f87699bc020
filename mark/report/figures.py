"""Style of all matplotlib figures, and a figure as a small inline SVG in the colours and the font of its page.

Figures are drawn in marker colours; here each marker becomes a CSS variable, so that the page's light, dark and
print themes reach into the plots. Ids get a prefix, because all figures share one document.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

INK, MUTED, GRID, SURFACE = "#010203", "#040506", "#070809", "#0a0b0c"
"""Text and axes, secondary text, grid lines, the page behind the plot."""
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#6a51a3")
"""Okabe and Ito's colour-blind safe palette without its black and yellow, which one of the themes would hide."""
OTHER = "#8a8f98"
"""What has no colour of its own."""
WIDTH_IN = 10.0
"""Of a figure in a page, inches."""
NARROW_IN = 5.0
"""Of the same figure drawn for a phone, inches: its letters keep their size there."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (3, 1)), (0, (9, 3)))
"""Of lines, so that colour alone tells none from another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours of a figure, beside those of its data."""

    #: Text.
    ink: str
    #: Axes and their ticks.
    frame: str
    grid: str
    #: The background.
    surface: str


PAGE = Theme(ink=INK, frame=MUTED, grid=GRID, surface="none")
"""The markers, for a figure in a page."""
LIGHT = Theme(ink="#1b2027", frame="#e3e6ea", grid="#e3e6ea", surface="#ffffff")
"""For a figure that stands alone."""
CSS_NAME = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    SURFACE: "--surface",
    OTHER: "--other",
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES, start=1)},
}
_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT = re.compile(r"'DejaVu Sans'[^;]*")
_PLAIN_ATTRIBUTES = ("d", "x", "y", "width", "height", "points", "transform", "style")


@contextmanager
def drawing_rules(salt: str) -> Iterator[None]:
    """Settings that a figure needs while it is made and written; undone afterwards.

    Text stays text, `$` in a name is a dollar sign, and ids depend on `salt` alone: the same run, the same page.
    """
    rules: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "text.parse_math": False,
        "font.family": ["DejaVu Sans"],
        "font.size": 9.0,
        "hatch.linewidth": 0.6,
        "axes.unicode_minus": False,
        "path.simplify": False,
    }
    with mpl.rc_context(rules):
        yield


def inline_svg(figure: Figure, *, prefix: str, description: str) -> str:
    """The figure as an `<svg>` element; `prefix` must be its own in the page, `description` is read out."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ET.fromstring(buffer.getvalue())  # noqa: S314 - our own output of a moment ago
    for parent in root.iter():
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {
            _local(name): _adapted(_local(name), value, prefix) for name, value in element.attrib.items()
        }
    del root.attrib["width"], root.attrib["height"]
    root.attrib.update({"role": "img", "aria-label": description})
    return ET.tostring(root, encoding="unicode")


def style_axes(axes: Axes, theme: Theme = PAGE) -> None:
    """Quiet axes: no box, thin grid behind the data."""
    axes.set_facecolor(theme.surface)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=theme.grid, linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(theme.frame)
    axes.tick_params(which="both", color=theme.frame, labelcolor=theme.ink)


def new_figure(
    height_in: float,
    *,
    theme: Theme = PAGE,
    width_in: float = WIDTH_IN,
    rows: int = 1,
    columns: int = 1,
    height_ratios: Sequence[float] | None = None,
    sharex: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure of its own, pyplot untouched, and its quiet axes, row by row."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained", facecolor=theme.surface)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex, height_ratios=height_ratios)
    found: list[Axes] = list(grid.flat)
    for axes in found:
        style_axes(axes, theme)
    return figure, found


def wide_and_narrow(draw: Callable[..., str], prefix: str) -> str:
    """A figure for a desk and again for a phone; the page's style shows the one that fits.

    draw: takes `prefix` and `width_in`.
    """
    narrow = draw(prefix=f"{prefix}-narrow", width_in=NARROW_IN)
    return f'<div class="wide-only">{draw(prefix=prefix)}</div><div class="narrow">{narrow}</div>'


def add_legend(figure: Figure, *, columns: int, theme: Theme = PAGE, **more: Any) -> None:
    """A legend above the axes, without a frame. A figure for a phone has half the `columns`."""
    columns = max(1, columns // 2) if figure.get_figwidth() <= NARROW_IN else columns
    style = {"frameon": False, "labelcolor": theme.ink, "fontsize": 9, "columnspacing": 1.6, "borderaxespad": 0.2}
    figure.legend(loc="outside upper left", ncols=columns, **{**style, **more})


def percents(*many: Axis) -> None:
    """Label axes of shares in percent."""
    for axis in many:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of the line with that number, from 0."""
    return {
        "color": SERIES[number % len(SERIES)],
        "linestyle": DASHES[number % len(DASHES)],
        "linewidth": 2.0 if number == 0 else 1.6,
    }


def time_axis(axes: Axes, duration_s: float) -> None:
    """Time since the start in the unit that suits the run's length."""
    size, unit = 60.0, "minutes"
    steps: tuple[float, ...] = (1, 2, 5, 10, 15, 30)
    if duration_s > 3 * 3600:
        size, unit, steps = 3600.0, "hours", (1, 2, 3, 6, 12, 24)
    if duration_s > 3 * 86_400:
        size, unit, steps = 86_400.0, "days", (1, 2, 5, 7, 14, 30)
    step = next((value for value in steps if duration_s / size / value <= 12), steps[-1])
    ticks = np.arange(0, duration_s / size + 1e-9, step) * size
    axes.set_xlim(0, duration_s)
    axes.set_xticks(ticks, [f"{value / size:g}" for value in ticks])
    axes.set_xlabel(f"{unit} since the start of the run", color=INK)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _adapted(name: str, value: str, prefix: str) -> str:
    """One attribute, shortened, themed and with ids of its own."""
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href":
        return value.replace("#", f"#{prefix}-", 1)
    if name in _PLAIN_ATTRIBUTES:
        value = _NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
        value = _FONT.sub("var(--font)", value)
        for colour, variable in CSS_NAME.items():
            value = value.replace(colour, f"var({variable})")
    if name == "d":
        value = " ".join(value.split())
    return _REFERENCE.sub(rf"url(#{prefix}-\1)", value)

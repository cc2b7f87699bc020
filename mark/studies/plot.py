"""Curves of a study, as values: drawn by `drawing.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line of a plot. x, y: same length; a NaN in y is a gap."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Curves over one axis. `level` is a horizontal line (the objective), `marks` are vertical ones, with text."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    level: tuple[float, str] | None = None
    marks: tuple[tuple[float, str], ...] = ()
    log_x: bool = False
    log_y: bool = False

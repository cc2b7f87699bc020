"""The picture of a service's placements: shared instances over time, with the models on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mark.report.figures import (
    GRID,
    INK,
    NARROW_IN,
    SERIES,
    SURFACE,
    WIDTH_IN,
    drawing_rules,
    inline_svg,
    new_figure,
    time_axis,
)
from mark.simulator.services.shared_instances import SharedInstance

LANE_IN, GAP_IN = 0.17, 0.26
"""Height of a model's bar with its gap, and of an instance's name above its models."""
MOST_LANES = 80
"""Bars below each other: instances that would make more are left out of the picture, the shortest first."""
HATCHES = ("", "///", "\\\\\\", "...", "xx", "++")
"""Of models after the first of each colour."""


def pictured(instances: Sequence[SharedInstance]) -> tuple[SharedInstance, ...]:
    """The instances that the picture has room for, in their order: those with most hours, one at least."""
    kept, lanes = set[str](), 0
    for one in sorted(instances, key=lambda one: -one.hours):
        lanes += len(_lanes(one))
        if lanes > MOST_LANES and kept:
            break
        kept.add(one.name)
    return tuple(one for one in instances if one.name in kept)


def placement_figure(
    instances: Sequence[SharedInstance], duration_s: float, *, prefix: str, width_in: float = WIDTH_IN
) -> str:
    """A band an instance, from its start to its end, and on it a bar a model, while it is there."""
    shown = pictured(instances)
    styles = _styles(shown)
    lanes = sum(len(_lanes(one)) for one in shown)
    with drawing_rules(prefix):
        figure, (axes,) = new_figure(0.6 + LANE_IN * lanes + GAP_IN * len(shown), width_in=width_in)
        top, ticks, labels = 0.0, [], []
        for one in shown:
            models = _lanes(one)
            bottom = top + GAP_IN + LANE_IN * len(models)
            axes.broken_barh(
                [(one.from_s, one.to_s - one.from_s)], (top + GAP_IN - 0.02, bottom - top - GAP_IN), facecolor=GRID
            )
            axes.annotate(
                f"{one.name} {one.offering}", (max(0.0, one.from_s), top + GAP_IN), (2, 3), va="bottom",
                ha="right" if one.from_s > 0.6 * duration_s else "left",
                textcoords="offset points", color=INK, fontweight="bold",
            )  # fmt: skip
            for number, model in enumerate(models):
                at = top + GAP_IN + LANE_IN * number
                spans = [(stay.from_s, stay.to_s - stay.from_s) for stay in one.stays if stay.model == model]
                axes.broken_barh(spans, (at, LANE_IN - 0.04), **styles[model])
                ticks.append(at + (LANE_IN - 0.04) / 2)
                labels.append(model)
            top = bottom
        axes.set_yticks(ticks, labels)
        axes.set_ylim(top + 0.04, 0.0)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        time_axis(axes, duration_s)
        if width_in <= NARROW_IN:
            axes.set_xticks(axes.get_xticks()[::2])
        return inline_svg(figure, prefix=prefix, description="Shared instances over time, with the models on them")


def _lanes(instance: SharedInstance) -> list[str]:
    """Its models, by when they came first."""
    stays = sorted(instance.stays, key=lambda stay: (stay.from_s, stay.model))
    return list(dict.fromkeys(stay.model for stay in stays))


def _styles(instances: Sequence[SharedInstance]) -> dict[str, dict[str, Any]]:
    """A colour for each model, those with most time on shared instances first; a pattern where colours repeat."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for one in instances:
        for stay in one.stays:
            seconds[stay.model] += stay.to_s - stay.from_s
    models = sorted(seconds, key=lambda model: (-seconds[model], model))
    return {
        model: {
            "facecolor": SERIES[number % len(SERIES)],
            "hatch": HATCHES[number // len(SERIES) % len(HATCHES)],
            "edgecolor": SURFACE,
            "linewidth": 0.0,
        }
        for number, model in enumerate(models)
    }

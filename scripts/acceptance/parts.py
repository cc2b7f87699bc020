"""Parts of the page of figures, in its order, and the tasks that measure them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from mark.studies.setups import SETUPS
from scripts.acceptance import ablation, elsewhere, forecasts, rivals, sensitivity
from scripts.acceptance.days import DAYS_NOTE, JUDGED_NOTE, OTHER_DAYS, RISK_NOTE, judged_day, one_day, taken_back
from scripts.acceptance.figures_page import FigureTable, part_text
from scripts.acceptance.loads import ELSEWHERE, SEEDS


class FigureTask(NamedTuple):
    """Something to measure, for a part of the page. Tasks of one part keep their order."""

    part: str
    label: str
    measure: Callable[[], FigureTable]
    #: True for what measures times: nothing else may run beside it.
    alone: bool = False


def tasks() -> Iterator[FigureTask]:
    """All that is measured, what readers ask for first, and what runs alone last."""
    for types in rivals.TYPE_SETS:
        for judged in rivals.DAYS:
            measure = partial(rivals.of_day, judged, types)
            yield FigureTask("rivals", f"{judged}, types {types}", measure)
    for model in reversed(SETUPS):  # a load's forecasts are made once: no two tasks of one load follow each other
        for name in ELSEWHERE:
            measure = partial(elsewhere.on_load, name, model)
            yield FigureTask("elsewhere", f"{model} on {name}", measure)
    for seed in SEEDS:
        yield FigureTask("judged", f"the judged day, seed {seed}", partial(judged_day, seed))
        yield FigureTask("risk", f"interruptions, seed {seed}", partial(taken_back, seed))
    for day in OTHER_DAYS:
        yield FigureTask("days", f"Twitter day {day}", partial(one_day, day))
    for day, market in ablation.CASES:
        measure = partial(ablation.on_day, day, market)
        yield FigureTask("ablation", f"Twitter day {day}, {market.value}", measure)
    for day, market, case in itertools.product(sensitivity.DAYS, sensitivity.MARKETS, sensitivity.CASES):
        measure = partial(sensitivity.of_case, day, market, case)
        yield FigureTask("sensitivity", f"Twitter day {day}, {market.value}, {case}", measure)
    for window in forecasts.windows():
        yield FigureTask("forecasts", window.label, partial(forecasts.measure, window))
    yield FigureTask("forecasts", "times", forecasts.times, alone=True)


def _same(figures: FigureTable) -> FigureTable:
    return figures


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page: its text, and what only all of its tasks together tell."""

    text: Callable[[FigureTable], str]
    completed: Callable[[FigureTable], FigureTable] = _same


PARTS = {
    "rivals": Part(rivals.summary, rivals.completed),
    "judged": Part(partial(part_text, "The judged day", JUDGED_NOTE)),
    "elsewhere": Part(elsewhere.summary, elsewhere.completed),
    "risk": Part(partial(part_text, "Instances are taken back", RISK_NOTE)),
    "days": Part(partial(part_text, "Other days", DAYS_NOTE)),
    "ablation": Part(ablation.summary, ablation.completed),
    "sensitivity": Part(sensitivity.summary),
    "forecasts": Part(forecasts.summary, forecasts.completed),
}
"""By name, in the order of the page."""

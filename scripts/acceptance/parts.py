"""Parts of the page of figures, in its order, and the tasks that measure them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from mark.domain.offerings.offering import Market
from mark.studies.setups import SETUPS
from scripts.acceptance import ablation, bill, elsewhere, forecasts, rivals, sensitivity
from scripts.acceptance.days import (
    DAYS_NOTE,
    DAYS_TITLE,
    JUDGED_NOTE,
    JUDGED_TITLE,
    OTHER_DAYS,
    RISK_NOTE,
    RISK_TITLE,
    judged_day,
    one_day,
    taken_back,
)
from scripts.acceptance.figures_page import FigureTable, Tables, part_tables
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
    for load, market in itertools.product(bill.LOADS, Market):
        yield FigureTask("bill", f"{load}, {market.value}", partial(bill.of_load, load, market))
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
    """A part of the page, and what only all of its tasks together tell."""

    title: str
    #: How to read its tables.
    note: str
    tables: Callable[[FigureTable], Tables] = part_tables
    completed: Callable[[FigureTable], FigureTable] = _same
    #: Tables that the page itself shows, and so many of their columns.
    shown: Mapping[str, int] = field(default_factory=dict)


PARTS = {
    "bill": Part(bill.TITLE, bill.NOTE, partial(part_tables, own="days", head=bill.HEAD), shown={"days": 12}),
    "rivals": Part(rivals.TITLE, rivals.NOTE, rivals.tables, rivals.completed, {"ratios": 8, "reference": 7}),
    "judged": Part(JUDGED_TITLE, JUDGED_NOTE),
    "elsewhere": Part(elsewhere.TITLE, elsewhere.NOTE, elsewhere.tables, elsewhere.completed, {"means": 4}),
    "risk": Part(RISK_TITLE, RISK_NOTE),
    "days": Part(DAYS_TITLE, DAYS_NOTE),
    "ablation": Part(ablation.TITLE, ablation.NOTE, ablation.tables, ablation.completed),
    "sensitivity": Part(sensitivity.TITLE, sensitivity.NOTE, sensitivity.tables),
    "forecasts": Part(forecasts.TITLE, forecasts.NOTE, forecasts.tables, forecasts.completed),
}
"""By name, in the order of the page."""

"""Acceptance figures as tables: what was measured, and what it had to reach.

Figures are plain values, so that they can be kept as files (`results.py`) and put together later (`page.py`). What
several seeds measured is one row: the mean, and the range where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from mark.report.runs.comparison import ComparedRun, cost_over
from mark.simulator.experiment import Yardsticks
from mark.simulator.results import RunResult

Row = tuple[str, ...]
Tables = dict[str, list[Row]]
"""Tables of a part by name, each with its head first."""
CHECKS = "checks"
"""Name of the table of what had to be reached."""
CHECKS_HEAD: Row = ("figure", "measured", "wanted", "kept")
RUNS_HEAD: Row = (
    *("load", "policy", "serving USD", "total USD", "x reference", "x floor", "attained", "shed"),
    *("p99 ms", "interruptions", "requests"),
)
GAPS_HEAD: Row = ("load", "policy", "plans", "5 %", "median", "95 %", "largest", "plans above 1")
Item = TypeVar("Item")
Key = TypeVar("Key")
UNKNOWN = Yardsticks(None, None)


@dataclass(frozen=True, slots=True)
class Check:
    """A figure and what it has to reach."""

    what: str
    value: str
    wanted: str
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The figures of one run; those over a yardstick None where it says nothing."""

    where: str
    policy: str
    serving_usd: float
    total_usd: float
    over_reference: float | None
    over_floor: float | None
    #: Total over that of the reference with its disks, addresses and least overhead.
    total_over_reference: float | None
    attained: float
    shed: float
    p99_ms: float
    interruptions: int
    requests: int

    @classmethod
    def of(cls, where: str, policy: str, run: RunResult, known: Yardsticks = UNKNOWN) -> Line:
        """The line of a run, and of the yardsticks of its load where they were computed."""
        compared = ComparedRun(result=run, reference_usd=known.reference_usd, floor_usd=known.floor_usd)
        return cls(
            where=where,
            policy=policy,
            serving_usd=run.cost.serving,
            total_usd=run.cost.total,
            over_reference=compared.cost_over_reference,
            over_floor=compared.cost_over_floor,
            total_over_reference=cost_over(run.cost.total, known.reference_total_usd),
            attained=run.attained,
            shed=shed_share(run),
            p99_ms=run.latency.p99_s * 1000,
            interruptions=run.interruptions,
            requests=run.requests,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Rent of greedy's plans over that of the cheapest fleet of one type, a figure a plan."""

    where: str
    policy: str
    gaps: tuple[float, ...]


@dataclass(slots=True)
class FigureTable:
    """Figures found so far."""

    lines: list[Line] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    #: Rows of a part's own table.
    rows: list[Row] = field(default_factory=list)
    #: Input of such a part's summary, by name.
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def missed(self) -> list[Check]:
        """Those that do not reach what they have to."""
        return [check for check in self.checks if not check.kept]

    def extend(self, more: FigureTable) -> None:
        """Take over further figures."""
        self.lines += more.lines
        self.checks += more.checks
        self.gaps += more.gaps
        self.rows += more.rows
        self.numbers |= more.numbers

    def add(self, more: FigureTable) -> None:
        """Take over the figures of a further run, and print them."""
        self.extend(more)
        for row in (*line_rows(more.lines), *gap_rows(more.gaps), *more.rows):
            print("  ".join(cell for cell in row if cell))
        for check in more.checks:
            print(
                f"{'kept' if check.kept else 'MISSED'}  {check.what}: {check.value} ({check.wanted})", flush=True
            )


def line_rows(lines: Sequence[Line]) -> list[Row]:
    """A row for each load and policy, over its seeds."""
    return [
        (
            where,
            policy,
            _spread([line.serving_usd for line in same], "{:.2f}".format),
            _spread([line.total_usd for line in same], "{:.2f}".format),
            _spread([line.over_reference for line in same], "{:.2f}".format),
            _spread([line.over_floor for line in same], "{:.2f}".format),
            _spread([line.attained for line in same], "{:.4f}".format),
            _spread([line.shed for line in same], "{:.3%}".format),
            _spread([line.p99_ms for line in same], "{:,.0f}".format),
            _spread([line.interruptions for line in same], "{:,.0f}".format),
            _spread([line.requests for line in same], "{:,.0f}".format),
        )
        for (where, policy), same in _grouped(lines, lambda line: (line.where, line.policy))
    ]


def gap_rows(gaps: Sequence[Gap]) -> list[Row]:
    """A row for each load and policy, over the plans of all its seeds."""
    rows = []
    for (where, policy), same in _grouped(gaps, lambda gap: (gap.where, gap.policy)):
        values = np.concatenate([gap.gaps for gap in same])
        levels = (f"{level:.3f}" for level in np.quantile(values, (0.05, 0.5, 0.95, 1.0)))
        rows.append((where, policy, f"{values.size:,}", *levels, f"{np.mean(values > 1 + 1e-9):.1%}"))
    return rows


def joined_checks(checks: Sequence[Check]) -> list[Check]:
    """Checks of the same figure with different seeds as one: kept where each is."""
    return [
        Check(
            what,
            " / ".join(dict.fromkeys(check.value for check in same)),
            " / ".join(dict.fromkeys(check.wanted for check in same)),
            all(check.kept for check in same),
        )
        for what, same in _grouped(checks, lambda check: check.what)
    ]


def over_yardsticks(run: RunResult, known: Yardsticks, digits: int = 2) -> tuple[str, str]:
    """Serving cost over the reference and over the floor; empty where that says nothing."""
    compared = ComparedRun(result=run, reference_usd=known.reference_usd, floor_usd=known.floor_usd)
    ratios = (compared.cost_over_reference, compared.cost_over_floor)
    reference, floor = ("" if ratio is None else f"{ratio:.{digits}f}" for ratio in ratios)
    return reference, floor


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean of ratios; NaN without any."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else math.nan


def shed_share(run: RunResult) -> float:
    """Share of the requests that nobody answered."""
    return run.served.shed / max(1, run.requests)


def part_tables(figures: FigureTable, own: str = "", head: Row = ()) -> Tables:
    """Tables of a part: its checks, its own rows under the name `own`, its runs, and greedy beside one type."""
    tables: Tables = {}
    if figures.checks:
        rows = ((c.what, c.value, c.wanted, "yes" if c.kept else "no") for c in joined_checks(figures.checks))
        tables[CHECKS] = [CHECKS_HEAD, *rows]
    if figures.rows:
        tables[own] = [head, *figures.rows]
    if figures.lines:
        tables["runs"] = [RUNS_HEAD, *line_rows(figures.lines)]
    if figures.gaps:
        tables["gaps"] = [GAPS_HEAD, *gap_rows(figures.gaps)]
    return tables


def kept(check: Row) -> bool:
    """True for a row of a table of checks that reaches what it has to."""
    return check[-1] == "yes"


def table(head: Row, rows: Iterable[Row]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _spread(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    """The mean, and the range where it shows; empty where a value is missing."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return ""
    low, high = form(min(known)), form(max(known))
    return low if low == high else f"{form(float(np.mean(known)))} ({low} to {high})"


def _grouped(items: Sequence[Item], key: Callable[[Item], Key]) -> list[tuple[Key, list[Item]]]:
    """Items by key, in the order of the keys' first."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.items())

"""The page of acceptance figures, docs/figures.md: what was measured, and what it had to reach.

The page has parts, each between two markers: a command writes its own parts and leaves the others as they are.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.report.runs.comparison import ComparedRun
from mark.simulator.experiment import Yardsticks
from mark.simulator.results import RunResult

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"
PARTS = ("judged", "elsewhere", "risk", "days", "ablation", "forecasts")
"""All parts of the page, in its order."""
HEAD = """# Figures on real traces

Written by `make acceptance` and `make forecast-figures` (`MARK_DATA` names the folder that holds the traces);
not to be edited. Where nothing else is said: Inception-v3, 98 % of the requests within 600 ms, seed 1. A day is
24 h of the trace, days are counted from 0, all before the replayed part is history. Serving cost is instances,
standbys and Lambda, total adds the overhead ([the words](glossary.md)). The reference serves every
request with perfect knowledge; no run that attains its target serves for less than the floor ("x floor" is empty
for those that do not).
"""
GAP = """Rent of each plan over that of the cheapest fleet of one type that carries the same rate
(`mark.planner.greedy.single_type_gap`).
"""
Row = tuple[str, ...]
UNKNOWN = Yardsticks(None, None)


@dataclass(frozen=True, slots=True)
class Check:
    """A figure and what it has to reach."""

    what: str
    value: str
    wanted: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One run, and the yardsticks of its load where they were computed."""

    where: str
    policy: str
    run: RunResult
    yardsticks: Yardsticks = UNKNOWN

    def cells(self) -> Row:
        """The row of the table."""
        run = self.run
        return (
            self.where,
            self.policy,
            f"{run.cost.serving:.2f}",
            f"{run.cost.total:.2f}",
            *over_yardsticks(run, self.yardsticks),
            f"{run.attained:.4f}",
            f"{shed_share(run):.3%}",
            f"{run.latency.p99_s * 1000:,.0f}",
            f"{run.interruptions:,}",
            f"{run.requests:,}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Rent of greedy's plans over that of the cheapest fleet of one type. gaps: length plans."""

    where: str
    policy: str
    gaps: NDArray[np.float64]

    def cells(self) -> Row:
        """The row of the table."""
        levels = np.quantile(self.gaps, (0.05, 0.5, 0.95, 1.0))
        above = float(np.mean(self.gaps > 1 + 1e-9))
        return (
            self.where,
            self.policy,
            f"{len(self.gaps):,}",
            *(f"{level:.3f}" for level in levels),
            f"{above:.1%}",
        )


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
        for row in (*(line.cells() for line in more.lines), *(gap.cells() for gap in more.gaps), *more.rows):
            print("  ".join(cell for cell in row if cell))
        for check in more.checks:
            print(
                f"{'kept' if check.kept else 'MISSED'}  {check.what}: {check.value} ({check.wanted})", flush=True
            )


def over_yardsticks(run: RunResult, known: Yardsticks, digits: int = 2) -> tuple[str, str]:
    """Serving cost over the reference and over the floor; empty where that says nothing."""
    compared = ComparedRun(result=run, reference_usd=known.reference_usd, floor_usd=known.floor_usd)
    ratios = (compared.cost_over_reference, compared.cost_over_floor)
    reference, floor = ("" if ratio is None else f"{ratio:.{digits}f}" for ratio in ratios)
    return reference, floor


def shed_share(run: RunResult) -> float:
    """Share of the requests that nobody answered."""
    return run.served.shed / max(1, run.requests)


def part_text(title: str, note: str, figures: FigureTable, head: Row = (), *, every_check: bool = True) -> str:
    """A part of the page; `head` is that of its own table. Without `every_check` only what is missed is listed."""
    shown = figures.checks if every_check else figures.missed
    texts = [f"## {title}\n", note, f"Measured at commit `{commit()}`.\n"]
    if figures.checks:
        texts.append(f"{len(figures.checks) - len(figures.missed)} of {len(figures.checks)} kept.\n")
    if shown:
        rows = ((c.what, c.value, c.wanted, "yes" if c.kept else "**no**") for c in shown)
        texts.append(table(("figure", "measured", "wanted", "kept"), rows))
    if figures.rows:
        texts.append(table(head, figures.rows))
    if figures.lines:
        names = (
            "load",
            "policy",
            "serving USD",
            "total USD",
            "x reference",
            "x floor",
            "attained",
            "shed",
            "p99 ms",
        )
        texts.append(
            table((*names, "interruptions", "requests"), (line.cells() for line in figures.lines)),
        )
    if figures.gaps:
        texts += ["### Greedy beside one type\n", GAP]
        names = ("load", "policy", "plans", "5 %", "median", "95 %", "largest", "plans above 1")
        texts.append(table(names, (gap.cells() for gap in figures.gaps)))
    return "\n".join(texts)


def write_parts(parts: dict[str, str], page: Path = PAGE) -> None:
    """Write these parts of the page; the others stay."""
    texts = {**_written(page), **parts}
    marked = (
        f"<!-- {name} -->\n\n{texts[name].strip()}\n\n<!-- end of {name} -->\n" for name in PARTS if name in texts
    )
    page.write_text("\n".join([HEAD, *marked]))


def _written(page: Path) -> dict[str, str]:
    """The parts that the page holds."""
    if not page.exists():
        return {}
    found = re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- end of \1 -->", page.read_text(), flags=re.DOTALL)
    return dict(found)


@cache
def commit() -> str:
    """The commit that is measured, `+` where files have changed since: asked once, before anything is measured."""
    asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(asked, cwd=PAGE.parent, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() or "unknown"


def table(head: Row, rows: Iterable[Row]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

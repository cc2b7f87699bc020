"""The page of acceptance figures, docs/figures.md: what was measured, and what it had to reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.simulator.results import RunResult

PAGE = Path(__file__).parent.parent / "docs" / "figures.md"
HEAD = """# Figures on real traces

Written by `make acceptance` (two cores; `MARK_DATA` names the folder that holds the traces); not to be edited.
Inception-v3, 98 % of the requests within 600 ms, seed 1. A day is 24 h of the trace, all before it is history; the
six hours with faults are the first of Twitter's day 5. Serving cost is instances, standbys and Lambda, total adds
the overhead ([the words](glossary.md)). The bound serves every request with perfect knowledge.

One interruption per instance-day: the spot hazards are multiplied so that their mean is one a day, offerings
weighed by the instance-hours that they run in the same hours without a fault. The pool that is lost in
minute 60 is the one with the most ready instances in that minute of those hours.
"""
GAP = """Rent of each plan over that of the cheapest fleet of one type that carries the same rate
(`mark.planner.greedy.single_type_gap`).
"""


@dataclass(frozen=True, slots=True)
class Check:
    """A figure and what it has to reach."""

    what: str
    value: str
    wanted: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One run; `bound_usd` where it was computed."""

    where: str
    policy: str
    run: RunResult
    bound_usd: float | None = None

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        run = self.run
        return (
            self.where,
            self.policy,
            f"{run.cost.serving:.2f}",
            f"{run.cost.total:.2f}",
            f"{run.cost.serving / self.bound_usd:.2f}" if self.bound_usd else "",
            f"{run.attained:.4f}",
            f"{run.served.shed / max(1, run.requests):.3%}",
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

    def cells(self) -> tuple[str, ...]:
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
class Figures:
    """What was found so far; each line is printed as it is added."""

    lines: list[Line] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def missed(self) -> list[Check]:
        """Those that do not reach what they have to."""
        return [check for check in self.checks if not check.kept]

    def add(self, more: Figures) -> None:
        """Take over the figures of a further run."""
        self.lines += more.lines
        self.checks += more.checks
        self.gaps += more.gaps
        for row in (*(line.cells() for line in more.lines), *(gap.cells() for gap in more.gaps)):
            print("  ".join(cell for cell in row if cell))
        for check in more.checks:
            print(
                f"{'kept' if check.kept else 'MISSED'}  {check.what}: {check.value} ({check.wanted})", flush=True
            )


def write_figures(figures: Figures, page: Path = PAGE) -> None:
    """Write the page."""
    judged = f"{len(figures.checks) - len(figures.missed)} of {len(figures.checks)} kept."
    parts = [
        HEAD,
        "## What has to be reached\n",
        judged + "\n",
        _table(
            ("figure", "measured", "wanted", "kept"),
            ((c.what, c.value, c.wanted, "yes" if c.kept else "**no**") for c in figures.checks),
        ),
        "## Runs\n",
        _table(
            (
                *("load", "policy", "serving USD", "total USD", "x bound", "attained", "shed", "p99 ms"),
                *("interruptions", "requests"),
            ),
            (line.cells() for line in figures.lines),
        ),
        "## Greedy beside one type\n",
        GAP,
        _table(
            ("load", "policy", "plans", "5 %", "median", "95 %", "largest", "plans above 1"),
            (gap.cells() for gap in figures.gaps),
        ),
    ]
    page.write_text("\n".join(parts))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

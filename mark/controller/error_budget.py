"""Use of the error budget, and what plans may miss after it: a control loop around the planner. Pure.

An objective of 98 % has an error budget: 2 % of the requests may miss it. The *burn rate* is the share that missed
over the share that may (1: the budget is just used up). A plan for a model without Lambda in time prices what it
will miss by a forecast (`planner/hedging/miss_penalty.py`), and a forecast may be wrong for hours: then more is
missed than any plan expected, or every plan pays for misses that never come. So the burn is measured, and what
plans may miss is multiplied by

    (AIM / burn) ^ POWER

within bounds: a calm week does not take away all caution, a bad hour does not ask for a fleet without end. It is
a proportional controller. One that also remembers for how long it was wrong (halving and doubling what may be
missed) was tried on the development loads: it goes on paying for a flood that is over. Caution counts at once;
ease counts by how much of the window is known, since a few quiet minutes say little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.demand import UNIT_S
from mark.domain.load.outcomes import Outcomes

WINDOW_S = 21_600.0
"""Of the burn rate, an exponential mean over time: a quarter of the day that a report judges."""
AIM = 0.7
"""Burn rate that plans steer for: the rest is left for what happens before they can answer it."""
POWER = 2.0
"""Above 1, misses beyond the aim are answered before they have used up the window."""
LEAST_FACTOR, MOST_FACTOR = 1 / 16, 16.0
"""Bounds of what plans may miss, as a multiple of what they may when nothing is known."""
FEWEST = 100.0
"""With fewer finished requests in the window nothing is known of the burn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBudget:
    """Requests and misses of the window, decayed, and how much of the window is known: from 0 to 1."""

    finished: float = 0.0
    missed: float = 0.0
    known: float = 0.0

    def after(self, unit: Outcomes) -> ErrorBudget:
        """The budget after another unit of requests; one in which none ended says nothing."""
        if not unit.finished:
            return self
        left = math.exp(-UNIT_S / WINDOW_S)
        return ErrorBudget(
            finished=self.finished * left + unit.finished,
            missed=self.missed * left + unit.missed,
            known=self.known * left + (1.0 - left),
        )

    def miss_factor(self, target: float) -> float:
        """What plans may miss, over what they may when nothing is known. target: the share to be in time."""
        may_miss = AIM * (1.0 - target)
        if self.finished < FEWEST or may_miss <= 0.0:
            return 1.0
        wanted = may_miss / max(self.missed / self.finished, may_miss / MOST_FACTOR)
        factor = math.pow(wanted, POWER if wanted < 1.0 else POWER * self.known)
        return min(MOST_FACTOR, max(LEAST_FACTOR, factor))


UNUSED = ErrorBudget()

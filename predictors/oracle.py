"""Perfect knowledge: what a policy would do if its forecast were right. Replays only."""

from __future__ import annotations

from typing import ClassVar, Literal

from mark.domain.demand import Demand, Forecast, point_forecast
from mark.domain.errors import Misconfigured
from mark.ports import OracleSetup

ALIGNED = 1e-3
"""Units by which a tick may lie off the truth's grid: rounding lies far below, a mix-up of clocks far above."""


class Oracle:
    """Reads the forecast from `setup.truth`, placed in time by its `end_at` and its length.

    Errors: Misconfigured where a tick lies off its grid.
    """

    uses_truth: ClassVar[Literal[True]] = True

    def __init__(self, setup: OracleSetup) -> None:
        """Keep the truth."""
        if not len(setup.truth):
            raise Misconfigured(
                "the replay is too short for oracle: its trace ends within a minute; start earlier"
            )
        self._truth = setup.truth
        self._start_at = setup.truth.end_at - len(setup.truth) * setup.truth.unit_s

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """True rates of the `horizon` units from `history.end_at` on; it needs no history, only its end.

        Before the truth's first unit its first value counts, beyond its last the last one, and `degraded` says so.
        """
        truth = self._truth
        offset = (history.end_at - self._start_at) / truth.unit_s
        first = round(offset)
        if abs(offset - first) > ALIGNED or history.unit_s != truth.unit_s:
            raise Misconfigured(
                f"oracle: {history.end_at} s is no unit boundary of the truth from {self._start_at} s"
            )
        last = len(truth) - 1
        rows = [min(max(first + lead, 0), last) for lead in range(horizon)]
        outside = sum(row != first + lead for lead, row in enumerate(rows))
        return point_forecast(
            history.end_at,
            mean_rps=tuple(truth.mean_rps[row] for row in rows),
            max_rps=tuple(truth.max_rps[row] for row in rows),
            source="oracle",
            degraded=f"{outside} of {horizon} units lie outside of what is known, nearest value"
            if outside
            else None,
        )

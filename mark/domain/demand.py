"""Load: what arrived, and what is expected to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

from mark.domain.errors import Misconfigured
from mark.domain.load.announced_events import Events
from mark.domain.load.outcomes import NO_OUTCOMES, Outcomes
from mark.domain.load.size_window import SizeCounts
from mark.domain.load.traffic import ClientTraffic
from mark.domain.models.variants import ServedAccuracy

UNIT_S = 60.0
"""P_u, the prediction unit (MArk section 4.2)."""
WINDOW_S = 5.0
"""P_s, the sample window whose maximum a unit keeps (MArk section 4.2)."""
HORIZON = 60
"""P_w, how many units a forecast spans (MArk section 4.2)."""
KEEP_HISTORY = 14 * 24 * 60
"""Units of history that a forecaster is shown: two weeks."""
STALE_S = 180.0
"""Demand from outside whose last minute ended so long ago tells nothing about now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandUnit:
    """Arrivals of one unit that has ended."""

    #: Its start, epoch seconds.
    start_at: float
    #: Requests that arrived.
    count: int
    #: The mean rate, requests/s.
    mean_rps: float
    #: The largest rate of its 5 s windows, requests/s.
    max_rps: float
    #: Counts by client, of what was answered or refused until the controller took this unit, since it took the one
    #: before; empty where the service has no clients.
    clients: tuple[ClientTraffic, ...] = ()
    #: What variants answered since the unit before; None where none did.
    accuracy: ServedAccuracy | None = None
    #: Requests by size in items that were counted since the unit before; empty in journals that do not say.
    sizes: SizeCounts = ()
    #: Requests that were finished since the unit before, and their misses; none in journals that do not say.
    outcomes: Outcomes = NO_OUTCOMES
    #: Requests/s that shared instances took besides: they are no load of the model's own fleet.
    shared_rps: float = 0.0


def unit_of_windows(start_at: float, counts: Sequence[float]) -> DemandUnit:
    """The unit that these windows make up. counts: arrivals of each 5 s window of it, oldest first."""
    count = sum(counts)
    return DemandUnit(
        start_at=start_at,
        count=round(count),
        mean_rps=count / UNIT_S,
        max_rps=max(counts, default=0) / WINDOW_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Arrivals seen, oldest first, one value per unit of `unit_s`; `end_at` closes the last unit.

    mean_rps, max_rps: length units, requests/s (max_rps over windows of 5 s). shared_rps: what shared instances
    took besides in the last units; empty where they took nothing.
    """

    end_at: float
    mean_rps: tuple[float, ...]
    max_rps: tuple[float, ...]
    unit_s: float = UNIT_S
    shared_rps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.mean_rps) != len(self.max_rps):
            raise Misconfigured("demand needs one mean and one maximum per unit")

    def __len__(self) -> int:
        return len(self.mean_rps)

    def last(self, units: int) -> Demand:
        """The same demand from `units` before its end on."""
        return Demand(
            end_at=self.end_at,
            mean_rps=self.mean_rps[-units:],
            max_rps=self.max_rps[-units:],
            unit_s=self.unit_s,
            shared_rps=self.shared_rps[-units:],
        )

    def followed_by(self, unit: DemandUnit, keep: int) -> Demand:
        """The same demand with one more unit, the oldest dropped beyond `keep`."""
        return Demand(
            end_at=unit.start_at + self.unit_s,
            mean_rps=(*self.mean_rps, unit.mean_rps)[-keep:],
            max_rps=(*self.max_rps, unit.max_rps)[-keep:],
            unit_s=self.unit_s,
            shared_rps=(*self.shared_rps, unit.shared_rps)[-keep:] if self.shared_rps or unit.shared_rps else (),
        )

    @property
    def whole(self) -> Demand:
        """All that came, with what shared instances took."""
        if not self.shared_rps:
            return self
        shared_rps = (*(0.0,) * (len(self) - len(self.shared_rps)), *self.shared_rps)
        return Demand(
            end_at=self.end_at,
            mean_rps=tuple(map(add, self.mean_rps, shared_rps)),
            max_rps=tuple(map(add, self.max_rps, shared_rps)),
            unit_s=self.unit_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Rates expected in the units from `start_at` on.

    mean_rps, max_rps: shape (horizon, quantiles), requests/s; quantiles: the levels, rising. A point forecast
    has the one level 0.5.
    """

    start_at: float
    mean_rps: tuple[tuple[float, ...], ...]
    max_rps: tuple[tuple[float, ...], ...]
    quantiles: tuple[float, ...] = (0.5,)
    unit_s: float = UNIT_S
    #: The forecaster's name.
    source: str = ""
    #: Why it knew less than it can, or another rule answered in its place; None where nothing was lacking.
    degraded: str | None = None
    #: Announced events that it counts: what a forecaster itself knows nothing of.
    events: Events = ()

    def __post_init__(self) -> None:
        if len(self.mean_rps) != len(self.max_rps):
            raise Misconfigured("a forecast needs means and maxima over the same horizon")

    def __len__(self) -> int:
        return len(self.max_rps)

    @property
    def label(self) -> str:
        """The source for people, with what was lacking."""
        return ": ".join(part for part in (self.source, self.degraded) if part)

    def max_at(self, quantile: float) -> tuple[float, ...]:
        """The maxima at the smallest level >= `quantile` (the largest level where there is none)."""
        column = self._column(quantile)
        return tuple(row[column] for row in self.max_rps)

    def max_in(self, unit: int, quantile: float) -> float:
        """The same of one unit."""
        return self.max_rps[unit][self._column(quantile)]

    def _column(self, quantile: float) -> int:
        reached = (column for column, level in enumerate(self.quantiles) if level >= quantile)
        return next(reached, len(self.quantiles) - 1)


def point_forecast(
    start_at: float,
    *,
    mean_rps: tuple[float, ...],
    max_rps: tuple[float, ...],
    source: str,
    degraded: str | None = None,
) -> Forecast:
    """A forecast without quantiles; negative values are raised to 0. mean_rps, max_rps: length horizon."""
    # in this order NaN stays NaN, for the controller to refuse: max(0.0, NaN) is a silent 0
    return Forecast(
        start_at=start_at,
        mean_rps=tuple((max(float(value), 0.0),) for value in mean_rps),
        max_rps=tuple((max(float(value), 0.0),) for value in max_rps),
        source=source,
        degraded=degraded,
    )

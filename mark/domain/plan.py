"""A plan: how many of which offering, at what cost, and why not the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mark.domain.demand import Demand, Forecast
from mark.domain.objective import Slo
from mark.domain.offering import Offering


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """Parts of what instances of one offering cost and save, on average over the units planned."""

    rent_usd_per_hour: float
    #: Expected cost of interruptions.
    risk_usd_per_hour: float
    #: Cost of their launches, USD.
    launch_usd: float
    #: Cost of serving their load without them.
    saved_usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """Why an offering was not taken."""

    offering: str
    reason: str
    #: Those of the first instance, serving alone; None where the planner does not weigh them. They explain the
    #: decision and are no part of it.
    parts: CostParts | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCount:
    """So many of an offering: `kept` of them exist or are on their way, the others are to be launched.

    `usable_rps` is what one of them is planned to carry, after its utilisation cap.
    """

    offering: str
    count: int
    kept: int
    usable_rps: float
    usd_per_hour: float
    launch_usd: float
    #: Those of all `count`, on top of the rest of the fleet; None where the planner does not weigh them.
    parts: CostParts | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The fleet wanted from `at` on: the forecast's start and one lead tau, or now where no forecast was asked.

    `required_rps` is the rate that the fleet must carry then, `capacity_rps` what it carries; what is short
    of it is `spill_rps`, left to Lambda or to nobody. Standbys: `awake` of them are worth waking before the surge
    that is foreseen, `pool` is how many there should be (None: the policy's own rule), and others are worth waking
    once an excess has lasted for `patience_s`.
    """

    at: float
    counts: tuple[PlannedCount, ...]
    required_rps: float
    capacity_rps: float
    spill_rps: float = 0.0
    excuses: tuple[Excuse, ...] = ()
    reason: str = ""
    awake: int = 0
    pool: int | None = None
    patience_s: float = 0.0

    @property
    def usd_per_hour(self) -> float:
        """Rent of the planned fleet."""
        return sum(item.count * item.usd_per_hour for item in self.counts)

    @property
    def launch_usd(self) -> float:
        """What the launches cost before their first answer."""
        return sum((item.count - item.kept) * item.launch_usd for item in self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """Capacity beside the fleet for requests that no planned instance carries: Lambda, and standbys."""

    #: Lambda's price of a request, USD; infinite where Lambda cannot keep the objective.
    lambda_usd: float = math.inf
    #: Lambda takes late requests even so, and those behind them do not wait.
    relieves: bool = False
    #: Type of the standbys; None without any.
    standby: Offering | None = None
    #: Time from waking a standby until it serves, s.
    wake_s: float = 75.0
    #: Cost of a stopped standby.
    asleep_usd_per_hour: float = 0.0
    #: Standbys that exist.
    standbys: int = 0


NO_BACKUP = Backup()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """All that a planner may look at. `running` counts pending, ready and requested instances per offering.

    `history` and `forecast` are aligned: the forecast starts where the history ends. `ready_history`
    gives the ready serving instances at the end of each of the last units, oldest first: what an autoscaler
    divides its metric by. `recent_rps` are the rates of the last windows of 5 s, at most twelve, oldest first.
    `refused` names offerings of which no more can be launched now: only those that run count. `hazards` are
    interruptions per instance-hour as seen lately, where that is known better than by the catalogue. Each second
    of a launch counts `launch_weight_usd_per_s` in a planner that weighs it (milp).
    """

    now: float
    history: Demand
    forecast: Forecast
    offerings: tuple[Offering, ...]
    running: tuple[tuple[str, int], ...]
    slo: Slo
    lead_units: int = 5
    ready_history: tuple[int, ...] = ()
    recent_rps: tuple[float, ...] = ()
    refused: tuple[str, ...] = ()
    backup: Backup = NO_BACKUP
    hazards: tuple[tuple[str, float], ...] = ()
    launch_weight_usd_per_s: float = 0.0

"""Plans: the number of instances of each offering, their cost, and an excuse for each offering left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mark.domain.demand import Demand, Forecast
from mark.domain.load.size_window import EMPTY_WINDOW, SizeWindow
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.domain.offerings.times import WAKE
from mark.domain.plans.capacity_schedule import NO_BOUNDS, CapacityBounds

RETRY_WAKE_S = 60.0
"""A standby that could not be woken is left alone for so long."""
LEAD_UNITS = 5
"""Units that a plan looks ahead, unless a team says otherwise."""


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
    """The reason for which an offering was not taken."""

    offering: str
    #: For people; it explains the decision and is no part of it.
    reason: str = field(compare=False)
    #: Those of the first instance, serving alone; None where the planner does not weigh them. They explain the
    #: decision and are no part of it.
    parts: CostParts | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCount:
    """A planned number of instances of one offering."""

    offering: str
    #: Instances wanted.
    count: int
    #: Of these, instances that exist or are on their way; the others are to be launched.
    kept: int
    #: What one of them is planned to carry after its utilisation cap, requests/s.
    usable_rps: float
    #: Price of one of them.
    usd_per_hour: float
    #: Price of one launch before its first answer, USD.
    launch_usd: float
    #: Those of all `count`, on top of the rest of the fleet; None where the planner does not weigh them.
    parts: CostParts | None = field(default=None, compare=False)

    @property
    def words(self) -> str:
        """`9 c5.large:spot (4 there already)`."""
        if self.kept == 0:
            return f"{self.count} {self.offering} (new)"
        return f"{self.count} {self.offering} ({'' if self.kept == self.count else f'{self.kept} '}there already)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The fleet that a planner wants, and why."""

    #: From when on it is wanted, epoch seconds: the forecast's start and one lead, or now where none was asked.
    at: float
    #: The fleet, an entry for each offering that is taken.
    counts: tuple[PlannedCount, ...]
    #: The rate that the fleet must carry then, requests/s.
    required_rps: float
    #: The rate that it carries, requests/s.
    capacity_rps: float
    #: The rate that it leaves to Lambda, or to nobody, requests/s.
    shortfall_rps: float = 0.0
    #: Why each other offering was not taken.
    excuses: tuple[Excuse, ...] = ()
    #: The plan in a sentence, for people. It explains the decision and is no part of it.
    reason: str = field(default="", compare=False)
    #: Standbys worth waking before the surge that is foreseen.
    standbys_awake: int = 0
    #: Standbys that there should be; None: the policy's own rule.
    standby_target: int | None = None
    #: Seconds that an excess lasts before more standbys are worth waking.
    wake_delay_s: float = 0.0
    #: The most that the fleet may carry by schedule, standbys and boosts included, requests/s; None for no limit.
    limit_rps: float | None = None

    @property
    def usd_per_hour(self) -> float:
        """Rent of the planned fleet."""
        return sum(item.count * item.usd_per_hour for item in self.counts)

    @property
    def launch_usd(self) -> float:
        """The price of the launches before their first answer, USD."""
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
    wake_s: float = WAKE.median_s
    #: Chance that one cannot be woken now; it is tried again after RETRY_WAKE_S.
    wake_refused: float = 0.0
    #: Cost of a stopped standby.
    asleep_usd_per_hour: float = 0.0
    #: Standbys that exist.
    standbys: int = 0
    #: Requests/s that instances shared with other models take beside what is planned for; None without any.
    shared_rps: float | None = None

    @property
    def until_awake_s(self) -> float:
        """Expected time until a standby serves, refused wakes included, s."""
        return self.wake_s + RETRY_WAKE_S * self.wake_refused / (1.0 - self.wake_refused)


NO_BACKUP = Backup()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedCapacity:
    """Instances that commitments of the account cover, running or not."""

    #: What one costs beyond what is paid anyway, as an offering of its own.
    offering: Offering
    #: The offering that it is one of.
    of: Offering
    #: Instances that are covered.
    count: int
    #: Of them, those that exist or are on their way.
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """All that a planner may look at."""

    #: When it plans, epoch seconds.
    now: float
    #: The load that was, up to the forecast's start.
    history: Demand
    #: The load expected, from the history's end on.
    forecast: Forecast
    #: The candidates.
    offerings: tuple[Offering, ...]
    #: Pending, ready and requested serving instances, by offering.
    running: tuple[tuple[str, int], ...]
    #: The objective of the model.
    slo: Slo
    #: Units (tau) from an order to its instances' first answer.
    lead_units: int = LEAD_UNITS
    #: Offerings in the order in which an autoscaler takes them; empty where it goes by price.
    priority: tuple[str, ...] = ()
    #: Serving instances that are ready and not about to be interrupted, by offering.
    ready: tuple[tuple[str, int], ...] = ()
    #: Ready serving instances at the end of each of the last units, oldest first: what an autoscaler divides its
    #: metric by.
    ready_history: tuple[int, ...] = ()
    #: Requests/s in the last windows of 5 s, at most twelve, oldest first.
    recent_rps: tuple[float, ...] = ()
    #: Offerings of which no more can be launched now: only those that run count.
    refused: tuple[str, ...] = ()
    #: Instances that may be launched together, by offering; any number of one that is not named.
    launches_left: tuple[tuple[str, int], ...] = ()
    #: Capacity beside the planned fleet.
    backup: Backup = NO_BACKUP
    #: Interruptions per instance-hour as seen lately, by offering, where known better than by the catalogue.
    hazards: tuple[tuple[str, float], ...] = ()
    #: What a second of a launch weighs beside its price, USD/s, in a planner that weighs it (milp).
    launch_weight_usd_per_s: float = 0.0
    #: The least and the most that the fleet may carry, by schedule.
    bounds: CapacityBounds = NO_BOUNDS
    #: Sizes of the last requests.
    sizes: SizeWindow = EMPTY_WINDOW
    #: What commitments cover.
    owned: tuple[OwnedCapacity, ...] = ()
    #: What may be planned to miss the objective, as a multiple of a planner's own share (`error_budget.py`).
    miss_factor: float = 1.0
    #: Whether excuses shall have their figures: nobody reads those of a replay without a journal.
    explained: bool = True

    @property
    def unlaunched(self) -> dict[str, int]:
        """Of what counts as running, the owned instances that are not there yet, by their own offering."""
        return {item.offering.name: item.count - item.running for item in self.owned}

    @property
    def rented(self) -> tuple[Offering, ...]:
        """The candidates but for what is owned."""
        names = {item.offering.name for item in self.owned}
        return tuple(item for item in self.offerings if item.name not in names) if names else self.offerings

    @property
    def launchable(self) -> tuple[Offering, ...]:
        """The candidates that more may be launched of: neither owned nor refused."""
        return tuple(item for item in self.rented if item.name not in self.refused)

    def launchable_rps(self, item: Offering) -> float:
        """Capacity of the fleet with all that may be launched of that type, requests/s; 0 where none may be."""
        left = dict(self.launches_left).get(item.name)
        if left is None:
            return math.inf
        running, unlaunched = dict(self.running), self.unlaunched
        there_rps = sum(
            (running.get(other.name, 0) - unlaunched.get(other.name, 0)) * other.capacity_rps
            for other in self.offerings
        )
        return there_rps + left * item.capacity_rps if left else 0.0

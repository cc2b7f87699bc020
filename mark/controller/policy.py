"""The controller's policy, as frozen values: the journal opens with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mark.controller.limits.launch_breaker import LaunchBreakerPolicy
from mark.controller.limits.spot_breaker import BreakerPolicy
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import HORIZON
from mark.domain.load.announced_events import Events
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import LambdaOffering, Offering
from mark.domain.offerings.quota import Quotas
from mark.domain.offerings.times import WAKE
from mark.domain.plan import LEAD_UNITS
from mark.domain.plans.capacity_schedule import CapacityWindow
from mark.domain.plans.pool_policy import PoolPolicy

OWN = "own"
"""The planner of a user's own policy, which is asked by its name."""
SETTLING_COOLDOWN_S = 900.0
"""Where no load is known a plan follows what has come in minutes: an instance is kept until a lull is none."""
HOUR_S = 3600.0
COVER_SHARE = 0.5
"""Share of the planned capacity that standbys bridge on spot, unless a team says otherwise."""
KEEP_UNITS = 60
"""Units of history that a planner may look at, and that a journal opens with, where a policy asks for no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyPolicy:
    """Stopped instances that bridge spot interruptions (MArk section 4.5) and, with `surges`, surges too."""

    #: What a standby is.
    offering: Offering
    #: Share of the planned capacity that the standbys carry, where the plan has no target of its own.
    cover_share: float = COVER_SHARE
    #: Standbys at most.
    max_count: int = 200
    #: Seconds from waking one until it serves.
    wake_s: float = WAKE.median_s
    #: Chance that one cannot be woken now.
    wake_refused: float = 0.0
    #: Price of one that is asleep.
    asleep_usd_per_hour: float = 0.0
    #: Whether they bridge surges as well, to the plan's target.
    surges: bool = False
    #: Seconds between two polls of the load, for surges.
    watch_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorPolicy:
    """The SLO monitor (MArk section 4.4): a window that missed the objective launches instances at once."""

    #: What is launched (T), by its offering's name.
    offering: str
    #: A window is full after so many requests (M), ...
    requests: int = 1000
    #: ... or after so many seconds, whichever comes first.
    seconds: float = 60.0
    #: Instances that are launched (L).
    count: int = 1
    #: Seconds after a launch in which no other follows.
    cooldown_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPolicy:
    """One policy's control plane."""

    #: The policy's name.
    name: str
    #: The planner's name.
    planner: str
    #: The objective of the model.
    slo: Slo
    #: What a plan may consist of.
    offerings: tuple[Offering, ...]
    #: On-demand twins, used while a spot offering is refused.
    fallbacks: tuple[Offering, ...] = ()
    #: Lambda; None where it is not used.
    overflow: LambdaOffering | None = None
    #: Standbys; None where there are none.
    standby: StandbyPolicy | None = None
    #: The SLO monitor; None where there is none.
    monitor: MonitorPolicy | None = None
    #: The circuit breaker of spot pools; None where there is none.
    breaker: BreakerPolicy | None = None
    #: The breaker of offerings whose instances never become ready; None where there is none.
    launch_breaker: LaunchBreakerPolicy | None = None
    #: Instances of the planner `static`.
    static_count: int = 0
    #: Share of an instance's capacity that an autoscaler keeps busy; None for what the real thing documents.
    utilisation: float | None = None
    #: Weight of the newest day in an autoscaler's average by hour of day; None for the planner's own.
    alpha: float | None = None
    #: Spot instances that an autoscaler keeps beyond its target; None for the planner's own.
    spare: int | None = None
    #: Whether an autoscaler takes `offerings` in their order: one only where none before it can be launched.
    by_priority: bool = False
    #: Seconds between two plans.
    period_s: float = 60.0
    #: Units from an order to its instances' first answer.
    lead_units: int = LEAD_UNITS
    #: Units that are forecast; an autoscaler looks at none of them.
    horizon: int = HORIZON
    #: Seconds that a smaller plan must last before anything is drained.
    cooldown_s: float = 360.0
    #: Whether what the last unit's load needed is kept.
    keep_observed: bool = True
    #: Whether instances are kept that stand in for planned ones which are not ready yet.
    keep_planned: bool = False
    #: Whether Lambda environments are kept warm.
    warm_lambda: bool = True
    #: Share of the ready capacity for which they are at least.
    warm_share: float = 0.0
    #: Lambda environments that are kept provisioned in each hour of the day; empty for none.
    provisioned_by_hour: tuple[int, ...] = ()
    #: Seconds between two pings by the clock that keep one Lambda environment warm; 0: none.
    ping_every_s: float = 0.0
    #: Seconds after which a launch that stays unseen is forgotten.
    request_timeout_s: float = 900.0
    #: Seconds that a refused offering is left out. Half a period less than ten minutes: the plan of the tenth
    #: minute asks again, though the refusal was heard of up to half a period late.
    unavailable_s: float = 570.0
    #: Twice as long for each refusal in a row, so many seconds at most. 0: always `unavailable_s`, as journals do
    #: that do not say.
    unavailable_longest_s: float = 0.0
    #: Seconds after the first tick in which the load is not yet known: a smaller plan must then last for
    #: SETTLING_COOLDOWN_S at least.
    settle_s: float = 0.0
    #: Zones that launches may go to: a refusal in one of them leaves the others. Empty where none are told apart.
    zones: tuple[str, ...] = ()
    #: What a request costs that an instance in another zone answers than it came in, USD; 0 where nobody tells.
    crossing_usd: float = 0.0
    #: A launch of what is left out in a zone also names offerings that do as well for at most so many times the
    #: price. 0: none, as journals do that do not say.
    equivalent_price_factor: float = 0.0
    #: Instances at most, standbys included.
    max_instances: int = 5000
    #: Units of load that are shown to the planner.
    history_units: int = KEEP_UNITS
    #: What a second of a launch weighs beside its price, USD/s (milp).
    launch_weight_usd_per_s: float = 0.0
    #: The account's quotas: offerings of which no more may run are planned as if they had been refused.
    quotas: Quotas = ()
    #: Savings Plans and reservations of the account, as far as they are left for this model.
    commitments: Commitments = NO_COMMITMENTS
    #: Bounds of planned capacity by the clock; empty for none.
    capacity: tuple[CapacityWindow, ...] = ()
    #: Where its clock is 0, epoch seconds: a replay's begins with the trace, and `capacity` goes by dates.
    clock_at: float = 0.0
    #: Events that the settings announce, by when they begin.
    events: Events = ()
    #: The budget of a pool of unlike instances; None where what is rented follows the load.
    pool: PoolPolicy | None = None

    def cooldown_at(self, age_s: float) -> float:
        """Seconds that a smaller plan must last before anything is drained, so long after the first tick."""
        return max(self.cooldown_s, SETTLING_COOLDOWN_S) if age_s < self.settle_s else self.cooldown_s

    def at_spot_prices(self, usd_per_hour: Mapping[str, float]) -> ControllerPolicy:
        """The policy whose spot offerings cost what they do now, by name; the others what they did."""
        return replace(self, offerings=self.offerings_at(usd_per_hour)) if usd_per_hour else self

    def offerings_at(self, usd_per_hour: Mapping[str, float]) -> tuple[Offering, ...]:
        """Its offerings at spot prices by name; the others cost what they did."""
        if not usd_per_hour:
            return self.offerings
        return tuple(item.at_price(usd_per_hour.get(item.name, item.usd_per_hour)) for item in self.offerings)

    def provisioned_at(self, now: float) -> int:
        """Lambda environments that are provisioned then."""
        hours = self.provisioned_by_hour
        return hours[int(now // HOUR_S) % len(hours)] if hours else 0

    def offering(self, name: str) -> Offering | None:
        """The offering of that name, standbys and fallbacks included."""
        return next((offering for offering in self.known_offerings if offering.name == name), None)

    @property
    def lambda_usd(self) -> float:
        """Lambda's price of a request, USD; infinite where none keeps the objective."""
        if self.overflow is None or self.overflow.latency_s > self.slo.latency_s:
            return math.inf
        return self.overflow.usd_per_warm_request

    @property
    def known_offerings(self) -> tuple[Offering, ...]:
        """All offerings, standbys and fallbacks included."""
        return (*self.offerings, *self.fallbacks, *((self.standby.offering,) if self.standby else ()))

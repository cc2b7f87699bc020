"""What the controller may do, as frozen values: the journal opens with them."""

from __future__ import annotations

from dataclasses import dataclass

from mark.controller.breaker import BreakerPolicy
from mark.controller.quotas import Quotas
from mark.domain.demand import HORIZON
from mark.domain.objective import Slo
from mark.domain.offering import LambdaOffering, Offering

SETTLING_COOLDOWN_S = 900.0
"""Where no load is known a plan follows what has come in minutes: an instance is kept until a lull is none."""
KEEP_UNITS = 60
"""Units of history that a planner may look at, and that a journal opens with, where a policy asks for no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyPolicy:
    """Stopped instances that bridge spot interruptions (MArk section 4.5) and, with `surges`, surges too.

    The pool is sized to carry `cover_share` of the planned capacity, or as the plan says; `max_count` at most. One
    asleep costs `asleep_usd_per_hour`; one that is woken serves after `wake_s`. For surges the load is looked at
    every `watch_s`.
    """

    offering: Offering
    cover_share: float = 0.5
    max_count: int = 200
    wake_s: float = 75.0
    asleep_usd_per_hour: float = 0.0
    surges: bool = False
    watch_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorPolicy:
    """The SLO monitor (MArk section 4.4): after a window that missed, launch `count` (L) of `offering` (T).

    A window is `requests` requests or `seconds`, whichever fills first; then it is quiet for `cooldown_s`.
    """

    offering: str
    requests: int = 1000
    seconds: float = 60.0
    count: int = 1
    cooldown_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPolicy:
    """One policy's control plane.

    `horizon` is how many units are forecast (an autoscaler looks at none of them). `fallbacks` are on-demand
    twins, used while a spot offering is refused. `cooldown_s` is how long a smaller plan must last before anything
    is drained; `keep_observed` also keeps what the last unit's load needed, `keep_planned` what stands
    in for planned instances that are not ready yet. Lambda environments for `warm_share`
    of the ready capacity are kept warm. A launch that stays unseen for `request_timeout_s` is forgotten; a refused
    offering is left out for `unavailable_s`. For `settle_s` after its first tick, while the load is not yet
    known, a smaller plan must last for SETTLING_COOLDOWN_S at least. `history_units` of load are shown to the
    planner.
    `launch_weight_usd_per_s` is what a second of a launch weighs beside its price (milp).
    `quotas` are the account's: offerings of which no more may run are planned as if they had been refused.
    """

    name: str
    planner: str
    slo: Slo
    offerings: tuple[Offering, ...]
    fallbacks: tuple[Offering, ...] = ()
    overflow: LambdaOffering | None = None
    standby: StandbyPolicy | None = None
    monitor: MonitorPolicy | None = None
    breaker: BreakerPolicy | None = None
    static_count: int = 0
    period_s: float = 60.0
    lead_units: int = 5
    horizon: int = HORIZON
    cooldown_s: float = 360.0
    keep_observed: bool = True
    keep_planned: bool = False
    warm_lambda: bool = True
    warm_share: float = 0.0
    request_timeout_s: float = 900.0
    unavailable_s: float = 600.0
    settle_s: float = 0.0
    max_instances: int = 5000
    history_units: int = KEEP_UNITS
    launch_weight_usd_per_s: float = 0.0
    quotas: Quotas = ()

    def cooldown_at(self, age_s: float) -> float:
        """Seconds that a smaller plan must last before anything is drained, so long after the first tick."""
        return max(self.cooldown_s, SETTLING_COOLDOWN_S) if age_s < self.settle_s else self.cooldown_s

    def offering(self, name: str) -> Offering | None:
        """The offering of that name, standbys and fallbacks included."""
        return next((offering for offering in self.known_offerings if offering.name == name), None)

    @property
    def known_offerings(self) -> tuple[Offering, ...]:
        """All offerings, standbys and fallbacks included."""
        return (*self.offerings, *self.fallbacks, *((self.standby.offering,) if self.standby else ()))

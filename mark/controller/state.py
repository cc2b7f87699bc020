"""State between two ticks of the controller, the observation of one, and its decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mark.controller.error_budget import UNUSED, ErrorBudget
from mark.controller.limits.launch_breaker import LaunchRecord
from mark.controller.limits.spot_breaker import SpotPool
from mark.domain.billing.spending import SpendingLimit
from mark.domain.commitments.owned import Commitments
from mark.domain.demand import DemandUnit, Forecast
from mark.domain.fleet.instances import FleetView, Instance, InstanceState, Role
from mark.domain.fleet.orders import Fact, Order
from mark.domain.front import Front
from mark.domain.load.size_window import EMPTY_WINDOW, SizeWindow
from mark.domain.models.objective import SloWindow
from mark.domain.offerings.quota import Quotas
from mark.domain.plan import Plan

Counts = tuple[tuple[str, int], ...]
"""Instances per offering, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A launch that was ordered and has not been answered in full."""

    #: The order's token; its instances bear it.
    token: str
    offering: str
    role: Role
    #: Instances ordered.
    total: int
    #: When it was ordered, epoch seconds.
    at: float
    #: Zone in whose reserved capacity it was to go; empty for any other.
    reserved_in: str = ""
    #: Instances that have appeared.
    seen: int = 0
    #: Instances that never will.
    refused: int = 0
    #: Instances that were asked to be withdrawn, and of them those that have been.
    withdrawing: int = 0
    withdrawn: int = 0
    #: Of those that have appeared, the ones of other offerings than the ordered one.
    others: Counts = ()

    @property
    def count(self) -> int:
        """Instances still waited for."""
        return self.total - self.seen - self.refused - self.withdrawn

    @property
    def withdrawable(self) -> int:
        """Instances that may be withdrawn: of a launch of which nothing has been heard."""
        return 0 if self.seen or self.refused else self.total - self.withdrawing


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalStreak:
    """Refused launches of an offering in a row, everywhere or in a zone (`refusals.py`)."""

    offering: str
    count: int
    #: Empty for everywhere.
    zone: str = ""
    #: When the last one was heard of, epoch seconds.
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBackoff:
    """An offering in a zone where AWS refused it: left out of launches for a while."""

    offering: str
    zone: str
    #: Until when, epoch seconds.
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SloBoost:
    """Instances that the SLO monitor launched beyond the plan."""

    offering: str
    count: int
    #: When they may be drained, epoch seconds.
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The fleet that a plan wanted: the cool-down looks back over these (hysteresis of scaling down)."""

    #: When it was planned, epoch seconds.
    at: float
    counts: Counts
    #: What it carries, requests/s.
    capacity_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The controller's memory between two ticks. Nothing in it is derived from a clock or a generator."""

    #: Ticks so far; tokens of orders are made from it.
    tick: int = 0
    #: When the first tick was, epoch seconds.
    first_at: float = float("-inf")
    #: The plan that is followed; None before the first.
    plan: Plan | None = None
    #: What the plans of the last cool-down wanted, oldest first; the last one is the plan's.
    desired: tuple[Desired, ...] = ()
    #: Launches whose instances have not all been seen or refused.
    requested: tuple[Requested, ...] = ()
    #: Until when (epoch seconds) an offering that AWS refused is not asked for, by name; it is planned without.
    capacity_backoff: tuple[tuple[str, float], ...] = ()
    #: Where an offering was refused in one zone and may be had in others, by offering and zone.
    pool_backoff: tuple[PoolBackoff, ...] = ()
    #: Refusals in a row of offerings, by name and zone, where the policy's back-off grows by them.
    refusal_streaks: tuple[RefusalStreak, ...] = ()
    #: Until when (epoch seconds) an offering that a guardrail cut is not asked for, by name. It stays in the plan:
    #: the limit is the service's, and another offering would meet it as well.
    guardrail_holds: tuple[tuple[str, float], ...] = ()
    #: Until when reserved capacity that refused a launch is taken for gone, by offering and zone.
    reserved_backoff: tuple[PoolBackoff, ...] = ()
    #: Instances beyond the plan that the SLO monitor launched and that are not drained yet.
    slo_boosts: tuple[SloBoost, ...] = ()
    #: When the last window that the SLO monitor judged was closed, epoch seconds.
    window_at: float = float("-inf")
    #: Until when the SLO monitor launches nothing after a launch (its cool-down), epoch seconds.
    monitor_quiet_until: float = float("-inf")
    #: Whether standbys stand in for capacity that is lacking.
    bridging: bool = False
    #: Ids of the standbys that were woken and not sent back to sleep.
    active_standbys: tuple[str, ...] = ()
    #: Until when (epoch seconds) a standby that could not be woken is left alone, by id.
    refused_wakes: tuple[tuple[str, float], ...] = ()
    #: When standbys were last woken, epoch seconds.
    last_wake_at: float = float("-inf")
    #: Ready serving instances at the end of each of the last units, oldest first; READY_UNITS at most.
    ready_history: tuple[int, ...] = ()
    #: The load of the last unit that ended.
    last_unit: DemandUnit | None = None
    #: Service time as a multiple of the profile's, by offering (`service_time_ratios.py`).
    service_time_ratios: tuple[tuple[str, float], ...] = ()
    #: The account's quotas as they were last read; None where they are the policy's still.
    quotas: Quotas | None = None
    #: The account's commitments as they were last read; None where they are the policy's still.
    commitments: Commitments | None = None
    #: Spot pools with notices, or whose circuit breaker has not closed again, by offering.
    spot_pools: tuple[SpotPool, ...] = ()
    #: What became of the last launches of offerings some of which never became ready, by offering.
    launch_records: tuple[LaunchRecord, ...] = ()
    #: Sizes of the last requests, where a pool is chosen by them.
    sizes: SizeWindow = EMPTY_WINDOW
    #: What of the objective's error budget was used lately.
    error_budget: ErrorBudget = UNUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that one tick saw."""

    #: When, epoch seconds of the service's clock.
    now: float
    #: All instances that are not gone.
    fleet: FleetView
    #: The load of the unit that has just ended; None between units.
    demand: DemandUnit | None = None
    #: What the plan was made from; None at a tick between two plans.
    forecast: Forecast | None = None
    #: The new plan; None at a tick between two plans, or where none meets the objective.
    plan: Plan | None = None
    #: What happened since the tick before.
    facts: tuple[Fact, ...] = ()
    #: The SLO monitor's window that closed since the tick before.
    slo: SloWindow | None = None
    #: Lambda environments believed to be warm.
    lambda_warm: int = 0
    #: Requests/s in the last windows of 5 s, at most twelve, oldest first; empty where nothing looks at them.
    recent_rps: tuple[float, ...] = ()
    #: Measured service time as a multiple of the profile's, by offering; None at a tick between two plans.
    service_time_ratios: tuple[tuple[str, float], ...] | None = None
    #: The account's quotas, where they have changed since they were last read.
    quotas: Quotas | None = None
    #: What is left for this model of the account's commitments, where that has changed.
    commitments: Commitments | None = None
    #: What may be rented while a budget is reached or the service is paused.
    spending_limit: SpendingLimit = SpendingLimit.NONE
    #: Requests/s that instances shared with other models took lately, of which the load above says nothing; None
    #: where no such instance holds the model.
    shared_rps: float | None = None
    #: Where requests come in; None where zones are not told apart.
    front: Front | None = None
    #: An instance shared with other models boots that is to hold the model.
    shared_boots: bool = False


class NoteKind(StrEnum):
    """The subject of a note."""

    #: There is no plan to follow yet.
    NO_PLAN = "no-plan"
    #: An offering that was refused is not launched until its back-off has expired.
    CAPACITY_BACKOFF = "capacity-backoff"
    #: An offering that a guardrail cut is not launched until a period later.
    GUARDRAIL_HOLD = "guardrail-hold"
    #: The circuit breaker of a spot pool is open.
    VOLATILE_POOL = "volatile-pool"
    #: An offering's instances never become ready: its launch breaker is open.
    LAUNCH_BREAKER = "launch-breaker"
    #: The policy's limit of instances cut what was wanted.
    INSTANCE_LIMIT = "instance-limit"
    #: A quota of the account cut what was wanted.
    QUOTA = "quota"
    #: The pool's budget leaves no room yet for what was wanted.
    POOL_BUDGET = "pool-budget"
    #: A limit of the service has just kept something from being rented or woken.
    GUARDRAIL = "guardrail"
    #: More than planned stays, for the load needs it.
    KEPT = "kept"
    #: Batches take much longer, or shorter, than the offering's profile says.
    SERVICE_TIME = "service-time"
    #: A training of the forecaster began, or ended.
    TRAINING = "training"
    #: A rollout of a new version of the model went on, or ended.
    ROLLOUT = "rollout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A remark on a tick. Only people read `text`; whatever decides or counts reads `kind`."""

    kind: NoteKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The state after the tick, the orders with their reasons, and remarks on what was left alone."""

    state: State
    orders: tuple[Order, ...] = ()
    notes: tuple[Note, ...] = ()


def woken_standbys(state: State, standbys: Iterable[Instance], now: float, period_s: float) -> list[Instance]:
    """Standbys that are awake: not one that was refused, nor one that still sleeps a period after its wake.

    The call of the latter was lost.
    """
    lost = now >= state.last_wake_at + period_s
    refused = dict(state.refused_wakes)
    return [
        i
        for i in standbys
        if i.id in state.active_standbys
        and (i.state is not InstanceState.STOPPED or not (lost or i.id in refused))
    ]


def wakeable_standbys(state: State, standbys: Iterable[Instance], awake: Iterable[Instance]) -> list[Instance]:
    """Standbys that may be woken: asleep, not on their way, not just refused; those with most credits first.

    Those of a pool that was refused lately come last: a stopped instance can start in its own zone only.
    """
    there = {i.id for i in awake}.union(name for name, _ in state.refused_wakes)
    asleep = [i for i in standbys if i.state is InstanceState.STOPPED and i.id not in there]
    scarce = {(pool.offering, pool.zone) for pool in state.pool_backoff}
    return sorted(asleep, key=lambda i: ((i.offering, i.zone) in scarce, -(i.credits or 0.0), i.id))


class Tokens:
    """Idempotency tokens of one tick: the same tick of the same history gives the same tokens."""

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._next = 0

    def next(self) -> str:
        """The next token."""
        self._next += 1
        return f"t{self._tick}-{self._next}"

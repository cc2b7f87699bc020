"""What the controller remembers between two ticks, what it sees at one, and what it decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mark.controller.breaker import Pool
from mark.controller.spending_limit import SpendingLimit
from mark.domain.demand import DemandUnit, Forecast
from mark.domain.fleet import FleetView, Instance, InstanceState, Role
from mark.domain.orders import Fact, Order, SloWindow
from mark.domain.plan import Plan

Counts = tuple[tuple[str, int], ...]
"""Instances per offering, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A launch of `total` instances, ordered at `at`; `seen` of them have appeared and `refused` never will."""

    token: str
    offering: str
    role: Role
    total: int
    at: float
    seen: int = 0
    refused: int = 0

    @property
    def count(self) -> int:
        """Instances still waited for."""
        return self.total - self.seen - self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Instances that the SLO monitor launched; they are not drained before `until`."""

    offering: str
    count: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a plan wanted at `at`: the cool-down looks back over these."""

    at: float
    counts: Counts
    capacity_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The controller's memory. Nothing here is derived from a clock or a generator.

    first_at: when the first tick was. unavailable, held: until when an offering is not asked for. What was refused
    is also planned without; what a guardrail held back is not: the limit is the service's, and another offering
    would meet it as well.
    """

    tick: int = 0
    first_at: float = float("-inf")
    plan: Plan | None = None
    wanted: tuple[Wanted, ...] = ()
    requested: tuple[Requested, ...] = ()
    unavailable: tuple[tuple[str, float], ...] = ()
    held: tuple[tuple[str, float], ...] = ()
    extras: tuple[Extra, ...] = ()
    window_at: float = float("-inf")
    quiet_until: float = float("-inf")
    bridging: bool = False
    awake: tuple[str, ...] = ()
    woke_at: float = float("-inf")
    ready_history: tuple[int, ...] = ()
    last_unit: DemandUnit | None = None
    paces: tuple[tuple[str, float], ...] = ()
    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that one tick saw. `forecast` and `plan` are None at a tick between two plans.

    recent_rps: the last twelve 5 s windows, oldest first, where the planner looks at them; paces: measured service
    times, told with each plan (`service_time_ratios.py`); restraint: what a budget or a pause holds back.
    """

    now: float
    fleet: FleetView
    demand: DemandUnit | None = None
    forecast: Forecast | None = None
    plan: Plan | None = None
    facts: tuple[Fact, ...] = ()
    slo: SloWindow | None = None
    lambda_warm: int = 0
    recent_rps: tuple[float, ...] = ()
    paces: tuple[tuple[str, float], ...] | None = None
    restraint: SpendingLimit = SpendingLimit.NONE


class NoteKind(StrEnum):
    """What a note is about."""

    #: There is no plan to follow yet.
    NO_PLAN = "no-plan"
    #: An offering that was refused is not asked for until that has expired.
    LEFT_OUT = "left-out"
    #: An offering that a guardrail cut off is not asked for until a period later.
    HELD_BACK = "held-back"
    #: A spot pool that was taken away in bulk is left alone.
    VOLATILE_POOL = "volatile-pool"
    #: The policy's limit of instances cut what was wanted.
    INSTANCE_LIMIT = "instance-limit"
    #: A quota of the account cut what was wanted.
    QUOTA = "quota"
    #: A limit of the service has just kept something from being rented or woken.
    GUARDRAIL = "guardrail"
    #: More than planned stays, for the load needs it.
    KEPT = "kept"
    #: Batches take much longer, or shorter, than the offering's profile says.
    SERVICE_TIME = "service-time"
    #: A training of the forecaster began, or ended.
    TRAINING = "training"
    #: A sentence of an older journal that none of these stands for.
    OTHER = "other"


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


def awake_of(state: State, pool: Iterable[Instance], now: float, period_s: float) -> list[Instance]:
    """The standbys that were woken; one that still sleeps a period later was not: that call was lost."""
    lost = InstanceState.STOPPED if now >= state.woke_at + period_s else None
    return [i for i in pool if i.id in state.awake and i.state is not lost]


class Tokens:
    """Idempotency tokens of one tick: the same tick of the same history gives the same tokens."""

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._next = 0

    def take(self) -> str:
        """The next token."""
        self._next += 1
        return f"t{self._tick}-{self._next}"

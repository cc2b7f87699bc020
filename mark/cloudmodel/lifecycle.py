"""The life cycle of an instance: one state machine for simulator, emulator and observe mode. Pure.

Theory of operation. A `Life` is where one instance stands. `step` takes it to its next phase by one table,
`NEXT`; an event that has no row there changes nothing, so that an order that comes twice or too late is harmless.
What follows from a phase stands in `TRAITS`: what EC2 calls it, what a controller sees, and what is billed.

    launch:  pending -> booting -> ready -> draining -> ending -> gone
    standby: ready -> draining -> stopping -> stopped -> starting -> waking -> ready
    spot:    any phase, with a notice; ending when the notice has run out

Time. A life knows when it runs (`runs_at`), is ready (`ready_at`) and is taken away (`terminates_at`).
`next_due` says which of them comes first, and `step` takes none of them early: a timer that was set for an
earlier boot or wake finds nothing to do. A world with events steps when they are due; one that is only looked
at is `caught_up`. How long boots and wakes take is drawn here too (`draw_launch`, `draw_wake`), because the
order of the draws is part of the model: worlds that are given the same streams live the same lives.

The bill. EC2 bills per second in state running, 60 s at least per start (`mark.catalog.billing`): booting, ready,
draining and waking are billed, pending and all that follows a stop are not. A start begins to run at once, so a
wake is billed from its first second. A stopped instance pays for its disk. Stretches of one life never overlap:
one begins when a billed phase is entered from one that is not, and ends with the first that is not.

The notice. It changes no phase: an instance that was warned boots, serves and drains as before. It ends at
`terminates_at` whatever happens meanwhile; only what has ended before is not ended again. There is one notice a
life.

CPU credits. A burstable instance starts with what it kept while it was stopped (T3 keeps, T2 does not) and with
its launch credits (T2), of which an account gets so many starts a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from mark.domain.billing.costs import Ec2State
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.offerings.offering import CREDITED_STARTS_A_DAY, BurstCredits, InstanceType
from mark.domain.offerings.times import CloudTimes, RebalanceAdvice

DAY_S = 86400.0
T = TypeVar("T")


class Phase(StrEnum):
    """Phase of an instance's life."""

    #: Asked for; EC2 looks for a place.
    PENDING = "pending"
    #: Runs for the first time, and answers nothing yet.
    BOOTING = "booting"
    READY = "ready"
    #: Takes nothing new and answers what it holds.
    DRAINING = "draining"
    #: On its way to stopped: its process ends.
    STOPPING = "stopping"
    STOPPED = "stopped"
    #: Asked to start again after a stop; takes no time.
    STARTING = "starting"
    #: Runs again after a stop, and answers nothing yet.
    WAKING = "waking"
    #: On its way to gone: its process ends.
    ENDING = "ending"
    GONE = "gone"


class Event(StrEnum):
    """Cause of a change of phase."""

    #: EC2 has a place: it runs.
    RUN = "run"
    #: Its boot or its wake is over.
    SERVE = "serve"
    #: No new requests, then what its role says (`when_drained`); ends at once what serves nobody.
    DRAIN = "drain"
    #: A standby's drain: stops at once what serves nobody.
    DRAIN_TO_STOP = "drain-to-stop"
    STOP = "stop"
    WAKE = "wake"
    TERMINATE = "terminate"
    #: Its process has ended.
    PROCESS_ENDED = "process-ended"


class PhaseTraits(NamedTuple):
    """State, bill and sleep that follow from a phase."""

    ec2: Ec2State
    seen: InstanceState
    #: Whether its rent is billed.
    billed: bool = False
    #: Whether it sleeps: its disk is all that it costs.
    asleep: bool = False


TRAITS: Mapping[Phase, PhaseTraits] = {
    Phase.PENDING: PhaseTraits("pending", InstanceState.PENDING),
    Phase.BOOTING: PhaseTraits("running", InstanceState.PENDING, billed=True),
    Phase.READY: PhaseTraits("running", InstanceState.READY, billed=True),
    Phase.DRAINING: PhaseTraits("running", InstanceState.DRAINING, billed=True),
    Phase.STOPPING: PhaseTraits("stopping", InstanceState.DRAINING),
    Phase.STOPPED: PhaseTraits("stopped", InstanceState.STOPPED, asleep=True),
    Phase.STARTING: PhaseTraits("pending", InstanceState.PENDING),
    Phase.WAKING: PhaseTraits("running", InstanceState.PENDING, billed=True),
    Phase.ENDING: PhaseTraits("shutting-down", InstanceState.GONE),
    Phase.GONE: PhaseTraits("terminated", InstanceState.GONE),
}

_UNREADY = (Phase.PENDING, Phase.BOOTING, Phase.STARTING, Phase.WAKING)
_UP = (*_UNREADY, Phase.READY, Phase.DRAINING)
_ROWS = (
    # what happens, in which phases, and where it leads
    (Event.RUN, (Phase.PENDING,), Phase.BOOTING),
    (Event.RUN, (Phase.STARTING,), Phase.WAKING),
    (Event.SERVE, (Phase.BOOTING, Phase.WAKING), Phase.READY),
    (Event.DRAIN, (Phase.READY,), Phase.DRAINING),
    (Event.DRAIN, (*_UNREADY, Phase.STOPPED), Phase.ENDING),
    (Event.DRAIN_TO_STOP, (Phase.READY,), Phase.DRAINING),
    (Event.DRAIN_TO_STOP, _UNREADY, Phase.STOPPING),
    (Event.STOP, _UP, Phase.STOPPING),
    (Event.WAKE, (Phase.STOPPED,), Phase.STARTING),
    (Event.TERMINATE, (*_UP, Phase.STOPPING, Phase.STOPPED), Phase.ENDING),
    (Event.PROCESS_ENDED, (Phase.STOPPING,), Phase.STOPPED),
    (Event.PROCESS_ENDED, (Phase.ENDING,), Phase.GONE),
)
NEXT: Mapping[tuple[Phase, Event], Phase] = {
    (phase, event): leads_to for event, phases, leads_to in _ROWS for phase in phases
}
"""Every transition that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Position of one instance in its life. Instants are seconds on the world's own clock."""

    phase: Phase = Phase.PENDING
    #: When it runs: its pending time is over.
    runs_at: float
    #: When the boot or the wake under way is over.
    ready_at: float
    #: When its notice runs out; None without one.
    terminates_at: float | None = None
    #: Since when its rent is billed without a break.
    billed_since: float | None = None
    #: Since when it sleeps.
    asleep_since: float | None = None

    @property
    def ec2(self) -> Ec2State:
        """EC2's name of its state."""
        return TRAITS[self.phase].ec2

    @property
    def seen(self) -> InstanceState:
        """The state that a controller sees."""
        return TRAITS[self.phase].seen

    @property
    def can_be_warned(self) -> bool:
        """True where a notice means something: it has none yet, and does not end anyway."""
        return self.terminates_at is None and self.seen is not InstanceState.GONE

    @property
    def is_ready_to_lose(self) -> bool:
        """True where a scripted interruption may take it: ready, and not warned."""
        return self.terminates_at is None and self.phase is Phase.READY


# Transitions.


def launched(at: float, *, pending_s: float, boot_s: float) -> Life:
    """A new instance; it is `boot_s` from its launch to serving, the first `pending_s` of that unbilled."""
    return Life(runs_at=at + min(pending_s, boot_s), ready_at=at + boot_s)


def step(life: Life, event: Event, at: float) -> Life:
    """The life after `event`; the same object where it changes nothing, or where it is not due yet."""
    phase = NEXT.get((life.phase, event))
    early = (event is Event.RUN and at < life.runs_at) or (event is Event.SERVE and at < life.ready_at)
    if phase is None or early:
        return life
    traits = TRAITS[phase]
    return replace(
        life,
        phase=phase,
        billed_since=_since(life.billed_since, at) if traits.billed else None,
        asleep_since=_since(life.asleep_since, at) if traits.asleep else None,
    )


def wake(life: Life, at: float, wake_s: float) -> Life:
    """The life of a stopped instance that is started: it runs at once and is ready in `wake_s`."""
    started = step(life, Event.WAKE, at)
    return life if started is life else replace(started, runs_at=at, ready_at=at + wake_s)


def warn(life: Life, at: float, notice_s: float) -> Life:
    """The life with its spot notice; the same object where there is one already, or nothing left to warn."""
    return replace(life, terminates_at=at + notice_s) if life.can_be_warned else life


def when_drained(role: Role) -> Event:
    """The event of an instance whose last request is answered: standbys stop, all others end."""
    return Event.STOP if role is Role.STANDBY else Event.TERMINATE


def allows(life: Life, event: Event) -> bool:
    """True where the event leads to another phase."""
    return (life.phase, event) in NEXT


def next_due(life: Life) -> tuple[float, Event] | None:
    """The next event that comes by itself, and its instant; None where none does."""
    due: list[tuple[float, Event]] = []
    if allows(life, Event.RUN):
        due.append((life.runs_at, Event.RUN))
    elif allows(life, Event.SERVE):
        due.append((life.ready_at, Event.SERVE))
    if life.terminates_at is not None and allows(life, Event.TERMINATE):
        due.append((life.terminates_at, Event.TERMINATE))
    return min(due, default=None, key=lambda item: item[0])


def caught_up(life: Life, now: float) -> Life:
    """The life with all that has come by itself by `now`."""
    while (due := next_due(life)) is not None and due[0] <= now:
        life = step(life, due[1], due[0])
    return life


def _since(earlier: float | None, at: float) -> float:
    return at if earlier is None else earlier


# Draws.


class Draw(Protocol):
    """A stream of random numbers: numpy's generators are such."""

    def uniform(self, low: float, high: float) -> float:
        """Evenly in [low, high)."""

    def standard_normal(self) -> float:
        """With mean 0 and deviation 1."""

    def exponential(self) -> float:
        """With mean 1."""


class Choose(Protocol):
    """A stream that chooses among places."""

    def choice(self, a: int, size: int, replace: bool) -> Iterable[int]:
        """`size` of the first `a` numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDraw:
    """Times drawn for one launch, in seconds from it."""

    pending_s: float
    boot_s: float
    #: None where no notice comes by itself.
    until_notice_s: float | None


def draw_launch(
    times: CloudTimes, boots: Draw, lives: Draw, *, boot_factor: float, hazard_per_hour: float
) -> LaunchDraw:
    """Pending time, boot and life of one launch, drawn always and in this order.

    `lives` is the stream of its pool alone: what happens in one pool does not depend on what is rented in another.
    """
    pending_s = float(boots.uniform(times.pending_min_s, times.pending_max_s))
    boot_s = times.launch.at(float(boots.standard_normal())) * boot_factor
    life_s = float(lives.exponential())
    hazard = hazard_per_hour / 3600.0
    return LaunchDraw(pending_s=pending_s, boot_s=boot_s, until_notice_s=life_s / hazard if hazard > 0 else None)


def draw_advice(
    advice: RebalanceAdvice | None, advised: Draw, until_notice_s: float | None, hazard_per_hour: float
) -> list[float]:
    """Seconds from the launch to its rebalance recommendations, founded and not. advised: a stream of its own."""
    if advice is None or until_notice_s is None:
        return []
    is_founded = advised.uniform(0.0, 1.0) < advice.share
    lead_s, unfounded = advice.lead.at(float(advised.standard_normal())), float(advised.exponential())
    found = [max(0.0, until_notice_s - lead_s)] if is_founded else []
    rate_s = advice.unfounded * hazard_per_hour / 3600.0
    return sorted([*found, unfounded / rate_s] if rate_s > 0 else found)


def draw_wake(times: CloudTimes, item: InstanceType, wakes: Draw, *, boot_factor: float) -> float:
    """Seconds from the start of a stopped instance to serving."""
    return times.wake_of(item).at(float(wakes.standard_normal())) * boot_factor


def draw_victims(share: float, pool: Sequence[T], victims: Choose) -> list[T]:
    """A share of the pool, in its order; nothing is drawn where that is nobody."""
    count = round(share * len(pool))
    return [pool[place] for place in sorted(victims.choice(len(pool), size=count, replace=False))] if count else []


# CPU credits.


def credits_at_start(
    burst: BurstCredits, kept: float | None, credited: tuple[float, ...], at: float
) -> tuple[float, tuple[float, ...]]:
    """CPU credits at a start, and the account's credited starts of the last day with this one, where it is one."""
    credited = tuple(earlier for earlier in credited if earlier > at - DAY_S)
    if not burst.launch_credits or len(credited) >= CREDITED_STARTS_A_DAY:
        return kept or 0.0, credited
    return (kept or 0.0) + burst.launch_credits, (*credited, at)


def credits_kept(burst: BurstCredits | None, balance: float) -> float | None:
    """The balance after a stop; None where it is lost."""
    return balance if burst is not None and burst.keeps_when_stopped else None

"""Status documents that the processes of a running service publish (`MODEL`, `BUDGET`, `PROCESSES` ...).

Each kind is one JSON document in the store, written by one process and replaced whole; what readers make of them
all is `mark.report.live.service_status`.

Fields are the keys of the JSON, but for an underscore after what is a keyword of Python. A reader ignores keys
that it does not know and takes the default of those that are absent: another version may have written the
document. One that it cannot read at all counts as absent. Instants are epoch seconds of the service's clock and
rates are requests/s, unless a field says otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from pydantic import Field, ValidationError

from mark.accounting.budget import Reached
from mark.accounting.hourly_spend import HourSpend
from mark.adapters import adapter_of
from mark.controller.limits.launch_breaker import LaunchRecord
from mark.domain.alerts import AlertsStatus
from mark.domain.billing.spending import LimitCause, OutsidePause, SpendingLimit
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.documents import plain
from mark.domain.fleet.instances import Instance, InstanceState, Role
from mark.domain.load.announced_events import Events
from mark.domain.models.versions import RolloutCommand

log = logging.getLogger(__name__)

TrainingCause = Literal["first", "schedule", "drift"]

# Of a model, by the acting controller after each tick.


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedInstance:
    """One instance as the last tick observed it."""

    #: The cloud's name for it.
    id: str
    #: Its offering's name.
    offering: str
    #: Its availability zone; empty where it is not known.
    zone: str = ""
    #: Whether it serves or stands by.
    role: Role = Role.SERVING
    #: Where it is in its life.
    state: InstanceState = InstanceState.PENDING
    #: When its spot notice says that it is taken away; None without a notice.
    interrupt_at: float | None = None
    #: CPU credits that are left; None where its type has none.
    credits: float | None = None
    #: Its price while it runs, as of the last tick, USD an hour; None where its offering is not known.
    usd_per_hour: float | None = None

    @classmethod
    def of(cls, instance: Instance, usd_per_hour: float | None) -> PublishedInstance:
        """The instance as a controller observes it, at that price."""
        return cls(
            id=instance.id,
            offering=instance.offering,
            zone=instance.zone,
            role=instance.role,
            state=instance.state,
            interrupt_at=instance.terminates_at,
            credits=instance.credits,
            usd_per_hour=usd_per_hour,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHost:
    """A shared instance, and the models on it."""

    #: The cloud's name for it.
    id: str
    #: Models that it was told to hold.
    wanted: tuple[str, ...] = ()
    #: Models that take requests there.
    serving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHosts:
    """The shared instances of a service."""

    #: When that was.
    at: float = 0.0
    hosts: tuple[PublishedHost, ...] = ()
    #: What became of launches, of offerings whose instances did not become ready: for who takes over.
    launches: tuple[LaunchRecord, ...] = ()
    #: Launches that AWS may not list yet, as `run/token`, and until when they are awaited: for who takes over.
    ordered: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSeries:
    """The last hour unit by unit, no further back than the service began, and the forecast from there on."""

    #: Where the first unit begins.
    start_at: float = 0.0
    #: Length of a unit, seconds.
    unit_s: float = 60.0
    #: Mean rate of each unit.
    mean_rps: tuple[float, ...] = ()
    #: Highest rate over 5 s within each unit.
    max_rps: tuple[float, ...] = ()
    #: What the ready instances carried at the end of each unit; None where nobody noted it.
    capacity_rps: tuple[float | None, ...] = ()
    #: Where the first unit of the forecast begins.
    forecast_start_at: float = 0.0
    #: Median forecast of each unit's highest rate.
    forecast_max_rps: tuple[float | None, ...] = ()
    #: Levels of the forecast's quantiles beside the median, rising; none for a forecaster that has no others.
    fan_levels: tuple[float, ...] = ()
    #: Forecasts of each unit's highest rate at each of these levels.
    fan_max_rps: tuple[tuple[float | None, ...], ...] = ()
    #: Who made the forecast, and in whose place.
    forecaster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedLoad:
    """The load that was taken for what came before the service began."""

    #: The setting `expected_rps`.
    rps: float = 0.0
    #: When the service began.
    until: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTraining:
    """A training that runs."""

    #: Why it began.
    why: TrainingCause
    #: When it began.
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTraining:
    """The last training, where it failed."""

    #: When it was given up.
    at: float = 0.0
    #: Why it began.
    why: TrainingCause
    #: What went wrong.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecasterStatus:
    """Training and drift of the forecaster in use."""

    #: Its name.
    forecaster: str
    #: Why it was trained.
    why: TrainingCause = "first"
    #: Since when it is in use.
    at: float = 0.0
    #: Where the span begins that it learned from.
    from_: Annotated[float, Field(alias="from")] = 0.0
    #: Where that span ends.
    until: float = 0.0
    #: How long the training took, seconds of the wall; None for the first one, which may be from a cache.
    took_s: float | None = None
    #: Losses of the last hours, times the usual; None until both are known.
    drift: float | None = None
    #: The training that runs now.
    training: RunningTraining | None = None
    #: The last training, where it failed.
    failed: FailedTraining | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStatus:
    """The last plan."""

    #: For when its fleet is wanted.
    at: float = 0.0
    #: When it was made.
    made_at: float = 0.0
    #: The rate that it is for.
    required_rps: float = 0.0
    #: The rate that its fleet carries.
    capacity_rps: float = 0.0
    #: Rent of its fleet, USD/h.
    usd_per_hour: float = 0.0
    #: The plan in a sentence.
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """The pool of a model that is kept within a budget, and the sizes that it is chosen for."""

    #: What it may cost, USD/h.
    budget_usd_per_hour: float
    #: What counts against that: all that is there or on its way, USD/h; None where no price is known of some.
    usd_per_hour: float | None = None
    #: Name of the sizes: `measured`, or as the settings name them.
    sizes: str = ""
    #: Requests that they were measured of; 0 for those of the settings.
    measured: int = 0
    #: Mean items of a request.
    mean_items: float = 0.0
    #: Items that the objective's share of requests does not exceed.
    target_items: int = 0
    #: Items of the largest request.
    largest_items: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStatus:
    """An order to the cloud."""

    #: When it was given.
    at: float
    #: Which order, as the journal names it: `launch`, `drain` ...
    kind: str
    #: What it concerns: instances, or a number of an offering.
    what: str
    #: Why, with its numbers.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """State of a model known to its controller: plan, forecast, requested launches, the fleet that it saw."""

    #: When it was published; 0: no tick has been.
    at: float = 0.0
    #: Number of the tick since the journal began.
    tick: int = 0
    #: Service seconds a second of the wall.
    speed: float = 1.0
    #: The policy's name.
    policy: str | None = None
    #: What is rented: `spot`, `on-demand`, or `none` without offerings.
    market: str | None = None
    #: Instances that are wanted, by offering.
    planned: Mapping[str, int] = field(default_factory=dict)
    #: Instances that are ordered and not seen yet, by offering.
    requested: Mapping[str, int] = field(default_factory=dict)
    #: The fleet as it was seen.
    observed: tuple[PublishedInstance, ...] = ()
    #: Lambda environments that are believed warm.
    lambda_warm: int = 0
    #: Share answered in time of the error budget's window; None before anything finished in it.
    attained_lately: float | None = None
    #: Load, capacity and forecast; None before the first tick.
    series: LoadSeries | None = None
    #: Requests since the service began.
    requests: int = 0
    #: Highest rate since the service began.
    peak_rps: float = 0.0
    #: When the service began; None where nobody said.
    began_at: float | None = None
    #: What was assumed of the load before; None where a trace tells it.
    assumed: AssumedLoad | None = None
    #: The forecaster's training; None before a term has begun.
    trained: ForecasterStatus | None = None
    #: The last plan; None before the first.
    plan: PlanStatus | None = None
    #: Its pool, where the policy keeps it within a budget; None for the others.
    pool: PoolStatus | None = None
    #: The last orders, newest first.
    decisions: tuple[OrderStatus, ...] = ()
    #: What a reader must know: stand-ins, assumptions, limits.
    notes: tuple[str, ...] = ()


# Of the service as a whole.


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartStatus:
    """Ends of one process that nobody asked for."""

    #: How many.
    count: int = 0
    #: Exit status of the last one, negative for a signal; None where it is unknown.
    status: int | None = None
    #: Why it was ended, as `silent for 15 s`; empty for a crash.
    why: str = ""
    #: When the last one was; None without any.
    at: float | None = None

    def after(self, status: int, why: str, at: float) -> RestartStatus:
        """One more."""
        return RestartStatus(count=self.count + 1, status=status, why=why, at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAccount:
    """An emulated AWS that ended and is being set up again."""

    #: When it ended.
    since: float = 0.0
    #: Why it could not be set up yet; empty where nothing failed.
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesStatus:
    """The service's processes, as its supervisor sees them."""

    #: By process, the ends that nobody asked for.
    restarts: Mapping[str, RestartStatus] = field(default_factory=dict)
    #: Processes that do not run now, or hang.
    down: tuple[str, ...] = ()
    #: While the emulated AWS is set up again.
    account: LostAccount | None = None
    #: How far the system's clock was set since the service began, seconds.
    clock_set_by_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequest:
    """Request to pause the service or to go on."""

    #: Whether it is paused.
    on: bool = False
    #: When that was asked for.
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedEvents:
    """Events that people announced to the running service; those that are over stay for two weeks."""

    #: By when they begin.
    events: Events = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsidePauseStatus:
    """The last answer to whether somebody paused the service from outside its network."""

    #: The pause that stands.
    pause: OutsidePause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentSpend:
    """Commitments of the account since the first of the month, USD."""

    #: Paid, used or not.
    paid_usd: float = 0.0
    #: Of it, what usage took.
    used_usd: float = 0.0
    #: Of it, what nothing took; the hour that runs is not counted yet.
    unused_usd: float = 0.0
    #: Price on demand of what they cover.
    covered_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """Spending so far, its budget, and the limit that follows."""

    #: Spent since midnight UTC, USD.
    day_usd: float = 0.0
    #: Spent since the first of the month, USD.
    month_usd: float = 0.0
    #: What that will be at the month's end, as the last days went; None while too little is known.
    month_projected_usd: float | None = None
    #: What may be spent in a day, USD; None: as much as it takes.
    daily_usd: float | None = None
    #: What may be spent in a month, USD; None: as much as it takes.
    monthly_usd: float | None = None
    #: What follows when a budget is reached, as set.
    when_reached: Reached = Reached.WARN
    #: What may be rented now.
    limited_by: SpendingLimit = SpendingLimit.NONE
    #: The cause of that limit.
    limit_cause: LimitCause = LimitCause.NONE
    #: Why, for people: a line for each budget that is reached, and one for a pause.
    reasons: tuple[str, ...] = ()
    #: Commitments of this month; None where the account has none.
    commitments: CommitmentSpend | None = None
    #: What commitments add to the bill since the service began, less what they cover, USD.
    commitments_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCommitments:
    """Savings Plans and reservations of the account, as far as the service counts them."""

    #: As they were last read.
    commitments: Commitments = NO_COMMITMENTS
    #: When AWS told them; None where a file says them.
    read_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendHistory:
    """Spending of the service by the hour."""

    #: The last whole hours, a day of them at most, oldest first.
    hours: tuple[HourSpend, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningReplay:
    """A past day that is replayed now."""

    #: The day, as `2026-11-20`.
    day: str
    #: When its replay began.
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplay:
    """A past day that could not be replayed."""

    #: The day, as `2026-11-20`.
    day: str
    #: When its replay failed.
    at: float = 0.0
    #: What went wrong.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyStatus:
    """Past days that were replayed for the report."""

    #: Days that are done, each with the policies that it was replayed under.
    days: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The one that is replayed now.
    running: RunningReplay | None = None
    #: The one that failed last and is tried again.
    failed: FailedReplay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCost:
    """Cost of the days that were replayed last, beside that of the rival that came nearest: `mark report`'s."""

    #: The rival's policy.
    policy: str = ""
    #: What it would have cost, USD.
    usd: float = 0.0
    #: What the service cost in the same time, USD.
    measured_usd: float = 0.0
    #: How long that time was, seconds.
    replayed_s: float = 0.0
    #: Whether the rival kept the objectives; no other was cheaper and did. If not, it lacked least.
    kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatus:
    """The journals' copies in the service's bucket."""

    #: The bucket's name.
    bucket: str = ""
    #: When something was copied, or failed to be.
    at: float = 0.0
    #: By model, the last closed segment that was copied.
    copied: Mapping[str, int] = field(default_factory=dict)
    #: Why it failed last; None where it did not.
    failed: str | None = None
    #: When all that was there was copied; None before the first time.
    whole_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundFailure:
    """Work in the background that fails."""

    #: Since when, epoch seconds of the wall.
    since: float = 0.0
    #: Why it failed last.
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundStatus:
    """Work in the background of one process."""

    #: By work, what fails now.
    failing: Mapping[str, BackgroundFailure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedResources:
    """A service's resources in AWS, for its controllers."""

    #: The queue of its events.
    events_url: str = ""
    bucket: str = ""
    #: Launch templates by role and kind of machine: `serving/arm64`.
    templates: Mapping[str, str] = field(default_factory=dict)
    #: By zone.
    subnets: tuple[tuple[str, str], ...] = ()
    #: That of what stands on one machine where it is not named.
    owner: str = "mark"
    #: The owner's own, of instances.
    tags: Mapping[str, str] = field(default_factory=dict)
    #: What new instances run: see `RolloutSettings.agent_version`.
    version: str = ""
    #: Whether the archive keeps snapshots of the store, for a function that cannot reach it.
    snapshot: bool = False


# Their codecs.

Document = TypeVar("Document")


class StatusReader(Protocol):
    """The part of a store that readers need."""

    def status(self, name: str, /) -> Mapping[str, Any] | None:
        """The JSON document of that name, if there is one."""
        ...


class StatusWriter(Protocol):
    """The part of a store that writers need."""

    def put_status(self, name: str, document: Mapping[str, Any], /) -> None:
        """Keep a JSON document under a name."""
        ...


class StatusChanger(Protocol):
    """The part of a store that commands need which change a document, one after the other."""

    def change_status(self, name: str, change: Callable[[Mapping[str, Any] | None], Mapping[str, Any]], /) -> None:
        """Put the changed document in its place where nobody else changed it meanwhile, else change that."""
        ...


class StatusCodec(Generic[Document]):
    """One type's way into plain JSON values and back."""

    def __init__(self, kind: type[Document]) -> None:
        self.kind = kind

    def dump(self, document: Document) -> dict[str, Any]:
        """The document as plain JSON values; numpy's numbers become Python's."""
        values = adapter_of(self.kind).dump_python(
            document, mode="json", by_alias=True, fallback=plain, warnings=False
        )
        return dict(values)

    def load(self, values: Mapping[str, Any]) -> Document | None:
        """The document again; None, and a line in the log, where it cannot be read."""
        try:
            return adapter_of(self.kind).validate_python(values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            log.warning(
                "a status document cannot be read",
                extra={"kind": self.kind.__name__, "why": f"{place}: {first['msg']}"},
            )
            return None


class StoredStatus(StatusCodec[Document]):
    """A kind of document that lies in the store, one for the service or one for each `whose`."""

    def __init__(self, kind: type[Document], name: str) -> None:
        super().__init__(kind)
        self._name = name

    def name(self, whose: str = "") -> str:
        """Its name in the store."""
        return f"{self._name}:{whose}" if whose else self._name

    def read(self, store: StatusReader, whose: str = "") -> Document | None:
        """The document that was published last; None where there is none that can be read."""
        found = store.status(self.name(whose))
        return None if found is None else self.load(found)

    def write(self, store: StatusWriter, document: Document, whose: str = "") -> None:
        """Publish it in place of the one before."""
        store.put_status(self.name(whose), self.dump(document))

    def change(self, store: StatusChanger, change: Callable[[Document | None], Document]) -> None:
        """Publish `change(document)` in place of the one before, of which no other change is lost."""
        store.change_status(
            self.name(), lambda found: self.dump(change(None if found is None else self.load(found)))
        )


MODEL = StoredStatus(PublishedModel, "model")
"""By model."""
BACKGROUND = StoredStatus(BackgroundStatus, "background-failures")
"""By process."""
PROCESSES = StoredStatus(ProcessesStatus, "processes")
RESOURCES = StoredStatus(PublishedResources, "resources")
BUDGET = StoredStatus(BudgetStatus, "budget")
HOSTS = StoredStatus(PublishedHosts, "hosts")
COMMITMENTS = StoredStatus(AccountCommitments, "commitments")
SPEND = StoredStatus(SpendHistory, "spend-by-hour")
PAUSE = StoredStatus(PauseRequest, "paused")
EVENTS = StoredStatus(AnnouncedEvents, "events")
ROLLOUT_COMMAND = StoredStatus(RolloutCommand, "rollout-command")
"""By model."""
OUTSIDE_PAUSE = StoredStatus(OutsidePauseStatus, "paused-from-outside")
NIGHTLY = StoredStatus(NightlyStatus, "replaying")
COMPARED = StoredStatus(ComparedCost, "compared")
ALERTS = StoredStatus(AlertsStatus, "alerts")
ARCHIVE = StoredStatus(ArchiveStatus, "archive")

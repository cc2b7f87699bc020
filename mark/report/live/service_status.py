"""A running service at one instant: the document behind status page, table, metrics and `mark status --json`.

It is made of what the service's processes publish (`mark.store.published_status`) and follows the same rules;
docs/json.md has its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from mark.accounting.client_totals import ClientAnswers
from mark.accounting.hourly_spend import HourSpend
from mark.domain.alerts import AlertsStatus
from mark.domain.fleet.instances import Role
from mark.domain.load.traffic import FailureKind
from mark.store.published_status import (
    ArchiveStatus,
    AssumedLoad,
    BudgetStatus,
    ComparedCost,
    FailedReplay,
    ForecasterStatus,
    LoadSeries,
    LostAccount,
    OrderStatus,
    PlanStatus,
    PoolStatus,
    RestartStatus,
    RunningReplay,
    StatusCodec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveStatus:
    """Attainment of the model's objective, since the service began and lately."""

    #: The objective's latency, milliseconds.
    latency_ms: float
    #: Share of the finished requests to be answered within it.
    target: float
    #: What the latency is of: the whole answer, or of one that streams the first byte.
    measured: Literal["answer", "first_byte"] = "answer"
    #: Requests that got an answer from the model.
    answered: int = 0
    #: Those that were answered too late.
    late: int = 0
    #: Requests that were refused.
    shed: int = 0
    #: Share answered in time; None while nothing is finished.
    attained: float | None = None
    #: The same of the last hours, the window of the error budget that plans go by; None before its first minute.
    attained_lately: float | None = None
    #: Mean accuracy of the variants that answered on instances; None for a model without variants.
    accuracy: float | None = None
    #: The same of the last whole 5 s in which something was answered.
    accuracy_now: float | None = None

    @property
    def is_missed(self) -> bool:
        """True where too few were answered in time lately, or at all in the first minute."""
        judged = self.attained if self.attained_lately is None else self.attained_lately
        return judged is not None and judged < self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalRates:
    """Arrival rates of a model."""

    #: Rate of the last whole 5 s.
    now_rps: float = 0.0
    #: Mean rate of the last minute.
    last_minute_rps: float = 0.0
    #: Highest rate over 5 s of the last minute.
    max_rps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStatus:
    """Latency of what was answered, milliseconds; None while nothing was."""

    #: Mean.
    mean: float | None = None
    #: Median.
    p50: float | None = None
    #: Quantile 0.95.
    p95: float | None = None
    #: Quantile 0.98.
    p98: float | None = None
    #: Quantile 0.99.
    p99: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCounts:
    """Requests since the service began, by who answered."""

    #: Serving instances.
    instance: int = 0
    #: Woken standbys.
    standby: int = 0
    #: The Lambda function.
    lambda_: Annotated[int, Field(alias="lambda")] = 0
    #: Nobody: refused.
    shed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaStatus:
    """The model's Lambda function."""

    #: Whether it answers what instances do not carry: the model has one, and no budget holds it back.
    answers: bool = False
    #: Calls under way.
    in_flight: int = 0
    #: Environments that are believed warm.
    warm: int = 0
    #: Calls since the service began, warm-up pings counted.
    invocations: int = 0
    #: Calls that started cold.
    cold: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInstance:
    """One instance as the last tick saw it and its agent speaks of itself since."""

    #: The cloud's name for it.
    id: str
    #: Its offering's name.
    offering: str
    #: Its availability zone; empty where it is not known.
    zone: str = ""
    #: Whether it serves or stands by.
    role: Role
    #: A word of `InstanceState`, or `broken` where its model no longer answers.
    state: str
    #: Seconds until its spot notice takes it away; None without a notice.
    gone_in_s: float | None = None
    #: CPU credits that are left; None where its type has none.
    credits: float | None = None
    #: Its price while it runs, USD an hour: as it is booked, else that of now; None where neither is known.
    usd_per_hour: float | None = None
    #: The version of the model that its agent serves; empty where versions are not told apart.
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStatus:
    """One model on a shared instance."""

    #: Its name.
    model: str
    #: Whether it is to stay: what is not wanted answers its last requests, or waits for the model's own instances.
    wanted: bool = True
    #: `pending` until it is loaded, then `ready`, `draining` or `broken`.
    state: str = "pending"
    #: Requests/s that it takes there before the model's own instances are asked.
    share_rps: float = 0.0
    #: The part of the instance's time that those take.
    busy: float = 0.0
    #: The version of the model; empty where versions are not told apart.
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedInstanceStatus(ObservedInstance):
    """One instance that models share."""

    #: The models that are there or on their way, by name.
    tenants: tuple[TenantStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TenancyStatus:
    """A model's place on a shared instance."""

    #: The instance's id.
    instance: str
    #: The instance as the model's offerings name it.
    offering: str
    #: `pending` until the model is loaded there, then `ready`, `draining` or `broken`.
    state: str
    #: Requests/s that the model takes there before its own instances are asked.
    share_rps: float = 0.0
    #: The other models there.
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """The fleet in its three views."""

    #: Instances that are wanted, by offering.
    planned: Mapping[str, int] = field(default_factory=dict)
    #: Instances that are ordered and not seen yet, by offering.
    requested: Mapping[str, int] = field(default_factory=dict)
    #: Instances that are there, by id.
    observed: tuple[ObservedInstance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingCapacity:
    """Instances of one offering that are there."""

    #: The offering's name.
    offering: str
    #: Shared instances on which the model is ready; counts and rent below are of its own instances.
    shared: int = 0
    #: Instances that serve.
    ready: int = 0
    #: Instances that boot.
    pending: int = 0
    #: Instances that answer what they hold and then end.
    draining: int = 0
    #: Standbys asleep.
    stopped: int = 0
    #: What the ready ones carry, with the model's share of those that it shares.
    rps: float = 0.0
    #: Rent of those that are not asleep, USD/h.
    usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentStatus:
    """Spent since the service began, USD."""

    #: Rent of serving instances.
    instances: float = 0.0
    #: Rent and disks of standbys.
    standby: float = 0.0
    #: Calls of the Lambda function.
    lambda_: Annotated[float, Field(alias="lambda")] = 0.0
    #: Sum of the three above.
    serving: float = 0.0
    #: The model's part of what stands around the fleet: disks, addresses, bytes. What models share is not in it.
    overhead: float = 0.0
    #: Sum of serving and overhead.
    total: float = 0.0

    def with_shared(self, overhead_usd: float) -> SpentStatus:
        """The same with overhead that models share, as a replay of one model has it."""
        return replace(self, overhead=self.overhead + overhead_usd, total=self.total + overhead_usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyStatus:
    """Cost of an hour by part, USD/h."""

    #: The instances that run now, at their price.
    instances: float = 0.0
    #: The Lambda function, as a mean.
    lambda_: Annotated[float, Field(alias="lambda")] = 0.0
    #: The model's part of what stands around the fleet, as a mean.
    overhead: float = 0.0
    #: Over how long those are means, seconds.
    mean_over_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayShare:
    """One gateway's share of the agents that take requests, where a model has a central queue."""

    #: The gateway's name.
    gateway: str
    #: Agents by offering.
    agents: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model of the service."""

    #: Its name.
    name: str
    #: The policy's name; None before the first tick.
    policy: str | None = None
    #: What is rented; None before the first tick.
    market: str | None = None
    #: What arrives.
    rates: ArrivalRates = field(default_factory=ArrivalRates)
    #: Load, capacity and forecast.
    series: LoadSeries = field(default_factory=LoadSeries)
    #: What was assumed of the load before; None where a trace tells it.
    assumed: AssumedLoad | None = None
    #: The forecaster's training; None before the first tick.
    trained: ForecasterStatus | None = None
    #: How it keeps its objective.
    objective: ObjectiveStatus
    #: Latency of what was answered.
    latency_ms: LatencyStatus = field(default_factory=LatencyStatus)
    #: The same of the first bytes of answers that streamed.
    first_byte_ms: LatencyStatus = field(default_factory=LatencyStatus)
    #: Who answered.
    by: AnswerCounts = field(default_factory=AnswerCounts)
    #: Answers that are errors of the service or the model.
    failed: int = 0
    #: Their latest kinds, the last one first.
    failures: tuple[FailureKind, ...] = ()
    #: Requests that the model refused as wrong in themselves.
    rejected: int = 0
    #: Answers of instances in another availability zone than the request came in.
    crossed: int = 0
    #: Requests that were sent again after a lost agent.
    redispatched: int = 0
    #: By client, where the service has clients.
    clients: tuple[ClientAnswers, ...] = ()
    #: Its Lambda function.
    lambda_: Annotated[LambdaStatus, Field(alias="lambda")] = field(default_factory=LambdaStatus)
    #: Its fleet, planned, requested and observed.
    fleet: FleetStatus = field(default_factory=FleetStatus)
    #: Its places on shared instances.
    shared: tuple[TenancyStatus, ...] = ()
    #: Its part of their rent, by the time that it took of their devices: so far, USD.
    shared_usd: float = 0.0
    #: The same in the mean, USD/h.
    shared_usd_per_hour: float = 0.0
    #: Its instances by offering.
    capacity: tuple[OfferingCapacity, ...] = ()
    #: What it has cost.
    cost_usd: SpentStatus = field(default_factory=SpentStatus)
    #: What an hour costs now, USD/h; None in the first minute, of which a mean says nothing.
    usd_per_hour: float | None = None
    #: What of.
    usd_per_hour_by: HourlyStatus = field(default_factory=HourlyStatus)
    #: By gateway, the agents that its queue is for; empty without a central queue.
    gateways: tuple[GatewayShare, ...] = ()
    #: The last plan; None before the first.
    plan: PlanStatus | None = None
    #: Its pool, where the policy keeps it within a budget; None for the others.
    pool: PoolStatus | None = None
    #: The last orders, newest first.
    decisions: tuple[OrderStatus, ...] = ()
    #: What a reader must know.
    notes: tuple[str, ...] = ()


class ModelState(StrEnum):
    """What a reader must know first of a model."""

    #: Fewer requests than its target were answered in time, in the window of the error budget.
    MISSES = "misses its objective"
    #: The model of an instance no longer answers.
    BROKEN = "instance broken"
    #: Spot instances are being taken away.
    LOSING_SPOT = "losing spot"
    #: No controller has planned for it yet.
    STARTING = "starting"
    #: Fewer instances are ready than the plan wants, or some boot.
    SCALING_UP = "scaling up"
    #: No request has come yet.
    UNASKED = "no requests yet"
    #: Requests came in the last minute.
    SERVING = "serving"
    #: None came in the last minute.
    IDLE = "idle"

    @property
    def is_bad(self) -> bool:
        """True where the model is in trouble."""
        return self in {ModelState.MISSES, ModelState.BROKEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model at a glance."""

    #: Its name.
    model: str
    #: Mean load of the last minute.
    rps: float = 0.0
    #: Share answered in time; None while nothing is finished.
    attained: float | None = None
    #: Cost of an hour now, with its part of shared instances and without the overhead of all, USD/h; None in the
    #: first minute.
    usd_per_hour: float | None = None
    #: Its state.
    state: ModelState = ModelState.STARTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All models at a glance."""

    #: One row a model, the most expensive first.
    rows: tuple[ModelRow, ...] = ()
    #: Models, shared instances and overhead together, USD/h; None in the first minute.
    usd_per_hour: float | None = None

    @property
    def opened(self) -> str | None:
        """The model that is told in full where nobody asked for another; None without models."""
        return self.rows[0].model if self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadStatus:
    """What models share: gateways, load balancer, store, controllers, logs, commitments less what they cover."""

    #: Since the service began, USD.
    usd: float = 0.0
    #: The same as a mean, USD/h; None in the first minute.
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStatus:
    """The instances that models share. What they cost is in no model's sums, but for its row of the overview."""

    #: Those that are there, by id.
    instances: tuple[SharedInstanceStatus, ...] = ()
    #: What they have cost.
    cost_usd: SpentStatus = field(default_factory=SpentStatus)
    #: What an hour costs now, USD/h; None in the first minute.
    usd_per_hour: float | None = None
    #: Of their rent, what no model took of their devices, USD.
    idle_usd: float = 0.0
    #: The same of an hour now, less what models took an hour in the mean; None in the first minute.
    idle_usd_per_hour: float | None = None
    #: What a reader must know.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterfactualStatus:
    """What a service that only observes would have rented, beside the fleet that serves."""

    #: From when on it observes.
    since: float = 0.0
    #: Rent of the fleet that serves, USD/h; None where `service.existing_usd_per_hour` does not say.
    existing_usd_per_hour: float | None = None
    #: The same since then, USD.
    existing_usd: float | None = None
    #: Rent of what it would run now, with its overhead, USD/h; None in the first minute.
    usd_per_hour: float | None = None
    #: What it would have cost since then, USD.
    usd: float = 0.0
    #: What it would have saved since then, USD; negative where it would have cost more.
    saved_usd: float | None = None
    #: Of the last hour, minutes since its first instance was ready.
    minutes: int = 0
    #: Share of the requests of those minutes that came beyond what its ready instances carry, at least: with each
    #: minute's load as even as can be. None before any came.
    beyond_least: float | None = None
    #: The same at most: with each minute's load as uneven as its busiest 5 s allow.
    beyond_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """The controller that acts."""

    #: The process that holds the lease; None where none does.
    holder: str | None = None
    #: Seconds since the last tick of any model; None before the first.
    silent_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """The store."""

    #: Whether it answers; where not, the rest is the last that was seen.
    reachable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaysStatus:
    """Progress of the replays of past days."""

    #: The last day that is done, as `2026-11-20`; None before the first.
    last_day: str | None = None
    #: The one that is replayed now.
    running: RunningReplay | None = None
    #: The one that failed last and is tried again.
    failed: FailedReplay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """A running service at one instant: the document of `mark status --json`."""

    #: Its name.
    service: str
    #: The instant, on the service's clock.
    now: float
    #: Service seconds a second of the wall.
    speed: float = 1.0
    #: Whether its clock stands until a load begins.
    clock_stands: bool = False
    #: How far its clock is behind the wall's, seconds; negative: ahead of it.
    behind_wall_s: float = 0.0
    #: Who acts.
    controller: ControllerStatus = field(default_factory=ControllerStatus)
    #: Whether this document is current.
    store: StoreStatus = field(default_factory=StoreStatus)
    #: By process, ends that nobody asked for; empty without a supervisor, as in an account.
    restarts: Mapping[str, RestartStatus] = field(default_factory=dict)
    #: Processes that do not run now, or hang.
    down: tuple[str, ...] = ()
    #: While the emulated AWS is set up again.
    account: LostAccount | None = None
    #: How far the system's clock was set since the service began, seconds.
    clock_set_by_s: float = 0.0
    #: What was spent and may be; None before a controller acts.
    budget: BudgetStatus | None = None
    #: Replays of past days; None before the first.
    replays: ReplaysStatus | None = None
    #: What the days that were replayed last cost, beside the nearest rival; None before the first.
    compared: ComparedCost | None = None
    #: What it would have rented beside the fleet that serves; None where it serves itself.
    counterfactual: CounterfactualStatus | None = None
    #: The last whole hours' spending, oldest first.
    hours: tuple[HourSpend, ...] = ()
    #: Dead letters and alarms; None before a controller acts.
    alerts: AlertsStatus | None = None
    #: The journals' copies; None before the first.
    archive: ArchiveStatus | None = None
    #: The overhead that models share.
    overhead: OverheadStatus = field(default_factory=OverheadStatus)
    #: The instances that models share; None where the service shares none.
    shared: SharedStatus | None = None
    #: All models at a glance, the most expensive first.
    overview: Overview = field(default_factory=Overview)
    #: Each model, as the settings name them.
    models: tuple[ModelStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStep:
    """Step of a start."""

    #: The step that it is at.
    step: str
    #: For how long it has been starting, seconds of the wall.
    for_s: float
    #: Lines of plans, instances and agents.
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingStatus:
    """A service that starts: the document of `mark status --json` until it is up."""

    #: Its name.
    service: str
    #: How far it has come.
    starting: StartStep
    #: None yet.
    models: tuple[ModelStatus, ...] = ()


SERVICE = StatusCodec(ServiceStatus)
STARTING = StatusCodec(StartingStatus)

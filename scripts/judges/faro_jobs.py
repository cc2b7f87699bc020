"""Our controllers as one of Faro's autoscaling policies: a controller a job, behind the ports that each world has.

Faro asks its policy every ten seconds with what each job measured (arrivals in bins, the queue of each replica)
and takes replica counts. Here that becomes what `Controller.tick` reads: arrivals are units of demand, replicas
are instances of one offering without a market, a Lambda or standbys, and orders to launch and drain move the
count. The first tick waits until a whole minute was seen, as Faro's own policies do.

The CPUs are limited for all jobs together. Under `FirstCome` whoever asks last is refused what is too much, as by
a quota of the account. `ByWorth` divides them as a service's cap is divided.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from mark.controller.policy import ControllerPolicy
from mark.controller.runner import Controller
from mark.controller.state import Decision, Observation
from mark.domain.demand import UNIT_S, WINDOW_S, Demand, DemandUnit, unit_of_windows
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import (
    Drain,
    Fact,
    Launch,
    LaunchRefused,
    Order,
    RefusalCause,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.domain.load.outcomes import Outcomes
from mark.domain.models.objective import SloWindow
from mark.domain.models.profile import Evidence, LatencyPoint, Profile, Provenance
from mark.domain.offerings.offering import BatchPolicy, InstanceType, Market, Offering
from mark.domain.plan import Plan, PlanRequest
from mark.domain.plans.service_cap import ServiceCap, takes_of
from mark.planner.hedged import saved_usd_per_hour
from mark.planner.shared.cap_division import CapClaim, CapStep, divide_cap
from mark.ports import Forecaster

RECENT_WINDOWS = 12
WINDOWS_A_UNIT = round(UNIT_S / WINDOW_S)
BOOT_S = 35.0
"""A pod's cold start (`cold_start_overhead_s`)."""
USD_PER_HOUR = 1.0
"""Of a replica. Any price: there is one offering, and nothing else to pay for."""
MONITORED_REQUESTS, MONITORED_S = 1000, 60.0
GIVEN_UP_S = 30.0
"""Until the CPU of a replica that is given up is free for another job (`idle_timeout_s`)."""
CLAIMED_UNITS = 2
"""Units that a claim looks at: until what is launched now serves (LEAD_MIN), and as long again."""
LEAST_USD = 1e-9
INPUT_RATE, QUEUES = "input_rate", "queue_len"

Answers = Callable[[float], Sequence[tuple[float, bool]]]
"""Requests of a job that ended after a time: when, and whether in time."""


def replica(processing_s: float) -> Offering:
    """The offering of a job: one CPU that answers one request at a time."""
    kind = InstanceType(
        name="replica", vcpus=1, memory_gib=1.0, architecture="amd64", on_demand_usd_per_hour=USD_PER_HOUR
    )
    profile = Profile(
        model="classifier",
        instance_type=kind.name,
        points=(LatencyPoint(batch=1, latency_s=processing_s),),
        provenance=Provenance(evidence=Evidence.PUBLISHED, source="Faro's configurations (processing_time)"),
    )
    return Offering(
        instance_type=kind,
        market=Market.ON_DEMAND,
        usd_per_hour=USD_PER_HOUR,
        profile=profile,
        batch=BatchPolicy(max_batch=1, max_wait_s=0.0),
        capacity_rps=1.0 / processing_s,
        boot_s=BOOT_S,
        launch_usd=USD_PER_HOUR * BOOT_S / 3600.0,
    )


class Limit(Protocol):
    """The limit of CPUs that jobs share."""

    jobs: list[Job]

    def fitting(self, asked: int) -> int:
        """The part of a launch that is allowed now."""
        ...

    def targets(self, jobs: Sequence[Job]) -> Mapping[str, int]:
        """Replicas of each job, by its head's name."""
        ...


class JobCloud:
    """A job's replicas as a Cloud port: launches are pending until Faro's cluster has that many."""

    def __init__(self, fitting: Callable[[int], int]) -> None:
        self._fitting = fitting
        self._now = 0.0
        self._instances: list[tuple[str, str, float]] = [("000000", "", 0.0)]  # Faro starts each job with one
        self._made = 1
        self._ready = 1
        self._facts: list[Fact] = []

    @property
    def wanted(self) -> int:
        """Replicas that there are, or are asked for."""
        return len(self._instances)

    def saw(self, now: float, ready: int) -> None:
        """Take the number of replicas that serve."""
        self._now, self._ready = now, ready

    def observe(self) -> FleetView:
        """The replicas that are wanted: the oldest are those that serve."""
        return FleetView(
            instances=tuple(
                Instance(
                    id=name,
                    offering="replica:on-demand",
                    state=InstanceState.READY if place < self._ready else InstanceState.PENDING,
                    token=token,
                    launched_at=launched_at,
                )
                for place, (name, token, launched_at) in enumerate(self._instances)
            )
        )

    def drain_facts(self) -> tuple[Fact, ...]:
        """The refusals since the last call."""
        facts, self._facts = tuple(self._facts), []
        return facts

    def acknowledge(self) -> None:
        """Do nothing: a run does not crash."""

    def submit(self, order: Order) -> None:
        """Launch what the limit allows, or drain."""
        match order:
            case Launch():
                self._launch(order)
            case Drain() | Terminate():
                self._instances = [item for item in self._instances if item[0] not in order.instances]
            case Withdraw():
                pass  # each launch was taken at once
            case StartStandby() | StopStandby() | WarmLambda():
                raise AssertionError(f"Faro has neither standbys nor Lambda: {order.kind}")

    def _launch(self, order: Launch) -> None:
        count = self._fitting(order.count)
        for _ in range(count):
            self._instances.append((f"{self._made:06d}", order.token, self._now))
            self._made += 1
        if count < order.count:
            self._facts.append(
                LaunchRefused(
                    token=order.token,
                    offering=order.offering,
                    count=order.count - count,
                    cause=RefusalCause.GUARDRAIL,
                    at=self._now,
                    detail="all CPUs are taken",
                )
            )


class JobLoad:
    """A job's load as Clock and DataPlane ports."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._now = 0.0
        self._windows: list[float] = []
        self._unit_start = 0.0
        self._closed_at = 0.0
        self._ended: list[bool] = []
        self._since_unit: list[bool] = []
        self._read_to = 0.0
        self._recent: list[float] = []

    def saw(self, now: float, arrivals: Sequence[float]) -> None:
        """Take the arrivals of the windows of 5 s since the last time, oldest first; none is a silent one."""
        passed = round((now - self._now) / WINDOW_S)
        counts = ([0.0] * passed + list(arrivals))[len(arrivals) :]
        self._now = now
        self._windows += counts
        self._recent = (self._recent + counts)[-RECENT_WINDOWS:]
        found = self._answers(self._read_to)
        in_time = [is_in_time for _, is_in_time in found]
        self._ended += in_time
        self._since_unit += in_time
        self._read_to = found[-1][0] if found else self._read_to

    def now(self) -> float:
        """Seconds since the run began."""
        return self._now

    def next_unit(self) -> DemandUnit | None:
        """The oldest minute that has ended."""
        if len(self._windows) < WINDOWS_A_UNIT:
            return None
        windows, self._windows = self._windows[:WINDOWS_A_UNIT], self._windows[WINDOWS_A_UNIT:]
        start_at, self._unit_start = self._unit_start, self._unit_start + UNIT_S
        ended, self._since_unit = self._since_unit, []
        outcomes = Outcomes(finished=len(ended), missed=ended.count(False))
        return replace(unit_of_windows(start_at, windows), outcomes=outcomes)

    def take_slo_window(self) -> SloWindow | None:
        """The monitor's window, where one is full: 1,000 answers or 60 s."""
        if len(self._ended) < MONITORED_REQUESTS and self._now < self._closed_at + MONITORED_S:
            return None
        ended, self._ended = self._ended, []
        self._closed_at = self._now
        return SloWindow(closed_at=self._now, requests=len(ended), missed=ended.count(False)) if ended else None

    def lambda_warm(self) -> int:
        """No Lambda."""
        return 0

    def recent_rps(self) -> tuple[float, ...]:
        """Rates of the last windows of 5 s."""
        return tuple(count / WINDOW_S for count in self._recent)


class Forgetful:
    """A journal that is not kept."""

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One of Faro's jobs under one of our controllers."""

    head: str
    deployment: str
    cloud: JobCloud
    load: JobLoad
    controller: Controller
    #: The last request that its planner was asked, alone.
    asked: deque[PlanRequest]


@dataclass(slots=True)
class FirstCome:
    """Whoever asks first gets what is left of the CPUs, as under the live service's guardrail."""

    cpus: int
    jobs: list[Job] = field(default_factory=list)

    def fitting(self, asked: int) -> int:
        """The part of a launch that is allowed now."""
        return max(0, min(asked, self.cpus - sum(job.cloud.wanted for job in self.jobs)))

    def targets(self, jobs: Sequence[Job]) -> Mapping[str, int]:
        """Replicas launched and not drained."""
        return {job.head: job.cloud.wanted for job in jobs}


@dataclass(slots=True)
class ByWorth:
    """Where jobs want more than there is, the product's decision divides the CPUs (`cap_division.py`).

    A job claims the replicas that it wants. Faro counts jobs alike, however many requests they get, so a job's
    weight is one over what all its requests are worth. A replica that a job does not have yet serves once the CPU
    was given up and the pod has started. A job that gets less than it wants goes on wanting it.
    """

    cpus: int
    jobs: list[Job] = field(default_factory=list)
    _got: dict[str, int] = field(default_factory=dict)

    def fitting(self, asked: int) -> int:
        """All of it: what cannot be had now is cut from the targets."""
        return asked

    def targets(self, jobs: Sequence[Job]) -> Mapping[str, int]:
        """Replicas that each job wants, or gets of the CPUs."""
        wanted = {job.head: job.cloud.wanted for job in jobs}
        if sum(wanted.values()) > self.cpus:
            claims = [claim_of(job, self._got.get(job.head, 1)) for job in jobs]
            wanted = dict(divide_cap(claims, ServiceCap(vcpus=self.cpus)))
        self._got = wanted
        return wanted


def claim_of(job: Job, there: int) -> CapClaim:
    """The replicas that a job wants. there: those that it has, or waits for."""
    request = job.asked[-1]
    (offering,) = request.offerings
    window_s = CLAIMED_UNITS * request.forecast.unit_s
    levels = np.arange(job.cloud.wanted + 1) * offering.capacity_rps
    *saved, everything = saved_usd_per_hour(request, [*levels, math.inf], window_s)
    serves = 1.0 - (BOOT_S + GIVEN_UP_S) / window_s
    steps = tuple(
        CapStep(takes=takes_of(offering), saves=usd if number < there else serves * usd)
        for number, usd in enumerate(np.diff(saved).tolist())
    )
    return CapClaim(model=job.head, steps=steps, weight=1.0 / max(everything, LEAST_USD), floor=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Parts of one job's controller."""

    policy: ControllerPolicy
    forecaster: Forecaster
    fallback: Forecaster
    #: The load before the run; it ends where the run begins.
    history: Demand


class JobsPolicy:
    """A policy of Faro's: measurements of all jobs in, replica counts out.

    action, autoscale_config: Faro's. given: by head's name, such as `serve-cluster0-ray-head`.
    """

    def __init__(
        self,
        *,
        action: Callable[..., Any],
        autoscale_config: object,
        given: Mapping[str, Given],
        answers: Mapping[str, Answers],
        limit: Limit,
    ) -> None:
        self.autoscale_config = autoscale_config
        self._action = action
        self._given = given
        self._answers = answers
        self._limit = limit
        self._jobs: dict[str, Job] = {}

    def autoscale(self, input_metrics: Mapping[str, Mapping[str, Any]], current_ts: float) -> list[Any]:
        """Tick the controller of each job; the counts that they want, where the limit allows them."""
        for head, deployments in input_metrics.items():
            for deployment, metrics in deployments.items():
                job = self._job(head, deployment)
                arrivals, _ = metrics.get(INPUT_RATE, ((), 0.0))
                job.load.saw(current_ts, arrivals)
                job.cloud.saw(current_ts, len(metrics[QUEUES]))
        jobs = [self._jobs[head] for head in input_metrics]
        if current_ts >= UNIT_S:
            for job in jobs:
                job.controller.tick()
        targets = self._limit.targets(jobs)
        return [
            self._action(head_name=job.head, deployment_name=job.deployment, target=targets[job.head])
            for job in jobs
        ]

    def clear(self) -> None:
        """Do nothing: there is no policy of lower priority."""

    def _job(self, head: str, deployment: str) -> Job:
        if head not in self._jobs:
            given, load, cloud = self._given[head], JobLoad(self._answers[head]), JobCloud(self._limit.fitting)
            asked = deque[PlanRequest](maxlen=1)

            def note(request: PlanRequest, plan: Plan) -> Plan:
                asked.append(request)
                return plan

            self._jobs[head] = Job(
                head=head,
                deployment=deployment,
                cloud=cloud,
                load=load,
                controller=Controller(
                    policy=given.policy,
                    clock=load,
                    cloud=cloud,
                    data_plane=load,
                    forecaster=given.forecaster,
                    fallback=given.fallback,
                    journal=Forgetful(),
                    history=given.history,
                    divide=note,
                ),
                asked=asked,
            )
            self._limit.jobs.append(self._jobs[head])
        return self._jobs[head]

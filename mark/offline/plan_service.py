"""The plan of a service of several models at one moment: who shares instances, who rents its own, what is left.

It is what a replay decides first at that moment: sharing for all models together, then each one's own plan for
what sharing leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypedDict

import numpy as np
from rich.table import Table

from mark.catalog.billing import SECONDS_PER_HOUR, gateway_count
from mark.catalog.commitment_bill import HourlyUsage, left_by_standing
from mark.config.footprint import footprint_of
from mark.config.policies import ALL, chosen_overrides
from mark.config.service import ServedSettings
from mark.config.settings import Settings
from mark.controller.hosts.sharing import (
    DAY_UNITS,
    HISTORY_UNITS,
    expected_load,
    share_instances,
    taken_rps,
    within_cap,
)
from mark.controller.hosts.tenancy import HostUse, TenantUse, host_uses
from mark.controller.limits.service_cap import CapDivider
from mark.controller.plan_request import plan_fleet, request_from_nothing
from mark.controller.policy import ControllerPolicy
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.applied import left_for_each
from mark.domain.commitments.eligible import Usage, running_hour
from mark.domain.commitments.owned import Commitments
from mark.domain.demand import UNIT_S, Demand
from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.figures import figure
from mark.domain.fleet.host_spec import SHARED
from mark.domain.plan import Plan, PlannedCount, PlanRequest
from mark.domain.plans.service_cap import NOTHING
from mark.offline.experiments import replayed_commitments
from mark.offline.plan import covered_document, covered_sentence
from mark.offline.service_members import LoadOf, recorded_load, service_members
from mark.planner.shared.packing import Packing
from mark.policies.bundles import PolicyBundle
from mark.policies.own_policy import own_planner
from mark.report.formatting import MISSING, format_duration, format_rps, milliseconds, percent, usd
from mark.report.overhead import overhead_line, overhead_usd_per_month
from mark.report.tables import figures, make_table, texts
from mark.report.terminal import Report, note, progress, show, show_json, show_prose
from mark.simulator.experiment import Experiment, Ready
from mark.simulator.services.service_replay import Member, own_part, sharers_of
from mark.simulator.traces.generators import constant
from mark.simulator.workload import Workload

DAY_S = DAY_UNITS * UNIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """One model of a service's plan."""

    model: str
    #: Expected in the mean and in the busiest minute, requests/s.
    mean_rps: float
    peak_rps: float
    #: Capacity on shared instances.
    shared_rps: float
    #: Its part of their rent, by the share of their time that it takes, USD an hour.
    shared_usd: float
    #: Instances of its own.
    own: tuple[PlannedCount, ...]
    #: Of the mean, what no instance is planned to carry, requests/s.
    left_rps: float
    #: Price of that on Lambda, USD an hour; None where no Lambda answers it in time.
    lambda_usd: float | None
    #: Why its own fleet is so, or why no fleet keeps the objective.
    reason: str

    @property
    def own_usd(self) -> float:
        """Rent of its own instances, USD an hour."""
        return sum(item.count * item.usd_per_hour for item in self.own)

    @property
    def usd_per_hour(self) -> float:
        """All that it costs an hour, without what stands around all models."""
        return self.shared_usd + self.own_usd + (self.lambda_usd or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """The plan of a service. looked_s: seconds of load before the moment that it looked at.

    commitments: use of the account's commitments, USD an hour; None where it has none. They are taken off the
    prices of the models' own instances; those of shared instances are on demand, though decided by what is left to
    pay.
    """

    policy: str
    models: tuple[ModelPlan, ...]
    hosts: tuple[HostUse, ...]
    looked_s: float
    commitments: dict[str, float] | None = None

    @property
    def usd_per_hour(self) -> float:
        """Cost of all models."""
        return sum(model.usd_per_hour for model in self.models)


def plan_service(
    settings: Settings,
    *,
    rate_rps: float | None,
    forecast: str | None,
    running: Sequence[str],
    as_json: bool,
    load_of: LoadOf = recorded_load,
) -> None:
    """Plan all models of the service and print it. Misconfigured for flags that speak of one model.

    load_of: the load of each model that has a trace.
    """
    for flag, value in (("--rate", rate_rps), ("--forecast", forecast), ("--running", running or None)):
        if value is not None:
            names = ", ".join(one.model for one in settings.service.serve)
            raise Misconfigured(f"{flag} is of one model: add --model, one of {names}, or leave {flag} out")
    policy = next((name for name in settings.policies if name != ALL), "hedged")
    with progress() as report:
        members = service_members(settings, partial(_load_before, load_of=load_of))
        footprint = footprint_of(settings, models=len(members))
        footprint = replace(footprint, commitments=replayed_commitments(footprint))
        planned = plan_members(settings, members, policy, report, footprint)
    models = [member.experiment for member in members]
    if as_json:
        show_json(plan_service_document(planned, models, footprint))
    else:
        _show(planned, models, footprint)


def plan_members(
    settings: Settings, members: Sequence[Member], policy: str, report: Report, footprint: Footprint
) -> ServicePlan:
    """The plan of these models at the start of their workloads. footprint: what stands around all of them."""
    overrides = chosen_overrides(settings)
    models = [member.experiment for member in members]
    ready = [model.ready(policy, overrides=overrides, progress=report) for model in models]
    histories = _alike([_history(model) for model in models])
    sharers = sharers_of(members, ready)
    divider = CapDivider(
        models[0].scenario.world.cap, {one.experiment.spec.model.name: one.weight for one in members}
    )
    standing_leaves = left_by_standing(footprint.commitments, footprint)
    packing = Packing(hosts=(), worth_usd_per_hour=0.0)
    if sharers:
        report("deciding who shares", 0.0)
        packing = share_instances(sharers, histories, owned=standing_leaves)
    fewer = math.inf
    while True:
        if divider.cap and sharers:
            packing = within_cap(packing, sharers, histories, divider, NOTHING)
        hosts = host_uses(packing, sharers, histories) if sharers else ()
        used, wishes = _wishes(models, ready, hosts, standing_leaves, report)
        for wish in wishes if divider.cap else ():
            if wish.plan is not None:
                divider.claim(wish.model, wish.request, wish.plan)
        if divider.shared_count >= len(hosts) or len(hosts) >= fewer:
            break
        fewer = len(hosts)  # the models' own claims leave less, and more is to be claimed for their own
    plans = [
        _model_plan(wish, expected_load(history), divider) for wish, history in zip(wishes, histories, strict=True)
    ]
    looked_s = len(histories[0]) * UNIT_S if histories else 0.0
    around = HourlyUsage()
    around.add_footprint(footprint, 0.0, SECONDS_PER_HOUR, gateways=gateway_count(footprint, 0.0))
    hour = [*around.hours()[0], *chain.from_iterable(used.values())]
    covered = covered_document(footprint.commitments, hour) if footprint.commitments else None
    return ServicePlan(policy=policy, models=tuple(plans), hosts=hosts, looked_s=looked_s, commitments=covered)


def _wishes(
    models: Sequence[Experiment],
    ready: Sequence[Ready],
    hosts: Sequence[HostUse],
    owned: Commitments,
    report: Report,
) -> tuple[dict[str, tuple[Usage, ...]], list[_Wish]]:
    """An hour of what each rents, and the wishes in the models' order. owned: commitments for all of it."""
    used, wishes = {SHARED: running_hour((host.offering, host.usd_per_hour) for host in hosts)}, {}
    for model, one in sorted(zip(models, ready, strict=True), key=lambda pair: pair[0].spec.model.name):
        name = model.spec.model.name
        left = left_for_each(owned, {**used, name: ()})[name]
        controlled = replace(one.bundle.controller, commitments=left)
        wishes[name] = _wish(model, replace(one.bundle, controller=controlled), hosts, report)
        used[name] = _hour_of(wishes[name])
    return used, [wishes[model.spec.model.name] for model in models]


def _hour_of(wish: _Wish) -> tuple[Usage, ...]:
    """An hour of the model's own instances, at their prices on demand."""
    prices = {item.name: item.usd_per_hour for item in wish.policy.known_offerings}
    counts = () if wish.plan is None else wish.plan.counts
    return running_hour((item.offering, prices[item.offering]) for item in counts for _ in range(item.count))


def _load_before(settings: Settings, entry: ServedSettings, load_of: LoadOf) -> Workload:
    """The model's load, to be planned for at its start: where the trace starts, or in its last minute.

    Without a trace it has had the load that it is expected to begin with for a day.
    """
    if settings.trace.file is not None:
        load = load_of(settings, entry)
    elif entry.expected_rps is not None:
        load = Workload(trace=constant(entry.expected_rps, duration_s=DAY_S + UNIT_S), seed=settings.seed)
    else:
        raise Misconfigured(f"{entry.model} has no load: name service.serve[].trace or its expected_rps")
    end_s = load.whole_seconds[1]
    start_s = load.whole_seconds[0] or end_s - UNIT_S
    if start_s < UNIT_S:
        raise Misconfigured(f"{entry.model}: a plan looks at the load before it: two minutes of traffic at least")
    return load.at_full_speed(start_s, end_s - start_s)


def _history(model: Experiment) -> Demand:
    return model.spec.workload.history(model.scenario.start_s, HISTORY_UNITS)


def _alike(histories: Sequence[Demand]) -> list[Demand]:
    """As long as the shortest: hours are compared with one another."""
    shortest = min(map(len, histories), default=0)
    if shortest < max(map(len, histories), default=0):
        note(
            f"the plan looks at {format_duration(shortest * UNIT_S)} of each model's load, as long as the shortest"
        )
    return [history.last(shortest) for history in histories]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """One model's part of the shared instances, and what it would rent for the rest, whatever the cap."""

    model: str
    policy: ControllerPolicy
    tenancies: tuple[TenantUse, ...]
    #: Load that shared instances may take.
    room_rps: float
    request: PlanRequest
    #: None where no fleet keeps the objective, for that reason.
    plan: Plan | None
    reason: str


def _wish(model: Experiment, bundle: PolicyBundle, hosts: Sequence[HostUse], report: Report) -> _Wish:
    name = model.spec.model.name
    tenancies = tuple(tenant for host in hosts for tenant in host.tenants if tenant.model == name)
    room_rps = sum(tenant.share_rps for tenant in tenancies)
    taken = taken_rps(model.history, room_rps) if tenancies else None
    part = own_part(model, bundle, room_rps, lambda doing, share: report(f"{name}: {doing}", share))
    policy = part.bundle.controller
    forecast = part.forecasters.forecaster.forecast(part.history, policy.horizon)
    request = request_from_nothing(policy, part.history, forecast, shared_rps=taken)
    plan, reason = None, ""
    try:
        plan = plan_fleet(request, policy, own_planner(policy))
    except PlanInfeasible as error:
        reason = str(error)
    return _Wish(
        model=name,
        policy=policy,
        tenancies=tenancies,
        room_rps=room_rps,
        request=request,
        plan=plan,
        reason=reason,
    )


def _model_plan(wish: _Wish, expected: Demand, divider: CapDivider) -> ModelPlan:
    """The model's part of the shared instances, and its own plan for the rest, within its part of the cap."""
    own: tuple[PlannedCount, ...] = ()
    capacity_rps, reason = 0.0, wish.reason
    if wish.plan is not None:
        plan = divider.divide(wish.model, wish.request, wish.plan) if divider.cap else wish.plan
        own, capacity_rps, reason = plan.counts, plan.capacity_rps, plan.reason
    policy, tenancies, room_rps = wish.policy, wish.tenancies, wish.room_rps
    rates = np.array(expected.mean_rps, np.float64)
    left_rps = float(np.maximum(rates - room_rps - capacity_rps, 0.0).mean()) if rates.size else 0.0
    price = policy.lambda_usd
    return ModelPlan(
        model=wish.model,
        mean_rps=float(rates.mean()) if rates.size else 0.0,
        peak_rps=float(rates.max(initial=0.0)),
        shared_rps=sum(tenant.capacity_rps for tenant in tenancies),
        shared_usd=sum(tenant.usd_per_hour for tenant in tenancies),
        own=tuple(item for item in own if item.count),
        left_rps=left_rps,
        lambda_usd=left_rps * SECONDS_PER_HOUR * price if math.isfinite(price) else None,
        reason=reason,
    )


class SharedInstanceObject(TypedDict):
    """An instance that several models share."""

    offering: str
    usd_per_hour: float
    #: For models, and what those on it take.
    memory_gib: float
    memory_used_gib: float
    #: Share of its time that is taken, in the mean and in the busiest five minutes.
    busy: float
    busy_peak: float
    #: The models on it.
    tenants: list[TenantObject]


class TenantObject(TypedDict):
    """One model on a shared instance."""

    model: str
    #: Planned for it there, requests/s.
    capacity_rps: float
    #: Share of the instance's time that it takes, in the mean.
    busy: float
    #: Its part of the rent, by that share.
    usd_per_hour: float
    memory_gib: float
    #: Its own longest batch.
    batch_ms: float
    #: The longest batch of a neighbour, which a request waits for at worst before it is next.
    wait_ms: float


class OwnInstancesObject(TypedDict):
    """Instances of one model alone."""

    offering: str
    count: int
    #: Of one.
    usd_per_hour: float


class ModelPlanObject(TypedDict):
    """One model of the plan."""

    model: str
    #: The load that was assumed: in the mean and in the busiest minute.
    mean_rps: float
    peak_rps: float
    #: Capacity on shared instances, and its part of their rent.
    shared_rps: float
    shared_usd_per_hour: float
    #: Instances of its own, and their rent.
    own: list[OwnInstancesObject]
    own_usd_per_hour: float
    #: Of the mean load, what no instance is planned to carry.
    left_rps: float
    #: What Lambda takes for that; null where no Lambda answers in time.
    lambda_usd_per_hour: float | None
    usd_per_hour: float
    #: Why its own instances are so.
    reason: str


class PlanServiceDocument(TypedDict):
    """The document of `mark plan --json` for a service of several models (docs/json.md)."""

    policy: str
    #: Load before the moment of the plan that it looked at.
    looked_s: float
    models: list[ModelPlanObject]
    shared: list[SharedInstanceObject]
    #: All models together, without overhead: own instances at what is paid beyond commitments, shared ones on
    #: demand.
    usd_per_hour: float
    #: Use of the account's commitments by an hour of the plan; null where it has none.
    commitments: dict[str, float] | None
    overhead_usd_per_month: float
    #: Profiles that nobody measured, by model.
    assumed_profiles: dict[str, list[str]]


def plan_service_document(
    planned: ServicePlan, models: Sequence[Experiment], footprint: Footprint
) -> PlanServiceDocument:
    """The document of `mark plan --json` for a service."""
    return {
        "policy": planned.policy,
        "looked_s": planned.looked_s,
        "models": [_model_object(model) for model in planned.models],
        "shared": [host_object(host) for host in planned.hosts],
        "usd_per_hour": planned.usd_per_hour,
        "commitments": planned.commitments,
        "overhead_usd_per_month": overhead_usd_per_month(footprint),
        "assumed_profiles": {
            model.spec.model.name: list(model.supply.assumed) for model in models if model.supply.assumed
        },
    }


def _model_object(model: ModelPlan) -> ModelPlanObject:
    return {
        "model": model.model,
        "mean_rps": model.mean_rps,
        "peak_rps": model.peak_rps,
        "shared_rps": model.shared_rps,
        "shared_usd_per_hour": model.shared_usd,
        "own": [
            {"offering": item.offering, "count": item.count, "usd_per_hour": item.usd_per_hour}
            for item in model.own
        ],
        "own_usd_per_hour": model.own_usd,
        "left_rps": model.left_rps,
        "lambda_usd_per_hour": model.lambda_usd,
        "usd_per_hour": model.usd_per_hour,
        "reason": model.reason,
    }


def host_object(host: HostUse) -> SharedInstanceObject:
    """One shared instance."""
    return {
        "offering": host.offering,
        "usd_per_hour": host.usd_per_hour,
        "memory_gib": host.memory_gib,
        "memory_used_gib": host.memory_used_gib,
        "busy": host.busy,
        "busy_peak": host.busy_peak,
        "tenants": [
            {
                "model": tenant.model,
                "capacity_rps": tenant.capacity_rps,
                "busy": tenant.busy,
                "usd_per_hour": tenant.usd_per_hour,
                "memory_gib": tenant.memory_gib,
                "batch_ms": tenant.batch_s * 1000,
                "wait_ms": tenant.wait_s * 1000,
            }
            for tenant in host.tenants
        ],
    }


def _show(planned: ServicePlan, models: Sequence[Experiment], footprint: Footprint) -> None:
    show_prose(
        f"{planned.policy}, from the last {format_duration(planned.looked_s)} of load: "
        f"{usd(planned.usd_per_hour)} USD/h for {len(planned.models)} models.",
        "",
    )
    show(_models_table(planned), "")
    if planned.hosts:
        show(_hosts_table(planned.hosts), "")
        spills = any(model.shared_rps > 0.0 and model.lambda_usd is not None for model in planned.models)
        show_prose(
            "Busy is the share of the instance's time: mean and busiest five minutes. Waits is a neighbour's "
            "longest batch, behind which a request may have to wait"
            + ("; what would be late goes to Lambda." if spills else "."),
            "",
        )
    for model in planned.models:
        if model.lambda_usd is None and model.left_rps > 0:
            show_prose(f"{model.model}: nobody answers {format_rps(model.left_rps)} requests/s ({model.reason})")
    if planned.commitments is not None:
        show_prose(
            covered_sentence(planned.commitments),
            "Prices of own instances are what is paid beyond; those of shared instances are on demand.",
        )
    show_prose(overhead_line(footprint))
    for one in models:
        for text in one.supply.assumed:
            show_prose(f"assumed: {one.spec.model.name}, {text}")


def _models_table(planned: ServicePlan) -> Table:
    columns = [
        *texts("model"),
        *figures("requests/s", "peak"),
        *texts("runs on"),
        *figures("left to\nLambda/s", "USD/h"),
    ]
    table = make_table(columns, gap=2)
    for model in sorted(planned.models, key=lambda one: (-one.usd_per_hour, one.model)):
        numbers = [str(n) for n, host in enumerate(planned.hosts, 1) if _holds(host, model.model)]
        own = [f"{item.count} {item.offering.partition(':')[0]}" for item in model.own]
        shared = [f"shared {', '.join(numbers)}"] if numbers else []
        table.add_row(
            model.model,
            format_rps(model.mean_rps),
            format_rps(model.peak_rps),
            " + ".join([*shared, *own]) or (MISSING if model.lambda_usd is None else "Lambda"),
            format_rps(model.left_rps) if model.lambda_usd is not None else MISSING,
            usd(model.usd_per_hour),
        )
    return table


def _holds(host: HostUse, model: str) -> bool:
    return any(tenant.model == model for tenant in host.tenants)


def _hosts_table(hosts: Sequence[HostUse]) -> Table:
    """A row an instance, then one for each model on it."""
    columns = [*texts("shared instance"), *figures("requests/s", "busy", "GiB", "waits ms", "USD/h")]
    table = make_table(columns, gap=2)
    for number, host in enumerate(hosts, 1):
        table.add_row(
            f"{number}: {host.offering}",
            "",
            f"{percent(host.busy, digits=0)}, {percent(host.busy_peak, digits=0)}",
            f"{figure(host.memory_used_gib)} of {figure(host.memory_gib)}",
            "",
            usd(host.usd_per_hour),
        )
        for tenant in host.tenants:
            table.add_row(
                f"   {tenant.model}",
                format_rps(tenant.capacity_rps),
                percent(tenant.busy, digits=0),
                figure(tenant.memory_gib),
                milliseconds(tenant.wait_s),
                usd(tenant.usd_per_hour),
            )
    return table

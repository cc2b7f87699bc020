"""From settings to what policies are made of. Every name is checked here, before anything runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from mark.catalog.latency_tables import load_sizes
from mark.catalog.load import known_models
from mark.catalog.type_sets import check_types
from mark.cloudmodel.world import WORLDS, World
from mark.config.footprint import footprint_of
from mark.config.prices import chosen_prices
from mark.config.service import Measured, ObjectiveSettings
from mark.config.settings import Settings, cache_dir
from mark.dispatch.central.policy import CentralPolicy, CentralRule, TooLate
from mark.dispatch.policy import Routing
from mark.dispatch.rules import CentralDispatch, DispatchRule, parse_rule
from mark.dispatch.variants.serving import VariantDispatch
from mark.domain.errors import Misconfigured, unknown
from mark.domain.load.announced_events import events_of
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.offerings.offering import LAMBDA_PROFILED_GIB, MachineKind
from mark.domain.offerings.times import LognormalTime, RebalanceAdvice
from mark.plugins.load import is_oracle, load_forecaster
from mark.policies.bundles import KAIROS, check_policy
from mark.policies.overrides import Tuning
from mark.policies.spec import Overrides, PolicySpec, VariantWishes
from mark.policies.supply import OverflowLimits

MIB_PER_GIB = 1024.0
ALL = "all"
"""Stands for every policy that can run."""


def chosen_model(settings: Settings) -> ModelSpec:
    """The model that is named; an unknown one is refused with the nearest."""
    if settings.model is None:
        raise Misconfigured("name a model with --model; `mark models` lists them")
    known = known_models(settings.models)
    if settings.model not in known:
        raise unknown("model", settings.model, known)
    return known[settings.model]


def sized_model(settings: Settings) -> ModelSpec:
    """The model with the sizes of its requests in a replay or a plan: the load's, or else its usual ones."""
    model = chosen_model(settings)
    return replace(model, sizes=chosen_sizes(settings, model))


def chosen_sizes(settings: Settings, model: ModelSpec) -> SizeDistribution | None:
    """Sizes of requests in items; None where each is one."""
    spec = settings.trace.sizes or model.usual_sizes
    return load_sizes(spec) if spec else None


def chosen_slo(settings: Settings, model: ModelSpec) -> Slo:
    """The model's objective, where settings do not say otherwise."""
    asked = settings.objective
    latency_s = asked.latency_ms / 1000 if asked.latency_ms is not None else model.slo.latency_s
    target = asked.target if asked.target is not None else model.slo.target
    if asked.measured is Measured.FIRST_BYTE:
        return _first_byte_slo(asked, latency_s, target)
    if asked.rest_ms is not None:
        raise Misconfigured("objective.rest_ms is for objective.measured: first_byte; leave it out")
    if asked.mean_latency_ms is None:
        return Slo(latency_s=latency_s, target=target)
    return Slo(latency_s=latency_s, target=target, mean_latency_s=asked.mean_latency_ms / 1000)


def _first_byte_slo(asked: ObjectiveSettings, first_byte_s: float, target: float) -> Slo:
    """An objective of the first byte, in whole answers: what follows it usually takes `rest_ms`."""
    if asked.rest_ms is None:
        raise Misconfigured(
            "objective.measured: first_byte needs objective.rest_ms: what an answer usually takes after its "
            "first byte"
        )
    rest_s = asked.rest_ms / 1000
    mean_s = 0.0 if asked.mean_latency_ms is None else asked.mean_latency_ms / 1000 + rest_s
    return Slo(latency_s=first_byte_s + rest_s, target=target, mean_latency_s=mean_s, first_byte_s=first_byte_s)


def chosen_tuning(settings: Settings) -> Tuning:
    """The section `policy`: changes to our own policies, by dotted names."""
    asked = settings.policy.model_dump(
        exclude={"budget_usd_per_hour", "size_window", "overflow_limits", "managed"}
    )
    sections = {key: value for key, value in asked.items() if isinstance(value, dict)}
    own = {key: value for key, value in asked.items() if key not in sections}
    return own | {f"{section}.{key}": value for section, tree in sections.items() for key, value in tree.items()}


def chosen_limits(settings: Settings) -> OverflowLimits:
    """Lambda's quotas and size."""
    asked, memory_mib = settings.policy.overflow_limits, settings.rollout.functions.memory_mib
    return OverflowLimits(
        concurrency=asked.concurrency,
        burst=asked.burst,
        memory_gib=asked.memory_gib,
        least_memory_gib=LAMBDA_PROFILED_GIB if memory_mib is None else memory_mib / MIB_PER_GIB,
    )


def named_world(settings: Settings) -> World:
    """The world by its name, with the times that the settings have in place of its own."""
    world, asked = WORLDS[settings.simulate.world], settings.simulate
    times = world.times
    if asked.launch is not None:
        times = replace(times, launch=LognormalTime(median_s=asked.launch.median_s, p95_s=asked.launch.p95_s))
    if asked.wake is not None:
        wake = LognormalTime(median_s=asked.wake.median_s, p95_s=asked.wake.p95_s)
        times = replace(times, wake=wake, wake_large=wake, wake_accelerated=wake)
    if (told := asked.rebalance) is not None:
        lead = LognormalTime(median_s=told.lead.median_s, p95_s=told.lead.p95_s)
        advice = RebalanceAdvice(share=told.share, lead=lead, unfounded=told.unfounded)
        times = replace(times, advice=advice)
    return replace(world, times=times)


def chosen_world(settings: Settings) -> World:
    """The world without its quotas: a service reads those of its account, a replay adds the world's.

    What can be launched there is what the rollout has templates for, if it says so.
    """
    kinds = settings.rollout.machines
    machines = (
        None
        if kinds is None
        else tuple(MachineKind(name=one.name, own_image=one.ami is not None) for one in kinds)
    )
    return replace(named_world(settings), quotas=(), machines=machines)


def chosen_policies(settings: Settings) -> PolicySpec:
    """Parts that policies are made of. Unknown names are refused."""
    model = chosen_model(settings)
    check_names(settings)
    return PolicySpec(
        model=model,
        slo=chosen_slo(settings, model),
        market=settings.market,
        types=settings.offerings.types,
        profile_sets=settings.profiles,
        standby_type=settings.offerings.standby_type,
        standby_share=settings.offerings.standby_share,
        overflow=settings.offerings.overflow,
        late=settings.objective.late,
        managed_cpu_factor=settings.policy.managed.cpu,
        managed_gpu_factor=settings.policy.managed.gpu,
        tuning=chosen_tuning(settings),
        overflow_limits=chosen_limits(settings),
        footprint=footprint_of(settings),
        prices=chosen_prices(settings),
        world=chosen_world(settings),
        capacity=tuple(item.window for item in settings.capacity),
        events=events_of([item.event for item in settings.events], model.name),
        budget_usd_per_hour=settings.policy.budget_usd_per_hour,
        size_window=settings.policy.size_window,
    )


def check_names(settings: Settings) -> None:
    """Refuse unknown policies, types and forecasters before a trace is read."""
    for name in settings.policies:
        check_policy(name, also=(ALL,))
    _check_budget(settings)
    prices = chosen_prices(settings)
    single = (settings.offerings.standby_type, settings.policy.monitor.instance_type)
    check_types(settings.offerings.types, prices)
    for name in filter(None, single):
        prices.instance_type(name)
    if settings.forecaster:
        load_forecaster(settings.forecaster)
    served = (settings.model, *(one.model for one in settings.service.serve))
    check_events(settings, {*filter(None, served), *known_models(settings.models)})


def check_events(settings: Settings, models: Collection[str]) -> None:
    """Refuse an announced event about none of these models. Misconfigured."""
    for item in settings.events:
        if item.model is not None and item.model not in models:
            raise Misconfigured(f"the event {item.event.name}: {unknown('model', item.model, sorted(models))}")


def _check_budget(settings: Settings) -> None:
    """Refuse a budget that no policy keeps, and a policy that keeps one without any. Misconfigured."""
    named, budget = KAIROS in settings.policies, settings.policy.budget_usd_per_hour
    if named and budget is None:
        raise Misconfigured(
            "the policy kairos needs a budget: set policy.budget_usd_per_hour, or give --pool-usd-per-hour"
        )
    if budget is not None and not named:
        raise Misconfigured(
            f"a budget of {budget:g} USD/h for a pool is kept by the policy kairos only: name it in policies, or "
            "leave policy.budget_usd_per_hour out"
        )
    if named and settings.capacity:
        raise Misconfigured(
            "the policy kairos keeps a budget, and bounds by the clock might pass it: leave capacity out"
        )


def chosen_overrides(settings: Settings) -> Overrides:
    """Parts of policies that the settings replace."""
    name = settings.forecaster
    return Overrides(
        forecaster=name,
        uses_truth=name is not None and is_oracle(load_forecaster(name)),
        routing=chosen_routing(settings),
    )


def chosen_routing(settings: Settings) -> Routing | None:
    """The routing rule that the settings name; None where they name none, or one of another kind."""
    rule = _chosen_rule(settings)
    return rule if isinstance(rule, Routing) else None


def chosen_variants(settings: Settings) -> VariantWishes:
    """Wishes of the settings for a model's variants."""
    rule = _chosen_rule(settings)
    return VariantWishes(
        dispatch=rule if isinstance(rule, VariantDispatch) else None,
        accuracy_floor=settings.objective.accuracy_floor,
        soft_s=_seconds(settings.objective.soft_deadline_ms),
        hard_s=_seconds(settings.objective.hard_deadline_ms),
    )


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1000


def chosen_central(settings: Settings, *, overflows: bool) -> CentralPolicy | None:
    """The central queue that the settings name; None where requests are bound when they arrive.

    The policy kairos has its rule where they name none.

    overflows: Lambda takes requests of the model, and so by default those that no instance answers in time.
    """
    rule = _chosen_rule(settings)
    if rule is None and settings.policies[:1] == (KAIROS,):
        rule = CentralDispatch(CentralRule.KAIROS)
    if not isinstance(rule, CentralDispatch):
        return None
    return CentralPolicy(
        rule=rule.rule,
        threshold=rule.threshold,
        own=rule.own,
        too_late=settings.too_late or (TooLate.OVERFLOW if overflows else TooLate.HOLD),
    )


def replayed_central(settings: Settings) -> CentralPolicy | None:
    """The central queue of a replay, for the policy `kairos`; None where requests are bound on arrival.

    Other policies beside it keep their own rule. Misconfigured where it is not among them.
    """
    if not isinstance(_chosen_rule(settings), CentralDispatch):
        return None
    if KAIROS not in settings.policies:
        check_binds_early(settings)
    return chosen_central(settings, overflows=False)


def check_binds_early(settings: Settings) -> None:
    """Refuse a central queue for a replay of fleets, which binds each request when it arrives. Misconfigured."""
    rule = _chosen_rule(settings)
    if isinstance(rule, CentralDispatch):
        on_pool = "" if rule.own else f"`mark pool evaluate --dispatch {rule.rule}` replays it on a fixed pool, "
        raise Misconfigured(
            f"the dispatch rule {rule} keeps a central queue, which a replay of this fleet does not have: "
            f"{on_pool}`mark simulate --policy "
            "kairos` on the pool that this policy rents, `--dispatch least-finish` binds early"
        )


def _chosen_rule(settings: Settings) -> DispatchRule | None:
    return parse_rule(settings.dispatch) if settings.dispatch else None


def usable_cache() -> Path:
    """The cache's folder, made where it is missing."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(
            f"cannot make the cache {folder}: {error.strerror}; set MARK_CACHE to another"
        ) from error
    return folder

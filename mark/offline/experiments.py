"""From settings to an experiment. Every name that settings hold is checked here, before anything runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mark.catalog.load import known_models, load_prices
from mark.config.settings import ManagedSettings, OverflowSettings, PolicySettings, Settings, cache_dir
from mark.domain.errors import MarkError, Misconfigured, unknown
from mark.domain.objective import ModelSpec, Slo
from mark.domain.offering import Market
from mark.offline.trace_source import TraceReading, read_place
from mark.plugins.load import build_forecaster, is_oracle, load_forecaster
from mark.policies.bundles import policy_names
from mark.policies.overrides import Tuning
from mark.policies.supply import OverflowLimits
from mark.report.terminal import Report, progress
from mark.simulator.engine.compiled import compiled_kernel
from mark.simulator.experiment import Experiment, ExperimentSpec, Overrides
from mark.simulator.faults import FaultScript, Interrupt, LateBoots, Refuse
from mark.simulator.traces.bursts import with_bursts
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload

ALL = "all"
"""Stands for every policy that can run."""
NAMED_ONLY = {"milp": "its plans take a day of traffic some minutes; name it"}
"""Policies that `all` leaves out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """Policies to run, in order, and why others were left out of `all`."""

    policies: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def chosen_model(settings: Settings) -> ModelSpec:
    """The model that is named; an unknown one is refused with the nearest."""
    if settings.model is None:
        raise Misconfigured("name a model with --model; `mark models` lists them")
    known = known_models(settings.models)
    if settings.model not in known:
        raise unknown("model", settings.model, known)
    return known[settings.model]


def chosen_slo(settings: Settings, model: ModelSpec) -> Slo:
    """The model's objective, where settings do not say otherwise."""
    asked = settings.objective
    latency_s = asked.latency_ms / 1000 if asked.latency_ms is not None else model.slo.latency_s
    target = asked.target if asked.target is not None else model.slo.target
    if asked.mean_latency_ms is None:
        return Slo(latency_s=latency_s, target=target)
    return Slo(latency_s=latency_s, target=target, mean_latency_s=asked.mean_latency_ms / 1000)


def chosen_workload(settings: Settings) -> Workload:
    """The trace, scaled and cut as asked."""
    asked = settings.trace
    if asked.file is None:
        raise Misconfigured("name a trace with --trace; `mark trace generate` writes one")
    with progress() as report:
        report(f"reading {asked.file}", 0.0)
        trace = read_place(asked.file, TraceReading.of(settings))
    return workload_on(settings, trace)


def workload_on(settings: Settings, trace: Trace) -> Workload:
    """A trace that is already read, scaled and cut as asked."""
    asked = settings.trace
    if asked.mean_rps is not None:
        trace = trace.scaled(asked.mean_rps, asked.start_s, asked.duration_s)
    workload = Workload(
        trace=with_bursts(trace, asked.bursts, settings.seed),
        seed=settings.seed,
        start_s=asked.start_s,
        duration_s=asked.duration_s,
        speed=asked.speed,
    )
    first_s, last_s = workload.whole_seconds
    if last_s <= first_s:
        raise Misconfigured(
            f"a replay needs a whole second, not {workload.duration_s:g} s; give a longer --duration-s"
        )
    return workload


def chosen_tuning(settings: Settings) -> Tuning:
    """What the section `policy` asks of our own policies."""
    asked = settings.policy
    return Tuning(
        lead_min=asked.lead_min,
        cooldown_min=asked.cooldown_min,
        monitor_requests=asked.monitor.requests,
        monitor_seconds=asked.monitor.seconds,
        monitor_count=asked.monitor.count,
        monitor_cooldown_s=asked.monitor.cooldown_s,
        monitor_type=asked.monitor.instance_type,
        admission_factor=asked.admission_factor,
        standby_max_count=asked.standby.max_count,
        max_instances=asked.max_instances,
        launch_weight_usd_per_s=asked.launch_weight_usd_per_s,
    )


def chosen_limits(settings: Settings) -> OverflowLimits:
    """Lambda's quotas and size."""
    asked = settings.policy.overflow_limits
    return OverflowLimits(concurrency=asked.concurrency, burst=asked.burst, memory_gib=asked.memory_gib)


def shared_changes(settings: Settings, policy: str, experiment: Experiment) -> tuple[str, ...]:
    """What the section `policy` changes beside our own policies: the Lambda of all, the premium of sagemaker."""
    asked, usual = settings.policy, PolicySettings()
    pairs: list[tuple[str, OverflowSettings | ManagedSettings, OverflowSettings | ManagedSettings]] = []
    if experiment.bundle(policy).controller.overflow is not None:
        pairs.append(("overflow_limits", asked.overflow_limits, usual.overflow_limits))
    if policy == "sagemaker":
        pairs.append(("managed", asked.managed, usual.managed))
    return tuple(
        f"policy.{section}.{key} is {new} instead of {old or 'its usual value'}"
        for section, given, own in pairs
        for (key, new), (_, old) in zip(given, own, strict=True)
        if new != old
    )


def chosen_faults(settings: Settings) -> FaultScript:
    """The faults, in seconds of the run."""
    asked = settings.faults
    return FaultScript(
        stress=asked.stress,
        interrupts=tuple(
            Interrupt(at_s=item.at_min * 60, share=item.share, offering=item.offering) for item in asked.interrupts
        ),
        refusals=tuple(
            Refuse(from_s=item.from_min * 60, to_s=item.to_min * 60, offering=item.offering)
            for item in asked.refusals
        ),
        late_boots=tuple(
            LateBoots(from_s=item.from_min * 60, to_s=item.to_min * 60, factor=item.factor)
            for item in asked.late_boots
        ),
    )


def make_experiment(
    settings: Settings, *, workload: Workload | None = None, market: Market | None = None
) -> Experiment:
    """The experiment that the settings describe, on `workload` where one is given instead of a trace file."""
    model = chosen_model(settings)
    check_names(settings)
    cache = usable_cache()
    spec = ExperimentSpec(
        model=model,
        slo=chosen_slo(settings, model),
        market=market or settings.market,
        workload=workload or chosen_workload(settings),
        types=settings.offerings.types,
        profile_sets=settings.profiles,
        standby_type=settings.offerings.standby_type,
        standby_share=settings.offerings.standby_share,
        overflow=settings.offerings.overflow,
        late=settings.objective.late,
        faults=chosen_faults(settings),
        managed_cpu_factor=settings.policy.managed.cpu,
        managed_gpu_factor=settings.policy.managed.gpu,
        tuning=chosen_tuning(settings),
        overflow_limits=chosen_limits(settings),
        prices=load_prices(settings.prices),
        cache_dir=cache,
    )
    experiment = Experiment(spec, kernel=compiled_kernel(cache), build_forecaster=build_forecaster)
    _check_faults(settings, experiment)
    return experiment


def check_names(settings: Settings) -> None:
    """Refuse unknown policies, types and forecasters before a trace is read."""
    for name in settings.policies:
        if name not in (*policy_names(), ALL):
            raise unknown("policy", name, (*policy_names(), ALL))
    prices = load_prices(settings.prices)
    single = (settings.offerings.standby_type, settings.policy.monitor.instance_type)
    for name in (*settings.offerings.types, *(name for name in single if name)):
        prices.instance_type(name)
    if settings.forecaster:
        load_forecaster(settings.forecaster)


def chosen_overrides(settings: Settings) -> Overrides:
    """What the settings replace in policies."""
    name = settings.forecaster
    return Overrides(
        forecaster=name,
        uses_truth=name is not None and is_oracle(load_forecaster(name)),
        routing=settings.dispatch,
    )


def line_up(settings: Settings, experiment: Experiment) -> Lineup:
    """The policies to run. One that cannot is left out of `all`, and an error where it was named."""
    named = dict.fromkeys(name for name in settings.policies if name != ALL)
    if ALL not in settings.policies:
        for name in named:
            _check_can_run(name, settings, experiment)
        return Lineup(policies=tuple(named))
    able, left_out = [], []
    for name in policy_names():
        if name in NAMED_ONLY and name not in named:
            left_out.append(f"{name} is left out: {NAMED_ONLY[name]}")
            continue
        try:
            _check_can_run(name, settings, experiment)
        except MarkError as error:
            if name in named:
                raise
            left_out.append(f"{name} is left out: {error}")
        else:
            able.append(name)
    if not able:
        raise Misconfigured(f"no policy can run: {'; '.join(left_out)}")
    return Lineup(policies=tuple(able), left_out=tuple(left_out))


def warm_engine(experiment: Experiment, report: Report) -> None:
    """Have the engine compiled, by a minute of almost no load: the first time on a machine takes some 10 s."""
    report("compiling the engine (once a machine)", 0.0)
    workload = Workload(trace=constant(1.0, duration_s=60.0), seed=0)
    spec = replace(experiment.spec, workload=workload, faults=FaultScript())
    warm = Experiment(spec, kernel=compiled_kernel(usable_cache()), build_forecaster=build_forecaster)
    with suppress(MarkError):  # where this policy cannot run, the first one that can compiles the engine
        warm.run("reactive")


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


def _check_faults(settings: Settings, experiment: Experiment) -> None:
    """Refuse faults that would hit nothing: an offering that is not there, a time that is not replayed."""
    workload, asked = experiment.spec.workload, settings.faults
    known = {offering.name for offering in (*experiment.offerings, *experiment.on_demand)}
    for name in [*(item.offering for item in asked.interrupts), *(item.offering for item in asked.refusals)]:
        if name and name not in known:
            raise unknown("offering in faults", name, known)
    end_min = workload.duration_s / 60
    begins = [item.at_min for item in asked.interrupts]
    refusals = [(item.from_min, item.to_min) for item in asked.refusals]
    late_boots = [(item.from_min, item.to_min) for item in asked.late_boots]
    for from_min, to_min in refusals + late_boots:
        if to_min <= from_min:
            raise Misconfigured(f"a fault from minute {from_min:g} must end after it, not at {to_min:g}")
        begins.append(from_min)
    if begins and max(begins) >= end_min:
        raise Misconfigured(f"a fault at minute {max(begins):g} comes after the run's end at minute {end_min:g}")
    if asked.interrupts and experiment.spec.market is not Market.SPOT:
        raise Misconfigured(
            "only spot instances are interrupted: add --market spot, or leave the interruptions out"
        )


def _check_can_run(policy: str, settings: Settings, experiment: Experiment) -> None:
    bundle = experiment.bundle(policy, chosen_overrides(settings))
    load_forecaster(bundle.forecaster)

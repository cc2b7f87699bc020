"""From settings to an experiment: its load, its faults, and the policies that run on it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

from mark.cloudmodel.world import WORLDS
from mark.config.policies import ALL, chosen_overrides, chosen_policies, chosen_variants, usable_cache
from mark.config.served import as_rolled_out
from mark.config.settings import (
    ManagedSettings,
    OverflowSettings,
    PolicySettings,
    Settings,
)
from mark.dispatch.variants.qos import QosRule
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import MarkError, Misconfigured, unknown
from mark.domain.offerings.offering import Market
from mark.offline.learned_policy import learned_policy, policy_reader
from mark.offline.trace_source import given_trace
from mark.offline.workloads import chosen_workload
from mark.plugins.load import build_forecaster, load_forecaster
from mark.policies.bundles import FLEET_PER_MODEL, KAIROS, MANAGED, policy_names, tuning_grid
from mark.policies.present import Present
from mark.report.terminal import Report
from mark.simulator.engine.compiled import compiled_kernel
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript, Interrupt, LateBoots, Refuse
from mark.simulator.qos.drawn_load import daily_load
from mark.simulator.traces.generators import constant
from mark.simulator.workload import Workload

NAMED_ONLY = {
    "milp": "its plans take a day of traffic some minutes; name it",
    KAIROS: "it needs a budget; name it with --pool-usd-per-hour",
    FLEET_PER_MODEL: "of one model it is hedged; it is for services of several",
}
"""Policies that `all` leaves out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """Policies to run, in order, and why others were left out of `all`."""

    policies: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def shared_changes(settings: Settings, policy: str, experiment: Experiment) -> tuple[str, ...]:
    """Changes of the section `policy` to all policies: the Lambda of all, the premium of a managed service."""
    chosen, defaults = settings.policy, PolicySettings()
    pairs: list[tuple[str, OverflowSettings | ManagedSettings, OverflowSettings | ManagedSettings]] = []
    if experiment.bundle(policy).controller.overflow is not None:
        pairs.append(("overflow_limits", chosen.overflow_limits, defaults.overflow_limits))
    if policy in MANAGED:
        pairs.append(("managed", chosen.managed, defaults.managed))
    return tuple(
        f"policy.{section}.{key} is {new} instead of {old or 'its usual value'}"
        for section, given, own in pairs
        for (key, new), (_, old) in zip(given, own, strict=True)
        if new != old
    )


def chosen_faults(settings: Settings) -> FaultScript:
    """The faults, in seconds of the run."""
    chosen = settings.faults
    return FaultScript(
        stress=chosen.stress,
        interrupts=tuple(
            Interrupt(at_s=item.at_min * 60, share=item.share, offering=item.offering)
            for item in chosen.interrupts
        ),
        refusals=tuple(
            Refuse(from_s=item.from_min * 60, to_s=item.to_min * 60, offering=item.offering)
            for item in chosen.refusals
        ),
        late_boots=tuple(
            LateBoots(from_s=item.from_min * 60, to_s=item.to_min * 60, factor=item.factor)
            for item in chosen.late_boots
        ),
    )


def make_experiment(
    settings: Settings,
    *,
    workload: Workload | None = None,
    owned: Commitments | None = None,
    market_seed: int | None = None,
) -> Experiment:
    """The experiment that the settings describe, on `workload` where one is given instead of a trace file.

    With a section `rollout` it has what that deploys; without one, any kind of machine. owned: commitments of the
    account, whatever their terms; None for those that the settings' file has today. market_seed: of spot prices
    and refusals, where the settings' seed is a model's own.
    """
    if "rollout" in settings.model_fields_set:
        settings = as_rolled_out(settings)
    cache = usable_cache()
    chosen = chosen_policies(settings)
    load = workload or chosen_workload(settings)
    wishes = replace(chosen_variants(settings), read_policy=policy_reader(settings))
    owned = replayed_commitments(chosen.footprint, owned)
    chosen = replace(
        chosen,
        footprint=replace(chosen.footprint, commitments=owned),
        model=replace(chosen.model, sizes=load.sizes),
        variants=wishes,
        clock_at=load.trace.start_at,
    )
    spec = ExperimentSpec(
        **{field.name: getattr(chosen, field.name) for field in fields(chosen)},
        workload=load,
        faults=chosen_faults(settings),
        cache_dir=cache,
        market_seed=market_seed,
    )
    if settings.simulate.quotas:
        spec = replace(spec, world=replace(spec.world, quotas=WORLDS[settings.simulate.world].quotas))
    spec = replace(spec, world=replace(spec.world, cap=settings.service.aws.cap))
    experiment = Experiment(spec, kernel=compiled_kernel(cache), build_forecaster=build_forecaster)
    _check_faults(settings, experiment)
    return experiment


def replayed_commitments(footprint: Footprint, owned: Commitments | None = None) -> Commitments:
    """The account's commitments as a replay has them: those that hold today, unless others are given.

    Dates are those of the account, not of the load: what holds today holds for all of it.
    """
    if owned is None:
        owned = footprint.commitments.active_at(time.time())
    return replace(owned, zones=footprint.zones).without_terms()


def learned_days(settings: Settings, experiment: Experiment) -> int:
    """Days of the replay that the policy of the learned rule was trained on; 0 where another rule serves.

    A trace without whole days has none that a policy could have learned from.
    """
    serving, workload = experiment.assembly.variants, experiment.spec.workload
    if serving is None or serving.dispatch.rule is not QosRule.LEARNED:
        return 0
    trace = given_trace(settings)  # the replay's is scaled
    if trace is None or trace.name != workload.trace.name:
        return 0
    try:
        load = daily_load(trace)
    except Misconfigured:
        return 0
    _, made = learned_policy(settings, serving.learned_pool())
    replayed = load.days_between(workload.start_s, workload.end_s)
    return sum(day in made.days for day in load.day_hashes(replayed))


def verdict_rivals(experiment: Experiment, now: Present) -> tuple[str, ...]:
    """The policies that a verdict measures ours by; the longest replay last: Ctrl-C keeps the others.

    With Lambda the best that a team could build overflows to it as ours does.
    """
    tuned = "autoscaler" if experiment.supply.overflow is None else "autoscaler-spill"
    return tuple(filter(None, (now.policy, "lambda-only", tuned)))


def told_present(settings: Settings, now: Present) -> tuple[str, ...]:
    """The policy of what runs now, where the user named that."""
    return tuple(filter(None, [now.policy])) if "now" in settings.simulate.model_fields_set else ()


def line_up(settings: Settings, experiment: Experiment, rivals: Sequence[str] = ()) -> Lineup:
    """The policies to run. One that cannot is left out of `all` and `rivals`, and an error where it was named."""
    named = dict.fromkeys(name for name in settings.policies if name != ALL)
    able: list[str] = []
    left_out: list[str] = []
    if ALL not in settings.policies:
        for name in named:
            _check_can_run(name, settings, experiment)
        able += named
        for name in rivals:
            if name not in named:
                _add_able(name, settings, experiment, able, left_out)
        return Lineup(policies=tuple(able), left_out=tuple(left_out))
    tuned = [name for name in policy_names() if tuning_grid(name) and name not in named]
    if tuned:
        left_out.append(f"{', '.join(tuned)} are left out: each is tuned by replays of the day before; name them")
    for name in dict.fromkeys((*policy_names(), *named)):
        if name in tuned:
            continue
        if name in NAMED_ONLY and name not in named:
            left_out.append(f"{name} is left out: {NAMED_ONLY[name]}")
            continue
        if name in named:
            _check_can_run(name, settings, experiment)
            able.append(name)
        else:
            _add_able(name, settings, experiment, able, left_out)
    if not able:
        raise Misconfigured(f"no policy can run: {'; '.join(left_out)}")
    return Lineup(policies=tuple(able), left_out=tuple(left_out))


def line_up_all(settings: Settings, models: Sequence[Experiment], rivals: Sequence[str] = ()) -> Lineup:
    """The policies that every model can run; one that the settings name must."""
    lineups = [line_up(settings, model, rivals) for model in models]
    if len(models) == 1:
        return lineups[0]
    names = [model.spec.model.name for model in models]
    every = set.intersection(*(set(lineup.policies) for lineup in lineups))
    return Lineup(
        policies=tuple(name for name in lineups[0].policies if name in every),
        left_out=tuple(
            f"{name}: {text}" for name, one in zip(names, lineups, strict=True) for text in one.left_out
        ),
    )


def _add_able(name: str, settings: Settings, experiment: Experiment, able: list[str], left_out: list[str]) -> None:
    """Add the policy to those that can run, or the reason why it cannot to the others."""
    try:
        _check_can_run(name, settings, experiment)
    except MarkError as error:
        left_out.append(f"{name} is left out: {error}")
    else:
        able.append(name)


def warm_engine(experiment: Experiment, report: Report) -> None:
    """Have the engine compiled, by a minute of almost no load: the first time on a machine takes some 10 s."""
    report("compiling the engine (once a machine)", 0.0)
    workload = Workload(trace=constant(1.0, duration_s=60.0), seed=0, sizes=experiment.spec.workload.sizes)
    spec = replace(experiment.spec, workload=workload, faults=FaultScript())
    warm = Experiment(spec, kernel=compiled_kernel(usable_cache()), build_forecaster=build_forecaster)
    with suppress(MarkError):  # where this policy cannot run, the first one that can compiles the engine
        warm.run("reactive")


def _check_faults(settings: Settings, experiment: Experiment) -> None:
    """Refuse faults that would hit nothing: an offering that is not there, a time that is not replayed."""
    workload, chosen = experiment.spec.workload, settings.faults
    known = {offering.name for offering in (*experiment.supply.offerings, *experiment.supply.on_demand)}
    for name in [*(item.offering for item in chosen.interrupts), *(item.offering for item in chosen.refusals)]:
        if name and name not in known:
            raise unknown("offering in faults", name, known)
    end_min = workload.duration_s / 60
    begins = [item.at_min for item in chosen.interrupts]
    refusals = [(item.from_min, item.to_min) for item in chosen.refusals]
    late_boots = [(item.from_min, item.to_min) for item in chosen.late_boots]
    for from_min, to_min in refusals + late_boots:
        if to_min <= from_min:
            raise Misconfigured(f"a fault from minute {from_min:g} must end after it, not at {to_min:g}")
        begins.append(from_min)
    if begins and max(begins) >= end_min:
        raise Misconfigured(f"a fault at minute {max(begins):g} comes after the run's end at minute {end_min:g}")
    if chosen.interrupts and experiment.spec.market is not Market.SPOT:
        raise Misconfigured(
            "only spot instances are interrupted: add --market spot, or leave the interruptions out"
        )


def _check_can_run(policy: str, settings: Settings, experiment: Experiment) -> None:
    bundle = experiment.bundle(policy, chosen_overrides(settings))
    load_forecaster(bundle.forecaster)

"""The models of a service as offline commands take them: each with its own settings and its own load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from mark.catalog.commitment_bill import left_by_standing
from mark.config.footprint import footprint_of
from mark.config.policies import chosen_overrides, usable_cache
from mark.config.service import ServedSettings, Sharing
from mark.config.settings import Settings
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import Misconfigured
from mark.domain.figures import figure
from mark.domain.plans.service_cap import NOTHING, ServiceCap, Takes, takes_of
from mark.offline.experiments import make_experiment, replayed_commitments
from mark.offline.workloads import chosen_workload, each_seeded
from mark.report.formatting import format_duration
from mark.simulator.engine.compiled import compiled_device_kernel, compiled_kernel
from mark.simulator.experiment import Experiment, Progress
from mark.simulator.results import RunResult
from mark.simulator.services.service_replay import NOWHERE, Member, ServiceJournals, replay_service
from mark.simulator.services.service_run import ServiceRun, join_runs
from mark.simulator.workload import Workload

LoadOf = Callable[[Settings, ServedSettings], Workload]
"""The load of one model, by its own settings."""


def recorded_load(settings: Settings, entry: ServedSettings) -> Workload:
    """The model's own trace. Misconfigured where it has none."""
    if settings.trace.file is None:
        raise Misconfigured(f"{entry.model} has no traffic: name service.serve[].trace, or --trace for all")
    return chosen_workload(settings)


def service_members(settings: Settings, load_of: LoadOf = recorded_load) -> list[Member]:
    """The models in their order. Misconfigured names the model whose settings do not do."""
    members: list[Member] = []
    floors: list[Takes] = []
    for own, entry in each_seeded(settings):
        try:
            experiment = make_experiment(
                own, workload=load_of(own, entry), owned=Commitments(), market_seed=settings.seed
            )
        except Misconfigured as error:
            named = str(error).startswith((f"{entry.model} ", f"{entry.model}:"))
            raise Misconfigured(str(error) if named else f"{entry.model}: {error}") from error
        team = entry.team if entry.sharing is Sharing.TEAM else ""
        floors.append(_floor(own, experiment))
        alone = entry.sharing is Sharing.ALONE
        members.append(Member(experiment=experiment, team=team, alone=alone, weight=entry.weight))
    _check_floors([member.experiment.spec.model.name for member in members], floors, settings.service.aws.cap)
    return members


def _floor(settings: Settings, experiment: Experiment) -> Takes:
    """The least that the model takes of each limit of a cap: for its schedule's minimum, or to answer at all."""
    supply = experiment.supply
    min_rps = max((window.min_rps or 0.0 for window in settings.capacity), default=0.0)
    has_lambda = supply.overflow is not None and supply.overflow.latency_s <= supply.slo.latency_s
    if not supply.offerings or (has_lambda and min_rps == 0.0):
        return NOTHING
    able = [takes_of(item, max(1, math.ceil(min_rps / item.capacity_rps))) for item in supply.offerings]
    return Takes(*map(min, zip(*able, strict=True)))


def _check_floors(names: Sequence[str], floors: Sequence[Takes], cap: ServiceCap) -> None:
    """Misconfigured where a limit of the cap is below what the models need at least, together."""
    for number, key in enumerate(("max_usd_per_hour", "max_vcpus", "max_gpus")):
        parts = {name: floor[number] for name, floor in zip(names, floors, strict=True) if floor[number] > 0.0}
        least, limit = sum(parts.values()), cap.limits[number]
        if least > limit:
            said = ", ".join(f"{name} {figure(part)}" for name, part in parts.items())
            raise Misconfigured(
                f"service.aws.{key} is {limit:g}, and the models need {figure(least)} at least ({said}): raise "
                "it, or lower their capacity[].min_rps"
            )


def check_same_span(members: Sequence[Member]) -> None:
    """Misconfigured where the models' loads are not replayed for the same time."""
    spans = {member.experiment.spec.model.name: member.experiment.scenario for member in members}
    if len({(span.start_s, span.duration_s) for span in spans.values()}) > 1:
        said = ", ".join(
            f"{name} {format_duration(span.duration_s)} from {span.start_s:g} s" for name, span in spans.items()
        )
        raise Misconfigured(
            f"a service's models are replayed for the same time, not {said}; give a --start-s and a --duration-s"
        )


def replay_members(
    settings: Settings,
    members: Sequence[Member],
    policy: str,
    *,
    journals: ServiceJournals = NOWHERE,
    progress: Progress = lambda _doing, _share: None,
) -> tuple[ServiceRun, tuple[RunResult, ...]]:
    """All models under one policy: the run of the service, and the results of its models."""
    cache, footprint = usable_cache(), footprint_of(settings, models=len(members))
    footprint = replace(footprint, commitments=replayed_commitments(footprint))
    replayed = replay_service(
        members,
        policy,
        kernels=(compiled_kernel(cache), compiled_device_kernel(cache)),
        overrides=chosen_overrides(settings),
        owned=left_by_standing(footprint.commitments, footprint),
        journals=journals,
        progress=progress,
    )
    return join_runs(replayed, footprint), replayed.results

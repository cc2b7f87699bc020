"""What settings serve, as one thing to replay: one model, or all models of a service with one bill."""

from __future__ import annotations

from dataclasses import replace

from mark.config.policies import chosen_overrides
from mark.config.served import each_model, is_service, settings_alone
from mark.config.settings import Settings
from mark.offline.experiments import make_experiment
from mark.offline.service_members import check_same_span, replay_members, service_members
from mark.offline.simulate import run_remarks
from mark.offline.workloads import workload_on
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_documents import RunDocument, run_document
from mark.report.service.service_cell import ServiceCellDocument, service_cell
from mark.simulator.experiment import Yardsticks
from mark.simulator.services.service_bound import service_bound
from mark.simulator.services.service_replay import Member
from mark.simulator.traces.trace import Trace

Load = tuple[Trace, ...]
"""The trace of each model that is served, in their order."""


def settings_served(settings: Settings) -> Settings:
    """The settings of what is swept: a service's as they are, else those of its one model."""
    return settings if is_service(settings) else settings_alone(settings)


def settings_by_model(settings: Settings) -> tuple[Settings, ...]:
    """The settings of each model, in the order of a load's traces."""
    return tuple(own for own, _ in each_model(settings)) if is_service(settings) else (settings,)


def members_on(settings: Settings, load: Load) -> list[Member]:
    """The models on traces that are already read. Misconfigured where one cannot run, or spans differ."""
    if not is_service(settings):
        (trace,) = load
        return [Member(experiment=make_experiment(settings, workload=workload_on(settings, trace)))]
    traces = dict(zip((one.model for one in settings.service.serve), load, strict=True))
    members = service_members(settings, lambda own, entry: workload_on(own, traces[entry.model]))
    check_same_span(members)
    return members


def replay_document(settings: Settings, load: Load, policy: str) -> RunDocument | ServiceCellDocument:
    """The document of a replay under one policy, without yardsticks."""
    members = members_on(settings, load)
    if is_service(settings):
        return service_cell(*replay_members(settings, members, policy), seed=settings.seed)
    experiment = members[0].experiment
    result = experiment.run(policy, overrides=chosen_overrides(settings))
    result = replace(result, notes=(*run_remarks(settings, experiment, policy), *result.notes))
    return run_document(ComparedRun(result=result))


def yardsticks_of(settings: Settings, load: Load) -> Yardsticks:
    """Reference and floor of the load."""
    members = members_on(settings, load)
    if is_service(settings):
        bound = service_bound(members)
        return Yardsticks(reference_usd=bound.reference_usd, floor_usd=bound.floor_usd)
    return members[0].experiment.yardsticks()

"""The models of a service as offline commands take them: each with its own settings and its own load."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mark.config.served import each_model
from mark.config.service import ServedSettings, Sharing
from mark.config.settings import Settings
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import Misconfigured
from mark.offline.experiments import make_experiment
from mark.offline.workloads import chosen_workload
from mark.report.formatting import format_duration
from mark.simulator.rng import seed_of
from mark.simulator.service_replay import Member
from mark.simulator.workload import Workload

LoadOf = Callable[[Settings, ServedSettings], Workload]
"""The load of one model, by its own settings."""


def is_service(settings: Settings) -> bool:
    """True where the settings serve several models and name none of them."""
    return len(settings.service.serve) > 1 and settings.model is None


def recorded_load(settings: Settings, entry: ServedSettings) -> Workload:
    """The model's own trace. Misconfigured where it has none."""
    if settings.trace.file is None:
        raise Misconfigured(f"{entry.model} has no traffic: name service.serve[].trace, or --trace for all")
    return chosen_workload(settings)


def service_members(settings: Settings, load_of: LoadOf = recorded_load) -> list[Member]:
    """The models in their order. Misconfigured names the model whose settings do not do."""
    members = []
    for merged, entry in each_model(settings):
        own = merged.model_copy(update={"seed": seed_of(settings.seed, entry.model)})
        try:
            experiment = make_experiment(
                own, workload=load_of(own, entry), owned=Commitments(), market_seed=settings.seed
            )
        except Misconfigured as error:
            named = str(error).startswith((f"{entry.model} ", f"{entry.model}:"))
            raise Misconfigured(str(error) if named else f"{entry.model}: {error}") from error
        team = entry.team if entry.sharing is Sharing.TEAM else ""
        members.append(Member(experiment=experiment, team=team, alone=entry.sharing is Sharing.ALONE))
    return members


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

"""The floor of a service of several models, and what its models would need apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from mark.config.settings import Settings
from mark.offline.bound import TargetObject, format_cost
from mark.offline.service_members import LoadOf, check_same_span, recorded_load, service_members
from mark.report.formatting import format_count, format_duration, percent
from mark.report.tables import figures, make_table, texts
from mark.report.terminal import note, progress, show, show_json, show_prose
from mark.simulator.experiment import Experiment
from mark.simulator.services.service_bound import ModelBound, ServiceBound, service_bound


def bound_service(settings: Settings, *, as_json: bool, load_of: LoadOf = recorded_load) -> None:
    """Compute and print the bound. load_of: the load of each model."""
    members = service_members(settings, load_of)
    check_same_span(members)
    with progress() as report:
        bound = service_bound(members, report)
    models = [member.experiment for member in members]
    document = bound_service_document(settings, models, bound)
    if as_json:
        show_json(document)
        return
    columns = [*texts("model"), *figures("requests", "objective", "floor\nUSD", "apart\nUSD")]
    table = make_table(columns, gap=2)
    for model, part in sorted(zip(models, bound.models, strict=True), key=lambda pair: pair[1].model):
        slo = model.spec.slo
        table.add_row(
            part.model,
            format_count(part.requests),
            f"{percent(slo.target)} in {format_duration(slo.latency_s)}",
            format_cost(part.floor_usd),
            format_cost(part.reference_usd),
        )
    show(table, "")
    show_prose(
        f"floor {format_cost(bound.floor_usd)}: no run in which every model keeps its objective serves for less, "
        "whoever shares what. It pays for the time that batches take, and for no idle time.",
        f"reference {format_cost(bound.reference_usd)}: the least that serves every request at once with the "
        "traces known in advance, in whole instances that models share, of one type for all that run on it.",
        f"apart {format_cost(bound.apart_usd)}: the same by fleets that share nothing, in fractions of instances.",
    )
    for name in _unservable(bound.models):
        show_prose(f"{name}: no fleet serves all of its requests in time, and it has no Lambda in time.")
    for name, texts_ in document["assumed_profiles"].items():
        for text in texts_:
            show(f"assumed: {name}, {text}")
    for name, notes in document["notes"].items():
        for text in notes:
            note(f"{name}: {text}")


def _unservable(models: Sequence[ModelBound]) -> list[str]:
    return [model.model for model in models if model.reference_usd is None]


class ModelBoundObject(TypedDict):
    """One model of a service's bound."""

    model: str
    requests: int
    slo: TargetObject
    #: Whether it may share instances: launches are then left out of its floor.
    may_share: bool
    #: Its part of the service's floor; null where nothing can serve it.
    floor_usd: float | None
    #: The reference of a fleet of its own; null where no fleet can serve every request in time.
    reference_usd: float | None


class BoundServiceDocument(TypedDict):
    """The document of `mark bound --json` for a service of several models (docs/json.md)."""

    #: Over how long.
    duration_s: float
    world: str
    seed: int
    #: Below the serving cost of every run in which each model keeps its objective; null where one has no floor.
    floor_usd: float | None
    #: Every request served at once with the traces known, in whole instances that models share, of one type for
    #: all that run on it; null where one model cannot be served.
    reference_usd: float | None
    #: The sum of the models' references, without sharing; null where one has none.
    reference_apart_usd: float | None
    models: list[ModelBoundObject]
    #: Profiles that nobody measured, by model.
    assumed_profiles: dict[str, list[str]]
    #: What was filled, cut or drawn of the traces, by model.
    notes: dict[str, list[str]]


def bound_service_document(
    settings: Settings, models: Sequence[Experiment], bound: ServiceBound
) -> BoundServiceDocument:
    """The document of `mark bound --json` for a service."""
    named = [(model.spec.model.name, model) for model in models]
    return {
        "duration_s": models[0].scenario.duration_s,
        "world": str(models[0].spec.world.name),
        "seed": settings.seed,
        "floor_usd": bound.floor_usd,
        "reference_usd": bound.reference_usd,
        "reference_apart_usd": bound.apart_usd,
        "models": [
            {
                "model": part.model,
                "requests": part.requests,
                "slo": {
                    "latency_ms": round(model.spec.slo.latency_s * 1000, 9),
                    "target": model.spec.slo.target,
                },
                "may_share": part.may_share,
                "floor_usd": part.floor_usd,
                "reference_usd": part.reference_usd,
            }
            for model, part in zip(models, bound.models, strict=True)
        ],
        "assumed_profiles": {name: list(model.supply.assumed) for name, model in named if model.supply.assumed},
        "notes": {name: list(model.spec.workload.notes) for name, model in named if model.spec.workload.notes},
    }

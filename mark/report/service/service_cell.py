"""A service's replay within a sweep: its run, and the figures of all its models together that a sweep compares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mark.report.formatting import finite
from mark.report.runs.run_documents import AttainmentObject, served_document
from mark.report.service.service_document import ServiceRunObject, service_run_document
from mark.simulator.results import RunResult
from mark.simulator.services.service_run import ModelRun, ServiceRun


class ServiceCellDocument(ServiceRunObject):
    """A run of a service, with keys of a single model's run for all models together."""

    seed: int
    #: How kind the cloud was.
    world: str
    requests: int
    #: The share in time of the model with the least margin to its target; `latency_ms` is null.
    slo: AttainmentObject
    #: Requests by who answered.
    served: dict[str, int]
    #: Null: a service has no accuracy of its own.
    accuracy: float | None
    #: Forecasts that were made.
    forecasts: int
    #: Forecasts for which the last value stood in, because the forecaster failed.
    stood_in: int
    #: Profiles that nobody measured, with their formulas.
    assumed_profiles: list[str]
    #: Profiles that were measured on another machine than their type.
    stand_in_profiles: list[str]
    #: Real seconds that the replay took.
    wall_s: float | None


def service_cell(run: ServiceRun, results: Sequence[RunResult], *, seed: int) -> ServiceCellDocument:
    """The document of a run and the results of its models."""
    served = [served_document(model.served) for model in run.models]
    target = max(model.slo.target for model in run.models)
    return {
        **service_run_document(run),
        "seed": seed,
        "world": str(results[0].world),
        "requests": sum(model.served.total for model in run.models),
        "slo": {
            "latency_ms": None,
            "target": finite(target),
            "attained": finite(least_attained(run.models, target)),
        },
        "served": {name: sum(one[name] for one in served) for name in served[0]},
        "accuracy": None,
        "forecasts": sum(int(result.forecasts) for result in results),
        "stood_in": sum(int(result.fallback_forecasts) for result in results),
        "assumed_profiles": _each(result.assumed_profiles for result in results),
        "stand_in_profiles": _each(result.stand_in_profiles for result in results),
        "wall_s": finite(sum(result.wall_s for result in results)),
    }


def least_attained(models: Sequence[ModelRun], target: float) -> float | None:
    """The share in time of the model with the least margin; a lower target than `target` counts as a margin.

    None where too few requests came to judge any model. A service keeps its objectives where this is `target`.
    """
    margins = [
        model.attained - model.slo.target for model in models if model.attained is not None and model.is_sure
    ]
    return min(margins) + target if margins else None


def _each(names: Iterable[Iterable[str]]) -> list[str]:
    """Each name once."""
    return list(dict.fromkeys(name for some in names for name in some))

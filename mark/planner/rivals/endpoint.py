"""A multi-model endpoint: the type of its instances, and which models each of them holds. Pure.

Theory of operation. All instances are alike, and each may hold every model. A model is loaded where its first
request finds it on none, and on one more instance where those that hold it refuse requests. Where memory is full,
the models go that were used least recently (SageMaker developer guide, "How multi-model endpoints work" and
"Set model caching behavior", read 2026-11-29). Nothing here knows an objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import InstanceType, Offering
from mark.planner.rivals.pod_sizes import USUAL_BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointModel:
    """A model of the endpoint. usual_rps: of the last day; offerings: the types that answer it in time."""

    name: str
    memory_gib: float
    usual_rps: float
    offerings: tuple[Offering, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """An instance with the models that it holds or loads, and the memory that they leave."""

    name: str
    models: frozenset[str]
    free_gib: float


def endpoint_offering(models: Sequence[EndpointModel], memory_gib: Callable[[InstanceType], float]) -> Offering:
    """The type that carries the usual load for least; its capacity is that of the usual mix, requests/s.

    Misconfigured where no type holds every model and answers it in time.
    """
    found = []
    largest_gib = max(model.memory_gib for model in models)
    by_model = [{item.name: item for item in model.offerings} for model in models]
    for name in sorted(set.intersection(*({*known} for known in by_model))):
        item = by_model[0][name]
        if largest_gib > memory_gib(item.instance_type):
            continue
        usual_rps = sum(model.usual_rps for model in models)
        busy = sum(
            model.usual_rps / known[name].capacity_rps for model, known in zip(models, by_model, strict=True)
        )
        slowest_rps = min(known[name].capacity_rps for known in by_model)
        count = max(1, math.ceil(busy / USUAL_BUSY))
        mixed_rps = usual_rps / busy if busy > 0.0 else slowest_rps
        found.append((count * item.usd_per_hour, name, replace(item, capacity_rps=mixed_rps)))
    if not found:
        raise Misconfigured(
            "no type of instance holds every model of the service and answers it in time: allow one that does, or "
            "leave out sagemaker-mme"
        )
    return min(found, key=lambda one: one[:2])[2]


def where_to_load(model: str, instances: Sequence[Holding]) -> Holding | None:
    """The instance without the model that has most memory left; None where all have it. Ties by name."""
    able = [one for one in instances if model not in one.models]
    return min(able, key=lambda one: (-one.free_gib, one.name), default=None)


def to_evict(held: Mapping[str, float], used_at: Mapping[str, float], missing_gib: float) -> tuple[str, ...]:
    """Models to unload until so much memory is free, the least recently used first. held: GiB of each there."""
    gone: list[str] = []
    for model in sorted(held, key=lambda name: (used_at.get(name, -math.inf), name)):
        if missing_gib <= 0.0:
            break
        gone.append(model)
        missing_gib -= held[model]
    return tuple(gone)

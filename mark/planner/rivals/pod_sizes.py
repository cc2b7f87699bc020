"""Sizes of a model's pods: what a part of an instance answers, and the size that its team would ask for.

Profiles are of whole instances. A pod with the cores of a profiled type takes that type's times, on any node of
the same family. Below the smallest profiled type each halving takes as much longer as between the two smallest of
the family (twice where only one is profiled), and below one core, where the kernel throttles it, twice. A pod gets
its cores and nothing more: what neighbours leave idle is not its own. On types with accelerators a pod takes the
whole instance. Types with CPU credits are no nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.objective import Slo
from mark.domain.models.profile import LatencyPoint, Profile
from mark.domain.offerings.offering import InstanceType, Offering
from mark.planner.batching import tune_batching
from mark.planner.rivals.pod_packing import NodeType

PART_CORES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Cores of pods below the smallest type. 0.25 is the least that SageMaker lets a component ask for."""
RESERVED_GIB = 1.0
"""Memory of a node that its system keeps, as of MArk's shared instances. Nothing of its cores is kept: profiles
were measured beside the system."""
USUAL_BUSY = 0.7
"""Share of its time that a pod is busy, where its size is chosen."""
DAY_UNITS = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSize:
    """What each pod of a model asks for. offering: the pod as it is planned, at its share of the cheapest node."""

    offering: Offering
    cores: float
    memory_gib: float
    #: Of the nodes that it runs on.
    family: str
    #: Pods that the last day's usual load takes.
    usual: int = 1


def family_of(item: InstanceType) -> str:
    """Types on which the same cores are as fast: `c5`; a type with accelerators is a family of its own."""
    return item.name if item.accelerator else item.name.partition(".")[0]


def node_types(offerings: Iterable[Offering]) -> tuple[NodeType, ...]:
    """The types that nodes may be rented of."""
    return tuple(
        NodeType(
            offering=item.name,
            usd_per_hour=item.usd_per_hour,
            cores=float(item.instance_type.vcpus),
            memory_gib=max(0.0, item.instance_type.memory_gib - RESERVED_GIB),
            family=family_of(item.instance_type),
        )
        for item in offerings
        if item.instance_type.credits is None
    )


def choose_size(
    offerings: Sequence[Offering], slo: Slo, *, memory_gib: float, history: Demand, sizes: SizeDistribution | None
) -> PodSize:
    """The size whose pods carry the last day's usual load for least, each at its share of a node.

    Batches are of a size of which two fit into the objective, so that who comes while one runs is in the next.
    Misconfigured where no part of any type does.
    """
    rate_rps = usual_rps(history, slo.target)

    able = [
        replace(size, usual=max(1, math.ceil(rate_rps / (USUAL_BUSY * size.offering.capacity_rps))))
        for size in pod_sizes(offerings, slo, memory_gib=memory_gib, sizes=sizes)
    ]
    if not able:
        raise Misconfigured(
            f"no part of a type that may be rented answers twice within {slo.latency_s * 1000:g} ms: allow a "
            "faster type, or leave out the policies that pack pods"
        )
    return min(able, key=lambda size: (size.usual * size.offering.usd_per_hour, -size.cores, size.family))


def pod_sizes(
    offerings: Sequence[Offering], slo: Slo, *, memory_gib: float, sizes: SizeDistribution | None
) -> tuple[PodSize, ...]:
    """The sizes that keep the objective, by family."""
    found = []
    families = {family_of(item.instance_type) for item in offerings if item.instance_type.credits is None}
    for family in sorted(families):
        members = sorted(
            (item for item in offerings if family_of(item.instance_type) == family),
            key=lambda item: (item.instance_type.vcpus, item.usd_per_hour, item.name),
        )
        for like, cores, factor in _parts(members):
            size = _size(like, cores, factor, members, slo=slo, memory_gib=memory_gib, sizes=sizes)
            if size is not None:
                found.append(size)
    return tuple(found)


def _parts(members: Sequence[Offering]) -> list[tuple[Offering, float, float]]:
    """Of a family, smallest first: a type, cores, and how much longer the pod takes than the type."""
    whole = {float(item.instance_type.vcpus): (item, 1.0) for item in reversed(members)}
    smallest = members[0]
    if smallest.instance_type.accelerator:
        return [(smallest, float(smallest.instance_type.vcpus), 1.0)]
    halving = halving_factor([item.profile for item, _ in whole.values()], list(whole))
    least = min(whole)
    parts = [
        (smallest, cores, halving ** math.log2(least / max(cores, 1.0)) / min(cores, 1.0))
        for cores in takewhile(lambda cores: cores < least, PART_CORES)
    ]
    return parts + [(item, cores, factor) for cores, (item, factor) in sorted(whole.items())]


def halving_factor(profiles: Sequence[Profile], cores: Sequence[float]) -> float:
    """How much longer a request takes on half the cores: as measured between the two smallest, 1 to 2."""
    pairs = sorted(zip(cores, (profile.latency_s(1) for profile in profiles), strict=True))
    if len(pairs) < 2:
        return 2.0
    (few, slow_s), (more, fast_s) = pairs[:2]
    return min(2.0, max(1.0, math.exp2(math.log2(slow_s / fast_s) / math.log2(more / few))))


def _size(
    like: Offering,
    cores: float,
    factor: float,
    members: Sequence[Offering],
    *,
    slo: Slo,
    memory_gib: float,
    sizes: SizeDistribution | None,
) -> PodSize | None:
    """Pods of so many cores; None where two of their batches are late, or no node holds one."""
    points = tuple(
        LatencyPoint(batch=point.batch, latency_s=point.latency_s * factor) for point in like.profile.points
    )
    profile = replace(like.profile, points=points)
    batch = tune_batching(profile, slo.latency_s / 2, sizes)
    shares = [
        kind.usd_per_hour * max(cores / kind.cores, memory_gib / kind.memory_gib)
        for kind in node_types(members)
        if cores <= kind.cores and memory_gib <= kind.memory_gib and kind.memory_gib > 0.0
    ]
    if batch is None or not shares:
        return None
    usd_per_hour = min(shares)
    share = usd_per_hour / like.usd_per_hour
    item, family = like.instance_type, family_of(like.instance_type)
    spot = item.spot_usd_per_hour
    named = replace(
        item,
        name=f"{family}-pod-{cores:g}",
        vcpus=max(1, math.ceil(cores)),
        memory_gib=memory_gib,
        on_demand_usd_per_hour=item.on_demand_usd_per_hour * share,
        spot_usd_per_hour=None if spot is None else spot * share,
    )
    offering = replace(
        like.at_price(usd_per_hour),
        instance_type=named,
        profile=profile,
        batch=batch.batch,
        capacity_rps=batch.capacity_rps,
    )
    return PodSize(offering=offering, cores=cores, memory_gib=memory_gib, family=family)


def usual_rps(history: Demand, share: float) -> float:
    """The rate that so many minutes of the last day do not exceed."""
    rates = sorted(history.mean_rps[-DAY_UNITS:])
    return rates[min(len(rates) - 1, math.ceil(share * len(rates)))] if rates else 0.0

"""Sizes of what stands around a fleet in the shape `ha`: gateways by the load, the store by what it keeps.

A gateway is one process with one event loop, so no more than one core of its machine works. On a core of a shared
AMD EPYC a request of 2.3 kB with an id of its own took 25 us, and each MiB more 1.0 to 1.7 ms (docs/speed.md,
2026-11-22). Half of that capacity is planned. Network and burstable CPUs count at their baseline, so that neither
burst nor credits are used up. Of all types the one is taken that costs least for a quarter more than the load,
with one gateway more than that takes: any one may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mark.domain.billing.footprint import Gateways
from mark.domain.offerings.offering import InstanceType

GATEWAY_RPS_PER_CORE = 20_000.0
GATEWAY_MIB_PER_S_PER_CORE = 300.0
HEADROOM, SPARE = 1.25, 1
"""Of the shape `ha`. Two lean nodes have neither: while one is lost the other bursts."""
THREADS_PER_CORE = {"amd64": 2, "arm64": 1}
"""vCPUs of a core (EC2 user guide, CPU options)."""
NETWORK_GBPS = {
    **{f"{kind}.small": 0.128 for kind in ("t3", "t4g")},
    **{f"{kind}.medium": 0.256 for kind in ("t3", "t4g")},
    **{f"{kind}.large": 0.512 for kind in ("t3", "t4g")},
    "c5.large": 0.75,
    "c5.xlarge": 1.25,
    "c5.2xlarge": 2.5,
    "c5n.large": 3.0,
    "c6i.large": 0.781,
    "c6i.xlarge": 1.562,
    "c7i.large": 0.781,
    "c7i.xlarge": 1.562,
    "c6g.medium": 0.5,
    "c6g.large": 0.75,
    "c6g.xlarge": 1.25,
    "c6gn.medium": 1.6,
    "c6gn.large": 3.0,
    "c6gn.xlarge": 6.3,
    "c7g.medium": 0.52,
    "c7g.large": 0.937,
    "c7g.xlarge": 1.876,
    "c7g.2xlarge": 3.75,
    "c7gn.medium": 3.125,
    "c7gn.large": 6.25,
    "c7gn.xlarge": 12.5,
}
"""Baseline of the network, each direction, of the types that gateways may be (EC2's own figures, as the generated
table zz_generated.bandwidth.go of aws/karpenter-provider-aws has them at 01a436f0, c6gn and c7gn at 1d927085, read
on 2026-11-22). Above it
types burst, for minutes up to an hour. A type that is not here is limited by its CPU alone."""
STORE_GIB = {"cache.t4g.small": 1.37, "cache.t4g.medium": 3.09, "cache.r7g.large": 13.07}
"""Memory of the store's node types, smallest first (ElastiCache's pricing page)."""
STORE_SHARE = 0.7
"""Share of it for data: AWS recommends to reserve 30 % of small nodes for backups and failovers, 25 % of others
(ElastiCache user guide, Managing reserved memory, read on 2026-11-22)."""
STORE_OF_MODEL_MIB = 4 * 64.0
"""Limit of a model's journal while its archive lags (docs/live.md, Limits of growth); the rest of a model is a few
MiB."""
STORE_OF_SERVICE_MIB = 64.0
"""The engine itself, members, status documents. Assumed."""
NODE_GBPS = {**NETWORK_GBPS, "t3.micro": 0.064, "t4g.micro": 0.064}
"""The same of types that only lean nodes may be."""
NODE_TYPES = {"arm64": ("t4g.micro", "t4g.small"), "amd64": ("t3.micro", "t3.small")}
"""Types of lean nodes that nobody named, by processor, smallest first."""
SYSTEM_MIB = 370.0
"""Of a node: Amazon Linux 2023 (160), Docker and containerd (110), and a client and a shim of each container.
Assumed."""
PROCESSES_MIB = 70.0 + 295.0 + 10.0
"""A node's gateway, its controller without models and its empty store (docs/speed.md)."""
MODEL_MIB = 150.0 + 70.0
"""Of each model on a node: its forecaster after days of history (150 MiB, scripts/bench/running.py, 2026-11-28),
and its journal in the store, which is four segments of 16 MiB."""
TRAINER_MIB = 350.0
"""The process that trains a forecaster, one at a time, while it does."""
NODE_SHARE, SWAPPED_MIB = 0.9, 256.0
"""Share of a node's memory that the kernel leaves, and what may lie in its swap file: pages that nobody reads, of
clients of containers and of modules that only a start needs."""
MIB_PER_GIB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakLoad:
    """The highest load that gateways are made for."""

    rps: float
    #: Requests with their answers.
    mib_per_s: float

    @classmethod
    def of(cls, rps: float, payload_mib: float) -> PeakLoad:
        """So many requests of that size with their answers."""
        return cls(rps=rps, mib_per_s=rps * payload_mib)


def capacity_rps(kind: InstanceType) -> float:
    """Requests/s that a gateway on it passes on for long."""
    return GATEWAY_RPS_PER_CORE * _core_share(kind)


def capacity_mib_per_s(kind: InstanceType) -> float:
    """Bytes of requests and answers that a gateway on it passes on for long, MiB/s."""
    cpu, gbps = GATEWAY_MIB_PER_S_PER_CORE * _core_share(kind), NODE_GBPS.get(kind.name)
    return cpu if gbps is None else min(cpu, gbps * 1e9 / 8 / 2**20)


def _core_share(kind: InstanceType) -> float:
    """Share of one core that works for long: of a burstable type what its baseline leaves."""
    cores = max(1, kind.vcpus // THREADS_PER_CORE[kind.architecture])
    return min(1.0, cores * (kind.credits.baseline if kind.credits else 1.0))


def gateways_on(kind: InstanceType, *, count: int, disk_gib: float) -> Gateways:
    """So many gateways of the shape `ha` on machines of this type."""
    return Gateways(
        name="gateways",
        instance_type=kind.name,
        usd_per_hour=kind.on_demand_usd_per_hour,
        count=count,
        capacity_rps=capacity_rps(kind),
        capacity_mib_per_s=capacity_mib_per_s(kind),
        spare=min(SPARE, count - 1),
        headroom=HEADROOM,
        most=None,
        disk_gib=disk_gib,
    )


def size_gateways(
    load: PeakLoad, kinds: Iterable[InstanceType], *, usd_beside: float, count: int | None = None
) -> tuple[InstanceType, int]:
    """The type that carries the load for least and how many of it, one to spare; ties by name.

    usd_beside: disk and address of a machine of any type, USD an hour. Where somebody said how many (`count`), the
    cheapest type of which so many do, else the one that carries most.
    """
    sized = [(kind, gateways_on(kind, count=1 + SPARE, disk_gib=0.0)) for kind in kinds]
    needed = {kind.name: each.needed(load.rps, load.mib_per_s) for kind, each in sized}
    if count is None:
        kind = min(
            (kind for kind, _ in sized),
            key=lambda one: (needed[one.name] * (one.on_demand_usd_per_hour + usd_beside), one.name),
        )
        return kind, needed[kind.name]
    enough = [kind for kind, _ in sized if needed[kind.name] <= max(count, 1 + SPARE)]
    if enough:
        return min(enough, key=lambda one: (one.on_demand_usd_per_hour, one.name)), count
    fewest = min(needed.values())
    return min((kind for kind, _ in sized if needed[kind.name] == fewest), key=lambda one: one.name), count


def size_store(models: int) -> str:
    """The smallest node type whose memory holds what so many models keep at most; the largest known for more.

    No request passes the store, so its load does not follow theirs: gateways and agents say a few times a second
    what they counted, whatever that is.
    """
    mib = STORE_OF_SERVICE_MIB + models * STORE_OF_MODEL_MIB
    enough = (name for name, gib in STORE_GIB.items() if gib * MIB_PER_GIB * STORE_SHARE >= mib)
    return next(enough, list(STORE_GIB)[-1])


def size_node(
    load: PeakLoad, kinds: Sequence[InstanceType], *, nodes: int, models: int, trains: bool
) -> InstanceType:
    """The first of these types, smallest first, of which so many carry the load for long; else the last.

    Each holds a gateway, a controller and a store of so many models. trains: whether forecasters train there.
    """
    needs_mib = SYSTEM_MIB + PROCESSES_MIB + models * MODEL_MIB + trains * TRAINER_MIB
    carry = (
        kind
        for kind in kinds
        if NODE_SHARE * kind.memory_gib * MIB_PER_GIB + SWAPPED_MIB >= needs_mib
        and nodes * capacity_rps(kind) >= load.rps
        and nodes * capacity_mib_per_s(kind) >= load.mib_per_s
    )
    return next(carry, kinds[-1])

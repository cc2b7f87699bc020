"""On which GPU an instance runs: HetSev's Algorithm 1, and the same with a price instead of anti-affinity.

H. Mo et al., Electronics 2023, 12, 240, section 4.2. Pending instances are grouped into k queues (k-means with
the L1 distance over GPU memory, scaled to 0-1, and model), a round takes some of them by weighted fairness (length
of a queue x median wait), and each gets the GPU with most free memory among those that have room for it and do not
hold its model (worst fit: empty GPUs first). What fits nowhere waits.

The paper's pseudocode returns after the first placement and loops for ever when nothing fits; here a call goes
through all that is pending once. Centres start from the instances that lie farthest apart, and ties go by name, so
nothing is drawn, and the order of the input changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from mark.domain.errors import Misconfigured

PASSES = 20
"""Passes of k-means at most; a few suffice."""
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Resources of one instance."""

    gpu_gb: float
    cores: float
    memory_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance, placed or pending since `since_s`, for GPUs of type `kind`, or for any where that is empty."""

    name: str
    model: str
    kind: str
    needs: Needs
    since_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU and the server that it is in."""

    name: str
    kind: str
    gpu_gb: float
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Resources of a server beside GPUs."""

    name: str
    cores: float
    memory_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Servers with GPUs, all by name, and who runs where: tenants by GPU."""

    servers: Mapping[str, Server]
    gpus: Mapping[str, Gpu]
    tenants: Mapping[str, tuple[Instance, ...]]

    def free_gb(self, gpu: str) -> float:
        """GPU memory that no tenant has."""
        return self.gpus[gpu].gpu_gb - math.fsum(tenant.needs.gpu_gb for tenant in self.tenants.get(gpu, ()))

    def free(self, server: str) -> tuple[float, float]:
        """Cores and memory of a server that no tenant has."""
        there = [item.needs for gpu in self.gpus.values() if gpu.server == server for item in self.of(gpu.name)]
        has = self.servers[server]
        return has.cores - math.fsum(n.cores for n in there), has.memory_gb - math.fsum(n.memory_gb for n in there)

    def of(self, gpu: str) -> tuple[Instance, ...]:
        """Tenants of a GPU."""
        return self.tenants.get(gpu, ())

    def with_tenant(self, gpu: str, instance: Instance) -> Cluster:
        """With that instance on that GPU."""
        return Cluster(
            servers=self.servers, gpus=self.gpus, tenants={**self.tenants, gpu: (*self.of(gpu), instance)}
        )

    def without(self, gpu: str, name: str) -> Cluster:
        """Without the instance of that name on that GPU."""
        left = tuple(tenant for tenant in self.of(gpu) if tenant.name != name)
        return Cluster(servers=self.servers, gpus=self.gpus, tenants={**self.tenants, gpu: left})

    def fits(self, gpu: Gpu, instance: Instance) -> bool:
        """The capacity check: cores, memory, GPU memory."""
        cores, memory_gb = self.free(gpu.server)
        needs = instance.needs
        return (
            instance.kind in ("", gpu.kind)
            and needs.cores <= cores + ROUNDING
            and needs.memory_gb <= memory_gb + ROUNDING
            and needs.gpu_gb <= self.free_gb(gpu.name) + ROUNDING
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """Rules of a placement.

    `batch` is the paper's beta. `share` False gives each instance a GPU of its own, as Kubernetes does. `price` of
    an instance beside tenants replaces anti-affinity: the cheapest GPU, of equal ones the emptiest.
    """

    batch: int = 8
    share: bool = True
    price: Callable[[Instance, Sequence[Instance]], float] | None = None


def able_gpus(cluster: Cluster, instance: Instance, policy: PlacementPolicy) -> list[Gpu]:
    """GPUs that may take an instance now."""
    able = []
    for gpu in cluster.gpus.values():
        there = cluster.of(gpu.name)
        if there and not policy.share:
            continue
        if policy.price is None and any(tenant.model == instance.model for tenant in there):
            continue
        if cluster.fits(gpu, instance):
            able.append(gpu)
    return able


def place(pending: Iterable[Instance], cluster: Cluster, at_s: float, policy: PlacementPolicy) -> dict[str, str]:
    """GPU by instance, for those that found one. The paper's k, of queues, is the number of models.

    Misconfigured where an instance needs more GPU memory than any GPU of its type has.
    """
    waiting = sorted(pending, key=lambda item: (item.since_s, item.name))
    for item in waiting:
        _check_size(item, cluster)
    groups = grouped(waiting, len({item.model for item in waiting}))
    placed: dict[str, str] = {}
    while any(groups):
        for item in next_batch(groups, at_s, policy.batch):
            able = able_gpus(cluster, item, policy)
            if not able:
                continue
            gpu = min(
                able,
                key=lambda found: (
                    _price(policy, item, cluster.of(found.name)),
                    -cluster.free_gb(found.name),
                    found.name,
                ),
            )
            placed[item.name] = gpu.name
            cluster = cluster.with_tenant(gpu.name, item)
    return placed


def _price(policy: PlacementPolicy, item: Instance, there: Sequence[Instance]) -> float:
    return 0.0 if policy.price is None else policy.price(item, there)


def _check_size(item: Instance, cluster: Cluster) -> None:
    sizes = [gpu.gpu_gb for gpu in cluster.gpus.values() if item.kind in ("", gpu.kind)]
    if item.needs.gpu_gb > max(sizes, default=0.0) + ROUNDING:
        kind = f" {item.kind}" if item.kind else ""
        raise Misconfigured(
            f"{item.model} needs {item.needs.gpu_gb:g} GB of GPU memory and the largest{kind} GPU has "
            f"{max(sizes, default=0.0):g}: use a smaller batch, or add a larger GPU"
        )


def grouped(pending: Sequence[Instance], queues: int) -> list[list[Instance]]:
    """Queues by k-means with the L1 distance, whose centres are medians; each oldest first, none empty."""
    if not pending:
        return []
    most_gb = max(item.needs.gpu_gb for item in pending) or 1.0
    models = sorted({item.model for item in pending})
    points = {
        item.name: (item.needs.gpu_gb / most_gb, *(float(item.model == model) for model in models))
        for item in pending
    }
    centres = [min(points.values())]
    while len(centres) < queues:
        farthest = max(
            points.values(), key=lambda point: (min(_apart(point, centre) for centre in centres), point)
        )
        if farthest in centres:
            break
        centres.append(farthest)
    nearest: dict[str, int] = {}
    for _ in range(PASSES):
        found = {
            name: min(range(len(centres)), key=lambda i: (_apart(point, centres[i]), i))
            for name, point in points.items()
        }
        if found == nearest:
            break
        nearest = found
        for i in set(nearest.values()):
            mine = [points[name] for name, own in nearest.items() if own == i]
            centres[i] = tuple(median(values) for values in zip(*mine, strict=True))
    groups = [[item for item in pending if nearest[item.name] == i] for i in range(len(centres))]
    return [group for group in groups if group]


def next_batch(groups: list[list[Instance]], at_s: float, batch: int) -> list[Instance]:
    """Take up to `batch` instances off the queues, shared by largest remainder of length x median wait.

    Where nobody has waited yet, lengths alone count. The heaviest queue comes first, and of each the oldest.
    """
    waits = [median(at_s - item.since_s for item in group) if group else 0.0 for group in groups]
    weights = [len(group) * wait for group, wait in zip(groups, waits, strict=True)]
    if not any(weights):
        weights = [float(len(group)) for group in groups]
    taken = [0] * len(groups)
    seats = min(batch, sum(map(len, groups)))
    shares = [seats * weight / math.fsum(weights) for weight in weights]
    taken = [min(int(share), len(group)) for share, group in zip(shares, groups, strict=True)]
    by_rest = sorted(range(len(groups)), key=lambda i: (-(shares[i] - int(shares[i])), -weights[i], i))
    while sum(taken) < seats:
        for i in by_rest:
            if sum(taken) < seats and taken[i] < len(groups[i]):
                taken[i] += 1
    order = sorted(range(len(groups)), key=lambda i: (-weights[i], i))
    batch_of = [item for i in order for item in groups[i][: taken[i]]]
    for i, count in enumerate(taken):
        del groups[i][:count]
    return batch_of


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The L1 distance."""
    return math.fsum(abs(a - b) for a, b in zip(one, other, strict=True))

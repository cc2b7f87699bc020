"""Pods on nodes: where the scheduler puts them, which nodes are rented for the rest, and which can go. Pure.

Theory of operation. A pod asks for cores and memory, and gets them on one node of its family; a node's pods ask
for no more than it has. The scheduler puts a pod on the fullest node that has room (MostAllocated of
kube-scheduler, BINPACK of SageMaker), the largest pods first. For pods without room nodes are added as Karpenter
does: a new node takes pods as long as some type holds them all, and becomes the cheapest type that does.
Consolidation is Karpenter's, too (karpenter.sh, "Disruption", read 2026-11-28): empty nodes go; then the most of
the nodes with fewest pods go whose pods fit elsewhere, or elsewhere and on one new node that costs less than they
do; then single ones. It never raises the rent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

ROUNDING = 1e-9
"""Cores and GiB that sums of requests are off by at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod, or a copy of a component, by name, with what it asks for. It runs on nodes of its family."""

    name: str
    cores: float
    memory_gib: float
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """A type that nodes are rented of, with what it has for pods."""

    offering: str
    usd_per_hour: float
    cores: float
    memory_gib: float
    family: str

    def holds(self, pods: Iterable[Pod]) -> bool:
        """True where these fit on one node together."""
        cores, memory_gib = self.cores + ROUNDING, self.memory_gib + ROUNDING
        for pod in pods:
            cores -= pod.cores
            memory_gib -= pod.memory_gib
            if cores < 0.0 or memory_gib < 0.0 or pod.family != self.family:
                return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node and its pods. A new one has no name."""

    name: str = ""
    type: NodeType
    pods: tuple[Pod, ...] = ()

    @property
    def free_cores(self) -> float:
        """Cores that no pod asks for."""
        return self.type.cores - sum(pod.cores for pod in self.pods)

    def has_room(self, pod: Pod) -> bool:
        """True where this pod fits beside the others."""
        return self.type.holds((*self.pods, pod))

    def with_pod(self, pod: Pod) -> Node:
        """The node with one more pod."""
        return replace(self, pods=(*self.pods, pod))


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """Nodes that can go, and the new node that takes what fits nowhere else; None where all fits."""

    gone: tuple[str, ...]
    replacement: Node | None = None


def place(pods: Iterable[Pod], nodes: Sequence[Node]) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    """The nodes with what fits on them, in their order, and the pods that have no room."""
    found, pending = list(nodes), []
    for pod in _largest_first(pods):
        able = [number for number, node in enumerate(found) if node.has_room(pod)]
        if not able:
            pending.append(pod)
            continue
        number = min(able, key=lambda n: (found[n].free_cores, found[n].name))
        found[number] = found[number].with_pod(pod)
    return tuple(found), tuple(pending)


def new_nodes(pods: Iterable[Pod], types: Sequence[NodeType]) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    """Nodes to rent for these pods, and the pods that no type holds."""
    groups: list[list[Pod]] = []
    unplaced = []
    for pod in _largest_first(pods):
        if not any(kind.holds((pod,)) for kind in types):
            unplaced.append(pod)
            continue
        group = next((g for g in groups if any(kind.holds((*g, pod)) for kind in types)), None)
        if group is None:
            groups.append([pod])
        else:
            group.append(pod)
    return tuple(_cheapest(group, types) for group in groups), tuple(unplaced)


def consolidate(
    nodes: Sequence[Node],
    types: Sequence[NodeType],
    *,
    settled: Iterable[str],
    replaces: bool = True,
    most: int | None = None,
) -> Consolidation | None:
    """What can go of the settled nodes; None where nothing can.

    replaces: whether a cheaper node may take their place. most: nodes that go at once at most.
    """
    able = frozenset(settled)
    candidates = sorted(
        (node for node in nodes if node.name in able),
        key=lambda node: (len(node.pods), -node.type.usd_per_hour, node.name),
    )
    empty = [node.name for node in candidates if not node.pods][:most]
    if empty:
        return Consolidation(gone=tuple(empty))
    several = min(len(candidates), len(candidates) if most is None else most)
    prefixes = [candidates[:count] for count in range(several, 1, -1)]
    for gone in (*prefixes, *([node] for node in candidates)):
        found = _without(gone, nodes, types if replaces else ())
        if found is not None:
            return found
    return None


def _without(gone: Sequence[Node], nodes: Sequence[Node], types: Sequence[NodeType]) -> Consolidation | None:
    """These nodes given up, where their pods fit elsewhere or elsewhere and on a cheaper new one."""
    names = tuple(node.name for node in gone)
    _, pending = place((pod for node in gone for pod in node.pods), [n for n in nodes if n.name not in names])
    if not pending:
        return Consolidation(gone=names)
    rented, unplaced = new_nodes(pending, types)
    if unplaced or len(rented) > 1:
        return None
    saved = sum(node.type.usd_per_hour for node in gone) - rented[0].type.usd_per_hour
    return Consolidation(gone=names, replacement=rented[0]) if saved > ROUNDING else None


def _cheapest(pods: Sequence[Pod], types: Sequence[NodeType]) -> Node:
    able = [kind for kind in types if kind.holds(pods)]
    kind = min(able, key=lambda item: (item.usd_per_hour, item.offering))
    return Node(type=kind, pods=tuple(pods))


def _largest_first(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (-pod.cores, -pod.memory_gib, pod.name))


def endpoint_types(pods: Sequence[Pod], types: Sequence[NodeType]) -> tuple[NodeType, ...]:
    """The one type of each family on which these pods cost least, where nodes must be alike.

    A family without a type that holds each of its pods keeps its largest type.
    """
    found = []
    for family in sorted({kind.family for kind in types}):
        own = [pod for pod in pods if pod.family == family]
        kinds = [kind for kind in types if kind.family == family]
        able = [kind for kind in kinds if all(kind.holds((pod,)) for pod in own)]

        def usd_per_hour(kind: NodeType, own: Sequence[Pod] = own) -> float:
            return len(new_nodes(own, (kind,))[0]) * kind.usd_per_hour

        cheapest = min(able, key=lambda kind: (usd_per_hour(kind), kind.offering), default=None)
        found.append(cheapest or max(kinds, key=lambda kind: (kind.cores, kind.offering)))
    return tuple(found)

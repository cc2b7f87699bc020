"""Pods on nodes: nothing is over-committed, nothing is forgotten, and consolidation never costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.planner.rivals.pod_packing import (
    Consolidation,
    Node,
    NodeType,
    Pod,
    consolidate,
    endpoint_types,
    new_nodes,
    place,
)
from mark.planner.rivals.pod_sizes import choose_size, halving_factor, pod_sizes
from tests.planner.builders import offering

TYPES = tuple(
    NodeType(
        offering=f"{family}.{cores}",
        usd_per_hour=usd * cores,
        cores=cores,
        memory_gib=2 * cores - 1,
        family=family,
    )
    for family, usd in (("c", 0.04), ("m", 0.05))
    for cores in (2.0, 4.0, 8.0)
)
PODS = st.lists(
    st.tuples(
        st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0, 16.0]), st.sampled_from([0.25, 1.0, 3.0]), st.sampled_from("cm")
    ),
    max_size=14,
).map(
    lambda drawn: tuple(
        Pod(name=f"p{number:02}", cores=cores, memory_gib=gib, family=family)
        for number, (cores, gib, family) in enumerate(drawn)
    )
)


def names(nodes: tuple[Node, ...], rest: tuple[Pod, ...]) -> Counter[str]:
    return Counter(pod.name for node in nodes for pod in node.pods) + Counter(pod.name for pod in rest)


def check(nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        assert sum(pod.cores for pod in node.pods) <= node.type.cores + 1e-6
        assert sum(pod.memory_gib for pod in node.pods) <= node.type.memory_gib + 1e-6
        assert {pod.family for pod in node.pods} <= {node.type.family}


def rented(pods: tuple[Pod, ...], types: tuple[NodeType, ...] = TYPES) -> tuple[Node, ...]:
    found, _ = new_nodes(pods, types)
    return tuple(replace(node, name=f"n{number:02}") for number, node in enumerate(found))


@given(PODS, PODS)
def test_every_pod_is_on_one_node_that_has_room_or_waits_for_one_that_nobody_sells(
    first: tuple[Pod, ...], second: tuple[Pod, ...]
) -> None:
    more = tuple(replace(pod, name=f"q{pod.name}") for pod in second)
    there = rented(first)
    placed, pending = place(more, there)
    new, unsold = new_nodes(pending, TYPES)
    check((*placed, *new))
    assert names(placed, pending) == names(there, more)
    assert names(new, unsold) == names((), pending)
    assert all(pod.cores > 8.0 for pod in unsold)
    assert not any(node.has_room(pod) for pod in pending for node in placed)


@given(PODS, st.sets(st.integers(0, 13)), st.booleans())
def test_consolidation_never_raises_the_rent_and_finds_room_for_every_pod(
    pods: tuple[Pod, ...], stopped: set[int], replaces: bool
) -> None:
    full = rented(pods)
    nodes = tuple(
        replace(node, pods=tuple(pod for pod in node.pods if int(pod.name[1:]) not in stopped)) for node in full
    )
    before = sum(node.type.usd_per_hour for node in nodes)
    for _ in range(2 * len(nodes) + 1):
        found = consolidate(nodes, TYPES, settled=[node.name for node in nodes], replaces=replaces)
        if found is None:
            break
        gone = [node for node in nodes if node.name in found.gone]
        stays = tuple(node for node in nodes if node.name not in found.gone)
        placed, pending = place((pod for node in gone for pod in node.pods), stays)
        assert bool(pending) == (found.replacement is not None)
        assert found.replacement is None or replaces
        new = (
            ()
            if found.replacement is None
            else (replace(found.replacement, name=f"r{len(gone[0].name)}{gone[0].name}"),)
        )
        assert names((*placed, *new), ()) == names(nodes, ())
        nodes = (*placed, *new)
        check(nodes)
        after = sum(node.type.usd_per_hour for node in nodes)
        assert after <= before - min(node.type.usd_per_hour for node in gone) * (found.replacement is None) + 1e-9
        assert after < before
        before = after
    else:
        raise AssertionError("consolidation ends")


def test_a_node_that_is_not_settled_stays() -> None:
    pods = tuple(Pod(name=f"p{n}", cores=0.5, memory_gib=0.25, family="c") for n in range(2))
    small = TYPES[0]
    nodes = tuple(Node(name=f"n{n}", type=small, pods=(pod,)) for n, pod in enumerate(pods))
    assert consolidate(nodes, TYPES, settled=()) is None
    assert consolidate(nodes, TYPES, settled=["n1"]) == Consolidation(gone=("n1",))


def test_nodes_of_an_endpoint_are_of_the_type_that_holds_its_copies_for_least() -> None:
    """Three copies of 2 cores and 3 GiB: memory lets one of them on 2 cores, two on 4 and five on 8."""
    copies = [Pod(name=f"p{n}", cores=1.0, memory_gib=3.0, family="c") for n in range(5)]
    assert [kind.offering for kind in endpoint_types(copies, TYPES)] == ["c.8.0", "m.2.0"]


def grown(cores: int, single_s: float) -> Offering:
    item = offering(
        f"c5.{cores}", points={1: single_s, 2: 1.9 * single_s}, rps=1.0 / single_s, usd_per_hour=0.05 * cores
    )
    kind = replace(item.instance_type, vcpus=cores, memory_gib=2.0 * cores)
    return replace(item, instance_type=kind)


def test_a_pod_takes_the_time_of_the_type_with_its_cores_and_below_the_smallest_longer() -> None:
    types = (grown(2, 0.05), grown(4, 0.03))
    sizes = pod_sizes(types, Slo(latency_s=1.0, target=0.98), memory_gib=0.5, sizes=None)
    found = {size.cores: size.offering.profile.latency_s(1) for size in sizes}
    assert found == pytest.approx({4.0: 0.03, 2.0: 0.05, 1.0: 0.05 * 5 / 3, 0.5: 0.1 * 5 / 3, 0.25: 0.2 * 5 / 3})
    assert halving_factor([types[0].profile], [2.0]) == 2.0
    prices = {size.cores: size.offering.usd_per_hour for size in sizes}
    assert prices[2.0] == pytest.approx(0.05 * 2)
    assert prices[0.25] == pytest.approx(0.05 * 4 * 0.5 / 7), "its memory is the larger share of a node"


def test_a_size_is_chosen_that_carries_the_usual_load_for_least_and_answers_two_in_time() -> None:
    types = (grown(2, 0.05), grown(4, 0.03))

    def chosen(rps: float, latency_s: float = 1.0) -> float:
        history = Demand(end_at=0.0, mean_rps=(rps,) * 60, max_rps=(rps,) * 60)
        slo = Slo(latency_s=latency_s, target=0.98)
        return choose_size(types, slo, memory_gib=0.1, history=history, sizes=None).cores

    assert chosen(0.01) == 0.25
    assert chosen(0.01, latency_s=0.3) == 1.0
    with pytest.raises(Misconfigured, match="answers twice"):
        chosen(0.01, latency_s=0.05)

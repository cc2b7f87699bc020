"""Algorithm 1 of HetSev."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.planner.hetsev.gpu_placement import (
    Cluster,
    Gpu,
    Instance,
    Needs,
    PlacementPolicy,
    Server,
    able_gpus,
    next_batch,
    place,
)

POLICY = PlacementPolicy(batch=3)


def cluster(gpus: int = 4, *, gpu_gb: float = 4.0, cores: float = 8.0) -> Cluster:
    """Two GPUs a server, the even ones of type T4."""
    return Cluster(
        servers={f"s{i}": Server(name=f"s{i}", cores=cores, memory_gb=16.0) for i in range((gpus + 1) // 2)},
        gpus={
            f"g{i}": Gpu(name=f"g{i}", kind="V100" if i % 2 else "T4", gpu_gb=gpu_gb, server=f"s{i // 2}")
            for i in range(gpus)
        },
        tenants={},
    )


def instance(name: str, model: str, *, kind: str = "", gpu_gb: float = 1.0, since_s: float = 0.0) -> Instance:
    needs = Needs(gpu_gb=gpu_gb, cores=2.0, memory_gb=1.0)
    return Instance(name=name, model=model, kind=kind, needs=needs, since_s=since_s)


pendings = st.lists(
    st.tuples(
        st.sampled_from(("m1", "m2", "m3")),
        st.sampled_from(("", "T4", "V100")),
        st.sampled_from((0.5, 1.5, 3.0)),
        st.floats(0.0, 90.0),
    ),
    max_size=20,
).map(
    lambda items: [
        instance(f"i{n:02d}", model, kind=kind, gpu_gb=gb, since_s=since)
        for n, (model, kind, gb, since) in enumerate(items)
    ]
)


def filled(pending: list[Instance], where: dict[str, str], start: Cluster) -> Cluster:
    for item in pending:
        if item.name in where:
            start = start.with_tenant(where[item.name], item)
    return start


@given(pendings, st.booleans())
def test_nothing_is_over_committed_and_models_keep_apart(pending: list[Instance], share: bool) -> None:
    policy = PlacementPolicy(batch=3, share=share)
    start = cluster()
    after = filled(pending, place(pending, start, 100.0, policy), start)
    for gpu in after.gpus.values():
        assert after.free_gb(gpu.name) >= -1e-9
        assert max(Counter(item.model for item in after.of(gpu.name)).values(), default=0) <= 1
        assert all(item.kind in ("", gpu.kind) for item in after.of(gpu.name))
        assert share or len(after.of(gpu.name)) <= 1
    assert all(min(after.free(server)) >= -1e-9 for server in after.servers)


@given(pendings)
def test_what_waits_has_no_gpu_left(pending: list[Instance]) -> None:
    start = cluster()
    where = place(pending, start, 100.0, POLICY)
    after = filled(pending, where, start)
    assert not [item.name for item in pending if item.name not in where and able_gpus(after, item, POLICY)]


@given(pendings, st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(pending: list[Instance], chance: Random) -> None:
    shuffled = list(pending)
    chance.shuffle(shuffled)
    assert place(shuffled, cluster(), 100.0, POLICY) == place(pending, cluster(), 100.0, POLICY)


def test_worst_fit_takes_empty_gpus_first() -> None:
    pending = [instance(f"i{n}", f"m{n}") for n in range(5)]
    where = place(pending, cluster(), 0.0, POLICY)
    assert sorted(Counter(where.values()).values()) == [1, 1, 1, 2]


def test_the_longer_and_older_queue_goes_first() -> None:
    few = [instance(f"b{n}", "b", since_s=50.0) for n in range(2)]
    many = [instance(f"a{n}", "a", since_s=30.0) for n in range(4)]
    # 4 instances x 30 s against 2 x 10 s are six sevenths of the seats: 3.4 of 4, 4.3 of 5.
    assert [item.name for item in next_batch([list(few), list(many)], 60.0, 4)] == ["a0", "a1", "a2", "b0"]
    assert [item.name for item in next_batch([list(few), list(many)], 60.0, 5)] == ["a0", "a1", "a2", "a3", "b0"]


def test_a_price_replaces_anti_affinity() -> None:
    start = cluster(2).with_tenant("g0", instance("x", "m1")).with_tenant("g1", instance("y", "m2"))
    wants = [instance("z", "m1", gpu_gb=0.5)]
    assert place(wants, start, 0.0, POLICY) == {"z": "g1"}
    dear = PlacementPolicy(price=lambda _item, there: sum(tenant.model == "m2" for tenant in there))
    assert place(wants, start, 0.0, dear) == {"z": "g0"}


def test_memory_that_fits_no_gpu_is_refused() -> None:
    with pytest.raises(
        Misconfigured, match="needs 9 GB of GPU memory and the largest T4 GPU has 4: use a smaller"
    ):
        place([instance("i", "m1", kind="T4", gpu_gb=9.0)], cluster(), 0.0, POLICY)

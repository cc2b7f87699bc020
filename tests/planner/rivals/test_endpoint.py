"""A multi-model endpoint: the type of its instances, and what each of them holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import InstanceType
from mark.planner.rivals.endpoint import EndpointModel, Holding, endpoint_offering, to_evict, where_to_load
from tests.planner.builders import offering

SMALL = offering("c5.1", rps=10.0, usd_per_hour=0.1)
LARGE = offering("c5.2", rps=16.0, usd_per_hour=0.2)


def model(name: str, usual_rps: float, *, gib: float = 1.0, faster: float = 1.0) -> EndpointModel:
    sold = tuple(replace(item, capacity_rps=faster * item.capacity_rps) for item in (SMALL, LARGE))
    return EndpointModel(name=name, memory_gib=gib, usual_rps=usual_rps, offerings=sold)


def room_gib(item: InstanceType) -> float:
    return {"c5.1": 2.0, "c5.2": 4.0}[item.name]


def test_the_type_that_carries_the_usual_load_for_least_counts_for_the_usual_mix() -> None:
    found = endpoint_offering([model("a", 6.0), model("b", 12.0, faster=2.0)], room_gib)
    assert found.name == SMALL.name
    assert found.capacity_rps == pytest.approx(18.0 / (0.6 + 0.6))
    idle = endpoint_offering([model("a", 0.0), model("b", 0.0, faster=2.0)], room_gib)
    assert (idle.name, idle.capacity_rps) == (SMALL.name, 10.0)


def test_every_model_fits_and_is_answered_on_the_type_or_there_is_none() -> None:
    assert endpoint_offering([model("a", 6.0), model("b", 1.0, gib=3.0)], room_gib).name == LARGE.name
    fast = replace(model("a", 6.0), offerings=(LARGE,))
    assert endpoint_offering([fast, model("b", 1.0)], room_gib).name == LARGE.name
    with pytest.raises(Misconfigured, match="leave out sagemaker-mme"):
        endpoint_offering([model("a", 6.0, gib=5.0)], room_gib)


def test_a_model_is_loaded_where_most_memory_is_left_and_it_is_not_yet() -> None:
    instances = [
        Holding(name="i-1", models=frozenset("a"), free_gib=9.0),
        Holding(name="i-3", models=frozenset("b"), free_gib=2.0),
        Holding(name="i-2", models=frozenset("b"), free_gib=2.0),
    ]
    assert where_to_load("a", instances) == instances[2]
    assert where_to_load("b", instances) == instances[0]
    assert where_to_load("a", instances[:1]) is None


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.floats(0.1, 4.0), st.none() | st.integers(0, 9))),
    st.floats(-2.0, 12.0),
)
def test_no_model_goes_before_one_that_was_used_less_recently_and_none_in_vain(
    known: dict[str, tuple[float, int | None]], missing_gib: float
) -> None:
    held = {name: gib for name, (gib, _) in known.items()}
    used_at = {name: float(at) for name, (_, at) in known.items() if at is not None}
    gone = to_evict(held, used_at, missing_gib)
    ages = [used_at.get(name, -1.0) for name in gone]
    assert ages == sorted(ages)
    assert all(used_at.get(name, -1.0) >= max(ages, default=-1.0) for name in held.keys() - {*gone})
    assert sum(held[name] for name in gone[:-1]) < missing_gib or not gone
    assert len(gone) == len(held) or sum(held[name] for name in gone) >= missing_gib - 1e-9

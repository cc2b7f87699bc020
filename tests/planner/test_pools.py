"""Spot pools are spread, and nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offering import Market
from mark.planner.pools import FEWEST_INSTANCES, MOST_IN_ONE_POOL, spread
from tests.planner.builders import offering

CHEAP = replace(offering("cheap", rps=10.0, usd_per_hour=0.1), market=Market.SPOT)
OTHER = replace(offering("other", rps=4.0, usd_per_hour=0.08), market=Market.SPOT)
DEAR = replace(offering("dear", rps=40.0, usd_per_hour=4.0), market=Market.SPOT)
KNOWN = {item.name: item for item in (CHEAP, OTHER, DEAR)}
counts = st.dictionaries(st.sampled_from(sorted(KNOWN)), st.integers(1, 60), max_size=3)


def capacity(fleet: dict[str, int]) -> float:
    return sum(count * KNOWN[name].capacity_rps for name, count in fleet.items())


@given(counts)
def test_no_pool_carries_too_much_and_no_capacity_is_lost(fleet: dict[str, int]) -> None:
    found = spread(fleet, KNOWN, frozenset())
    assert capacity(found) >= capacity(fleet) - 1e-9
    if sum(fleet.values()) >= FEWEST_INSTANCES:
        largest = max(count * KNOWN[name].capacity_rps for name, count in found.items())
        assert largest <= MOST_IN_ONE_POOL * capacity(found) + max(item.capacity_rps for item in KNOWN.values())


def test_the_excess_goes_to_the_next_cheapest_pool_that_can_be_had() -> None:
    assert spread({CHEAP.name: 20}, KNOWN, frozenset()) == {CHEAP.name: 18, OTHER.name: 5}
    assert spread({CHEAP.name: 20}, KNOWN, frozenset({OTHER.name})) == {CHEAP.name: 18, DEAR.name: 1}


def test_small_fleets_and_on_demand_stay_as_they_are() -> None:
    on_demand = {"a:on-demand": offering("a")}
    assert spread({CHEAP.name: 2}, KNOWN, frozenset()) == {CHEAP.name: 2}
    assert spread({"a:on-demand": 20}, on_demand, frozenset()) == {"a:on-demand": 20}
    assert spread({CHEAP.name: 20}, {CHEAP.name: CHEAP}, frozenset()) == {CHEAP.name: 20}

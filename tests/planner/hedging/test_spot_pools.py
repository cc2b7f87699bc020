"""Spot pools are spread, and nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.offerings.offering import Market
from mark.planner.hedging.spot_pools import MOST_IN_ONE_POOL, MOST_PREMIUM, diversify_spot
from tests.planner.builders import offering

CHEAP = replace(offering("cheap", rps=10.0, usd_per_hour=0.1), market=Market.SPOT)
OTHER = replace(offering("other", rps=4.0, usd_per_hour=0.05), market=Market.SPOT)
DEAR = replace(offering("dear", rps=40.0, usd_per_hour=4.0), market=Market.SPOT)
KNOWN = {item.name: item for item in (CHEAP, OTHER, DEAR)}
counts = st.dictionaries(st.sampled_from(sorted(KNOWN)), st.integers(1, 60), max_size=3)


def capacity(fleet: dict[str, int]) -> float:
    return sum(count * KNOWN[name].capacity_rps for name, count in fleet.items())


def rent(fleet: dict[str, int]) -> float:
    return sum(count * KNOWN[name].usd_per_hour for name, count in fleet.items())


@given(counts)
def test_it_costs_little_and_no_capacity_is_lost(fleet: dict[str, int]) -> None:
    found = diversify_spot(fleet, KNOWN, frozenset())

    assert capacity(found) >= capacity(fleet) - 1e-9
    assert rent(found) <= rent(fleet) * (1 + MOST_PREMIUM) + 1e-9


def test_the_excess_goes_to_the_next_cheapest_pool_that_can_be_had() -> None:
    fleet = {CHEAP.name: 40}
    found = diversify_spot(fleet, KNOWN, frozenset())
    assert found == {CHEAP.name: 36, OTHER.name: 10}
    assert found[CHEAP.name] * CHEAP.capacity_rps <= MOST_IN_ONE_POOL * capacity(found)
    assert diversify_spot(fleet, KNOWN, frozenset({OTHER.name})) == fleet  # the dear one would cost too much


def test_a_fleet_of_one_is_not_moved_from_pool_to_pool() -> None:
    """Whole in the one or whole in the other is the same risk."""
    near = replace(offering("near", rps=10.0, usd_per_hour=0.103), market=Market.SPOT)
    halves = replace(offering("halves", rps=5.0, usd_per_hour=0.0505), market=Market.SPOT)
    for other in (near, halves):
        known = {CHEAP.name: CHEAP, other.name: other}
        assert diversify_spot({CHEAP.name: 1}, known, frozenset()) == {CHEAP.name: 1}
    assert diversify_spot({CHEAP.name: 2}, {CHEAP.name: CHEAP, near.name: near}, frozenset()) == {
        CHEAP.name: 1,
        near.name: 1,
    }


def test_small_fleets_and_on_demand_stay_as_they_are() -> None:
    on_demand = {"a:on-demand": offering("a")}
    assert diversify_spot({CHEAP.name: 2}, KNOWN, frozenset()) == {CHEAP.name: 2}
    assert diversify_spot({"a:on-demand": 20}, on_demand, frozenset()) == {"a:on-demand": 20}
    assert diversify_spot({CHEAP.name: 20}, {CHEAP.name: CHEAP}, frozenset()) == {CHEAP.name: 20}
    assert diversify_spot({}, KNOWN, frozenset()) == {}

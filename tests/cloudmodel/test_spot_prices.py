"""Spot prices: one for each type and zone, moved by the hour as far as the data say, whoever asks for what."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloudmodel.spot_prices import HOUR_S, KNOT_S, SpotPrices
from mark.cloudmodel.world import IDEAL, TYPICAL
from tests.planner.builders import offering

ITEM = replace(offering().instance_type, on_demand_usd_per_hour=0.1, spot_usd_per_hour=0.04)
TYPES = [replace(ITEM, name=f"c{number}.large") for number in range(300)]
ZONES = st.sampled_from(TYPICAL.zones)
TIMES = st.floats(-1e6, 1e7)
SEEDS = st.integers(0, 9)


@given(TIMES, SEEDS)
def test_in_an_ideal_world_the_price_is_the_catalogues_in_the_one_zone(at: float, seed: int) -> None:
    prices = SpotPrices(IDEAL, seed)
    assert prices.zones_by_price(ITEM, at) == ("",)
    assert prices.usd_per_hour(ITEM, "", at) == prices.mean_usd_per_hour(ITEM, "", at, at) == 0.04


@given(SEEDS, st.lists(st.tuples(ZONES, TIMES), min_size=1, max_size=8), st.floats(0.0, 2e9))
def test_no_order_of_questions_and_no_other_clock_changes_a_price(
    seed: int, asked: list[tuple[str, float]], begins: float
) -> None:
    hours = [(zone, math.floor(at / HOUR_S)) for zone, at in asked]
    one, other = SpotPrices(TYPICAL, seed), SpotPrices(TYPICAL, seed, start_at=math.floor(begins))
    first = {place: one.usd_per_hour(ITEM, place[0], place[1] * HOUR_S) for place in hours}
    for zone, hour in reversed(hours):
        inside = math.floor(begins) + (hour + 0.5) * HOUR_S
        assert other.usd_per_hour(ITEM, zone, inside) == first[zone, hour]


@given(SEEDS, ZONES, TIMES)
def test_a_spot_price_is_above_nothing_and_never_above_the_one_on_demand(seed: int, zone: str, at: float) -> None:
    wild = replace(TYPICAL, spot_zone_spread=2.0)
    assert 0.0 < SpotPrices(wild, seed).usd_per_hour(ITEM, zone, at) <= ITEM.on_demand_usd_per_hour


@given(SEEDS, ZONES, TIMES, st.floats(1.0, 3e5), st.floats(0.0, 1.0))
def test_a_mean_lies_among_its_hours_and_is_made_of_its_parts(
    seed: int, zone: str, begin: float, lasts_s: float, share: float
) -> None:
    prices, end = SpotPrices(TYPICAL, seed), begin + lasts_s
    mean = prices.mean_usd_per_hour(ITEM, zone, begin, end)
    hours = range(math.floor(begin / HOUR_S), math.ceil(end / HOUR_S))
    by_hour = [prices.usd_per_hour(ITEM, zone, hour * HOUR_S) for hour in hours]
    assert min(by_hour) * (1 - 1e-6) <= mean <= max(by_hour) * (1 + 1e-6)
    middle = begin + share * lasts_s
    parts = [prices.mean_usd_per_hour(ITEM, zone, *ends) for ends in ((begin, middle), (middle, end))]
    assert mean == pytest.approx(share * parts[0] + (1 - share) * parts[1], rel=1e-6)


@given(SEEDS, TIMES)
def test_zones_come_by_price_and_none_is_ever_cheaper_than_the_lowest(seed: int, at: float) -> None:
    prices = SpotPrices(TYPICAL, seed)
    found = [prices.usd_per_hour(ITEM, zone, at) for zone in prices.zones_by_price(ITEM, at)]
    assert found == sorted(found)
    assert prices.lowest_usd_per_hour(ITEM, at - 7 * HOUR_S, at + 1.0) <= found[0]


def test_of_three_zones_the_cheapest_is_as_far_below_the_middle_one_as_in_the_data() -> None:
    still = SpotPrices(replace(TYPICAL, spot_drift=0.0), 1)
    below = []
    for item in TYPES:
        cheapest, middle, _ = sorted(still.usd_per_hour(item, zone, 0.0) for zone in TYPICAL.zones)
        assert middle == pytest.approx(0.04)
        below.append(math.log(cheapest / middle))
    assert statistics.fmean(below) == pytest.approx(-0.083, abs=0.012)


def test_prices_move_in_five_hours_as_far_as_in_the_data() -> None:
    prices, moves = SpotPrices(TYPICAL, 1), []
    for item in TYPES:
        before, after = (prices.usd_per_hour(item, "a", at) for at in (KNOT_S, KNOT_S + 4.6 * HOUR_S))
        moves.append(math.log(after / before))
    assert statistics.pstdev(moves) == pytest.approx(0.007, abs=0.001)

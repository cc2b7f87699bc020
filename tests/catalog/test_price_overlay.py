"""Price overlays: one holds for a type and market, whatever their order, and no other price moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.load import load_prices
from mark.catalog.price_overlay import PriceOverlay, match_each, overlay_prices
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market

LISTED = load_prices()
PATTERNS = ("c5", "c5.large", "c5.*", "c*.?large", "*", "m5", "g4dn.xlarge")
OVERLAYS = st.lists(
    st.builds(
        PriceOverlay,
        name=st.just("one"),
        types=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(tuple),
        markets=st.sampled_from(((Market.ON_DEMAND,), (Market.SPOT,), (Market.ON_DEMAND, Market.SPOT))),
        factor=st.floats(0.5, 1.5),
    ),
    max_size=4,
).map(lambda found: [replace(one, weight=number) for number, one in enumerate(found)])


@given(OVERLAYS, st.randoms())
def test_the_greatest_weight_that_matches_holds_alone_in_any_order(overlays: list[PriceOverlay], chance) -> None:
    shuffled = list(overlays)
    chance.shuffle(shuffled)
    found = overlay_prices(LISTED, overlays)
    assert overlay_prices(LISTED, shuffled) == found
    for listed, own in zip(LISTED.types, found.types, strict=True):
        for market in Market:
            usd, paid = listed.usd_per_hour_on(market), own.usd_per_hour_on(market)
            last = next((one for one in reversed(overlays) if one.matches(listed.name, market)), None)
            assert paid == (usd if usd is None or last is None else round(last.price_of(usd), 8))
        spot = next((one for one in reversed(overlays) if one.matches(listed.name, Market.SPOT)), None)
        assert own.spot_price_factor == (spot.factor if spot and listed.spot_usd_per_hour else 1.0)


def test_a_name_is_a_family_and_no_prefix_of_others() -> None:
    overlay = PriceOverlay(name="one", types=("c5",), usd_per_hour=0.5)
    found = {item.name for item in overlay_prices(LISTED, [overlay]).types if item.on_demand_usd_per_hour == 0.5}
    assert found == {name for name in LISTED.names if name.startswith("c5.")}
    assert match_each([overlay], sorted(LISTED.names)) == {"c5.2xlarge"}


def test_two_of_one_weight_clash_only_where_both_match() -> None:
    here, there = (PriceOverlay(name=name, types=(name,), factor=0.9) for name in ("c5", "m5"))
    overlay_prices(LISTED, [here, there])
    spot = PriceOverlay(name="spot", types=("c5",), markets=(Market.SPOT,), factor=0.9)
    overlay_prices(LISTED, [here, spot])
    with pytest.raises(Misconfigured, match=r"c5 and all both set the on-demand price of c5\.2xlarge"):
        overlay_prices(LISTED, [here, PriceOverlay(name="all", types=("*",), factor=0.9)])

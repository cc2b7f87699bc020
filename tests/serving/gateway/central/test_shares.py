from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mark.serving.gateway.central.shares import assign_gateways

POOLS = st.dictionaries(st.integers(0, 99).map(str), st.sampled_from(["fast", "slow", "slower"]), max_size=30)
ZONES = st.sampled_from(["", "a", "b"])
GATEWAYS = st.dictionaries(st.sampled_from(["g1", "g2", "g3", "g4", "g5"]), ZONES, min_size=1)


@given(POOLS, GATEWAYS, st.lists(ZONES, min_size=30, max_size=30))
def test_each_instance_has_one_gateway_and_shares_are_equal(
    kind_of: dict[str, str], gateways: dict[str, str], zones: list[str]
):
    zone_of = dict(zip(kind_of, zones, strict=False))
    owner_of = assign_gateways(kind_of, gateways, zone_of)
    assert owner_of.keys() == kind_of.keys()
    assert set(owner_of.values()) <= gateways.keys()
    counts = Counter(owner_of.values())
    assert all(counts[name] <= -(-len(kind_of) // len(gateways)) for name in gateways)
    assert owner_of == assign_gateways(dict(reversed(kind_of.items())), gateways, zone_of)


def test_gateways_take_the_instances_of_their_own_zone_first():
    kind_of = {f"i-{number}": "fast" for number in range(10)}
    zone_of = {name: "ab"[number % 2] for number, name in enumerate(kind_of)}
    gateways = {"g1": "a", "g2": "b"}
    owner_of = assign_gateways(kind_of, gateways, zone_of)
    assert all(gateways[owner_of[name]] == zone for name, zone in zone_of.items())
    in_one = assign_gateways(kind_of, gateways, dict.fromkeys(kind_of, "a"))
    assert Counter(in_one.values()) == {"g1": 5, "g2": 5}, "shares stay equal: requests come in evenly"


def test_each_gateway_has_its_part_of_each_type_and_one_that_ends_moves_few():
    kind_of = {f"i-{number}": ("fast", "slow")[number % 2] for number in range(40)}
    gateways = dict.fromkeys(("g1", "g2", "g3", "g4"), "")
    before = assign_gateways(kind_of, gateways, {})
    assert Counter((before[name], kind) for name, kind in kind_of.items()) == {
        (gateway, kind): 5 for gateway in gateways for kind in ("fast", "slow")
    }
    del gateways["g4"]
    after = assign_gateways(kind_of, gateways, {})
    moved = sum(before[name] != after[name] for name in kind_of)
    assert 10 <= moved <= 20

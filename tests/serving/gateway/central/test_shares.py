from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mark.serving.gateway.central.shares import share_instances

POOLS = st.dictionaries(st.integers(0, 99).map(str), st.sampled_from(["fast", "slow", "slower"]), max_size=30)
GATEWAYS = st.sets(st.sampled_from(["g1", "g2", "g3", "g4", "g5"]), min_size=1)


@given(POOLS, GATEWAYS)
def test_each_instance_has_one_gateway_and_shares_are_equal(kind_of: dict[str, str], gateways: set[str]):
    owner_of = share_instances(kind_of, gateways)
    assert owner_of.keys() == kind_of.keys()
    assert set(owner_of.values()) <= gateways
    counts = Counter(owner_of.values())
    assert all(counts[name] <= -(-len(kind_of) // len(gateways)) for name in gateways)
    assert owner_of == share_instances(dict(reversed(kind_of.items())), gateways)


def test_each_gateway_has_its_part_of_each_type_and_one_that_ends_moves_few():
    kind_of = {f"i-{number}": ("fast", "slow")[number % 2] for number in range(40)}
    gateways = {"g1", "g2", "g3", "g4"}
    before = share_instances(kind_of, gateways)
    assert Counter((before[name], kind) for name, kind in kind_of.items()) == {
        (gateway, kind): 5 for gateway in gateways for kind in ("fast", "slow")
    }
    after = share_instances(kind_of, gateways - {"g4"})
    moved = sum(before[name] != after[name] for name in kind_of)
    assert 10 <= moved <= 20

"""The zones that launches go to, and those that drains begin with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.state import Observation, PoolBackoff, State, Tokens
from mark.controller.zones import drained_first, in_zones
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import Launch
from mark.domain.front import Front, steered_shares
from tests.controller.builders import POLICY, SMALL, SPOT, instances

ZONES = ("a", "b", "c")
EVEN = Front(shares=(("a", 0.5), ("b", 0.5)))
STEERED = replace(EVEN, is_steered=True)
ZONED = replace(POLICY, offerings=(SPOT,), zones=ZONES, crossing_usd=1e-5)
CROSSING_USD = SPOT.capacity_rps * 3600.0 * 1e-5
"""Of all that an instance answers, in an hour."""


def launch(count: int) -> Launch:
    return Launch(token="t1-1", reason="wanted", offering=SPOT.name, count=count)


def there(counts: Mapping[str, int], state: InstanceState = InstanceState.READY) -> tuple[Instance, ...]:
    zones = [zone for zone, count in counts.items() for _ in range(count)]
    made = instances(len(zones), SPOT, state=state)
    return tuple(replace(item, zone=zone) for item, zone in zip(made, zones, strict=True))


def seen(
    front: Front | None, counts: Mapping[str, int] | None = None, usd: Mapping[str, float] | None = None
) -> Observation:
    prices = tuple((f"{SPOT.name}:{zone}", price) for zone, price in sorted((usd or {}).items()))
    return Observation(
        now=60.0, fleet=FleetView(instances=there(counts or {}), spot_usd_per_hour=prices), front=front
    )


def placed(order: Launch, observed: Observation, state: State | None = None) -> Counter[str]:
    """Instances ordered by zone."""
    found: Counter[str] = Counter()
    for one in in_zones([order], state or State(), observed, ZONED, Tokens(1)):
        assert isinstance(one, Launch)
        [zone] = set(ZONES) - one.zones_without(SPOT.name)
        found[zone] += one.count
    return found


@given(count=st.integers(1, 30), counts=st.dictionaries(st.sampled_from(ZONES), st.integers(0, 5)))
def test_instances_are_spread_as_requests_come_in_and_none_is_lost(count: int, counts: dict[str, int]) -> None:
    found = placed(launch(count), seen(EVEN, counts))
    assert found.total() == count
    after = Counter(counts) + found
    assert found["c"] == 0
    if found["a"] and found["b"]:
        assert abs(after["a"] - after["b"]) <= 1 + counts.get("c", 0)


def test_each_zone_has_an_order_with_a_token_of_its_own() -> None:
    tokens = Tokens(1)
    orders = in_zones([replace(launch(5), token=tokens.next())], State(), seen(EVEN), ZONED, tokens)
    assert len({order.token for order in orders}) == len(orders) == 2


@pytest.mark.parametrize(
    "policy", [replace(ZONED, crossing_usd=0.0), replace(ZONED, zones=())], ids=["free", "no zones"]
)
def test_a_launch_may_go_anywhere_where_zones_do_not_matter(policy: type) -> None:
    assert in_zones([launch(5)], State(), seen(EVEN), policy, Tokens(1)) == (launch(5),)  # type: ignore[arg-type]
    assert in_zones([launch(5)], State(), seen(None), ZONED, Tokens(1)) == (launch(5),)


def test_a_dearer_zone_is_taken_only_where_it_spares_more_than_it_costs() -> None:
    counts = {"a": 3, "b": 2}  # one more in b spares what an instance answers
    for dearer, zone in ((0.9, "b"), (1.1, "a")):
        usd = {"a": 0.1, "b": 0.1 + dearer * CROSSING_USD, "c": 9.0}
        assert placed(launch(1), seen(EVEN, counts, usd)) == {zone: 1}


def test_where_requests_follow_the_instances_the_cheapest_zone_with_a_gateway_is_taken() -> None:
    usd = {"a": 0.12, "b": 0.11, "c": 0.10}
    assert placed(launch(4), seen(STEERED, {"a": 1}, usd)) == {"b": 4}


def test_what_others_pull_draws_a_launch_to_them() -> None:
    beside = replace(STEERED, beside=(("a", 100.0 * CROSSING_USD),))
    assert placed(launch(1), seen(beside, usd={"a": 0.12, "b": 0.11, "c": 0.10})) == {"a": 1}


def test_a_zone_that_refused_lately_is_left_out() -> None:
    state = State(pool_backoff=(PoolBackoff(offering=SPOT.name, zone="a", until=600.0),))
    assert placed(launch(2), seen(EVEN), state) == {"b": 2}


def test_the_zone_with_most_to_spare_is_drained_first_and_what_boots_before_it() -> None:
    fleet = there({"a": 2, "b": 4})
    observed = replace(seen(EVEN), fleet=FleetView(instances=fleet))
    assert [item.zone for item in drained_first(fleet, 3, observed, ZONED)] == ["b", "b", "a"]
    booting = replace(fleet[0], id="i-9999", state=InstanceState.PENDING)
    observed = replace(observed, fleet=FleetView(instances=(*fleet, booting)))
    assert drained_first((*fleet, booting), 1, observed, ZONED) == [booting]


def test_without_a_front_the_youngest_is_drained_first() -> None:
    fleet = tuple(replace(item, launched_at=at) for item, at in zip(instances(3), (5.0, 9.0, 7.0), strict=True))
    observed = Observation(now=60.0, fleet=FleetView(instances=fleet))
    found = drained_first(fleet, 2, observed, replace(POLICY, offerings=(SMALL,)))
    assert [item.launched_at for item in found] == [9.0, 7.0]


@given(pulls=st.dictionaries(st.sampled_from(ZONES), st.floats(0.0, 1e3)))
def test_requests_that_follow_the_instances_do_not_cross(pulls: dict[str, float]) -> None:
    shares = steered_shares(pulls, ["a", "b"])
    assert sum(shares.values()) == pytest.approx(1.0)
    without = {zone: usd for zone, usd in pulls.items() if zone != "c"}
    assert STEERED.crossing_usd_per_hour(without) == pytest.approx(0.0, abs=1e-9)

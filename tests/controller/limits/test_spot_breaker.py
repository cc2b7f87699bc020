"""Spot pools that are taken away in bulk: left, and entered again slowly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.controller.limits.spot_breaker import (
    BreakerPolicy,
    SpotPool,
    note_interruptions,
    observed_hazards,
    trusted_again,
)
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orders import Launch, SpotWarned
from tests.controller.builders import POLICY, SPOT, Stepped, instances, plan, seen

BREAKER = BreakerPolicy()
ON_SPOT = replace(POLICY, offerings=(SPOT,), breaker=BREAKER)


def warned(count: int, at: float, first: int = 1) -> tuple[SpotWarned, ...]:
    return tuple(
        SpotWarned(instance=f"i-{n:04d}", at=at, terminates_at=at + 120) for n in range(first, first + count)
    )


def noted(pools: tuple[SpotPool, ...], count: int, at: float, size: int = 8) -> tuple[SpotPool, ...]:
    fleet = FleetView(instances=instances(size, SPOT))
    return note_interruptions(pools, warned(count, at), fleet, at, BREAKER)


@pytest.mark.parametrize(("count", "size", "opens"), [(1, 2, False), (2, 8, True), (2, 9, False), (3, 9, True)])
def test_a_quarter_of_a_pool_and_two_at_least_open_it(count: int, size: int, opens: bool) -> None:
    (pool,) = noted((), count, 100.0, size)

    assert pool.is_open(101.0) is opens


def test_notices_of_ten_minutes_count_together_and_older_ones_do_not() -> None:
    once = noted((), 1, 0.0)
    assert noted(once, 1, 500.0)[0].is_open(501.0)
    assert not noted(once, 1, 700.0)[0].is_open(701.0)


def test_it_opens_twice_as_long_each_time_in_a_row_and_is_forgotten_when_it_stayed_calm() -> None:
    pools = noted((), 4, 0.0)
    assert pools[0].is_open(1799.0)
    assert pools[0].is_returning(1800.0)
    again = noted(pools, 4, 2000.0)
    assert again[0].open_s == 3600.0
    assert noted(again, 0, 2000.0 + 7200.0) == ()
    assert noted(noted((), 4, 0.0), 4, 9000.0)[0].open_s == 1800.0


def test_the_hazard_that_was_seen_outweighs_the_catalogue() -> None:
    (hazard,) = observed_hazards((SpotPool(offering="a", notices=(1.0, 2.0)),), BREAKER, {"a": 0.001}, {"a": 10})

    assert hazard == ("a", pytest.approx((0.002 + 2) / (2 + 12 / 6)))
    assert observed_hazards((SpotPool(offering="a"),), BREAKER, {}, {}) == ()


def test_a_pool_that_has_just_opened_is_priced_by_its_notices() -> None:
    """What runs there is no calmer for it."""
    (calm,) = observed_hazards(noted((), 1, 0.0), BREAKER, {SPOT.name: 0.001}, {SPOT.name: 8})
    pools = noted((), 4, 0.0)
    assert pools[0].is_open(1.0)
    (volatile,) = observed_hazards(pools, BREAKER, {SPOT.name: 0.001}, {SPOT.name: 8})
    assert volatile[1] > calm[1]


def test_nothing_is_launched_in_a_volatile_pool_and_then_one_instance_a_tick() -> None:
    made = Stepped(ON_SPOT)
    want = replace(plan(small=4), counts=tuple(replace(item, offering=SPOT.name) for item in plan(small=4).counts))

    def launched(at: float) -> int:
        orders = made.see(seen(at, (), wanted=want))
        return sum(order.count for order in orders if isinstance(order, Launch))

    assert launched(0.0) == 4
    fleet = instances(4, SPOT, token=made.state.requested[0].token)
    made.see(seen(60.0, fleet, facts=warned(4, 60.0)))
    assert launched(180.0) == 0
    assert launched(60.0 + 1800.0) == 1
    assert launched(60.0 + 3600.0) == 4


def test_all_pools_are_trusted_again_where_fewer_than_two_are_left() -> None:
    policy = BreakerPolicy(least_closed=2)
    zones = ("a", "b", "c")
    lost = tuple(SpotPool(offering=name, opened_at=0.0, open_s=100.0) for name in zones)
    assert trusted_again(lost[:1], zones, 10.0, policy) == lost[:1]
    assert trusted_again(lost[:2], zones, 10.0, policy) == ()
    assert trusted_again(lost[:2], zones, 200.0, policy) == lost[:2], "both are closed again by then"
    assert trusted_again(lost[:2], zones, 10.0, BREAKER) == lost[:2]

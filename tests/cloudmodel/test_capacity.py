"""Refused launches and wakes: one answer a minute, as often as the world says, and more after a lost pool."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloudmodel.capacity import ANSWER_S, Capacity
from mark.cloudmodel.world import IDEAL, ROUGH, TYPICAL, WORLDS, World
from mark.domain.offerings.offering import Market
from tests.planner.builders import offering

PLAIN = offering().instance_type
SPOT = replace(PLAIN, on_demand_usd_per_hour=0.1, spot_usd_per_hour=0.04)
GPU = replace(PLAIN, name="g4dn.xlarge", accelerator="t4", accelerator_count=1)
MINUTES = 20_000
ZONE, OTHER_ZONE = "b", "c"


def share_refused(world: World, market: Market | None, item=PLAIN, seed: int = 1, zone: str = "") -> float:
    capacity = Capacity(world, seed)
    instants = [minute * ANSWER_S for minute in range(MINUTES)]
    if market is None:
        return sum(capacity.refuses_wake(item, "c5.large:on-demand 1", at) for at in instants) / MINUTES
    return sum(capacity.refuses_launch(item, market, zone, at) for at in instants) / MINUTES


@pytest.mark.parametrize("market", [*Market, None])
def test_nothing_is_refused_in_an_ideal_world(market: Market | None) -> None:
    assert share_refused(IDEAL, market) == 0.0


@pytest.mark.parametrize(
    ("world", "market", "item", "expected"),
    [
        (TYPICAL, Market.ON_DEMAND, PLAIN, 0.01),
        (replace(TYPICAL, zones=("",)), Market.SPOT, PLAIN, 0.05),
        (TYPICAL, None, PLAIN, 0.02),
        (TYPICAL, None, GPU, 0.10),
        (ROUGH, None, PLAIN, 0.5),
        (ROUGH, None, GPU, 0.5),
    ],
    ids=["on-demand", "spot", "wake", "gpu-wake", "rough-wake", "rough-gpu-wake"],
)
def test_as_much_is_refused_as_the_world_says(world: World, market, item, expected: float) -> None:
    assert share_refused(world, market, item) == pytest.approx(expected, abs=0.012)


@given(st.floats(0.0, 1e9), st.floats(0.0, 59.0), st.integers(0, 5))
def test_an_answer_holds_for_its_minute(at: float, later_s: float, seed: int) -> None:
    begin = at // ANSWER_S * ANSWER_S
    capacity = Capacity(ROUGH, seed)
    first = capacity.refuses_wake(PLAIN, "c5.large:on-demand 1", begin)
    assert capacity.refuses_wake(PLAIN, "c5.large:on-demand 1", begin + later_s) is first
    assert Capacity(ROUGH, seed).refuses_wake(PLAIN, "c5.large:on-demand 1", begin) is first


def test_instances_are_refused_independently() -> None:
    capacity = Capacity(ROUGH, 1)
    refused = [
        [capacity.refuses_wake(PLAIN, f"c5.large:on-demand {n}", 0.0) for n in range(start, start + 500)]
        for start in (0, 500)
    ]
    both = sum(a and b for a, b in zip(*refused, strict=True)) / 500
    assert both == pytest.approx(0.25, abs=0.06)


def test_a_lost_pool_makes_its_type_scarce_for_half_an_hour_and_no_other() -> None:
    capacity = Capacity(TYPICAL, 3)
    other = replace(PLAIN, name="m5.large")
    capacity.note_notices(PLAIN, ZONE, warned=1, there=3, now=0.0)
    assert not any(capacity.refuses_launch(PLAIN, Market.ON_DEMAND, "", at) for at in (0.0, 60.0, 120.0))
    lost_at = 600.0
    capacity.note_notices(PLAIN, ZONE, warned=2, there=3, now=lost_at)
    within = [lost_at + 60.0 * minute for minute in range(30)]
    for asked in (
        lambda at: capacity.refuses_launch(PLAIN, Market.ON_DEMAND, "", at),
        lambda at: capacity.refuses_launch(PLAIN, Market.SPOT, ZONE, at),
        lambda at: capacity.refuses_wake(PLAIN, "c5.large:on-demand 1", at),
    ):
        assert 6 <= sum(asked(at) for at in within) <= 24
        assert sum(asked(lost_at + 1800.0 + 60.0 * minute) for minute in range(30)) <= 6
    assert sum(capacity.refuses_launch(other, Market.ON_DEMAND, "", at) for at in within) <= 3


def test_a_zone_refuses_as_often_as_the_world_says_and_all_do_in_the_share_that_is_together() -> None:
    capacity, instants = Capacity(TYPICAL, 1), [minute * ANSWER_S for minute in range(MINUTES)]
    for zone in TYPICAL.zones:
        assert share_refused(TYPICAL, Market.SPOT, SPOT, zone=zone) == pytest.approx(0.05, abs=0.006)
    lacking = sum(capacity.zone_of_launch(SPOT, Market.SPOT, at) is None for at in instants) / MINUTES
    assert lacking == pytest.approx(0.05 * TYPICAL.refused_together, abs=0.004)


@given(st.floats(0.0, 1e7), st.integers(0, 50))
def test_a_spot_launch_goes_to_the_cheapest_zone_that_does_not_refuse_it(at: float, seed: int) -> None:
    capacity = Capacity(replace(TYPICAL, spot_refused=0.5), seed)
    zone = capacity.zone_of_launch(SPOT, Market.SPOT, at)
    passed = [z for z in TYPICAL.zones if capacity.refuses_launch(SPOT, Market.SPOT, z, at)]
    if zone is None:
        assert len(passed) == 3
    else:
        open_ = set(TYPICAL.zones) - set(passed)
        assert zone == min(open_, key=lambda one: capacity.prices.usd_per_hour(SPOT, one, at))
    first = capacity.prices.zones_by_price(SPOT, at)[0]
    assert capacity.zone_of_launch(SPOT, Market.SPOT, at, prewarmed=True) == first


def test_a_lost_pool_makes_spot_scarce_in_its_zone_alone() -> None:
    capacity = Capacity(TYPICAL, 3)
    capacity.note_notices(SPOT, ZONE, warned=2, there=3, now=0.0)
    within = [60.0 * minute for minute in range(30)]
    refused = {z: sum(capacity.refuses_launch(SPOT, Market.SPOT, z, at) for at in within) for z in "abc"}
    assert refused[ZONE] >= 6
    assert refused[OTHER_ZONE] + refused["a"] <= 8


def test_a_rough_world_loses_one_pool_in_every_hour() -> None:
    capacity = Capacity(ROUGH, 5)
    pools = ["c5.large:spot", "m5.large:spot", "r5.large:spot"]
    times = [capacity.pool_loss_s(number) for number in range(50)]
    assert [int((at or 0.0) // 3600.0) for at in times] == list(range(50))
    assert {capacity.lost_pool(number, pools) for number in range(50)} == set(pools)
    assert Capacity(TYPICAL, 5).pool_loss_s(0) is None


@pytest.mark.parametrize("world", WORLDS.values(), ids=lambda world: world.name)
def test_worlds_have_a_quota_for_each_family_or_none_at_all(world: World) -> None:
    p2 = replace(GPU, name="p2.xlarge")
    quotas = [world.quota_of(item, Market.SPOT) for item in (PLAIN, GPU, p2)]
    assert quotas == ([float("inf")] * 3 if world is IDEAL else [256.0, 8.0, 0.0])

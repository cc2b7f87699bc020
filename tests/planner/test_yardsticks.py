from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import PlanInfeasible
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import BurstCredits, LambdaOffering, Offering
from mark.domain.offerings.times import CloudTimes
from mark.planner.yardsticks import (
    CapacityUnit,
    YardstickInput,
    floor_usd,
    reference_by_levels,
    reference_by_program,
    reference_usd,
    undominated,
)
from tests.planner.builders import offering, overflow

UNIT = offering("unit", rps=1.0, usd_per_hour=0.6, launch_usd=0.02)  # 0.01 USD a minute
CREDITS = BurstCredits(vcpus=2, earn_per_hour=24, max_balance=576, baseline=0.2, launch_credits=0.3)
DEAR_LAMBDA = replace(overflow(), usd_per_request=0.0004)  # a second-long level costs 0.0004 a second on it


def inputs(
    minutes: list[list[int]],
    offerings: tuple[Offering, ...] = (UNIT,),
    spill_to: LambdaOffering | None = DEAR_LAMBDA,
    target: float = 0.98,
) -> YardstickInput:
    """Each minute repeats its rates; they must divide 60."""
    arrivals = np.array([rate for row in minutes for rate in row * (60 // len(row))], dtype=np.float64)
    slo = Slo(latency_s=0.6, target=target)
    return YardstickInput(arrivals=arrivals, offerings=offerings, overflow=spill_to, slo=slo, times=CloudTimes())


def by_hand(minutes: list[list[int]], fleet: tuple[int, ...], shortfall_usd: float) -> float:
    usd = sum(0.01 * count for count in fleet)
    usd += sum(0.02 * max(0, after - before) for before, after in itertools.pairwise(fleet))
    spilled = sum(
        max(0, rate - count) * (60 // len(row)) for row, count in zip(minutes, fleet, strict=True) for rate in row
    )
    return usd + spilled * shortfall_usd


small = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(small)
def test_the_reference_is_the_best_of_all_fleets(minutes: list[list[int]]) -> None:
    known = inputs(minutes)
    fleets = itertools.product(range(4), repeat=len(minutes))
    best = min(by_hand(minutes, fleet, known.shortfall_usd) for fleet in fleets)
    assert reference_usd(known) == pytest.approx(best, rel=1e-9, abs=1e-12)


types = st.lists(st.tuples(st.floats(0.5, 4.0), st.floats(0.1, 2.0), st.floats(0.0, 0.05)), min_size=1, max_size=3)


@st.composite
def problems(draw: st.DrawFn) -> YardstickInput:
    row = st.lists(st.integers(0, 9), min_size=3, max_size=3)
    offerings = tuple(
        offering(f"t{i}", rps=rps, usd_per_hour=price, launch_usd=launch)
        for i, (rps, price, launch) in enumerate(draw(types))
    )
    spill_to = draw(st.sampled_from([None, overflow(), DEAR_LAMBDA]))
    known = inputs(
        draw(st.lists(row, min_size=1, max_size=5)),
        offerings,
        spill_to,
        draw(st.sampled_from([0.5, 0.98, 1.0])),
    )
    return replace(known, arrivals=known.arrivals[: len(known.arrivals) - draw(st.sampled_from([0, 17]))])


@settings(max_examples=40, deadline=None)
@given(problems())
def test_dropping_dominated_offerings_and_levels_are_exact(known: YardstickInput) -> None:
    supplies = tuple(
        CapacityUnit(
            name=item.name,
            usd_per_s=item.usd_per_hour / 3600 / item.capacity_rps,
            start_usd=item.launch_usd / item.capacity_rps,
        )
        for item in known.offerings
    )
    if not known.arrivals.any():
        assert reference_usd(known) == 0.0
    else:
        expected = reference_by_program(known, supplies)
        assert reference_usd(known) == pytest.approx(expected, rel=1e-6, abs=1e-9)
        by_levels = reference_by_levels(known, supplies[0])
        assert by_levels == pytest.approx(reference_by_program(known, supplies[:1]), rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_the_floor_lies_below_the_reference(known: YardstickInput) -> None:
    assert floor_usd(known) <= reference_usd(known) * (1 + 1e-6) + 1e-9


@st.composite
def sleepers(draw: st.DrawFn) -> tuple[Offering, ...]:
    """Types that stand by, some of them burstable."""
    found = []
    for i, (rps, price, _) in enumerate(draw(types)):
        plain = offering(f"s{i}", rps=rps, usd_per_hour=price)
        burst = draw(st.sampled_from([None, CREDITS, replace(CREDITS, unlimited=True)]))
        found.append(replace(plain, instance_type=replace(plain.instance_type, credits=burst)))
    return tuple(found)


@settings(max_examples=40, deadline=None)
@given(problems(), sleepers(), types)
def test_more_to_choose_from_never_raises_the_floor_and_leaves_the_reference(
    known: YardstickInput, standbys: tuple[Offering, ...], more: list[tuple[float, float, float]]
) -> None:
    fallbacks = tuple(
        offering(f"f{i}", rps=rps, usd_per_hour=price, launch_usd=launch)
        for i, (rps, price, launch) in enumerate(more)
    )
    plain, by_standbys = floor_usd(known), floor_usd(replace(known, standbys=standbys))
    by_all = floor_usd(replace(known, standbys=standbys, fallbacks=fallbacks, provisioned_usd_per_gib_s=1e-6))
    assert by_standbys <= plain * (1 + 1e-6) + 1e-9
    assert by_all <= by_standbys * (1 + 1e-6) + 1e-9
    assert reference_usd(replace(known, standbys=standbys, fallbacks=fallbacks)) == reference_usd(known)


def test_undominated_keeps_the_trade_off() -> None:
    cheap = CapacityUnit(name="cheap", usd_per_s=1.0, start_usd=3.0)
    agile = CapacityUnit(name="agile", usd_per_s=2.0, start_usd=1.0)
    worse = CapacityUnit(name="worse", usd_per_s=2.5, start_usd=2.0)
    twin = CapacityUnit(name="twin", usd_per_s=1.0, start_usd=3.0)
    assert undominated([worse, twin, agile, cheap]) == (cheap, agile)


def test_without_lambda_every_second_is_carried() -> None:
    known = inputs([[0]] * 4 + [[0, 0, 0, 0, 0, 5], [0]], spill_to=None)
    assert reference_usd(known) == pytest.approx(5 * (0.01 + 0.02))
    too_slow = inputs([[0]] * 4 + [[0, 0, 0, 0, 0, 5], [0]], spill_to=overflow(latency_s=0.7))
    assert reference_usd(too_slow) == reference_usd(known)


def test_nothing_arrives_nothing_costs() -> None:
    assert reference_usd(inputs([[0]] * 3)) == 0.0
    assert floor_usd(inputs([[0]] * 3)) == 0.0


def test_lambda_alone() -> None:
    known = inputs([[2]] * 3, offerings=())
    assert reference_usd(known) == pytest.approx(360 * known.shortfall_usd)
    # 2 % are free, and so are the 120 of the last minute, which may be in flight.
    assert floor_usd(known) == pytest.approx((0.98 * 360 - 120) * known.shortfall_usd)


def test_nothing_to_serve_with_is_an_error() -> None:
    known = inputs([[2]] * 3, offerings=(), spill_to=None)
    with pytest.raises(PlanInfeasible):
        reference_usd(known)
    with pytest.raises(PlanInfeasible):
        floor_usd(known)


def test_the_floor_of_a_steady_load() -> None:
    # 40 minutes of 3/s, 98 % of them owed, the last minute's may stay in flight; one fleet throughout.
    known = inputs([[3]] * 40, spill_to=None)
    least = floor_usd(known)
    owed_s = 0.98 * 40 * 60 * 3 - 180
    assert least >= owed_s * 0.6 / 3600 * (1 - 1e-6)
    assert least <= 40 * 3 * 0.01


def test_the_floor_uses_the_best_profiled_batch() -> None:
    batched = offering("unit", rps=1.0, usd_per_hour=0.6, launch_usd=0.02, points={1: 1.0, 4: 2.0})
    assert floor_usd(inputs([[3]] * 20, (batched,))) < floor_usd(inputs([[3]] * 20)) * 0.6


def standby(burst: BurstCredits | None, name: str = "t2.medium") -> Offering:
    cheap = offering(name, rps=1.0, usd_per_hour=0.3)
    return replace(cheap, instance_type=replace(cheap.instance_type, credits=burst))


def test_standbys_lower_the_floor_within_their_credits() -> None:
    known = inputs([[3]] * 20)
    without = floor_usd(known)
    free_of_limits = floor_usd(replace(known, standbys=(standby(None),)))
    nothing = BurstCredits(vcpus=2, earn_per_hour=24, max_balance=576, baseline=0.2)
    # It earns 24 an hour where full speed takes 120: to do the work of one, five run at 0.3 USD each.
    assert floor_usd(replace(known, standbys=(standby(nothing),))) == pytest.approx(without)
    plenty = replace(nothing, launch_credits=60.0)
    assert floor_usd(replace(known, standbys=(standby(plenty),))) == pytest.approx(free_of_limits)
    assert free_of_limits == pytest.approx(without / 2)
    some = replace(nothing, launch_credits=0.3)  # 30 credits a day: 15 instance minutes of the 57
    limited = floor_usd(replace(known, standbys=(standby(some),)))
    assert free_of_limits < limited < without
    unlimited = floor_usd(replace(known, standbys=(standby(replace(nothing, unlimited=True)),)))
    assert free_of_limits < unlimited < without  # 0.3 + 2 x 0.05 x 0.8 USD an hour


def test_burstable_types_share_the_accounts_credited_starts() -> None:
    known = inputs([[3]] * 20)
    alone = floor_usd(replace(known, standbys=(standby(CREDITS),)))
    twins = floor_usd(replace(known, standbys=(standby(CREDITS), standby(CREDITS, "t2.twin"))))
    assert alone < floor_usd(known)
    assert twins == pytest.approx(alone)


def test_a_standby_without_credits_serves_in_any_market_and_starts_as_a_wake_does() -> None:
    """Load that comes and goes: what sleeps between is rented for less than what is launched for each rise."""
    waves = inputs([[0]] * 2 + [[9], [9], [0], [0]] * 6, spill_to=None)
    asleep = replace(waves, standbys=(UNIT,))
    assert floor_usd(asleep) < floor_usd(waves)
    assert floor_usd(replace(asleep, standbys=(UNIT, UNIT))) == pytest.approx(floor_usd(asleep))


def test_a_provisioned_lambda_that_is_never_idle_may_cost_less() -> None:
    known = inputs([[2]] * 3, offerings=())
    cheaper = replace(known, provisioned_usd_per_gib_s=9.7222e-6)
    assert cheaper.least_lambda_usd < known.least_lambda_usd == known.shortfall_usd
    assert floor_usd(cheaper) == pytest.approx((0.98 * 360 - 120) * cheaper.least_lambda_usd)
    assert reference_usd(cheaper) == reference_usd(known)


def test_of_a_slow_lambda_whose_calls_vary_some_are_in_time() -> None:
    slow = inputs([[2]] * 3, offerings=(), spill_to=overflow(latency_s=0.7))
    varying = replace(slow, overflow=replace(overflow(latency_s=0.7), cv=0.2))
    with pytest.raises(PlanInfeasible):
        floor_usd(slow)
    assert 0.0 < floor_usd(varying) < math.inf

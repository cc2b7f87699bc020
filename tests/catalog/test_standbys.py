"""What a standby of a burstable type is counted as, and which type stands by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.catalog.standbys import Surges, cheapest_standby, within_credits
from mark.domain.demand import Demand
from mark.domain.offerings.offering import BurstCredits, Offering
from tests.planner.builders import offering

T2 = BurstCredits(vcpus=2, earn_per_hour=24.0, max_balance=576.0, baseline=0.2, launch_credits=60.0)
"""t2.medium."""


def burstable(rps: float = 4.0, usd_per_hour: float = 0.0464, burst: BurstCredits = T2) -> Offering:
    plain = offering("t2", rps=rps, usd_per_hour=usd_per_hour)
    return replace(plain, instance_type=replace(plain.instance_type, credits=burst))


def test_surges_are_counted_and_measured_from_the_usual_load() -> None:
    rates = ([50.0] * 110 + [90.0] * 10) * 24
    found = Surges.of(Demand(end_at=0.0, mean_rps=tuple(rates), max_rps=tuple(rates)))
    assert found == Surges(rps=40.0, a_day=12.0)
    assert Surges.of(Demand(end_at=0.0, mean_rps=(), max_rps=())) == Surges()


def test_launch_credits_last_for_half_an_hour_while_few_wake() -> None:
    assert within_credits(burstable(), Surges(rps=40.0, a_day=10.0)).capacity_rps == pytest.approx(4.0)
    assert within_credits(burstable(), Surges(rps=40.0, a_day=0.0)).capacity_rps == pytest.approx(4.0)


def test_a_pool_that_wakes_more_often_than_is_credited_carries_less() -> None:
    """Ten standbys, a hundred surges a day: a tenth of the starts has credits, for 225 of the 1,800 s."""
    full = 0.1 * 60 / (2 * 0.8 / 60) / 1800
    found = within_credits(burstable(), Surges(rps=40.0, a_day=100.0)).capacity_rps
    assert found == pytest.approx(4.0 * (full + (1 - full) * 0.2))
    never = within_credits(burstable(burst=replace(T2, launch_credits=0.0)), Surges(rps=40.0, a_day=10.0))
    assert never.capacity_rps == pytest.approx(0.8), "at its baseline from the start"


def test_types_without_credits_and_unlimited_ones_keep_their_capacity() -> None:
    plain, unlimited = offering("c5", rps=5.0), burstable(burst=replace(T2, unlimited=True))
    often = Surges(rps=40.0, a_day=1000.0)
    assert within_credits(plain, often) == plain
    assert within_credits(unlimited, often) == unlimited


def test_the_type_that_carries_surges_for_least_stands_by() -> None:
    """A large one is cheaper where surges fill it, awake or asleep."""
    small, large = offering("small", rps=5.0, usd_per_hour=0.12), offering("large", rps=50.0, usd_per_hour=0.9)
    assert cheapest_standby((small, large), Surges(rps=5.0), 0.002).name == "small:on-demand"
    assert cheapest_standby((small, large), Surges(rps=50.0), 0.002).name == "large:on-demand"

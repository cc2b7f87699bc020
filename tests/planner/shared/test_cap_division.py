"""A cap over all models: whole instances go to whoever would lose most without them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.plans.service_cap import NOTHING, ServiceCap, Takes
from mark.planner.shared.cap_division import CapClaim, CapStep, divide_cap, marginal_losses

CAP = ServiceCap(vcpus=12)


def claim(model: str, *saves: float, vcpus: float = 2, weight: float = 1.0, floor: int = 0) -> CapClaim:
    steps = tuple(CapStep(takes=Takes(vcpus=vcpus), saves=usd) for usd in saves)
    return CapClaim(model=model, steps=steps, weight=weight, floor=floor)


def takes(claims: list[CapClaim], got: Mapping[str, int]) -> Takes:
    total = NOTHING
    for one in claims:
        for step in one.steps[: got[one.model]]:
            total = total.plus(step.takes)
    return total


@st.composite
def some_claims(draw: st.DrawFn) -> list[CapClaim]:
    usd = st.integers(0, 40).map(float)
    kinds = st.builds(Takes, usd_per_hour=st.integers(1, 9), vcpus=st.integers(0, 8), gpus=st.integers(0, 2))
    step = st.builds(CapStep, takes=kinds, saves=usd, costs=usd)
    return [
        CapClaim(
            model=name,
            steps=tuple(draw(st.lists(step, max_size=6))),
            weight=draw(st.integers(1, 4)),
            floor=draw(st.integers(0, 2)),
        )
        for name in "abcd"[: draw(st.integers(1, 4))]
    ]


CAPS = st.builds(ServiceCap, usd_per_hour=st.integers(1, 60), vcpus=st.integers(1, 60), gpus=st.integers(1, 20))


@given(some_claims(), CAPS)
def test_parts_never_exceed_the_cap_and_floors_that_fit_are_kept(claims: list[CapClaim], cap: ServiceCap) -> None:
    got = divide_cap(claims, cap)
    assert cap.holds(takes(claims, got))
    floors = {one.model: min(one.floor, len(one.steps)) for one in claims}
    if cap.holds(takes(claims, floors)):
        assert all(got[name] >= floor for name, floor in floors.items())


@given(some_claims(), CAPS, st.randoms())
def test_the_order_of_models_changes_nothing(claims: list[CapClaim], cap: ServiceCap, order: object) -> None:
    shuffled = [*claims]
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert divide_cap(shuffled, cap) == divide_cap(claims, cap)


@given(some_claims())
def test_a_cap_that_holds_all_gives_all(claims: list[CapClaim]) -> None:
    everything = {one.model: len(one.steps) for one in claims}
    cap = ServiceCap(**{name: max(1.0, took) for name, took in takes(claims, everything)._asdict().items()})
    assert divide_cap(claims, cap) == everything


@given(some_claims(), CAPS, st.integers(2, 5))
def test_more_weight_never_gets_less(claims: list[CapClaim], cap: ServiceCap, times: int) -> None:
    heavier = [replace(claims[0], weight=claims[0].weight * times), *claims[1:]]
    name = claims[0].model
    assert divide_cap(heavier, cap)[name] >= divide_cap(claims, cap)[name]


@given(some_claims(), st.integers(1, 40))
def test_marginal_losses_are_equal_up_to_one_instance(claims: list[CapClaim], vcpus: int) -> None:
    """Nobody holds an instance, beyond its floor, for which another of the same size would lose more."""
    cap = ServiceCap(vcpus=vcpus)
    same = [replace(one, steps=tuple(replace(step, takes=Takes(vcpus=2)) for step in one.steps)) for one in claims]
    got = divide_cap(same, cap)
    held = [marginal_losses(one, cap)[one.floor : got[one.model]] for one in same]
    lacking = [marginal_losses(one, cap)[got[one.model] :] for one in same]
    highest = max((losses[0] for losses in lacking if losses), default=-math.inf)
    assert all(losses[-1] >= highest for losses in held if losses)


def test_the_next_instance_goes_to_who_would_lose_most() -> None:
    claims = [claim("a", 9, 6, 2, 1), claim("b", 7, 5, 4, 1)]
    assert divide_cap(claims, CAP) == {"a": 3, "b": 3}
    assert divide_cap([claims[0], replace(claims[1], weight=3.0)], CAP) == {"a": 2, "b": 4}


def test_a_floor_is_kept_though_others_would_lose_more() -> None:
    assert divide_cap([claim("a", 9, 8, 7, 6, 5, 4), claim("b", 1, 1, floor=1)], CAP) == {"a": 5, "b": 1}


def test_an_instance_that_is_worth_little_alone_counts_with_those_that_need_it() -> None:
    """Three instances save nothing until all are there: together they save more than those of the other."""
    assert divide_cap([claim("a", 0, 0, 30), claim("b", 5, 5, 5, 5)], CAP) == {"a": 3, "b": 3}


def test_what_does_not_fit_leaves_the_rest_to_smaller_ones() -> None:
    large, small = claim("a", 9, 9, vcpus=8), claim("b", 1, 1, 1)
    assert divide_cap([large, small], CAP) == {"a": 1, "b": 2}

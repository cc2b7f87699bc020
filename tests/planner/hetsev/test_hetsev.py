"""HetSev's program and heuristic, and Kubernetes' autoscaler."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import PlanInfeasible
from mark.planner.hetsev.scaling import (
    Kind,
    ScalerPolicy,
    ScalerState,
    Scaling,
    grow,
    scale,
    scale_kubernetes,
    shrink,
)
from tests.planner.hetsev.hetsev_optimum import optimal_actions

POLICY = ScalerPolicy()


def kind(name: str, *, cost: float, rps: float, running: int = 0, room: int = 8, latency_s: float = 0.1) -> Kind:
    return Kind(
        name=name,
        cost=cost,
        capacity_rps=rps,
        launch_s=60.0,
        latency_s=latency_s,
        running=running,
        needs={f"{name} GPUs": 1.0, "instances": 1.0},
    )


def state(*kinds: Kind, rate: float, room: int = 8, instances: int = 30) -> Scaling:
    left = {f"{item.name} GPUs": float(room - item.running) for item in kinds} | {"instances": float(instances)}
    return Scaling(kinds=kinds, left=left, rate_rps=rate, slo_s=0.4, launch_weight=1 / 60)


@st.composite
def states(draw: st.DrawFn) -> Scaling:
    kinds = tuple(
        kind(
            name,
            cost=draw(st.sampled_from((0.1, 0.5, 1.0, 3.0))),
            rps=draw(st.sampled_from((10.0, 25.0, 40.0))),
            running=draw(st.integers(0, 3)),
            latency_s=draw(st.sampled_from((0.1, 0.3, 0.5))),
        )
        for name in ("a", "b")
    )
    return replace(state(*kinds, rate=draw(st.floats(0.0, 150.0)), room=5, instances=4))


def met(given: Scaling, actions: dict[str, int]) -> bool:
    """Constraints (1) to (4)."""
    used = [
        math.fsum(item.needs.get(name, 0) * actions.get(item.name, 0) for item in given.kinds) <= left + 1e-9
        for name, left in given.left.items()
    ]
    grows_in_time = all(item.latency_s <= given.slo_s or actions.get(item.name, 0) <= 0 for item in given.kinds)
    there = all(item.running + actions.get(item.name, 0) >= 0 for item in given.kinds)
    return given.carries(actions) and all(used) and grows_in_time and there


def enumerated(given: Scaling, *, grow_only: bool) -> float | None:
    """The least objective of all actions."""
    spans = [range(0 if grow_only else -item.running, 9) for item in given.kinds]
    names = [item.name for item in given.kinds]
    every = (dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*spans))
    return min((given.objective(actions) for actions in every if met(given, actions)), default=None)


@given(states(), st.booleans())
def test_the_program_finds_the_optimum(given: Scaling, grow_only: bool) -> None:
    best = enumerated(given, grow_only=grow_only)
    if best is None:
        with pytest.raises(PlanInfeasible):
            optimal_actions(given, grow_only=grow_only)
        return
    actions = optimal_actions(given, grow_only=grow_only)
    assert met(given, actions)
    assert given.objective(actions) == pytest.approx(best, abs=1e-6)


@given(states())
def test_the_heuristic_keeps_the_constraints_and_is_never_better_than_the_program(given: Scaling) -> None:
    actions = grow(given)
    assert len(actions) <= 1
    room_kept = met(replace(given, rate_rps=0.0), actions)
    assert room_kept
    alone = [
        item
        for item in given.kinds
        if item.latency_s <= given.slo_s and given.carries({item.name: given.room(item)})
    ]
    if alone:
        assert given.carries(actions)
        assert given.objective(actions) >= given.objective(optimal_actions(given, grow_only=True)) - 1e-6


@given(states())
def test_the_order_of_kinds_changes_nothing(given: Scaling) -> None:
    turned = replace(given, kinds=given.kinds[::-1])
    assert grow(turned) == grow(given)
    assert shrink(turned) == shrink(given)


@given(states())
def test_what_goes_is_not_missed(given: Scaling) -> None:
    actions = shrink(given)
    assert not actions or given.carries(actions)
    assert sum(item.running for item in given.kinds) + sum(actions.values()) >= min(
        1, sum(item.running for item in given.kinds)
    )


def test_a_launch_weighs_lambda_times_cost_times_latency() -> None:
    given = state(kind("a", cost=2.0, rps=10.0), rate=30.0)
    assert given.objective({"a": 3}) == pytest.approx(2.0 * 3 * (1 + 60 / 60))
    assert given.objective({"a": -3}) == pytest.approx(-6.0)


def test_it_grows_after_a_minute_over_the_threshold_and_sizes_for_it() -> None:
    given = state(kind("a", cost=1.0, rps=10.0, running=1), rate=9.0)
    after, found = ScalerState(), []
    for at in range(0, 76, 15):
        after, actions = scale(after, float(at), given, POLICY)
        found.append(actions)
    assert found == [{}, {}, {}, {}, {"a": 1}, {}]
    assert (
        scale(ScalerState(over_since=0.0), 60.0, replace(given, rate_rps=9.9), replace(POLICY, literal=True))[1]
        == {}
    )


def test_it_shrinks_only_after_a_whole_cool_down_that_could_spare_it() -> None:
    calm = state(kind("a", cost=1.0, rps=10.0, running=3), rate=7.0)
    busy = replace(calm, rate_rps=20.0)
    after, gone = ScalerState(), []
    for at in range(0, 931, 15):
        after, actions = scale(after, float(at), busy if at == 300 else calm, POLICY)
        gone += [at] * (actions == {"a": -1})
    assert min(gone) == 600


def test_kubernetes_goes_down_to_the_most_that_the_cool_down_wanted() -> None:
    given = state(kind("a", cost=1.0, rps=10.0, running=5), rate=8.0)
    after, found = ScalerState(), {}
    for at in range(0, 616, 15):
        rate = 24.0 if at == 150 else 8.0
        after, found[at] = scale_kubernetes(after, float(at), replace(given, rate_rps=rate), POLICY)
    assert found[285] == 0
    assert found[300] == -2
    assert found[450] == -4

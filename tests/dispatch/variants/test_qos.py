"""Quality-aware schedulers: utility, bins, the fixed baseline, the heuristic, and the learned one's fallbacks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.variants.qos import (
    BIN_S,
    BINS,
    BINS_AHEAD,
    HARD_S,
    RATE_WINDOW_S,
    SOFT_S,
    SWITCH_ABOVE,
    QosChoice,
    QosPool,
    QosState,
    deadline_bins,
    fixed_choice,
    heuristic_choice,
    late_arrivals,
    response_quality,
    time_utility,
)
from mark.dispatch.variants.qos_policy import (
    HIDDEN,
    LearnedScheduler,
    QosNetwork,
    action_count,
    action_pair,
    actions_allowed,
    feature_count,
    network_of,
    network_text,
    pair_action,
    state_features,
)
from mark.domain.errors import Misconfigured

POOL = QosPool(
    devices={"fast": 2, "slow": 1},
    sizes=(1, 2, 4, 8, 16, 32),
    delay_s={
        "fast": ((0.02, 0.03, 0.04, 0.06, 0.1, 0.2), (0.1, 0.15, 0.2, 0.3, 0.5, 0.9)),
        "slow": ((0.04, 0.06, 0.08, 0.12, 0.2, 0.4), (0.2, 0.3, 0.4, 0.6, 1.0, math.nan)),
    },
    kappa=(0.5, 1.0),
)


@st.composite
def states(draw: st.DrawFn) -> QosState:
    left = draw(st.lists(st.floats(-1.5, 1.0), min_size=1, max_size=80))
    return QosState(
        kind=draw(st.integers(0, 1)),
        left_s=np.sort(np.array(left)),
        rate_qps=draw(st.floats(0, 200)),
        rest_s=np.array(draw(st.lists(st.floats(0, 1), min_size=3, max_size=3))),
    )


def network(pool: QosPool = POOL, scale: float = 0.1, seed: int = 0) -> QosNetwork:
    rng = np.random.default_rng(seed)
    return QosNetwork(
        inner=scale * rng.normal(size=(feature_count(pool), HIDDEN)),
        inner_bias=np.zeros(HIDDEN),
        outer=rng.normal(size=(HIDDEN, action_count(pool))),
        outer_bias=np.zeros(action_count(pool)),
        least=np.full(feature_count(pool), -np.inf),
        most=np.full(feature_count(pool), np.inf),
    )


@given(st.lists(st.floats(0, 10), min_size=2, max_size=20))
def test_utility_is_whole_until_the_soft_deadline_and_falls_to_nothing(delays: list[float]):
    delay_s = np.sort(np.array(delays))
    utility = time_utility(delay_s)
    assert (np.diff(utility) <= 0).all()
    assert (utility[delay_s <= SOFT_S] == 1).all()
    assert (utility[delay_s >= HARD_S] == 0).all()
    assert time_utility(np.array([(SOFT_S + HARD_S) / 2])) == pytest.approx(0.5)


def test_quality_weighs_the_variant_and_no_answer_has_none():
    found = response_quality(np.array([0.1, 0.1, 1.5, np.nan]), np.array([1, 0, 0, -1]), np.array([0.5, 1.0]))
    assert found.tolist() == [1.0, 0.5, 0.25, 0.0]


@given(st.lists(st.floats(-5, 5), max_size=50))
def test_bins_are_six_ahead_and_four_overdue_and_hold_nothing_beyond(left: list[float]):
    left_s = np.array(left)
    bins, places = deadline_bins(left_s), np.floor(left_s / BIN_S)
    assert (BINS, BINS_AHEAD) == (10, 6)
    assert bins[:BINS_AHEAD].sum() == ((places >= 0) & (places < 6)).sum()
    assert bins[BINS_AHEAD:].sum() == ((places < 0) & (places >= -4)).sum()
    assert bins[0] == (places == 5).sum()  # a query that has just been sent has 1 s left
    assert bins[-1] == (places == -4).sum()


@given(states())
def test_no_baseline_waits_or_begins_what_a_device_cannot_run(state: QosState):
    for scheduler in (fixed_choice, heuristic_choice):
        batch, variant = scheduler(state, POOL)
        assert batch >= 1
        assert np.isfinite(POOL.latency_s[state.kind, variant, min(batch, state.queued)])
    assert fixed_choice(state, POOL).variant == (0 if min(32, state.queued) > SWITCH_ABOVE else 1)


def test_the_heuristic_keeps_the_accurate_model_while_nothing_is_late():
    calm = QosState(kind=0, left_s=np.full(9, 0.9), rate_qps=5.0, rest_s=np.zeros(3))
    batch, variant = heuristic_choice(calm, POOL)
    assert (batch >= 8, variant) == (True, 1)
    assert fixed_choice(calm, POOL).variant == 0
    flooded = calm._replace(left_s=np.linspace(-0.5, 0.9, 60), rate_qps=300.0)
    assert heuristic_choice(flooded, POOL).variant == 0


@given(states(), st.floats(0, 300))
def test_the_heuristic_is_no_more_accurate_under_more_load(state: QosState, more_qps: float):
    busier = state._replace(rate_qps=state.rate_qps + more_qps)
    assert heuristic_choice(busier, POOL).variant <= heuristic_choice(state, POOL).variant


def test_arrivals_are_late_while_the_queue_is_too_long():
    """At twice the rate the wait grows by a second each second, at half of it falls by half a second."""
    assert late_arrivals(0.4, 20.0, 10.0) == pytest.approx(20.0 * (RATE_WINDOW_S - (SOFT_S - 0.4)))
    assert late_arrivals(2.0, 5.0, 10.0) == pytest.approx(5.0 * (2.0 - SOFT_S) / 0.5)
    assert late_arrivals(2.0, 10.0, 10.0) == pytest.approx(10.0 * RATE_WINDOW_S)
    assert late_arrivals(0.9, 9.0, 10.0) == late_arrivals(9.0, 0.0, 10.0) == 0.0


@given(states())
def test_actions_and_choices_stand_for_each_other(state: QosState):
    allowed = actions_allowed(state.kind, state.queued, POOL.tables)
    assert allowed[0]
    for action in np.flatnonzero(allowed):
        choice = QosChoice(*action_pair(int(action), POOL.tables.sizes))
        assert pair_action(*choice, state.queued, POOL.tables.sizes) == action
        taken = min(choice.batch, state.queued)
        assert np.isfinite(POOL.latency_s[state.kind, choice.variant, taken])
    for scheduler in (fixed_choice, heuristic_choice):
        assert allowed[pair_action(*scheduler(state, POOL), state.queued, POOL.tables.sizes)]
    assert state_features(*state, POOL.tables).shape == (feature_count(POOL),)


@given(states(), st.integers(0, 100))
def test_the_learned_scheduler_takes_allowed_actions(state: QosState, seed: int):
    scheduler = LearnedScheduler(network(seed=seed), clock=lambda: 0.0)
    choice = scheduler(state, POOL)
    assert actions_allowed(state.kind, state.queued, POOL.tables)[
        pair_action(*choice, state.queued, POOL.tables.sizes)
    ]
    assert scheduler.fallbacks == 0


@given(states())
def test_a_policy_that_fails_or_is_slow_leaves_the_decision_to_the_heuristic(state: QosState):
    good = network()
    ticks = iter(range(10))
    broken = LearnedScheduler(good._replace(outer_bias=np.full(action_count(POOL), np.nan)), clock=lambda: 0.0)
    misfit = LearnedScheduler(good._replace(inner=np.zeros((3, HIDDEN))), clock=lambda: 0.0)
    slow = LearnedScheduler(good, clock=lambda: float(next(ticks)))
    afar = LearnedScheduler(good._replace(most=np.full(feature_count(POOL), -1.0)), clock=lambda: 0.0)
    for scheduler in (broken, misfit, slow, afar):
        assert scheduler(state, POOL) == heuristic_choice(state, POOL)
        assert scheduler.fallbacks == 1


@given(states())
def test_weights_of_nothing_are_the_heuristic(state: QosState):
    nothing = network()._replace(outer=np.zeros((HIDDEN, action_count(POOL))))
    scheduler = LearnedScheduler(network_of(network_text(nothing)), clock=lambda: 0.0)
    choice, usual = scheduler(state, POOL), heuristic_choice(state, POOL)
    assert pair_action(*choice, state.queued, POOL.tables.sizes) == pair_action(
        *usual, state.queued, POOL.tables.sizes
    )
    assert scheduler.fallbacks == 0


def test_a_pool_names_what_it_lacks():
    with pytest.raises(Misconfigured, match="no delays are known of other"):
        QosPool(devices={"other": 1}, sizes=POOL.sizes, delay_s=POOL.delay_s, kappa=POOL.kappa)
    with pytest.raises(Misconfigured, match="at least one device"):
        QosPool(devices={}, sizes=POOL.sizes, delay_s=POOL.delay_s, kappa=POOL.kappa)

"""Tables of decisions: what each cell promises, and what tells the rules apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.variants.slackfit import (
    FREE,
    OF_ONE,
    VariantRule,
    build_choices,
    choose,
    choose_shared,
    full_needs_s,
    share,
)
from mark.domain.errors import Misconfigured

HORIZON_S = 1.0
SLACKS = 40


def latencies(seed: int) -> np.ndarray:
    """Random latencies that rise with accuracy and items. shape (types, variants, largest batch + 1)."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.integers(1, high)) for high in (3, 5, 9))
    steps = rng.uniform(0.0, 0.3, shape) + 1e-3
    rising = np.cumsum(np.cumsum(steps, axis=1), axis=2) * rng.uniform(0.1, 1.0)
    return np.concatenate((np.zeros((*shape[:2], 1)), rising), axis=2)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from((*FREE, VariantRule.FIXED)),
    st.floats(-0.5, 2.0),
    st.integers(1, 20),
)
def test_a_choice_takes_what_waits_and_is_in_time_where_anything_is(
    seed: int, rule: VariantRule, slack_s: float, queued: int
):
    latency_s = latencies(seed)
    fixed = 0 if rule is VariantRule.FIXED else None
    choices = build_choices(rule, latency_s, horizon_s=HORIZON_S, slacks=SLACKS, fixed=fixed)
    for kind in range(latency_s.shape[0]):
        batch, variant = choose(kind, slack_s, queued, choices)
        assert 1 <= batch <= min(queued, latency_s.shape[2] - 1)
        step_down_s = min(max(0.0, slack_s), HORIZON_S) - choices.step_s
        if latency_s[kind, 0, 1] <= step_down_s:
            assert latency_s[kind, variant, batch] <= min(slack_s, HORIZON_S) + 1e-9


@given(st.integers(0, 2**32 - 1), st.data())
def test_a_floor_is_kept_and_a_fixed_variant_is_the_only_one(seed: int, data: st.DataObject):
    latency_s = latencies(seed)
    number = data.draw(st.integers(0, latency_s.shape[1] - 1))
    for rule in VariantRule:
        fixed = number if rule in OF_ONE else None
        choices = build_choices(rule, latency_s, horizon_s=HORIZON_S, slacks=SLACKS, floor=number, fixed=fixed)
        used = choices.variant[:, :, 1:]
        assert (used == number).all() if fixed is not None else (used >= number).all()


def test_slackfit_drops_accuracy_for_batches_where_slack_is_short():
    # seconds of batches of 1, 2, 4 (3 as 4) on a small and a large variant
    latency_s = np.array([[[0, 0.10, 0.12, 0.15, 0.15], [0, 0.20, 0.40, 0.80, 0.80]]])
    slackfit = build_choices(VariantRule.SLACKFIT, latency_s, horizon_s=1.0)
    assert choose(0, 1.0, 4, slackfit) == (4, 1)
    assert choose(0, 0.16, 4, slackfit) == (4, 0)
    assert choose(0, 0.25, 1, slackfit) == (1, 1)  # one waits: the large variant takes no longer than the pair
    maxacc = build_choices(VariantRule.MAXACC, latency_s, horizon_s=1.0)
    assert choose(0, 0.25, 4, maxacc) == (1, 1)
    maxbatch = build_choices(VariantRule.MAXBATCH, latency_s, horizon_s=1.0)
    assert choose(0, 0.25, 4, maxbatch) == (4, 0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 20))
def test_full_batches_take_all_that_wait_and_say_how_long_the_most_urgent_must_have(seed: int, queued: int):
    row_s = latencies(seed)[0, 0]
    choices = build_choices(VariantRule.FULL, row_s[None, None], horizon_s=HORIZON_S, slacks=SLACKS, fixed=0)
    needs_s = full_needs_s(row_s, HORIZON_S)
    need_s = needs_s[min(queued, needs_s.size - 1)]
    batch, _ = choose(0, need_s, queued, choices)
    assert need_s == row_s[batch]
    assert batch == queued or batch == row_s.size - 1 or row_s[batch + 1] > HORIZON_S


@given(
    st.integers(0, 2**32 - 1),
    st.floats(0.0, 1.0),
    st.integers(1, 60),
    st.integers(1, 5),
    st.sampled_from((0.0, 0.2, 0.9, np.inf)),
)
def test_in_a_queue_in_common_a_batch_is_in_time_or_the_fastest_full_one(
    seed: int, slack_s: float, queued: int, instances: int, next_idle_s: float
):
    latency_s = latencies(seed)
    most = latency_s.shape[2] - 1
    for rule in FREE:
        choices = build_choices(rule, latency_s, horizon_s=HORIZON_S, slacks=SLACKS)
        shared = share(rule, choices, latency_s, latency_s, horizon_s=HORIZON_S)
        for kind in range(latency_s.shape[0]):
            batch, variant = choose_shared(kind, slack_s, queued, instances, next_idle_s, shared)
            if rule is not VariantRule.SLACKFIT:
                assert (batch, variant) == choose(kind, slack_s, queued, choices)
            elif (batch, variant) != (most, shared.fastest[kind]):
                assert latency_s[kind, variant, batch] <= slack_s + 1e-9
                if next_idle_s == np.inf:  # whoever comes next has the time for a full batch
                    assert latency_s[kind, variant, batch] <= HORIZON_S - shared.fastest_s[kind, most] + 1e-9


def test_a_queue_behind_makes_batches_faster_and_idle_instances_take_what_is_left():
    # 1 to 4 items on a small and a large variant
    latency_s = np.array([[[0, 0.10, 0.12, 0.15, 0.20], [0, 0.30, 0.35, 0.45, 0.60]]])
    choices = build_choices(VariantRule.SLACKFIT, latency_s, horizon_s=1.0)
    ours = share(VariantRule.SLACKFIT, choices, latency_s, latency_s, horizon_s=1.0)
    assert choose_shared(0, 0.75, 4, 1, 0.1, ours) == (4, 1)
    assert choose_shared(0, 0.75, 12, 1, 0.1, ours) == (4, 0)  # two batches of 0.2 s behind it
    assert choose_shared(0, 0.75, 12, 4, 0.1, ours) == (4, 1)  # which four instances drain
    assert choose_shared(0, 0.31, 4, 2, 0.0, ours) == (1, 1)  # another one is idle
    assert choose_shared(0, 0.31, 4, 2, 0.1, ours) == (4, 0)
    assert choose_shared(0, 0.05, 9, 2, 0.0, ours) == (4, 0)  # late: the queue is drained


def test_where_fewer_wait_than_the_pair_s_batch_ours_alone_answers_more_accurately():
    latency_s = np.array([[[0, 0.10, 0.12, 0.15, 0.45], [0, 0.42, 0.48, 0.80, 0.90]]])
    ours = build_choices(VariantRule.SLACKFIT, latency_s, horizon_s=1.0)
    published = build_choices(VariantRule.PUBLISHED, latency_s, horizon_s=1.0, buckets=2)
    assert choose(0, 0.46, 4, ours) == (4, 0)
    assert choose(0, 0.46, 1, ours) == (1, 1)
    assert choose(0, 0.5, 4, published) == (4, 0)
    assert choose(0, 0.5, 1, published) == (1, 0)


def test_a_rule_of_one_variant_needs_it_and_a_floor_is_a_variant():
    latency_s = latencies(1)
    with pytest.raises(Misconfigured, match="needs it"):
        build_choices(VariantRule.FIXED, latency_s, horizon_s=1.0)
    with pytest.raises(Misconfigured, match="needs it"):
        build_choices(VariantRule.MAXACC, latency_s, horizon_s=1.0, fixed=0)
    with pytest.raises(Misconfigured, match="floor"):
        build_choices(VariantRule.MAXACC, latency_s, horizon_s=1.0, floor=99)

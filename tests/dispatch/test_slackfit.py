"""Tables of decisions: what each cell promises, and what tells the rules apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.slackfit import VariantRule, build_choices, choose
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


@given(st.integers(0, 2**32 - 1), st.sampled_from(VariantRule), st.floats(-0.5, 2.0), st.integers(1, 20))
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
        fixed = number if rule is VariantRule.FIXED else None
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


def test_a_rule_of_one_variant_needs_it_and_a_floor_is_a_variant():
    latency_s = latencies(1)
    with pytest.raises(Misconfigured, match="needs it"):
        build_choices(VariantRule.FIXED, latency_s, horizon_s=1.0)
    with pytest.raises(Misconfigured, match="needs it"):
        build_choices(VariantRule.MAXACC, latency_s, horizon_s=1.0, fixed=0)
    with pytest.raises(Misconfigured, match="floor"):
        build_choices(VariantRule.MAXACC, latency_s, horizon_s=1.0, floor=99)

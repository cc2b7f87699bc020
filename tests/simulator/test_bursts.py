"""Bursts within long bins: each bin's mean is kept, and what is drawn is what the model says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.simulator.traces import bursts
from mark.simulator.traces.bursts import BURSTS, draw_shape, with_bursts
from mark.simulator.traces.trace import Trace


def rates(values: list[float], bin_s: float) -> Trace:
    return Trace(name="t", start_at=0.0, bin_s=bin_s, rates_rps=np.array(values, dtype=float), whole_counts=False)


@given(
    values=st.lists(st.floats(0, 1e4), min_size=1, max_size=8),
    bin_s=st.sampled_from([61.0, 90.5, 300.0, 3600.0]),
    name=st.sampled_from(sorted(BURSTS)),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_the_mean_of_each_bin_and_the_length_are_kept(
    values: list[float], bin_s: float, name: str, seed: int
) -> None:
    flat = rates(values, bin_s)
    drawn = with_bursts(flat, name, seed)
    assert drawn.duration_s == pytest.approx(flat.duration_s)
    assert drawn.bin_s <= 1.01
    assert drawn.rates_rps.reshape(len(values), -1).mean(axis=1) == pytest.approx(np.array(values))
    assert (drawn.rates_rps >= 0).all()


def test_short_bins_stay_as_they_are() -> None:
    trace = rates([1, 2], 60)
    assert with_bursts(trace, "typical", 0) is trace


def test_bursts_follow_the_seed_alone() -> None:
    trace = rates([5, 6], 300)
    first, again, other = (with_bursts(trace, "typical", seed).rates_rps.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_what_is_drawn_or_left_out_is_said() -> None:
    trace = rates([5, 6], 300)
    (said,) = with_bursts(trace, "typical", 0).notes
    assert "standard deviation of 25 % of the mean and a correlation time of 300 s" in said
    assert with_bursts(trace, "none", 0).rates_rps.tolist() == [5, 6]
    assert with_bursts(trace, "none", 0).notes == (
        "bins of 300 s are replayed flat (--bursts none): no burst within them is seen",
    )
    with pytest.raises(Misconfigured, match="unknown kind of bursts 'typicl'; did you mean 'typical'"):
        with_bursts(trace, "typicl", 0)


def test_within_a_very_long_bin_the_noise_has_the_model_s_variation_and_correlation() -> None:
    model = BURSTS["typical"]
    noise = draw_shape(model, bins=40, steps=30_000, step_s=1.0, seed=3)
    logs = np.log(noise) - np.log(noise).mean(axis=1, keepdims=True)
    lag = round(model.correlation_s)
    correlation = (logs[:, :-lag] * logs[:, lag:]).mean() / (logs**2).mean()
    assert noise.std() == pytest.approx(model.cv, rel=0.05)
    assert correlation == pytest.approx(np.exp(-1), abs=0.04)


def test_a_trace_too_long_for_steps_of_a_second_has_longer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "MAX_STEPS", 50_000)
    assert with_bursts(rates([1.0] * 24, 3600), "typical", 0).bin_s == 2

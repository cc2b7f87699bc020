from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.simulator.traces.floods import DAY_S, FLOOD_RISE_RPS, MIN_FLOOD_MIN
from mark.simulator.traces.generators import constant, demo_workload, diurnal_floods, mmpp, surge
from mark.simulator.traces.statistics import describe
from mark.simulator.traces.trace import holds_whole_counts

DRAWS = {
    "constant": lambda seed: constant(12.5, duration_s=600, seed=seed),
    "surge": lambda seed: surge(40, plus=0.75, at_s=100, duration_s=600, seed=seed),
    "mmpp": lambda seed: mmpp([10, 80], [60, 20], duration_s=600, seed=seed),
    "diurnal_floods": lambda seed: diurnal_floods(seed, 1),
}


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_generated_traces_depend_on_their_seed_alone_and_hold_whole_counts(name):
    one, again, other = DRAWS[name](3), DRAWS[name](3), DRAWS[name](4)
    assert one.rates_rps.tolist() == again.rates_rps.tolist()
    assert one.rates_rps.tolist() != other.rates_rps.tolist()
    assert (one.bin_s, one.whole_counts) == (1.0, True)
    assert holds_whole_counts(one.rates_rps, one.bin_s)


def test_constant_load_is_poisson():
    counts = constant(50, duration_s=20_000, seed=1).rates_rps
    assert abs(counts.mean() - 50) < 4 * np.sqrt(50 / 20_000)
    assert abs(counts.var() / 50 - 1) < 4 * np.sqrt(2 / 20_000)


@pytest.mark.parametrize("plus", [0.5, 0.75, 1.0])
def test_a_surge_rises_within_two_minutes_and_stays(plus):
    counts = surge(1000, plus=plus, at_s=600, duration_s=1800, seed=2).rates_rps
    assert counts[:600].mean() == pytest.approx(1000, rel=0.01)
    assert counts[600:720].mean() == pytest.approx(1000 * (1 + plus / 2), rel=0.02)
    assert counts[720:].mean() == pytest.approx(1000 * (1 + plus), rel=0.01)


def test_a_surge_without_rise_is_a_step():
    counts = surge(1000, plus=1, at_s=60, rise_s=0, duration_s=120, seed=2).rates_rps
    assert counts[:60].max() < 1500 < counts[60:].min()


@given(seed=st.integers(0, 50))
@settings(max_examples=4, deadline=None)
def test_the_mean_of_mmpp_is_the_sojourns_weighted_mean(seed):
    rates, sojourns = np.array([10.0, 100.0, 40.0]), np.array([30.0, 10.0, 20.0])
    duration_s = 400_000
    mean = mmpp(rates, sojourns, duration_s=duration_s, seed=seed).rates_rps.mean()
    expected = np.dot(rates, sojourns) / sojourns.sum()
    # A stay of mean s contributes at most 2 s^2 variance of time; cycles of 60 s: five standard errors.
    error = np.sqrt(2 * np.dot(sojourns**2, (rates - expected) ** 2) * duration_s / 60) / duration_s
    assert abs(mean - expected) < 5 * error


def test_mmpp_stays_in_its_states():
    counts = mmpp([1000, 5000], [600, 600], duration_s=20_000, seed=1).rates_rps
    between = (counts > 1300) & (counts < 4500)
    assert between.mean() < 0.01
    assert counts.min() < 1200
    assert counts.max() > 4800


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda: constant(-1), "rate must be 0 rps or more"),
        (lambda: constant(float("nan")), "rate must be 0 rps or more"),
        (lambda: constant(1, duration_s=0), "duration of 1 s or more"),
        (lambda: surge(1, plus=-2, at_s=0), "plus >= -1"),
        (lambda: mmpp([1], [1]), "a rate and a sojourn per state"),
        (lambda: mmpp([1, 2], [1]), "a rate and a sojourn per state"),
        (lambda: mmpp([1, 2], [1, 0]), "mean sojourn must be above 0"),
        (lambda: diurnal_floods(0, 0), "one day or more"),
        (lambda: diurnal_floods(-1, 1), "seed must be 0 or more"),
    ],
)
def test_impossible_traces_are_refused(draw, said):
    with pytest.raises(Misconfigured, match=said):
        draw()


# --- floods ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Flood:
    """A flood found in a trace: its first minute, its length, and its mean rate above the calm around it."""

    start_min: int
    length_min: int
    excess_rps: float


def calm_rps(minute_rps):
    """Median of the hour around each minute, shape (minutes,): no flood fills half an hour."""
    padded = np.pad(minute_rps, 30, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 61)
    return np.median(windows, axis=1)


def find_floods(rates_rps):
    """Floods in order of start. rates_rps: shape (seconds,), at least 31 minutes of them."""
    minutes = rates_rps[: len(rates_rps) // 60 * 60].reshape(-1, 60).mean(axis=1)
    excess = minutes - calm_rps(minutes)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], excess > FLOOD_RISE_RPS, [0]))))
    return tuple(
        Flood(start_min=int(start), length_min=int(end - start), excess_rps=float(excess[start:end].mean()))
        for start, end in edges.reshape(-1, 2)
        if end - start >= MIN_FLOOD_MIN
    )


def flood_figures(rates_rps):
    """Level, peaks and floods of whole days of seconds."""
    floods = find_floods(rates_rps)
    lengths = [flood.length_min for flood in floods]
    return {
        "mean_rps": rates_rps.mean(),
        "p99_rps": np.percentile(rates_rps, 99),
        "peak_over_mean": rates_rps.max() / rates_rps.mean(),
        "cv": rates_rps.std() / rates_rps.mean(),
        "floods_a_day": len(floods) / (len(rates_rps) / DAY_S),
        "flood_min": np.median(lengths),
        "excess_rps": np.mean([flood.excess_rps for flood in floods]),
    }


def generated():
    return flood_figures(diurnal_floods(11, 28).rates_rps)


# Days 4 and 5 differ from days 1-3 by up to these shares themselves: two days hold some twenty floods, so their
# number has a standard error of a fifth, and the median length of twenty is known to a minute or two.
TOLERANCE = {
    "mean_rps": 0.05,
    "p99_rps": 0.05,
    "peak_over_mean": 0.12,
    "cv": 0.08,
    "floods_a_day": 0.25,
    "flood_min": 0.25,
    "excess_rps": 0.10,
}


def test_the_generator_agrees_with_the_published_figures():
    """The row of twitter_2021_08_d01_07_1s in the README of the traces: seven days."""
    ours = generated()
    published = {
        "mean_rps": 64.7,
        "p99_rps": 243,
        "peak_over_mean": 5.2,
        "cv": 0.62,
        "floods_a_day": 10,
        "flood_min": 8,
    }
    for name, figure in published.items():
        assert ours[name] == pytest.approx(figure, rel=TOLERANCE[name]), name


def test_floods_start_when_the_sources_do_and_last_as_long():
    floods = find_floods(diurnal_floods(5, 28).rates_rps)
    minutes = np.array([flood.start_min % 60 for flood in floods])
    on_time = np.isin(minutes, (2, 3, 4, 5, 32, 33, 34, 35))
    assert on_time.mean() > 0.95  # the rest follows on another flood or the noise
    hours = np.array([flood.start_min // 60 % 24 for flood in floods])
    assert (hours % 2).mean() > 0.7
    lengths = [flood.length_min for flood in floods]
    assert min(lengths) >= 3
    assert max(lengths) <= 30


def test_seconds_scatter_like_the_sources():
    """README, note 3: the median minute's variance / mean is 1.1."""
    assert describe(diurnal_floods(5, 3)).burstiness_p50 == pytest.approx(1.1, rel=0.05)


def test_days_repeat_their_rhythm():
    """README: correlation of 5-minute means one day apart 0.42; floods make it scatter by 0.15 a week."""
    assert describe(diurnal_floods(11, 28)).day_autocorrelation == pytest.approx(0.42, abs=0.15)


def test_the_demo_replays_the_eighth_day_after_seven_of_history():
    load = demo_workload(seed=1)
    assert (load.start_s, load.end_s) == (7 * DAY_S, 8 * DAY_S)
    assert len(load.history(load.start_s, 100_000)) == 7 * 1440
    assert len(load.arrivals(load.start_s, load.end_s)) == load.trace.rates_rps[7 * DAY_S :].sum()

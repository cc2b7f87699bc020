"""The mixture: whom it listens to, what it owes, and that a restart changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.predictors.classical.points import LastValueRule, MovingMeanRule
from mark.predictors.classical.residuals import BarePoint, PointExpert
from mark.predictors.expert import LEVELS, Expert, Floats, Ints, Series
from mark.predictors.mixture.mixture import Mixture
from mark.predictors.mixture.scores import pinball, targets
from mark.predictors.mixture.weights import DecayRate, MixtureSettings

SPREAD = np.array([-1.28, -0.67, 0.0, 0.67, 1.28, 1.64, 2.33])
HOUR_S = 3_600.0
SHORT = MixtureSettings(
    horizon=12,
    stride=7,
    bands=(1, 4, 12),
    memory_s=6 * HOUR_S,
    decay_rates=(DecayRate(half_life_s=3 * HOUR_S), DecayRate(half_life_s=HOUR_S, sharpness=30.0)),
    recalibrated_s=4 * HOUR_S,
    tolerance=0.0,
    wary_s=0.0,
    trusted_s=HOUR_S,
)


@dataclass
class Fixed:
    """Forecasts level x the last value plus SPREAD x width; unavailable before `needs_units`."""

    name: str = "fixed"
    needs_units: int = 1
    level: float = 1.0
    width: float = 10.0
    out_of_sample_from: float = -np.inf
    asked: int = 0

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        self.asked += len(ends)
        last = series.rates[np.maximum(ends - 1, 0)]
        rows = np.maximum(self.level * last[:, None] + self.width * SPREAD, 0.0)
        rows[ends < self.needs_units] = np.nan
        return np.repeat(rows[:, None], horizon, axis=1)


def noise(units: int, *, around: float = 100.0, width: float = 10.0, seed: int = 1) -> Series:
    rng = np.random.default_rng(seed)
    return Series(rates=np.maximum(around + width * rng.standard_normal(units), 0.0), start_at=600_000.0)


def flat(units: int = 1200, rate: float = 100.0) -> Series:
    return Series(rates=np.full(units, rate), start_at=600_000.0)


def at_end(mixture: Mixture, series: Series) -> Floats:
    return mixture.forecast(series, np.array([len(series.rates)]), mixture.settings.horizon)[0]


def mixture_of(*experts: Expert, **changes: object) -> Mixture:
    return Mixture(experts, replace(SHORT, **changes))  # type: ignore[arg-type]


def test_without_any_outcome_all_experts_count_alike():
    mixture = mixture_of(Fixed(level=1.0), Fixed(level=2.0))

    np.testing.assert_allclose(at_end(mixture, flat(1))[:, 2], 150.0)
    np.testing.assert_allclose(mixture.weights(flat(1)), 0.5)


def test_it_finds_the_expert_that_is_right():
    right, wrong = Fixed(level=1.0, width=0.1), Fixed(level=1.5, width=0.1)

    weights = mixture_of(wrong, right).weights(flat())

    assert (weights[1] > 0.99).all()


def test_it_finds_the_expert_that_is_right_at_each_lead():
    class Late(Fixed):
        """Right at the last leads only, where the other one is wrong."""

        def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
            rows = super().forecast(series, ends, horizon)
            wrong = rows * 1.3
            return np.concatenate([wrong[:, :4], rows[:, 4:]], axis=1) if self.level == 1.0 else rows

    class Early(Fixed):
        def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
            rows = super().forecast(series, ends, horizon)
            return np.concatenate([rows[:, :4], 1.3 * rows[:, 4:]], axis=1)

    weights = mixture_of(Early(width=0.1), Late(width=0.1)).weights(flat())

    assert (weights[0, :2] > 0.9).all()
    assert (weights[1, 2] > 0.9).all()


def test_it_forgets_who_was_right_before_its_memory():
    before, after = 900, 600
    rates = np.concatenate([np.full(before, 100.0), 100.0 * 1.01 ** np.arange(1, after + 1)])
    series = Series(rates=rates, start_at=600_000.0)
    still, rising = Fixed(level=1.0, width=0.1), Fixed(level=1.01, width=0.1)

    def share(units: int) -> float:
        return float(mixture_of(still, rising).weights(Series(rates=rates[:units], start_at=600_000.0))[0, 0, 2])

    assert share(before) > 0.99
    assert share(len(series.rates)) < 0.01


def test_unavailable_experts_have_no_part():
    here, absent = Fixed(level=1.0), Fixed(level=3.0, needs_units=10_000)

    np.testing.assert_allclose(at_end(mixture_of(here, absent, recalibrated=False), flat(300))[:, 2], 100.0)


def test_without_an_available_expert_there_is_no_forecast():
    answer = at_end(mixture_of(Fixed(needs_units=500)), flat(300))

    assert np.isnan(answer).all()


def test_a_newcomer_counts_like_the_best_until_it_has_outcomes():
    series = flat()
    end_at = series.start_at + 60.0 * len(series.rates)
    good, bad, new = Fixed(width=0.1), Fixed(level=1.5, width=0.1), Fixed(level=1.2, out_of_sample_from=end_at)

    weights = mixture_of(good, bad, new).weights(series)

    np.testing.assert_allclose(weights[2], weights[0], rtol=1e-6)
    assert (weights[1] < 0.01).all()


def test_only_what_ended_counts():
    """An outcome of lead h counts once it ended: what comes after an origin changes nothing there."""
    series, ends = noise(900), np.array([500, 640, 641])
    changed = Series(rates=series.rates.copy(), start_at=series.start_at)
    changed.rates[641:] *= 7
    experts = (Fixed(), Fixed(level=0.9, width=3.0))

    known = mixture_of(*experts).forecast(series, ends, 12)
    other = mixture_of(*experts).forecast(changed, ends, 12)

    np.testing.assert_array_equal(known, other)


@settings(max_examples=6, deadline=None)
@given(
    start=st.integers(1, 900),
    steps=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    seed=st.integers(0, 99),
    recalibrated=st.booleans(),
)
def test_following_a_series_gives_what_a_fresh_start_gives(start, steps, seed, recalibrated):
    series = noise(start + sum(steps), seed=seed)
    experts = (Fixed(), Fixed(level=0.9, width=3.0), Fixed(level=1.2, needs_units=400))
    following = mixture_of(*experts, recalibrated=recalibrated)
    for end in np.cumsum([start, *steps]):
        known = Series(rates=series.rates[:end], start_at=series.start_at)
        followed = at_end(following, known)

        fresh = at_end(mixture_of(*experts, recalibrated=recalibrated), known)
        np.testing.assert_allclose(followed, fresh, rtol=1e-9, atol=1e-9)


def test_many_origins_at_once_give_what_each_gives_alone():
    series, ends = noise(1200), np.array([300, 333, 800, 1200])
    together = mixture_of(Fixed(), Fixed(level=0.9)).forecast(series, ends, 12)

    for row, end in enumerate(ends):
        known = Series(rates=series.rates[:end], start_at=series.start_at)
        np.testing.assert_allclose(together[row], at_end(mixture_of(Fixed(), Fixed(level=0.9)), known), rtol=1e-9)


def test_an_earlier_origin_is_answered_as_if_the_later_one_had_never_been_asked():
    series = noise(700)
    experts = (Fixed(), Fixed(level=0.9, width=3.0))
    mixture = mixture_of(*experts)
    mixture.forecast(series, np.array([700]), 12)

    for ends in (np.array([400, 700]), np.array([650]), np.array([90, 640, 700])):
        answer = mixture.forecast(series, ends, 12)
        np.testing.assert_allclose(answer, mixture_of(*experts).forecast(series, ends, 12), rtol=1e-9)


def test_a_history_whose_oldest_units_are_dropped_is_followed():
    """The controller shows two weeks: then the series starts later each minute. Outcomes and memory are enough."""
    series = noise(1500)
    experts = (Fixed(), Fixed(level=0.9, width=3.0))
    following = mixture_of(*experts)
    for end in range(1300, 1400, 9):
        dropped = end - 900
        shown = Series(rates=series.rates[dropped:end], start_at=series.start_at + 60.0 * dropped)
        whole = Series(rates=series.rates[:end], start_at=series.start_at)

        np.testing.assert_allclose(at_end(following, shown), at_end(mixture_of(*experts), whole), rtol=1e-9)


@pytest.mark.parametrize("change", ["another past", "another time"])
def test_another_series_is_started_afresh(change):
    series = noise(1000)
    other = noise(1001, seed=9) if change == "another past" else replace(noise(1001), start_at=660_000.0)
    mixture = mixture_of(Fixed(), Fixed(level=0.9))
    at_end(mixture, series)

    np.testing.assert_allclose(at_end(mixture, other), at_end(mixture_of(Fixed(), Fixed(level=0.9)), other))


def test_an_update_asks_for_one_origin_though_some_are_scored_too():
    series, expert = noise(1000), Fixed()
    mixture = mixture_of(expert)
    at_end(mixture, Series(rates=series.rates[:993], start_at=series.start_at))
    expert.asked = 0

    for end in range(994, 1001):
        at_end(mixture, Series(rates=series.rates[:end], start_at=series.start_at))

    assert expert.asked == 7


@settings(max_examples=15, deadline=None)
@given(units=st.integers(1, 500), seed=st.integers(0, 99), around=st.sampled_from([0.0, 1.0, 1e6]))
def test_quantiles_rise_and_are_no_less_than_nothing(units, seed, around):
    answer = at_end(mixture_of(Fixed(), Fixed(level=0.5)), noise(units, around=around, seed=seed))

    assert (np.diff(answer, axis=-1) >= 0).all()
    assert (answer >= 0).all()


def test_beyond_the_horizon_the_last_lead_repeats():
    answer = mixture_of(Fixed()).forecast(noise(300), np.array([300]), 20)[0]

    assert answer.shape == (20, len(LEVELS))
    np.testing.assert_array_equal(answer[12:], np.broadcast_to(answer[11], (8, len(LEVELS))))


def drifting(units: int, width_at: Callable[[Floats], Floats]) -> Series:
    rng = np.random.default_rng(3)
    share = np.arange(units) / units
    return Series(rates=np.maximum(100.0 + width_at(share) * rng.standard_normal(units), 0.0), start_at=0.0)


@pytest.mark.parametrize(
    "width_at", [lambda _: 20.0, lambda share: 5.0 + 25.0 * share, lambda share: 30.0 - 10.0 * share]
)
def test_ninety_percent_covers_ninety_percent_where_experts_are_wrong_about_their_width(width_at):
    """The noise is other than the expert believes, and drifts."""
    series = drifting(4000, width_at)
    always_100 = type("Always", (Fixed,), {"forecast": _always})
    ends = np.arange(1000, 3980, 11)
    calibrated = mixture_of(always_100()).forecast(series, ends, 12)
    plain = mixture_of(always_100(), recalibrated=False).forecast(series, ends, 12)
    actual = targets(series.rates, ends, 12)

    def covered(answer: Floats) -> float:
        return float((actual <= answer[..., LEVELS.index(0.9)]).mean())

    assert covered(calibrated) == pytest.approx(0.9, abs=0.02)
    assert abs(covered(plain) - 0.9) > 0.03


def _always(self: Fixed, series: Series, ends: Ints, horizon: int) -> Floats:
    del series
    return np.broadcast_to(100.0 + self.width * SPREAD, (len(ends), horizon, len(LEVELS))).copy()


def test_it_is_no_worse_than_the_best_expert():
    series, ends = noise(3000, width=20.0), np.arange(1000, 2980, 13)
    experts = [Fixed(level=level, width=width) for level in (0.8, 1.0) for width in (5.0, 40.0)]
    actual = targets(series.rates, ends, 12)

    def loss(expert: Expert) -> float:
        return float(pinball(actual, expert.forecast(series, ends, 12)).mean())

    assert loss(mixture_of(*experts)) <= min(map(loss, experts))


@dataclass
class Foreseeing:
    """Knows what is to come but for noise, and is unsure by `width` of it."""

    rates: Floats
    width: float
    name: str = "foreseeing"
    needs_units: int = 1

    def forecast(self, series: Series, ends: Ints, horizon: int) -> Floats:
        del series
        units = np.minimum(ends[:, None] + np.arange(horizon), len(self.rates) - 1)
        return self.rates[units][..., None] * (1.0 + self.width * SPREAD)


def crowded(days: int, at: tuple[int, ...]) -> Floats:
    """100 requests/s, and eight times as many for two hours from 16:30 on the days `at`."""
    since = np.arange(days * 1440)[:, None] - (np.array(at) * 1440 + 990)
    stays, leaves = np.clip(since / 8, 0.0, 1.0), np.exp(-np.clip(since - 100, 0, None) / 40)
    rates: Floats = 100.0 * (1.0 + 7.0 * (stays * leaves).sum(axis=1))
    return rates


def test_a_crowd_after_two_calm_days_finds_those_who_foresee_crowds():
    """On calm days the last value is the better one of the two; with two days' memory this ratio is 2.4."""
    expected = crowded(5, at=(0, 1, 4))
    rng = np.random.default_rng(1)
    series = Series(rates=expected * (1.0 + 0.05 * rng.standard_normal(len(expected))), start_at=86_400.0)
    ends = np.arange(4 * 1440, 5 * 1440 - 60, 13)
    actual = targets(series.rates, ends, 60)
    calm, aware = Fixed(width=6.0), Foreseeing(expected, 0.1)

    def loss(expert: Expert) -> float:
        return float(pinball(actual, expert.forecast(series, ends, 60)).mean())

    assert loss(Mixture([calm, aware])) <= 1.4 * min(loss(calm), loss(aware))


def test_a_crowd_in_the_first_hours_is_not_recalibrated_away():
    """Recalibrated by the outcomes of these hours, this ratio is 1.4."""
    series = Series(rates=crowded(1, at=(0,))[800:1340], start_at=86_400.0)
    noisy = replace(series, rates=series.rates * (1.0 + 0.1 * np.random.default_rng(2).standard_normal(540)))
    ends = np.arange(60, 480, 7)
    actual = targets(noisy.rates, ends, 60)
    rules = [kind(rule) for kind in (PointExpert, BarePoint) for rule in (LastValueRule(), MovingMeanRule())]

    def loss(expert: Expert) -> float:
        return float(pinball(actual, expert.forecast(noisy, ends, 60)).mean())

    assert loss(Mixture(rules)) <= 1.15 * min(map(loss, rules))


def test_outcomes_that_an_expert_learned_from_do_not_recalibrate_it():
    series = drifting(2000, lambda share: np.where(share < 0.6, 2.0, 20.0))
    expert = type("Always", (Fixed,), {"forecast": _always})(out_of_sample_from=60.0 * 1200)

    def covered(expert: Expert) -> float:
        answer = mixture_of(expert, recalibrated_s=40 * HOUR_S, memory_s=40 * HOUR_S).forecast(series, ends, 12)
        return float((targets(series.rates, ends, 12) <= answer[..., LEVELS.index(0.9)]).mean())

    ends = np.arange(1400, 1980, 11)
    assert covered(expert) == pytest.approx(0.9, abs=0.02)
    assert covered(replace(expert, out_of_sample_from=-np.inf)) < 0.87

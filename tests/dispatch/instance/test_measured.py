from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloudmodel.noise import noise_factor
from mark.dispatch.instance.measured import BOUND, MeasuredTimes

times = st.floats(1e-4, 10.0)
profiles = st.lists(times, min_size=1, max_size=6)


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[float], list[tuple[int, float]]]:
    profile = draw(profiles)
    seen = st.tuples(st.integers(1, len(profile)), st.floats(0.0, 1e4))
    return profile, draw(st.lists(seen, max_size=40))


@given(runs())
def test_bounded_and_never_falling_with_the_size(run: tuple[list[float], list[tuple[int, float]]]) -> None:
    profile, seen = run
    measured = MeasuredTimes(profile)
    for size, took_s in seen:
        measured.note(size, took_s)
        batch_s = measured.batch_s
        assert list(batch_s) == sorted(batch_s)
        assert batch_s[0] >= profile[0] / BOUND * 0.999
        assert batch_s[-1] <= max(profile) * BOUND * 1.001


@given(profiles)
def test_the_profile_counts_before_anything_is_seen(profile: list[float]) -> None:
    measured = MeasuredTimes(profile)

    assert measured.single_s == profile[0]
    assert measured.full_batch_s == max(profile)


@given(profiles, st.floats(0.2, 5.0))
def test_a_steady_service_time_ratio_is_learnt(profile: list[float], pace: float) -> None:
    measured = MeasuredTimes(profile)
    for _ in range(60):
        for size, took_s in enumerate(profile, 1):
            measured.note(size, took_s * pace)

    assert measured.single_s == pytest.approx(profile[0] * pace, rel=0.01)


def test_one_hiccup_moves_it_by_a_fifth() -> None:
    measured = MeasuredTimes([0.1])
    measured.note(1, 50.0)

    assert measured.single_s == pytest.approx(0.12)


def test_sizes_never_seen_move_with_the_others() -> None:
    measured = MeasuredTimes([0.1, 0.2, 0.3])
    for _ in range(60):
        measured.note(1, 0.2)

    assert measured.batch_s == pytest.approx((0.2, 0.4, 0.6), rel=0.01)


@pytest.mark.parametrize("cv", [0.0, 0.1, 0.25])
def test_the_variation_is_measured_whatever_was_assumed(cv: float) -> None:
    measured = MeasuredTimes([0.1, 0.2], cv=0.15)
    assert measured.cv == pytest.approx(0.15)
    for normal in np.random.default_rng(3).standard_normal(4000):
        measured.note(2, 0.2 * noise_factor(cv, normal))
    assert measured.cv == pytest.approx(cv, abs=0.05)


@given(runs(), st.lists(st.tuples(st.integers(1, 4), st.floats(0.0, 1e4)), max_size=20))
def test_a_request_beyond_a_batch_is_never_promised_sooner_than_a_full_one(
    run: tuple[list[float], list[tuple[int, float]]], beyond: list[tuple[int, float]]
) -> None:
    profile, seen = run
    measured = MeasuredTimes(profile, beyond_s=[profile[-1] * more for more in (1, 2, 3, 4)])
    for size, took_s in [*seen, *((len(profile) + more, took_s) for more, took_s in beyond)]:
        measured.note(size, took_s)
    assert measured.largest == len(profile) + 4
    for size in range(1, measured.largest + 1):
        assert measured.items_s(size) >= measured.batch_s[min(size, len(profile)) - 1]


def test_a_size_beyond_a_batch_is_measured_for_itself() -> None:
    measured = MeasuredTimes((0.1, 0.2), beyond_s=(0.3, 0.4))
    assert measured.items_s(4) == 0.4
    for _ in range(60):
        measured.note(4, 0.8)
    assert measured.knows(4)
    assert not measured.knows(3)
    assert measured.items_s(4) == pytest.approx(0.8, rel=0.01)

"""Reading quantiles where outcomes fell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.predictors.expert import LEVELS
from mark.predictors.mixture.conformal import BEYOND, TOP, calibrated_pit, pit_values, read_at

RATES = st.floats(0.0, 1e4, allow_subnormal=False)
ROWS = st.lists(RATES, min_size=len(LEVELS), max_size=len(LEVELS)).map(lambda row: np.sort(np.array(row)))
OWN = np.arange(len(LEVELS), dtype=np.float64)


@pytest.mark.parametrize(
    ("actual", "place"),
    [(10.0, 0.0), (70.0, 6.0), (25.0, 1.5), (80.0, 7.0), (1e9, TOP + BEYOND), (0.0, -1.0)],
)
def test_a_place_is_told_by_the_quantiles_around_it(actual, place):
    assert pit_values(np.arange(10.0, 80.0, 10.0), np.float64(actual)) == pytest.approx(place)


@given(row=ROWS, actual=RATES)
def test_reading_at_its_place_gives_the_outcome(row, actual):
    """Unless it lies too far out to be told, or below a forecast's reach: nothing is read below 0."""
    place = pit_values(row, np.float64(actual))
    read = read_at(row[None], np.full((1, len(LEVELS)), place))[0, 0]

    if -BEYOND < place < TOP + BEYOND:
        assert read == pytest.approx(actual, rel=1e-6, abs=1e-6)
    assert (place <= TOP) == (actual <= row[TOP]) or actual == pytest.approx(row[TOP], rel=1e-6)


@given(row=ROWS)
def test_their_own_ranks_leave_quantiles_as_they_are(row):
    np.testing.assert_allclose(read_at(row[None], OWN[None])[0], row, rtol=1e-12)


@given(row=ROWS, wanted=st.lists(st.floats(-BEYOND, TOP + BEYOND), min_size=len(LEVELS), max_size=len(LEVELS)))
def test_what_is_read_rises_and_is_never_negative(row, wanted):
    read = read_at(row[None], np.sort(np.array(wanted))[None])[0]

    assert (np.diff(read) >= -1e-9 * (1 + row[-1])).all()
    assert (read >= 0).all()


def test_missing_outcomes_and_forecasts_have_no_pit_value():
    quantiles = np.array([OWN, OWN + np.nan])

    assert np.isnan(pit_values(quantiles, np.array([np.nan, 1.0]))).all()
    np.testing.assert_array_equal(calibrated_pit(np.full(5, np.nan), strength=1.0, tolerance=0.0), OWN)


def test_each_level_is_read_where_its_share_of_outcomes_lay_below():
    rng = np.random.default_rng(1)
    seen = rng.uniform(-1, 7, 20_000)

    wanted = calibrated_pit(seen, strength=1.0, tolerance=0.0)

    assert [(seen <= place).mean() for place in wanted] == pytest.approx(LEVELS, abs=1e-3)
    np.testing.assert_allclose(calibrated_pit(seen, strength=0.5, tolerance=0.0), (wanted + OWN) / 2)


def test_a_level_moves_only_as_far_as_its_tolerance_asks():
    seen = np.sort(np.random.default_rng(1).uniform(-0.6, 6.6, 5_000))
    own = [(seen <= place).mean() for place in OWN]

    wanted = calibrated_pit(seen, strength=1.0, tolerance=0.05)

    for level, place, k, before in zip(LEVELS, wanted, OWN, own, strict=True):
        margin = min(0.05, level / 2, (1 - level) / 2)
        if abs(before - level) <= margin - 0.001:
            assert place == k
        else:
            assert (seen <= place).mean() == pytest.approx(level + np.sign(before - level) * margin, abs=1e-3)
    assert 0 < sum(place == k for place, k in zip(wanted, OWN, strict=True)) < len(LEVELS)

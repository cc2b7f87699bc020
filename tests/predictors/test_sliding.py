"""Quantiles of sliding windows, against windows sorted one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.predictors.classical.sliding import sliding_quantiles
from mark.predictors.expert import LEVELS, Floats


def one_by_one(values: Floats, end: int, window: int, fewest: int) -> Floats:
    known = np.sort(values[end - window : end])
    known = known[np.isfinite(known)]
    if len(known) < fewest:
        return np.full(len(LEVELS), np.nan)
    pit_values = np.clip((len(known) + 1) * np.array(LEVELS) - 1, 0, len(known) - 1)
    return np.interp(pit_values, np.arange(len(known)), known)


@settings(deadline=None, max_examples=200)
@given(
    values=st.lists(st.one_of(st.just(np.nan), st.sampled_from([0.0, -0.0, 1.0, 20.0]), st.floats(-1.0, 20.0))),
    window=st.integers(1, 12),
    steps=st.lists(st.integers(0, 20), min_size=1, max_size=8),
    fewest=st.integers(1, 4),
)
def test_each_window_is_as_if_it_were_sorted_by_itself(
    values: list[float], window: int, steps: list[int], fewest: int
) -> None:
    ends = window + np.cumsum([0, *steps])
    series = np.resize(np.array([*values, 3.0]), int(ends[-1]))

    found = sliding_quantiles(series, ends, window, fewest=fewest)

    wanted = np.array([one_by_one(series, int(end), window, fewest) for end in ends])
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)

"""Latencies of a profile between its points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from tests.planner.builders import profile

POINTS = st.dictionaries(st.integers(1, 40), st.floats(0.001, 2.0), min_size=1, max_size=8)


@given(points=POINTS, share=st.floats(0.0, 1.0))
def test_all_latencies_are_those_of_each_size(points: dict[int, float], share: float) -> None:
    known = profile(dict(sorted(points.items())))
    largest = max(1, round(share * known.max_batch))
    assert known.latencies_s(largest) == [known.latency_s(size) for size in range(1, largest + 1)]


def test_latencies_beyond_the_profile_are_refused() -> None:
    with pytest.raises(Misconfigured, match="profiled up to 4"):
        profile({4: 0.1}).latencies_s(5)

"""Routing rules as a gateway calls them: compiled and plain pick the same instance, and move the same credit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.dispatch import routing as plain
from mark.simulator.compiled import CompiledRouting, compiled_routing

DTYPE = np.dtype(list(plain.SERVER_FIELDS.items()))


@pytest.fixture(scope="session")
def rules() -> CompiledRouting:
    return compiled_routing(Path(tempfile.gettempdir()) / "mark-test-engine")


SERVERS = st.lists(
    st.tuples(
        st.floats(0.0, 2.0),
        st.one_of(st.floats(0.0, 4.0), st.just(np.inf)),
        st.floats(0.01, 0.5),
        st.floats(0.01, 0.9),
        st.floats(0.5, 50.0),
        st.floats(-5.0, 5.0),
        st.integers(0, 40),
        st.integers(0, 8),
        st.integers(1, 8),
    ),
    max_size=12,
)


@given(drawn=SERVERS, now=st.floats(0.0, 2.0), left_out=st.integers(0, 12), as_records=st.booleans())
@settings(max_examples=200, deadline=None)
def test_compiled_and_plain_rules_agree(
    rules: CompiledRouting, drawn: list[tuple[float, ...]], now: float, left_out: int, as_records: bool
) -> None:
    expected = np.array(drawn, DTYPE).view(np.recarray)
    given_ = expected.copy() if as_records else expected.copy().view(np.ndarray)
    rows = np.array([row for row in range(len(drawn)) if row != left_out], np.int64)
    assert rules.least_finish(now, rows, given_) == plain.least_finish(now, rows, expected)
    assert rules.least_outstanding(rows, given_) == plain.least_outstanding(rows, expected)
    for _ in range(3):
        assert rules.weighted(rows, given_) == plain.weighted(rows, expected)
    assert given_["current"].tolist() == expected.current.tolist()

"""What is put together holds the rows of all, one request after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mark.protocols.exchange import kind_of, row_count
from mark.protocols.oip.bodies import BadRequest
from mark.serving.backends.merging import groups, merge

SHAPES = hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)
DTYPES = st.sampled_from(["f4", "f8", "i8", "u1", "?"])


@st.composite
def requests(draw):
    """Requests of a few kinds, mixed: their tensors agree in their rows."""
    kinds = draw(
        st.lists(
            st.dictionaries(st.sampled_from("abc"), st.tuples(DTYPES, SHAPES), min_size=1),
            min_size=1,
            max_size=3,
        )
    )
    found = []
    for _ in range(draw(st.integers(1, 8))):
        kind, rows = draw(st.sampled_from(kinds)), draw(st.integers(1, 4))
        found.append(
            {name: draw(hnp.arrays(np.dtype(dtype), (rows, *shape))) for name, (dtype, shape) in kind.items()}
        )
    return found


def groups_of(found):
    return groups({place: kind_of(tensors) for place, tensors in enumerate(found)})


@given(requests())
def test_what_is_merged_is_alike_and_holds_the_rows_of_all_in_their_order(given_requests):
    places = groups_of(given_requests)
    assert sorted(place for group in places for place in group) == list(range(len(given_requests)))

    for group in places:
        parts = [given_requests[place] for place in group]
        kinds = {tuple(sorted((name, a.dtype.str, a.shape[1:]) for name, a in part.items())) for part in parts}
        assert len(kinds) == 1
        merged, end = merge(parts), 0
        for part in parts:
            begin, end = end, end + row_count(part)
            assert merged.keys() == part.keys()
            for name, array in part.items():
                np.testing.assert_array_equal(merged[name][begin:end], array)
                assert merged[name].dtype == array.dtype
        assert row_count(merged) == end
    assert len(groups_of(given_requests)) == len(groups_of([part for part in given_requests for _ in range(2)]))


@pytest.mark.parametrize(
    "tensors", [{}, {"a": np.zeros(())}, {"a": np.zeros((0, 2))}, {"a": np.zeros(2), "b": np.zeros(3)}]
)
def test_a_request_without_common_rows_is_refused(tensors):
    with pytest.raises(BadRequest, match="first dimension"):
        row_count(tensors)


def test_texts_are_merged_too():
    parts = [{"text": np.array([b"a", b"bcd"], dtype=object)}, {"text": np.array([b""], dtype=object)}]
    assert list(merge(parts)["text"]) == [b"a", b"bcd", b""]

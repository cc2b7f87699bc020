import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.protocols.trace_context import (
    MOST_CARRIED,
    TraceContext,
    carried,
    is_in_ratio,
    parse_carried,
    parse_context,
    shortened,
)

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()
contexts = st.builds(
    TraceContext,
    trace_id=st.integers(1, 2**128 - 1),
    span_id=st.integers(1, 2**64 - 1),
    sampled=st.booleans(),
    state=st.just(b""),
)
members = st.lists(st.from_regex(rb"[a-z]{1,8}=[a-z0-9;:]{1,60}", fullmatch=True), max_size=12)


def test_the_specifications_own_example_is_read() -> None:
    found = parse_context(PARENT, b"rojo=00f067aa0ba902b7")
    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), True, b"rojo=00f067aa0ba902b7")
    assert found.headers == {"traceparent": PARENT.decode(), "tracestate": "rojo=00f067aa0ba902b7"}


@pytest.mark.parametrize(
    "traceparent",
    [
        b"",
        b"00-1-2-01",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        PARENT + b"-more",
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        PARENT.replace(b"-01", b"-0x"),
    ],
)
def test_what_cannot_be_read_is_none(traceparent: bytes) -> None:
    assert parse_context(traceparent) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    found = parse_context(b"cc" + PARENT[2:] + b"-what-comes")
    assert found is not None
    assert found.traceparent == PARENT


@given(contexts)
def test_what_is_written_is_read_again(context: TraceContext) -> None:
    assert parse_context(context.traceparent) == context


@given(contexts, members)
def test_a_frame_carries_the_parent_whole_and_whole_members_of_the_state(
    context: TraceContext, parts: list[bytes]
) -> None:
    field = carried(context.traceparent, b",".join(parts))
    found = parse_carried(field)
    assert len(field) <= MOST_CARRIED
    assert found is not None
    assert found._replace(state=b"") == context
    kept = found.state.split(b",") if found.state else []
    assert kept == parts[: len(kept)]


@given(st.integers(1, MOST_CARRIED), members)
def test_a_parent_of_any_length_leaves_the_state_what_it_leaves(length: int, parts: list[bytes]) -> None:
    """A client may send anything for one; where it takes the whole place there is no state."""
    field = carried(b"x" * length, b",".join(parts))
    assert len(field) <= MOST_CARRIED
    assert field.partition(b" ")[0] == b"x" * length


def test_a_state_with_a_line_end_is_none() -> None:
    assert shortened(b"a=b\r\nx-evil: 1") == b""


@given(members, st.integers(0, 600))
def test_a_state_is_shortened_by_whole_members_and_no_more_than_it_must(parts: list[bytes], most: int) -> None:
    short = shortened(b",".join(parts), most)
    kept = short.split(b",") if short else []
    assert len(short) <= most
    assert kept == parts[: len(kept)]
    assert kept == parts or len(b",".join(parts[: len(kept) + 1])) > most


@given(st.integers(1, 2**128 - 1), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_ratio_takes_what_a_smaller_one_takes(trace_id: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert is_in_ratio(trace_id, high) or not is_in_ratio(trace_id, low)
    assert is_in_ratio(trace_id, 1.0)
    assert not is_in_ratio(trace_id, 0.0)

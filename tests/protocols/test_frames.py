from __future__ import annotations

import contextlib
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.protocols.frames import (
    HEAD_BYTES,
    VERSION,
    Begin,
    Bounced,
    Cancel,
    Challenge,
    Credit,
    Frame,
    FrameError,
    FrameParser,
    Goodbye,
    Hello,
    Kind,
    Request,
    RequestDetails,
    Response,
    ResponseDetails,
    State,
    StreamEnd,
    StreamHead,
    StreamPart,
    Welcome,
    encode,
)

ids = st.integers(0, 2**64 - 1)
times = st.integers(-(2**62), 2**62)
seconds = st.floats(0, 1e6)
words = st.binary(max_size=255)
counts = st.integers(0, 2**32 - 1)
proofs = st.binary(min_size=32, max_size=32)
other_versions = st.integers(0, 2**16 - 1).filter(lambda version: version != VERSION)
request_details = st.builds(
    RequestDetails, st.integers(1, 2**32 - 1), st.floats(0, 1), words, words, words, ids, counts, st.booleans()
)
response_details = st.builds(ResponseDetails, words, words, ids, counts, st.booleans())


@st.composite
def requests(draw: st.DrawFn) -> Request:
    body = draw(st.binary(max_size=80))
    return Request(
        draw(ids),
        draw(times),
        draw(times),
        draw(st.binary(max_size=40)),
        draw(st.binary(max_size=30)),
        draw(st.integers(0, len(body))),
        draw(st.binary(max_size=20)),
        draw(st.binary(max_size=55)),
        body,
        draw(st.booleans()),
        draw(words),
        draw(st.just(RequestDetails()) | request_details),
    )


@st.composite
def responses(draw: st.DrawFn) -> Response:
    body = draw(st.binary(max_size=80))
    header_length = draw(st.integers(0, len(body)))
    details = draw(st.just(ResponseDetails()) | response_details)
    kind = draw(st.binary(max_size=30))
    return Response(draw(ids), draw(st.integers(200, 599)), kind, header_length, body, details)


states = st.builds(
    State,
    ids,
    st.booleans(),
    st.booleans(),
    st.integers(0, 9999),
    st.integers(0, 999),
    seconds,
    seconds | st.just(math.inf),
    seconds,
    st.lists(seconds, min_size=1, max_size=9).map(tuple),
    st.integers(0, 2**16 - 1),
)
frames = st.one_of(
    requests(),
    responses(),
    states,
    st.builds(Bounced, ids, times),
    st.builds(Challenge, st.just(VERSION), proofs),
    st.builds(Hello, st.just(VERSION), proofs, proofs, st.just(b"") | proofs),
    st.builds(Welcome, proofs),
    st.builds(Cancel, ids),
    st.just(Goodbye()),
    st.builds(StreamHead, ids, st.integers(200, 399), words),
    st.builds(StreamPart, ids, st.binary(max_size=80)),
    st.builds(StreamEnd, ids, st.binary(max_size=80)),
    st.builds(Credit, ids, counts),
    st.builds(Begin, ids, st.binary(max_size=20)),
)


def fed(parser: FrameParser, data: bytes, cuts: list[int]) -> list[Frame]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found: list[Frame] = []
    for start, stop in itertools.pairwise(edges):
        found += parser.feed(data[start:stop])
    return found


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_chunking_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    parser = FrameParser()

    assert fed(parser, b"".join(map(encode, sent)), cuts) == sent
    assert parser.held == 0


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_garbage_is_a_frame_error_or_waits_for_more(data: bytes, cuts: list[int]) -> None:
    parser = FrameParser(max_frame_bytes=300)
    try:
        fed(parser, data, cuts)
    except FrameError:
        return
    assert parser.held <= 300 + 13


@given(frames, st.integers(0, 500), st.integers(0, 255))
def test_a_changed_byte_never_breaks_the_parser(frame: Frame, place: int, value: int) -> None:
    data = bytearray(encode(frame))
    data[place % len(data)] = value
    with contextlib.suppress(FrameError):
        list(FrameParser(max_frame_bytes=1000).feed(bytes(data)))


def test_a_length_beyond_the_limit_is_refused_before_it_is_held() -> None:
    with pytest.raises(FrameError, match="exceeds"):
        list(FrameParser(max_frame_bytes=100).feed(b"\xff\xff\xff\x7f\x02" + bytes(8)))


def test_what_does_not_fit_its_place_is_refused() -> None:
    with pytest.raises(FrameError, match="does not fit"):
        encode(Request(1, 0, 0, b"x" * 70_000, b"", 0, b"", b"", b""))
    with pytest.raises(FrameError, match="does not fit"):
        encode(Request(1, 0, 0, b"", b"", 0, b"", b"", b"", details=RequestDetails(client=b"x" * 256)))


@given(other_versions, st.binary(max_size=200), st.sampled_from([1, 8]))
def test_of_a_greeting_of_another_version_the_version_is_read(version: int, rest: bytes, kind: int) -> None:
    """Whatever that version puts behind it."""
    body = version.to_bytes(2, "little") + rest
    data = len(body).to_bytes(4, "little") + bytes([kind]) + bytes(8) + body

    assert list(FrameParser().feed(data)) == [Hello(version) if kind == 1 else Challenge(version)]


def test_neutral_details_take_no_byte() -> None:
    plain = Request(1, 0, 0, b"/path", b"", 0, b"", b"", b"body")
    detailed = plain._replace(details=RequestDetails(size=7))

    assert encode(plain)[4] == Kind.REQUEST
    assert encode(detailed)[4] == Kind.DETAILED_REQUEST
    assert encode(detailed).endswith(encode(plain)[HEAD_BYTES:])


@pytest.mark.parametrize(
    "details",
    [RequestDetails(size=0), RequestDetails(accuracy_floor=1.5), RequestDetails(accuracy_floor=math.nan)],
    ids=["no item", "beyond 1", "no number"],
)
def test_details_out_of_range_are_refused(details: RequestDetails) -> None:
    data = encode(Request(1, 0, 0, b"", b"", 0, b"", b"", b"", details=details))

    with pytest.raises(FrameError, match="out of range"):
        list(FrameParser().feed(data))


@given(frames, st.integers(1, 60))
def test_one_frame_in_pieces_counts_as_one_that_is_on_its_way(frame: Frame, piece: int) -> None:
    parser, data = FrameParser(), encode(frame)
    begun = set()
    for at in range(0, len(data), piece):
        list(parser.feed(data[at : at + piece]))
        if parser.held:
            begun.add(parser.begun)

    assert len(begun) <= 1

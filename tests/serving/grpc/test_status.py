from __future__ import annotations

import pytest
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st

from mark.protocols.oip.bodies import BadRequest, error_body
from mark.serving.grpc.status import DEADLINE, code_of, details_of, headers_of, read_lines, trailing_of


@given(st.integers(400, 599))
def test_each_status_is_an_error(status: int) -> None:
    assert code_of(status) not in (StatusCode.OK, StatusCode.UNKNOWN, StatusCode.CANCELLED)


@pytest.mark.parametrize(
    ("asked", "remaining_s", "counts"),
    [
        (None, None, None),
        (None, 0.25, b"250"),
        (None, 0.0, b"1"),
        (None, 1e9, b"999999999"),
        ("100", 0.25, b"100"),
        ("400", 0.25, b"250"),
        ("soon", 0.25, b"soon"),
    ],
)
def test_the_tighter_deadline_counts(asked: str | None, remaining_s: float | None, counts: bytes | None) -> None:
    metadata = [] if asked is None else [(DEADLINE, asked)]
    assert headers_of(metadata, remaining_s).get(DEADLINE) == counts


def test_only_metadata_with_a_meaning_becomes_headers() -> None:
    metadata = [("x-mark-forwarded", "g2"), ("host", "h"), ("user-agent", "a"), ("authorization", "Bearer k")]
    assert headers_of(metadata, None) == {"authorization": b"Bearer k"}
    with pytest.raises(BadRequest, match="authorization twice"):
        headers_of([("authorization", "Bearer a"), ("authorization", "Bearer b")], None)


@pytest.mark.parametrize("value", ["a\r\nx-mark-forwarded: g2", "a\nb", b"a\rb", "a\0b", "a\x7fb"], ids=range(5))
def test_metadata_with_line_ends_is_refused_as_headers_are(value: str | bytes) -> None:
    with pytest.raises(BadRequest, match="x-mark-request-id has control characters"):
        headers_of([("x-mark-request-id", value)], None)
    assert headers_of([("x-mark-request-id", "caf\xe9\t1")], None) == {"x-mark-request-id": "caf\xe9\t1".encode()}


def test_headers_of_an_answer_become_metadata() -> None:
    lines = read_lines(b"X-Mark-Served-By: lambda\r\nretry-after: 3\r\nallow: POST\r\nx-mark-version: \xe9\r\n")
    assert trailing_of(lines) == (("x-mark-served-by", "lambda"), ("retry-after", "3"))


@pytest.mark.parametrize(
    ("body", "text"), [(error_body("why"), "why"), (b"plain", "plain"), (b"{}", "{}"), (b"x" * 5000, "x" * 1000)]
)
def test_details_are_the_text_of_an_error(body: bytes, text: str) -> None:
    assert details_of(body) == text

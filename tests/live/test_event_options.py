"""`mark event add`: flags that cannot be read are named, before any service is looked for."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("at", "length", "expect", "says"),
    [
        ("tomorrow", "2h", "3x", "--at: 'tomorrow' is not a time"),
        ("2026-12-01T18:00", "two hours", "3x", "--for: 'two hours' is not a length of time"),
        ("2026-12-01T18:00", "2h", "more", "--expect: 'more' is not an expectation"),
        ("2026-12-01T18:00", "2h", "3x", "no service named nobodys is up on this machine"),
    ],
)
def test_a_wrong_flag_is_one_line_and_status_2(mark, at: str, length: str, expect: str, says: str) -> None:
    answer = mark("event", "add", "--at", at, "--for", length, "--expect", expect, "--name", "nobodys")
    assert answer.status == 2
    assert says in answer.err
    assert answer.err.count("\n") == 1

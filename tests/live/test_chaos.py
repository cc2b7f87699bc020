"""What `mark interrupt` says of a share."""

from __future__ import annotations

import pytest

from mark.live.commands.chaos import format_interrupted


@pytest.mark.parametrize(
    ("taken", "share", "ready", "says"),
    [
        (["i-1"], 1.0, 1, "1 spot instance has its notice: i-1"),
        (["i-1", "i-2"], 0.4, 5, "2 spot instances have their notice: i-1, i-2"),
        ([], 0.4, 0, "no spot instance is ready, so none was taken away"),
        ([], 0.4, 1, "0.4 of 1 rounds to none; --share 1 takes it"),
        ([], 0.1, 3, "0.1 of 3 rounds to none; --share 1 takes all of them"),
    ],
)
def test_it_says_what_was_taken_or_why_nothing_was(taken: list[str], share: float, ready: int, says: str) -> None:
    assert format_interrupted(taken, share=share, ready=ready) == says

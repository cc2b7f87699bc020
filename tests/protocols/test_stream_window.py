from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.protocols.frames import FrameError
from mark.protocols.stream_window import CREDIT_BYTES, WINDOW_BYTES, ReceiveWindow, SendWindow


@given(st.lists(st.tuples(st.integers(0, 3 * WINDOW_BYTES), st.booleans()), max_size=40))
def test_both_ends_agree_and_no_stream_gets_stuck(steps: list[tuple[int, bool]]) -> None:
    """Whatever is wanted and whenever the reader reads: the window is kept, and a reader opens it again."""
    sender, receiver = SendWindow(), ReceiveWindow()
    for wanted, reads in steps:
        sent = sender.take(wanted)
        assert sent <= wanted
        receiver.received(sent)
        assert sender.left + receiver.held == WINDOW_BYTES
        if reads:
            sender.add(receiver.credit())
            assert receiver.held < CREDIT_BYTES
            assert sender.take(1) == 1
            receiver.received(1)


def test_a_sender_beyond_its_window_is_refused() -> None:
    receiver = ReceiveWindow()
    receiver.received(WINDOW_BYTES)

    with pytest.raises(FrameError, match="exceeds its window"):
        receiver.received(1)


def test_a_credit_for_what_was_not_sent_is_refused() -> None:
    sender = SendWindow()
    sender.take(10)

    with pytest.raises(FrameError, match="more than was sent"):
        sender.add(11)

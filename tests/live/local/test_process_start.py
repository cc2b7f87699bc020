"""First steps of every process of a service."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from mark.live.local.process_start import set_on_signal
from tests.waiting import PATIENCE_S


@pytest.fixture
def usual() -> Iterator[None]:
    """SIGUSR1 is as it was when the test is over."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_sets_the_event_even_while_its_lock_is_held(usual: None) -> None:
    stop = set_on_signal(signal.SIGUSR1)
    with stop._cond:  # type: ignore[attr-defined]  # as a main thread that is in wait() may hold it
        os.kill(os.getpid(), signal.SIGUSR1)
    assert stop.wait(PATIENCE_S)

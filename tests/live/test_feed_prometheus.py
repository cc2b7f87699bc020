"""A minute that Prometheus told is counted in the next: each request once, and none of what is not known."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.demand import STALE_S
from mark.domain.errors import Misconfigured
from mark.live.commands import feed_prometheus
from mark.live.commands.feed import REPORT_EACH_S
from mark.live.commands.feed_prometheus import READ_S, Relay
from mark.offline.metrics.minute_rates import AFTER_S

START = 1_714_557_600
BEGIN = START + AFTER_S + READ_S


def relay() -> Relay:
    return Relay(np.random.default_rng(7))


@given(
    rates=st.lists(st.floats(0, 300), min_size=1, max_size=5), pauses_s=st.lists(st.floats(0.1, 50), min_size=1)
)
def test_each_request_is_counted_once_whatever_the_pauses(rates: list[float], pauses_s: list[float]) -> None:
    told = {START - 60 * (len(rates) - place): rate for place, rate in enumerate(rates)}
    made, total, now = relay(), 0, BEGIN - 60.0 * (len(rates) - 1)
    for at in range(10_000):
        known = {start: rate for start, rate in told.items() if start + 60 <= now}
        if now >= BEGIN + 60:
            break
        total += made.take(now, known)
        now += pauses_s[at % len(pauses_s)]
    total += made.take(BEGIN + 59.9, told)
    assert total == pytest.approx(sum(rates) * 60, abs=1)


def test_it_begins_now_and_not_with_the_minute() -> None:
    assert relay().take(BEGIN + 50.0, {START - 60: 100.0}) < 150 * REPORT_EACH_S


def test_a_minute_that_does_not_come_is_held_and_then_is_none() -> None:
    made, told = relay(), {START - 60: 10.0}
    counted = []
    for minute in range(6):
        found = sum(made.take(BEGIN + 60 * minute + 0.5 * step, told) for step in range(120))
        counted.append(found)
    held = math.floor((STALE_S - AFTER_S - READ_S) / 60) + 1
    assert counted == [600] * held + [0] * (6 - held)


def test_requests_are_spread_over_their_minute() -> None:
    made = relay()
    made.take(BEGIN - 0.5, {START - 120: 0.0})
    parts = [made.take(BEGIN + 5.0 * window + 4.9, {START - 60: 20.0}) for window in range(12)]
    assert sum(parts) == 1200
    assert 60 < min(parts) < 100 < max(parts) < 150


def test_whatever_goes_wrong_it_reads_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop, troubles = threading.Event(), iter([Misconfigured("401"), Misconfigured("401"), ValueError("no"), None])

    class Rates:
        def read(self, now: float) -> None:
            if trouble := next(troubles):
                raise trouble
            stop.set()

    monkeypatch.setattr(feed_prometheus, "until_next_s", lambda now: 0.0)
    rates: Any = Rates()
    feed_prometheus._follow(rates, stop, "")
    said = capsys.readouterr().err
    assert [said.count(words) for words in ("401", "internal error: ValueError: no", "load is read again")] == [
        1,
        1,
        1,
    ]

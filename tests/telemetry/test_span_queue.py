"""Spans wait in a bounded queue: whoever adds one never waits, and each is sent or counted as dropped."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.telemetry.otlp.queue import BATCH, SpanQueue
from mark.telemetry.otlp.span import Kind, Span, SpanId

LONG_S = 60.0


def span(number: int) -> Span:
    return Span("one", Kind.INTERNAL, SpanId(1, number + 1), 0, 1, 2, {})


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 3 * BATCH), st.integers(1, 2 * BATCH), st.booleans())
def test_every_span_is_sent_once_or_counted(count: int, most: int, takes: bool) -> None:
    sent: list[Span] = []

    def send(spans: Sequence[Span]) -> bool:
        sent.extend(spans if takes else ())
        return takes

    queue = SpanQueue(send, most=most, every_s=LONG_S)
    for number in range(count):
        queue.add(span(number))
    queue.close(LONG_S)
    assert queue.sent + queue.dropped == count
    assert queue.sent == len(sent) == len({one.id for one in sent})
    assert [one.id.span_id for one in sent] == sorted(one.id.span_id for one in sent)
    assert queue.sent == 0 or takes


def test_no_more_wait_than_may_while_the_collector_hangs() -> None:
    hangs, began = threading.Event(), threading.Event()

    def send(_: Sequence[Span]) -> bool:
        began.set()
        return hangs.wait(LONG_S)

    queue = SpanQueue(send, most=BATCH + 1, every_s=LONG_S)
    for number in range(BATCH + 1):  # the last of them wakes the thread
        queue.add(span(number))
    assert began.wait(LONG_S)
    for number in range(4 * BATCH):
        queue.add(span(number))
    assert queue.dropped == 4 * BATCH - BATCH  # one of the first waits, and BATCH more
    hangs.set()
    queue.close(LONG_S)
    assert queue.sent == 2 * BATCH + 1


def test_an_exporter_that_raises_costs_its_spans_alone(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def send(spans: Sequence[Span]) -> bool:
        calls.append(len(spans))
        if len(calls) == 1:
            raise RuntimeError("a defect")
        return True

    queue = SpanQueue(send, every_s=LONG_S)
    for number in range(BATCH + 1):
        queue.add(span(number))
    queue.close(LONG_S)
    assert (queue.sent, queue.dropped) == (1, BATCH)
    assert "spans could not be sent" in caplog.text

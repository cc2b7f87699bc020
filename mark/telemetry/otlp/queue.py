"""Spans that wait to be sent, on a thread of their own: whoever ends a span never waits.

The queue is bounded. Where the collector is slower than the spans, or away, spans are dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from mark.telemetry.otlp.span import Span

log = logging.getLogger("mark.telemetry")

MOST = 4096
"""Spans that wait at most: some 4 MB."""
BATCH = 512
EVERY_S = 1.0
CLOSE_WITHIN_S = 2.0
Send = Callable[[Sequence[Span]], bool]


class SpanQueue:
    """Sends spans in batches. send: True where the collector took them; runs on the queue's thread."""

    def __init__(self, send: Send, *, most: int = MOST, every_s: float = EVERY_S) -> None:
        self._send, self._most, self._every_s = send, most, every_s
        self._waiting: deque[Span] = deque()
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._closing = False
        self._is_away = False
        self.sent = self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        """Queue a span; one too many is dropped. From any thread."""
        with self._lock:
            waiting = len(self._waiting)
            if waiting >= self._most:
                self.dropped += 1
                return
            self._waiting.append(span)
        if waiting >= BATCH:
            self._due.set()

    def close(self, within_s: float = CLOSE_WITHIN_S) -> None:
        """Send what waits, for so long at most; the thread keeps no process alive."""
        self._closing = True
        self._due.set()
        self._thread.join(within_s)

    def _work(self) -> None:
        while True:
            self._due.wait(self._every_s)
            self._due.clear()
            is_last = self._closing
            while batch := self._take():
                taken = self._sent(batch)
                with self._lock:
                    self.sent += len(batch) * taken
                    self.dropped += len(batch) * (not taken)
                self._note(is_away=not taken)
            if is_last:
                return

    def _sent(self, batch: Sequence[Span]) -> bool:
        try:
            return self._send(batch)
        except Exception:  # the driver of one batch: its spans are dropped, and the next one is tried
            log.exception("spans could not be sent")
            return False

    def _take(self) -> list[Span]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _note(self, *, is_away: bool) -> None:
        if is_away != self._is_away:
            self._is_away = is_away
            if is_away:
                log.warning("collector takes no spans: they are dropped and counted until it does")
            else:
                log.info("collector takes spans again")

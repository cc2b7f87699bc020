"""`mark feed --prometheus`: the load of a fleet that is observed, by a query, a minute after it came.

A service's controller takes what arrives now. So each minute that Prometheus tells is counted in the next one: its
requests, each once, at moments that are drawn. Where no newer minute comes, the last one is counted again for a
while: no sample is not no load.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from mark.domain.demand import STALE_S
from mark.domain.errors import MarkError, Misconfigured, failure_words
from mark.live.commands.feed import REPORT_EACH_S, Feed, started_feed
from mark.offline.metrics.minute_rates import AFTER_S, MINUTE_S, MinuteRates, until_next_s
from mark.report.terminal import note

HISTORY_DAYS = 0.1
"""Asked for at the start: enough to tell what the query gives."""
READ_S = 5.0
"""A minute begins so long after it was asked for: what came until then is what it counts."""
REPORTS = round(MINUTE_S / REPORT_EACH_S)


class Relay:
    """Requests to count, of the minute that was told last."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._begun_at = -math.inf
        self._counts: NDArray[np.int64] = np.zeros(REPORTS, dtype=np.int64)
        self._left_over = 0.0
        self._reported = REPORTS

    def take(self, now: float, rates: Mapping[int, float]) -> int:
        """The requests since the last call. rates: requests/s by the start of their minute, epoch seconds."""
        begun_at = math.floor((now - AFTER_S - READ_S) / MINUTE_S) * MINUTE_S + AFTER_S + READ_S
        due = min(math.floor((now - begun_at) / REPORT_EACH_S) + 1, REPORTS)
        found = 0
        if begun_at != self._begun_at:
            found = int(self._counts[self._reported :].sum())
            is_first = math.isinf(self._begun_at)
            self._begin(begun_at, rates)
            self._reported = due - 1 if is_first else 0
        found += int(self._counts[self._reported : due].sum())
        self._reported = max(self._reported, due)
        return found

    def _begin(self, at: float, rates: Mapping[int, float]) -> None:
        last = max(rates, default=-math.inf)
        is_known = at - (last + MINUTE_S) <= STALE_S
        requests = (rates[int(last)] if is_known else 0.0) * MINUTE_S + self._left_over
        whole = math.floor(requests)
        self._begun_at, self._left_over = at, requests - whole
        self._counts = self._rng.multinomial(whole, np.full(REPORTS, 1 / REPORTS))


def feed_from_prometheus(service: str, model: str | None, rates: MinuteRates) -> None:
    """Count what the query gives until Ctrl-C. Misconfigured where Prometheus refuses the first time."""
    feed, name = started_feed(service, model)
    for text in rates.notes:
        note(text)
    try:
        rates.read(time.time())
    except Misconfigured:
        raise
    except MarkError as error:
        trouble = _told(error, "")
    else:
        trouble = ""
    stop = threading.Event()
    threading.Thread(target=_follow, args=(rates, stop, trouble), daemon=True).start()
    relay = Relay(np.random.default_rng())
    try:
        _count_until_stopped(feed, lambda now: relay.take(now, rates.rates))
    except KeyboardInterrupt:
        stop.set()
    feed.publish()
    note(f"{feed.total:,} requests of {name} were counted")


def _count_until_stopped(feed: Feed, take: Callable[[float], int]) -> None:
    while True:
        now = time.time()
        feed.count_requests(take(now))
        feed.publish()
        time.sleep(REPORT_EACH_S - now % REPORT_EACH_S)


def _told(error: Exception, trouble: str) -> str:
    """Say what is wrong where it is new; returns it."""
    words = str(error) if isinstance(error, MarkError) else f"internal error: {failure_words(error)}"
    if words != trouble:
        note(f"{words}; the last minute's load is counted again, for {STALE_S / MINUTE_S:.0f} minutes at most")
    return words


def _follow(rates: MinuteRates, stop: threading.Event, trouble: str) -> None:
    """Read on each minute, whatever goes wrong."""
    while not stop.wait(until_next_s(time.time())):
        try:
            rates.read(time.time())
        except Exception as error:  # noqa: BLE001 - nobody is above: the next minute tries again
            trouble = _told(error, trouble)
        else:
            if trouble:
                note("load is read again")
            trouble = ""

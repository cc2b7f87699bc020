"""Load by the minute from a query of Prometheus, read on as time goes by: demand of a fleet that others run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mark.domain.demand import KEEP_HISTORY
from mark.domain.errors import Misconfigured, RetryLater
from mark.offline.metrics.prometheus import MOST_SAMPLES, Prometheus, ask_page, meaning, merged
from mark.offline.metrics.span import DAY_S, Span
from mark.simulator.traces.formats.bins import MAX_RPS
from mark.simulator.traces.formats.content import EmptyFile
from mark.simulator.traces.formats.prometheus import COUNTER_ENDS, read_range
from mark.simulator.traces.formats.rows import RowKind, TraceOptions
from mark.simulator.traces.formats.times import moment

MINUTE_S = 60
AGAIN_S = 5 * MINUTE_S
"""So much of what is known is read again: late samples count, and counters need the sample before."""
TIMEOUT_S = 30.0
"""A minute's question is a small one."""
AFTER_S = 5.0
"""The last scrapes of a minute are stored a moment after it."""
LATE_S = 2 * MINUTE_S
"""A minute that is so late is missed, not waited for."""


class MinuteRates:
    """Rates of a query by the start of their minute. What a failed read left out is asked for by the next."""

    def __init__(self, source: Prometheus, query: str, options: TraceOptions, days: float) -> None:
        """Misconfigured for a query that would mislead. days: asked for by the first read, at most 14."""
        if not query.strip():
            raise Misconfigured("the query is empty: write one such as 'sum(rate(http_requests_total[1m]))'")
        #: What a reader of its figures should know of the query.
        kind, self.notes = meaning(query, MINUTE_S)
        self._options = options if options.rows else replace(options, rows=kind)
        self._source, self._query = replace(source, timeout_s=TIMEOUT_S), query
        if not 0 < days <= KEEP_HISTORY * MINUTE_S / DAY_S:
            raise Misconfigured(f"--days must be above 0 and at most 14, which is what is kept, not {days:g}")
        self._days = days
        #: Requests/s by start, epoch seconds.
        self.rates: dict[int, float] = {}

    def read(self, now: float) -> None:
        """Ask for the minutes that are new. RetryLater where they did not come, Misconfigured for a refusal."""
        span = self._span(now)
        pages = [
            ask_page(self._source, self._query, first, last, MINUTE_S) for first, last in span.ends(MOST_SAMPLES)
        ]
        with suppress(EmptyFile):  # as where only old samples came
            self._take(merged(pages))
        oldest = span.end_at - KEEP_HISTORY * MINUTE_S
        self.rates = {start: rate for start, rate in self.rates.items() if start >= oldest}
        known_until = max(self.rates, default=-MINUTE_S) + MINUTE_S
        if known_until <= span.end_at - LATE_S:
            since = f"since {moment(known_until)}" if self.rates else f"in {self._days:g} days"
            raise RetryLater(
                f"{self._source.url} has no sample of this query {since}; check names and labels, give rate() a "
                "window of two scrapes or more, and ask for what is there without traffic, too"
            )

    def _span(self, now: float) -> Span:
        whole = Span.until(now, self._days, MINUTE_S)
        known = max(self.rates, default=0) + MINUTE_S - AGAIN_S
        return replace(whole, start_at=min(max(whole.start_at, known), whole.end_at - MINUTE_S))

    def _take(self, document: Mapping[str, Any]) -> None:
        rows = read_range(self._source.url, document, self._options, MINUTE_S)
        if self._options.rows is None:
            _check_counters(document)
        assert rows.values is not None
        values = rows.values / MINUTE_S if rows.kind is RowKind.COUNT else rows.values
        new: dict[int, float] = {}
        for start, rate in zip(rows.times.tolist(), values.tolist(), strict=True):
            if not 0 <= rate <= MAX_RPS:
                raise Misconfigured(
                    f"{self._source.url}: the query gives {rate:g} at {moment(start)}; rates are 0 to "
                    f"{MAX_RPS:g} requests/s"
                )
            new[round(start)] = rate
        self.rates = {**self.rates, **new}  # another thread may look at it


def until_next_s(now: float) -> float:
    """Seconds until the next minute has ended and its samples are there."""
    return (math.floor((now - AFTER_S) / MINUTE_S) + 1) * MINUTE_S + AFTER_S - now


def _check_counters(document: Mapping[str, Any]) -> None:
    """Refuse a guess from a few minutes' numbers: in another minute it might be another one."""
    for one in document["data"]["result"]:
        if not str(one["metric"].get("__name__", "")).endswith(COUNTER_ENDS):
            raise Misconfigured(
                "neither the query nor a name tells whether the values are rates: write sum(rate(...[1m])), or "
                "say --rows rates or counts"
            )

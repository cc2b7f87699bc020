"""Demand by the minute from Prometheus: a gap, a restart, a refusal, and what no query should give."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured, RetryLater
from mark.offline.metrics.minute_rates import AFTER_S, MinuteRates, until_next_s
from mark.offline.metrics.prometheus import Prometheus
from mark.simulator.traces.formats.rows import RowKind, TraceOptions
from mark.simulator.traces.trace import AS_IT_IS
from tests.offline.test_trace_metrics import LOAD, START, failing, faked, written
from tests.real_prometheus import needs_prometheus, prometheus

RATE = "sum(rate(http_requests_total[1m]))"
GAP = 1000
"""The first minute of the hour that is missing of both pods."""


@needs_prometheus
def test_prometheus_itself_is_followed_through_a_gap_a_restart_and_a_refusal(tmp_path: Path) -> None:
    written(tmp_path)

    async def test() -> None:
        process, api = await prometheus(tmp_path)
        source = Prometheus.at(api, {})
        rates = MinuteRates(source, RATE, AS_IT_IS, 1.0)
        counters = MinuteRates(source, "http_requests_total", AS_IT_IS, 1.0)
        now = START + 60.0 * (GAP - 10) + 7
        try:
            for one in (rates, counters):
                await asyncio.to_thread(one.read, now)
                assert max(one.rates) == START + 60 * (GAP - 11)
                assert one.rates[max(one.rates)] == pytest.approx(2 * (LOAD[GAP - 11] // 2) * 2 / 60, rel=0.1)
            with pytest.raises(RetryLater, match=r"no sample of this query since 2024-05-02 02:"):
                await asyncio.to_thread(rates.read, START + 60.0 * (GAP + 20))
            refused = MinuteRates(source, "http_requests_total * on(job) http_requests_total", AS_IT_IS, 0.1)
            with pytest.raises(Misconfigured, match=r"could not evaluate the query: .*many-to-many"):
                await asyncio.to_thread(refused.read, now)
        finally:
            process.terminate()
            await process.wait()
        with pytest.raises(RetryLater, match="did not answer in full"):
            await asyncio.to_thread(rates.read, now)
        process, api = await prometheus(tmp_path)
        try:
            rates._source = Prometheus.at(api, {})
            await asyncio.to_thread(rates.read, START + 60.0 * (GAP + 100))
        finally:
            process.terminate()
            await process.wait()
        missing = [start for start in range(min(rates.rates), max(rates.rates), 60) if start not in rates.rates]
        assert 58 <= len(missing) <= 62
        assert START + 60 * (GAP + 30) in missing
        assert max(rates.rates) == START + 60 * (GAP + 99)

    asyncio.run(test())


@dataclass
class Answers:
    """Each minute's value of one series, by the end of its minute."""

    value: Callable[[int], str]
    metric: dict[str, str] = field(default_factory=dict)
    until: float = float("inf")

    def __call__(self, asked: dict[str, str]) -> tuple[int, bytes]:
        ends = [at for at in range(int(asked["start"]), int(asked["end"]) + 1, 60) if at <= self.until]
        result = [{"metric": self.metric, "values": [[at, self.value(at)] for at in ends]}]
        found: dict[str, Any] = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return 200, json.dumps(found).encode()


def test_only_what_is_new_is_asked_for_and_old_minutes_go() -> None:
    with faked() as there:
        there.answers = [Answers(str)]
        rates = MinuteRates(Prometheus.at(there.url, {}), RATE, TraceOptions(rows=RowKind.COUNT), 14.0)
        rates.read(60.0 * 40_000 + 3)
        assert len(there.asked) == 2
        assert len(rates.rates) == 14 * 1440
        rates.read(60.0 * 40_002 + 3)
        rates.read(60.0 * 40_002 + 59)
        assert len(there.asked) == 4
        asked = there.asked[2]
        assert (int(asked["end"]) - int(asked["start"])) // 60 == 6
        assert len(rates.rates) == 14 * 1440
        assert rates.rates[60 * 40_001] == 40_002


@pytest.mark.parametrize(
    ("answer", "query", "told"),
    [
        (Answers(lambda _: "-1"), RATE, "the query gives -1 at "),
        (Answers(lambda _: "NaN"), RATE, "no sample of this query in 0.5 days"),
        (Answers(lambda at: str(at % 7), metric={"__name__": "job:load"}), "job:load", "say --rows rates"),
        (Answers(str, until=60.0 * 39_000), RATE, "no sample of this query since"),
        (failing(422, '{"status": "error", "error": "too many samples"}'), RATE, "too many samples"),
        (failing(503, "no"), RATE, "failed (503)"),
    ],
)
def test_what_is_no_demand_is_one_line(answer: Any, query: str, told: str) -> None:
    with faked() as there:
        there.answers = [answer]
        rates = MinuteRates(Prometheus.at(there.url, {}), query, AS_IT_IS, 0.5)
        with pytest.raises((Misconfigured, RetryLater)) as error:
            rates.read(60.0 * 39_010)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("days", [0.0, 15.0, float("nan")])
def test_days_that_nobody_keeps_are_refused(days: float) -> None:
    with pytest.raises(Misconfigured, match="--days must be"):
        MinuteRates(Prometheus.at("http://here", {}), RATE, AS_IT_IS, days)


@given(st.floats(1e9, 2e9))
def test_the_next_read_comes_a_moment_after_each_minute(now: float) -> None:
    wait_s = until_next_s(now)
    assert 0 < wait_s <= 60.001
    assert (now + wait_s - AFTER_S) % 60 == pytest.approx(0, abs=1e-3) or (
        now + wait_s - AFTER_S
    ) % 60 == pytest.approx(60, abs=1e-3)

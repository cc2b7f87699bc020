"""Traces from Prometheus: what is asked for, what answers mean, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.offline.metrics.prometheus import MOST_SAMPLES, Prometheus, import_prometheus, meaning, merged
from mark.offline.metrics.span import Span
from mark.simulator.traces.formats.filters import parse_where
from mark.simulator.traces.formats.prometheus import read_range
from mark.simulator.traces.formats.rows import RowKind, TraceOptions
from mark.simulator.traces.trace import AS_IT_IS, Trace, read_trace
from tests.real_prometheus import needs_prometheus, prometheus

START = 1_714_557_600
MINUTES = 9 * 1440
"""More than Prometheus gives in one answer."""
NOW = START + 60 * MINUTES
LOAD = [60 + minute % 50 for minute in range(MINUTES)]
"""Requests of each minute and pod."""


@given(now=st.floats(1e9, 4e9), days=st.floats(0.2, 100), step_s=st.integers(1, 7200), most=st.integers(1, 11_000))
def test_pages_hold_each_step_of_the_span_once(now: float, days: float, step_s: int, most: int) -> None:
    most = max(most, round(days * 86_400 / step_s / 50))
    span = Span.until(now, days, step_s)
    assert now - step_s < span.end_at <= now
    assert span.end_at - span.start_at == pytest.approx(days * 86_400, abs=step_s)
    pages = [range(first, last + 1, step_s) for first, last in span.ends(most)]
    assert all(1 <= len(page) <= most for page in pages)
    assert [at for page in pages for at in page] == list(range(span.start_at + step_s, span.end_at + 1, step_s))


def matrix(values: list[float], first: int = 0, **metric: str) -> dict[str, Any]:
    samples = [[START + 60 * (first + at), f"{value:g}"] for at, value in enumerate(values)]
    return {
        "status": "success",
        "data": {"resultType": "matrix", "result": [{"metric": metric, "values": samples}]},
    }


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=40), st.integers(1, 39))
def test_pages_read_as_one_answer_does(rises: list[int], cut: int) -> None:
    counts = np.cumsum(rises).astype(float).tolist()
    pages = [matrix(counts[:cut], a="1", __name__="x_total"), matrix(counts[cut:], cut, __name__="x_total", a="1")]
    whole, parts = (
        read_range("here", document, AS_IT_IS, 60)
        for document in (matrix(counts, __name__="x_total", a="1"), merged(pages))
    )
    assert np.array_equal(whole.times, parts.times)
    assert whole.values is not None
    assert np.array_equal(whole.values, parts.values)


@pytest.mark.parametrize(
    ("query", "kind", "notes"),
    [
        ("sum(rate(x_total[1m]))", RowKind.RATE, 0),
        ("sum(rate(x_total[30s]))", RowKind.RATE, 1),
        ("sum(irate(x_total[5m]))", RowKind.RATE, 0),
        ("sum by (pod) (increase(x_total{path='rate('}[1m]))", RowKind.COUNT, 0),
        ('x_total{path="$1[5m] rate("}', None, 0),
        ("job:requests:rate5m", None, 0),
    ],
)
def test_a_query_tells_what_its_values_are(query: str, kind: RowKind | None, notes: int) -> None:
    found, said = meaning(query, 60)
    assert (found, len(said)) == (kind, notes)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("sum(increase(x_total[5m]))", r"write increase\(...\[60s\]\), or use rate"),
        ("sum(rate(x_total[$__rate_interval]))", "a Grafana variable"),
    ],
)
def test_a_query_that_would_mislead_is_refused(query: str, told: str) -> None:
    with pytest.raises(Misconfigured, match=told):
        meaning(query, 60)


def test_a_sum_of_counters_that_falls_in_part_is_no_rate() -> None:
    total = [1000.0 * at for at in range(50)] + [30_000.0 + 1000 * at for at in range(50)]
    with pytest.raises(Misconfigured, match=r"ask for sum\(rate"):
        read_range("here", matrix(total), AS_IT_IS)
    as_said = read_range("here", matrix(total), TraceOptions(rows=RowKind.RATE))
    assert as_said.values is not None
    assert as_said.values.max() == max(total)


def test_buckets_of_a_histogram_are_not_added_up() -> None:
    buckets = [matrix([2.0, 2.0, 3.0], le=bound) for bound in ("0.1", "0.5", "+Inf")]
    with pytest.raises(Misconfigured, match=r"ask for its _count, or take --where le=\+Inf"):
        read_range("here", merged(buckets), AS_IT_IS)
    one = read_range("here", merged(buckets), TraceOptions(where=parse_where(["le=+Inf"])))
    assert one.values is not None
    assert one.values.tolist() == [2, 2, 3]


def written(folder: Path) -> None:
    """Data of two pods, scraped each half minute, of which one begins anew; one hour is missing of both."""
    lines = ["# TYPE http_requests counter"]
    for pod in ("a", "b"):
        total = 7
        for half in range(2 * MINUTES + 1):
            if not 1000 <= half // 2 < 1060:
                lines.append(f'http_requests_total{{pod="{pod}"}} {total} {START + 30 * half}')
            total = (0 if (pod, half) == ("b", 7000) else total) + LOAD[half // 2 % MINUTES] // 2
    (folder / "metrics").write_text("\n".join((*lines, "# EOF\n")))
    made = ("tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=744h", "metrics", "data")
    command = [shutil.which("promtool") or "", *made]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603 - Prometheus' own
    (folder / "prometheus.yml").write_text("{}")


@needs_prometheus
def test_prometheus_itself_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path)
    span = Span.until(NOW + 7, 9.5, 60)
    assert len(list(span.ends(MOST_SAMPLES))) == 2

    def asked(source: Prometheus, query: str) -> tuple[Trace, str]:
        target = tmp_path / "load.csv.gz"
        import_prometheus(source, query, span, target, AS_IT_IS)
        return read_trace(target), " ".join(capsys.readouterr().err.split())

    async def test() -> None:
        process, api = await prometheus(tmp_path)
        try:
            source = Prometheus.at(api, {})
            expected = np.array([2 * (load // 2) * 2 / 60 for load in LOAD])
            counted, said = await asyncio.to_thread(asked, source, "http_requests_total")
            assert counted.start_at == START
            assert counted.rates_rps[:990] == pytest.approx(expected[:990])
            assert counted.rates_rps[1100:3400] == pytest.approx(expected[1100:3400])
            assert float(counted.rates_rps.sum()) == pytest.approx(expected.sum(), rel=0.001)  # a reset loses one
            assert "2 of 2 series are counters: rates are their differences" in said
            assert "its data begins at 2024-05-01 10:00 UTC, 12 h later than asked for" in said
            rated, said = await asyncio.to_thread(asked, source, "sum(rate(http_requests_total[1m]))")
            assert rated.mean_rps == pytest.approx(expected.mean(), rel=0.02)
            assert "missing bins became 0 rps, the first before 2024-05-02 03:" in said
            with pytest.raises(Misconfigured, match="as a sum of counters does"):
                await asyncio.to_thread(asked, source, "sum(http_requests_total)")
            with pytest.raises(Misconfigured, match=r"rejects the query: .*parse error.*correct --query"):
                await asyncio.to_thread(asked, source, "sum(rate(x[1m])")
            with pytest.raises(Misconfigured, match=r"could not evaluate the query: .*many-to-many"):
                await asyncio.to_thread(asked, source, "http_requests_total * on(job) http_requests_total")
            with pytest.raises(Misconfigured, match="check names and labels"):
                await asyncio.to_thread(asked, source, "sum(rate(http_request_total[1m]))")
        finally:
            process.terminate()
            await process.wait()

    asyncio.run(test())


@dataclass
class Fake:
    """Answers as Prometheus's API with the next of its answers, the last one again and again."""

    url: str = ""
    answers: list[Callable[[dict[str, str]], bytes | tuple[int, bytes]]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    authorization: str | None = None


@contextmanager
def faked() -> Iterator[Fake]:
    made = Fake()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()} | {"path": parts.path}
            made.asked.append(asked)
            made.authorization = self.headers["authorization"]
            answer = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            found = answer(asked)
            if isinstance(found, bytes):
                self.wfile.write(found)
                return
            self.send_response(found[0])
            self.send_header("content-length", str(len(found[1])))
            self.send_header("location", "https://login.example.com/")
            self.end_headers()
            self.wfile.write(found[1])

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fives(asked: dict[str, str]) -> tuple[int, bytes]:
    """5 requests/s at each step that is asked for."""
    ends = range(int(asked["start"]), int(asked["end"]) + 1, int(asked["step"]))
    result = [{"metric": {}, "values": [[at, "5"] for at in ends]}]
    document = {
        "status": "success",
        "data": {"resultType": "matrix", "result": result},
        "warnings": ["a store is away"],
    }
    return 200, json.dumps(document).encode()


def failing(status: int, body: str) -> Callable[[dict[str, str]], tuple[int, bytes]]:
    return lambda _: (status, body.encode())


def broken(asked: dict[str, str]) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n" + fives(asked)[1][:100]


ASK = ("trace", "prometheus", "--query", "sum(rate(x_total[1m]))", "--out", "got.csv")
TOLD = {
    "page": ([failing(200, "<html>log in")], "answered 200, but not as Prometheus does"),
    "no such page": ([failing(404, "404 page not found")], "answered 404, but not as Prometheus does"),
    "log in": ([failing(302, "")], "redirects to https://login.example.com/"),
    "forbidden": (
        [failing(401, "Unauthorized")],
        "set PROMETHEUS_TOKEN, or PROMETHEUS_USER and PROMETHEUS_PASSWORD",
    ),
    "too much": (
        [failing(422, '{"status": "error", "error": "query processing would load too many samples"}')],
        "too many samples; correct --query, or take a shorter span",
    ),
    "busy": (
        [failing(503, '{"status": "error", "error": "query timed out"}')],
        "query timed out; try again later",
    ),
    "down": ([failing(500, "boom")], "failed (500): boom; try again later"),
    "breaks off": ([fives, broken], "did not answer in full"),
    "silent": ([lambda _: b""], "did not answer in full"),
    "no matrix": ([failing(200, '{"status": "success"}')], "ask /api/v1/query_range"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_prometheus_does_not_answer_is_one_line(mark, name: str) -> None:
    answers, told = TOLD[name]
    with faked() as there:
        there.answers = list(answers)
        answer = mark(*ASK, there.url)
    assert answer.status == 2
    assert told in answer.err
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert not Path("got.csv").exists()


def test_a_page_that_breaks_off_is_asked_for_again(mark) -> None:
    with faked() as there:
        there.answers = [fives, broken, fives]
        answer = mark(*ASK, f"{there.url}/prom/api/v1/query_range")
    assert answer.status == 0, answer.err
    assert "Prometheus warns: a store is away" in answer.err
    assert {one["path"] for one in there.asked} == {"/prom/api/v1/query_range"}
    assert there.asked[1] == there.asked[2]
    trace = read_trace("got.csv")
    assert len(trace.rates_rps) == 14 * 1440
    assert set(trace.rates_rps) == {5.0}


def test_credentials_come_from_the_environment(mark, monkeypatch: pytest.MonkeyPatch) -> None:
    with faked() as there:
        there.answers = [fives]
        ask = (*ASK, "--days", "0.1", there.url)
        assert mark(*ask).status == 0
        assert there.authorization is None
        monkeypatch.setenv("PROMETHEUS_TOKEN", "t0k\n")
        assert mark(*ask).status == 0
        assert there.authorization == "Bearer t0k"
        monkeypatch.setenv("PROMETHEUS_USER", "ann")
        assert "both set" in mark(*ask).err
        monkeypatch.setenv("PROMETHEUS_TOKEN", "se\ncret")
        monkeypatch.delenv("PROMETHEUS_USER")
        refused = mark(*ask)
        assert (refused.status, "not a token" in refused.err, "cret" in refused.err) == (2, True, False)
        monkeypatch.setenv("PROMETHEUS_USER", "ann")
        monkeypatch.delenv("PROMETHEUS_TOKEN")
        monkeypatch.setenv("PROMETHEUS_PASSWORD", "pass")
        assert mark(*ask).status == 0
        assert there.authorization == "Basic YW5uOnBhc3M="


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("prom:9090",), "prom:9090 is not an address; write it like http://prometheus:9090"),
        (("http://ann:pass@prom:9090",), "leave it out and set PROMETHEUS_TOKEN"),
        (("ann:pass@prom:9090",), "leave it out and set PROMETHEUS_TOKEN"),
        (("ftp://ann:pass@prom:9090",), "leave it out and set PROMETHEUS_TOKEN"),
        (("http://prom:9090", "--days", "0"), "--days must be"),
        (("http://prom:9090", "--step-s", "0"), "--step-s must be"),
    ],
)
def test_what_cannot_be_asked_is_one_line(mark, arguments: tuple[str, ...], told: str) -> None:
    answer = mark(*ASK, *arguments)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert told in answer.err
    assert "pass@" not in answer.err

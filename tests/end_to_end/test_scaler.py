"""`mark scaler` as its user meets it: a real Prometheus as demand, KEDA's calls, a kill and a restart."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from tests.end_to_end.rig import MARK
from tests.examples.shell import free_port
from tests.real_prometheus import needs_prometheus, prometheus
from tests.serving.grpc.keda import Keda, reference
from tests.waiting import until

RATE = "sum(rate(http_requests_total[1m]))"
LARGE, METRIC = reference(offering="c5.large"), "c5-large-on-demand"
RPS = 200
REFUSED = 'vector(1) * on() (vector(1) or label_replace(vector(1), "a", "b", "", ""))'
"""Prometheus answers 422."""


def written(folder: Path, now: float) -> None:
    """Two hours of a steady load up to now, scraped each half minute."""
    first = round(now) - 7200
    lines = [f"http_requests_total {RPS * at} {first + at}" for at in range(0, 7201, 30)]
    text = "\n".join(("# TYPE http_requests counter", *lines, "# EOF\n"))
    (folder / "metrics").write_text(text)
    made = ("tsdb", "create-blocks-from", "openmetrics", "metrics", "data")
    subprocess.run([shutil.which("promtool") or "", *made], cwd=folder, check=True, capture_output=True)  # noqa: S603
    (folder / "prometheus.yml").write_text("{}")


@contextmanager
def scaling(folder: Path, url: str, port: int, query: str = RATE) -> Iterator[subprocess.Popen[bytes]]:
    """`mark scaler`, which is killed at the end."""
    flags = ("--types", "c5.large,c5.xlarge", "--forecaster", "last-value", "--port", str(port))
    command = [MARK, "scaler", "--model", "inception-v3", "--prometheus", url, "--query", query, *flags]
    with (folder / "said").open("ab") as said:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ}, stdout=said, stderr=said)  # noqa: S603
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@needs_prometheus
def test_keda_scales_by_the_plan_through_a_kill_an_outage_and_a_refusal(tmp_path: Path) -> None:
    written(tmp_path, time.time())
    port, said = free_port(), tmp_path / "said"

    async def test() -> None:
        process, api = await prometheus(tmp_path)
        try:
            await asyncio.to_thread(first, api)
        finally:
            process.terminate()
            await process.wait()

    def first(api: str) -> None:
        with scaling(tmp_path, api, port) as running, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            keda = Keda(channel)
            assert keda.spec(LARGE) == [(METRIC, 1.0)]
            until(lambda: (tmp_path / "mark-scaler.json").exists() or running.poll() is not None)
            kept = json.loads((tmp_path / "mark-scaler.json").read_text())
            assert (kept["model"], len(kept["plan"]["pods"])) == ("inception-v3", 2)
            until(lambda: "ahead" in said.read_text())
            values.update(told(keda))
            assert sum(values.values()) > 2  # neither type alone carries 200 requests/s with two
            with pytest.raises(grpc.RpcError) as error:
                keda.metrics(LARGE, "s0-rps")
            assert error.value.code() is grpc.StatusCode.NOT_FOUND
            running.send_signal(signal.SIGKILL)
            running.wait()
        keeps_what_it_told(f"http://127.0.0.1:{free_port()}", RATE, "did not answer in full")
        keeps_what_it_told(api, REFUSED, "could not evaluate the query")
        (tmp_path / "mark-scaler.json").unlink()
        with scaling(tmp_path, api, port, REFUSED) as running:
            assert running.wait() == 2
        assert "could not evaluate the query" in said.read_text().splitlines()[-1]

    def keeps_what_it_told(api: str, query: str, why: str) -> None:
        with scaling(tmp_path, api, port, query) as running, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert told(Keda(channel)) == values
            until(lambda: why in reasons())
            assert "the last answer stays" in reasons()
            assert told(Keda(channel)) == values
            running.terminate()
            assert running.wait() == 0

    def reasons() -> str:
        return (tmp_path / "mark-scaler.json").read_text()

    values: dict[str, float] = {}
    asyncio.run(test())


def told(keda: Keda) -> dict[str, float]:
    """The answers of both types, once there are some."""
    found: dict[str, float] = {}
    for kind in ("c5.large", "c5.xlarge"):
        found |= keda.metrics(reference(offering=kind), f"{kind.replace('.', '-')}-on-demand")[0]
    return found

"""A service that observes, as its user meets it: it plans for load that others serve, and rents nothing."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.end_to_end.rig import MARK, Rig, eventually, fetch, rig
from tests.end_to_end.test_scaler import RATE, written
from tests.real_prometheus import prometheus

CONFIG = """
service:
  name: {name}
  port: 0
  status_port: 0
  mode: observe
  existing_usd_per_hour: 2.5
  serve:
    - model: inception-v3
      market: spot
      offerings: {{types: [c5.large, c5.xlarge]}}
      policy_name: mark
      forecaster: last-value
      expected_rps: 40
"""


def feed(live: Rig, lines: str) -> None:
    subprocess.run(  # noqa: S603 - our own command
        [MARK, "feed", "--name", live.name],
        cwd=live.home, env=live.environment, input=lines, text=True, check=True, capture_output=True, timeout=60,
    )  # fmt: skip


def feed_from_prometheus(live: Rig, fed: int) -> None:
    """Have it read 200 requests/s from a Prometheus, until some are counted beside what it was fed."""

    async def test() -> None:
        folder = live.home / "prometheus"
        folder.mkdir()
        written(folder, time.time())
        process, api = await prometheus(folder)
        command = [MARK, "feed", "--name", live.name, "--prometheus", api, "--query", RATE]
        feeding = subprocess.Popen(command, cwd=live.home, env=live.environment)  # noqa: S603 - our own command
        try:
            await asyncio.to_thread(eventually, lambda: live.store.arrived("inception-v3") > fed + 500)
        finally:
            for one in (feeding, process):
                one.terminate()
            feeding.wait()
            await process.wait()

    asyncio.run(test())


@pytest.mark.slow
def test_it_plans_for_what_it_is_fed_and_rents_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, "shadow") as live:
        live.up(CONFIG.format(name=live.name))
        first = live.ask("report", "--policy", "none")
        assert first["observed"]
        fed = 0

        def a_minute_of_load_has_closed() -> bool:
            nonlocal fed
            feed(live, "GET /\n" * 200)
            fed += 200
            return any(tick.seen.demand is not None for tick in live.ticks("inception-v3"))

        eventually(a_minute_of_load_has_closed, within_s=300.0)
        eventually(lambda: live.store.arrived("inception-v3") == fed)

        seen = live.ask("status")
        (model,) = seen["models"]
        beside = seen["counterfactual"]
        assert beside["existing_usd"] == pytest.approx(2.5 * (seen["now"] - beside["since"]) / 3600)
        assert beside["saved_usd"] == pytest.approx(beside["existing_usd"] - beside["usd"])
        assert beside["beyond_least"] is None or beside["beyond_least"] <= beside["beyond_most"] <= 1
        assert {row["id"].partition("-")[0] for row in model["fleet"]["observed"]} == {"shadow"}
        assert live.instances() == []  # nothing was ever rented
        report = live.ask("report", "--policy", "none")
        hours = (report["until"] - report["since"]) / 3600
        assert report["existing_usd"] == pytest.approx(2.5 * hours)
        assert report["cost_usd"]["instances"] > 0
        assert report["cost_usd"]["lambda"] == 0
        status, body, _ = _asked(live)
        assert status == 503, body  # a mirrored request is counted and turned away at once
        if shutil.which("promtool") is not None:
            feed_from_prometheus(live, fed)
        live.down()


def _asked(live: Rig) -> tuple[int, bytes, dict[str, str]]:
    (model,) = live.running["models"]
    return fetch(f"{live.running['gateway']}/v2/models/inception-v3/infer", model["example"])

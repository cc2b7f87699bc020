"""Overflow to Lambda during a rollout: the version that a request was routed to answers it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.end_to_end.rig import Rig, eventually, fetch, rig
from tests.end_to_end.test_versions import ASKED, MODEL, PROFILE, SPEED, start, status
from tests.end_to_end.test_versions import CODE as VERSIONS_CODE

pytestmark = pytest.mark.slow

CODE = ("import time\n" + VERSIONS_CODE).replace(
    "    def predict(self, tensors):\n", "    def predict(self, tensors):\n        time.sleep(0.5)\n"
)
CONFIG = """
models: {home}/model.json
profiles: [{home}/profile.json]
policy: {{max_instances: 1}}  # bursts go on, and with more instances nothing would overflow
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
    - model: shop
      backend: {{kind: python, target: shop/shop.py:Shop}}
      market: on-demand
      offerings: {{types: [c5.large], overflow: true, standby_share: 0}}
      expected_rps: 1
"""
TIMES = {"c5.large": {"1": 500}, "lambda": {"1": 600}}
UNHURRIED = ("--canary", "50,100", "--dwell", "100000", "--ready-within", "100000")
"""A step waits for commands alone, and on a busy machine for instances that boot."""
AT_ONCE = 16
"""More than one instance answers within the objective, one after the other."""


def write_model(home: Path) -> None:
    (home / "shop").mkdir(parents=True)
    profiles = [{**PROFILE, "instance_type": name, "latency_ms_by_batch": took} for name, took in TIMES.items()]
    (home / "profile.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": profiles}))
    model = {**MODEL, "latency_ms": 2000, "target_percent": 5}  # bursts miss it: no rollout is to end for that
    (home / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [model]}))
    edit(home, 1)


def edit(home: Path, answer: int) -> None:
    (home / "shop" / "shop.py").write_text(CODE.format(answer=answer))


class Bursts:
    """Bursts of requests, and who answered them: (version, served by, value)."""

    def __init__(self, url: str) -> None:
        self.url, self._numbers = url, count()

    def ask(self, path: str, number: int) -> tuple[str, str, float | None]:
        status_code, body, headers = fetch(
            f"{self.url}{path}/infer", ASKED, more={"x-mark-request-id": f"r-{number}"}
        )
        value = json.loads(body)["outputs"][0]["data"][0] if status_code == 200 else None
        return headers.get("x-mark-version", ""), headers.get("x-mark-served-by", ""), value

    def burst(self, version: str = "") -> Counter[tuple[str, str, float | None]]:
        """One burst. version: that its path names."""
        path = f"/versions/{version}" if version else ""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return Counter(pool.map(partial(self.ask, path), (next(self._numbers) for _ in range(AT_ONCE))))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The service, in whose clock instances boot in seconds; its first version answers 1."""
    home = tmp_path_factory.mktemp("overflow") / "home"
    write_model(home)
    with rig(home, "overflow") as made:
        made.up(CONFIG.format(home=made.home, name=made.name))
        made.run_at(SPEED)
        yield made
        made.down()


@pytest.fixture(scope="module")
def bursts(live: Rig) -> Bursts:
    return Bursts(f"{live.running['gateway']}/v2/models/shop")


def test_lambda_answers_with_the_version_that_a_request_was_routed_to(live: Rig, bursts: Bursts) -> None:
    store, found = live.store, Counter[tuple[str, str, float | None]]()
    stable = store.versions("shop").stable

    def overflows(version: str, value: float, path: str = "") -> bool:
        found.update(bursts.burst(path))
        return found[version, "lambda", value] > 0

    eventually(lambda: overflows(stable, 1.0))
    edit(live.home, 2)
    candidate = start(live, *UNHURRIED)["candidate"]
    eventually(lambda: store.versions("shop").weight == 0.5)
    eventually(lambda: overflows(candidate, 2.0, candidate))
    found.update(bursts.burst())
    answered = {(version, value) for version, _, value in found if value is not None}
    assert answered == {(stable, 1.0), (candidate, 2.0)}
    live.mark("rollout", "abort", "--model", "shop", "--name", live.name)
    assert store.versions("shop").is_aborted(candidate)
    found.clear()
    found.update(bursts.burst())
    assert bursts.burst(candidate).keys() == {("", "", None)}, "no such version any more"
    assert {value for _, _, value in found if value is not None} == {1.0}
    assert status(live)["weight"] == 0.0
    is_billed(live, stable, candidate)


def test_another_version_takes_the_place_of_one_that_was_aborted(live: Rig, bursts: Bursts) -> None:
    """It has the environments of that one; after its promotion the first version goes back."""
    store = live.store
    stable = store.versions("shop").stable
    edit(live.home, 4)
    start(live, *UNHURRIED)
    live.mark("rollout", "abort", "--model", "shop", "--name", live.name)
    edit(live.home, 3)
    candidate = start(live, *UNHURRIED)["candidate"]
    found = Counter[tuple[str, str, float | None]]()

    def overflows(version: str, value: float) -> bool:
        found.update(bursts.burst(version))
        return found[version, "lambda", value] > 0

    eventually(lambda: store.versions("shop").weight == 0.5)
    eventually(lambda: overflows(candidate, 3.0))
    live.mark("rollout", "promote", "--model", "shop", "--name", live.name)
    eventually(lambda: store.versions("shop").stable == candidate)
    edit(live.home, 1)
    back = start(live, *UNHURRIED)["candidate"]
    assert back == stable, "the same files are the same version"
    eventually(lambda: store.versions("shop").weight == 0.5)
    eventually(lambda: overflows(back, 1.0) and overflows(candidate, 3.0))
    answered = {(version, value) for version, _, value in found if value is not None}
    assert answered == {(candidate, 3.0), (stable, 1.0)}
    live.mark("rollout", "abort", "--model", "shop", "--name", live.name)
    found.clear()
    found.update(bursts.burst())
    assert {value for _, _, value in found if value is not None} == {3.0}


def is_billed(live: Rig, *versions: str) -> None:
    """The report has each version's requests, instances and Lambda, which are the model's together."""
    [model] = live.ask("report", "--policy", "none")["models"]
    told, usd = model["versions"], model["cost_usd"]
    assert [one["version"] for one in told] == list(versions)
    for name in ("requests", "instance_hours", "rent_usd", "lambda_usd"):
        assert all(one[name] > 0 for one in told), (name, told)
    assert sum(one["rent_usd"] for one in told) == pytest.approx(usd["instances"])
    assert sum(one["lambda_usd"] for one in told) == pytest.approx(usd["lambda"], rel=1e-3)
    text = live.mark("report", "--policy", "none", "--name", live.name).out
    assert "BY VERSION, USD" in text
    assert all(version[:12] in text for version in versions)

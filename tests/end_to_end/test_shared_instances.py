"""Models that share an instance, live: one decision for all, each model a matter of its own, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.member import MemberState
from mark.domain.models.versions import ModelVersions, Rollout, RolloutPhase
from mark.store.published_status import HOSTS
from tests.end_to_end.rig import Rig, assert_in_time, core_waits, eventually, fetch, rig
from tests.end_to_end.steady_load import load
from tests.waiting import PATIENCE_S
from tests.wheels import with_requirements

SPEED = 30.0
"""Boots take their minutes on the service's clock."""
RPS = 10.0
OBJECTIVE_S = 1.0
GATEWAYS_ASKED = 24
"""Requests in a row after which each of the two gateways has answered one, but for one time in ten million.

With 8, a second of looks (20) passes by luck one time in twelve while a gateway does not know the model."""
FACTORS = {"one": 1, "two": 2, "three": 3}
"""By model, what it multiplies its input with."""
ROLLED_OUT = "three"
OWN_PACKAGES = ("one", "two")
"""Models that get their factor from a library: the same, in two versions."""
HANG, LEAK, SPIN = -1.0, -2.0, -3.0
"""Inputs that a model does not survive."""
CODE = """
import os
import signal
import sys

import numpy as np
from mark.domain.tensor import TensorSpec
{more}


class Model:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 1)),)
    outputs = (
        TensorSpec(name="y", datatype="FP32", shape=(-1, 1)),
        TensorSpec(name="pid", datatype="INT64", shape=(-1, 1)),
    )

    def __init__(self):
        print("multiplies with", FACTOR, file=sys.stderr)

    def predict(self, tensors):
        x = np.asarray(tensors["x"])
        held = []
        while (x < 0).any():
            if (x == -1).any():
                signal.pause()
            if (x == -2).any():
                held.append(np.ones(2**18))
        return {{"y": x * FACTOR, "pid": np.full(x.shape, os.getpid(), dtype=np.int64)}}
"""
SERVICE = """
models: models.json
profiles: [profiles.json]
policies: [hedged]
market: on-demand
offerings: {{overflow: false, types: [c5.large]}}
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
"""
SERVED = """\
    - {{model: {name}, backend: {{kind: python, target: "{name}/model.py:Model"}}, expected_rps: 20}}
"""


def service_of(folder: Path, name: str) -> str:
    """Three models without Lambda, 2 ms a request on a c5.large: one alone would keep it busy for 4 %."""
    models = [
        {
            "name": model,
            "latency_ms": 1000.0 * OBJECTIVE_S,
            "target_percent": 98.0,
            "objective_source": "a test",
            "memory_gib": 0.25,
            "memory_source": "a test",
            "payload_mib": 0.001,
            "payload_source": "a test",
            "architectures": ["amd64"],
            "accelerators": [],
            "cpu": True,
            "redispatch": True,
        }
        for model in FACTORS
    ]
    profiles = [
        {
            "model": model,
            "instance_type": "c5.large",
            "evidence": "assumed",
            "source": "a test",
            "formula": "as given",
            "latency_ms_by_batch": {"1": 2.0, "4": 4.0},
        }
        for model in FACTORS
    ]
    (folder / "models.json").write_text(json.dumps({"format": "mark-models/1", "models": models}))
    (folder / "profiles.json").write_text(json.dumps({"format": "mark-profiles/1", "profiles": profiles}))
    for model, factor in FACTORS.items():
        (folder / model).mkdir()
        own = model in OWN_PACKAGES
        write_code(folder, model, "from shade import FACTOR" if own else f"FACTOR = {factor}")
        if own:
            with_requirements(folder / model, f"{factor}.0", f"FACTOR = {factor}")
    return SERVICE.format(name=name) + "".join(SERVED.format(name=model) for model in FACTORS)


def write_code(folder: Path, model: str, more: str) -> None:
    (folder / model / "model.py").write_text(CODE.format(more=more))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The service, which runs in the foreground until the end: Ctrl-C."""
    with rig(tmp_path_factory.mktemp("shared"), "shared") as made:
        config = made.config(service_of(made.home, made.name))
        started = made.start("up", "--config", str(config))
        try:
            assert started.stdout is not None
            assert "is up and serves one, two, three" in started.stdout.readline()  # no word before it is ready
            yield made
            made.judge()
            started.send_signal(signal.SIGINT)
            _, err = started.communicate(timeout=PATIENCE_S)
        finally:
            started.kill()
            started.communicate()
        assert "Traceback" not in err
        made.assert_gone()
        assert made.ask("explain")["orders"]["place"] >= len(FACTORS)
        assert "multiplies with 2" in made.mark("logs", "two", "--name", made.name).out


def ask(live: Rig, model: str, x: float = 5.0) -> tuple[int, dict[str, Any]]:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [x]}]}
    status, answer, _ = fetch(f"{live.running['gateway']}/v2/models/{model}/infer", body)
    document = json.loads(answer)
    return status, {one["name"]: one["data"][0] for one in document.get("outputs", ())}


def process_of(live: Rig, model: str) -> int:
    """The process that answers for a model."""
    status, answer = ask(live, model)
    assert status == 200, (model, status)
    return int(answer["pid"])


def serving(live: Rig) -> dict[str, set[str]]:
    """Models that take requests on each shared instance, as the controller saw it last."""
    told = HOSTS.read(live.store)
    return {} if told is None else {host.id: set(host.serving) for host in told.hosts}


def shared(live: Rig, *states: str) -> dict[str, Any]:
    """The shared instance; what a model fails or takes beyond its share may get it one of its own, too."""
    (row,) = (one for one in live.instances(*states) if one["tags"]["mark:model"] == SHARED)
    return row


def looked_at(live: Rig) -> float:
    told = HOSTS.read(live.store)
    return 0.0 if told is None else told.at


def assert_answers(live: Rig) -> None:
    for model, factor in FACTORS.items():
        status, answer = ask(live, model)
        assert (status, answer["y"]) == (200, 5.0 * factor)


def test_three_models_share_an_instance_each_in_its_own_process(live: Rig) -> None:
    row = shared(live, "running")
    assert_answers(live)
    processes = {process_of(live, model) for model in FACTORS}
    assert len(processes) == 3
    assert row["pid"] not in processes
    eventually(lambda: serving(live) == {row["id"]: set(FACTORS)})


def test_status_and_explain_say_who_sits_where_and_logs_are_a_models(live: Rig) -> None:
    row = shared(live, "running")
    status = live.ask("status")
    (host,) = status["shared"]["instances"]
    assert (host["id"], host["state"], host["usd_per_hour"]) == (row["id"], "ready", 0.085)
    assert {one["model"]: one["state"] for one in host["tenants"]} == dict.fromkeys(FACTORS, "ready")
    for model in status["models"]:
        (seat,) = model["shared"]
        assert (seat["instance"], {model["name"], *seat["beside"]}) == (row["id"], set(FACTORS))
        assert model["capacity"][0]["rps"] == pytest.approx(seat["share_rps"])
        assert model["fleet"]["observed"] == []
    explained = live.ask("explain")["placements"][-1]["shared"]
    assert [(one["instance"], len(one["tenants"])) for one in explained] == [(row["id"], 3)]
    logged = live.mark("logs", "two", "--name", live.name).out
    assert "two: multiplies with 2" in logged
    assert "multiplies with 3" not in logged


def test_a_model_that_ends_is_started_again_and_harms_no_other(live: Rig) -> None:
    before = {model: process_of(live, model) for model in FACTORS}
    os.kill(before["two"], signal.SIGKILL)
    assert ask(live, "one")[0] == ask(live, "three")[0] == 200
    eventually(lambda: all(ask(live, "two")[0] == 200 for _ in range(GATEWAYS_ASKED)))
    after = {model: process_of(live, model) for model in FACTORS}
    assert {model for model in FACTORS if after[model] != before[model]} == {"two"}


@pytest.mark.parametrize(("x", "answered"), [(LEAK, {500}), (SPIN, {504}), (HANG, {504})])
def test_a_model_that_leaks_spins_or_hangs_costs_its_neighbours_no_request(
    live: Rig, x: float, answered: set[int]
) -> None:
    before = {model: process_of(live, model) for model in FACTORS}
    found: list[tuple[str, int, float]] = []
    with ThreadPoolExecutor() as threads:
        harmed = threads.submit(ask, live, "two", x)
        while not harmed.done():
            for model in ("one", "three"):
                status, answer = ask(live, model)
                found.append((model, status, answer.get("y", 0.0)))
        assert harmed.result()[0] in answered
    assert set(found) == {(model, 200, 5.0 * FACTORS[model]) for model in ("one", "three")}
    eventually(lambda: all(ask(live, "two")[0] == 200 for _ in range(GATEWAYS_ASKED)))
    after = {model: process_of(live, model) for model in FACTORS}
    assert {model for model in FACTORS if after[model] != before[model]} == {"two"}
    with pytest.raises(ProcessLookupError):
        os.kill(before["two"], 0)


@pytest.mark.parametrize("victim", ["controller", "agent"])
def test_a_killed_process_leaves_no_model_unplaced_and_none_placed_twice(live: Rig, victim: str) -> None:
    row = shared(live, "pending", "running")
    live.ask("chaos", "kill", victim)
    killed_at = looked_at(live)
    eventually(lambda: all(ask(live, model)[0] == 200 for model in FACTORS))
    eventually(lambda: looked_at(live) > killed_at and serving(live) == {row["id"]: set(FACTORS)})
    assert shared(live, "pending", "running")["id"] == row["id"]


@pytest.mark.slow
def test_a_model_is_rolled_out_and_a_bad_version_aborted_while_its_neighbours_serve_on(live: Rig) -> None:
    """A version is tried on an instance of its own, and loaded beside the old one once it is promoted."""
    store, row = live.store, shared(live, "running")
    live.run_at(SPEED)

    def versions() -> ModelVersions:
        found = store.versions(ROLLED_OUT)
        assert found is not None
        return found

    def rolled_out(factor: str, dwell_s: int) -> Rollout:
        write_code(live.home, ROLLED_OUT, f"FACTOR = {factor}")
        live.ask("rollout", "start", "--model", ROLLED_OUT, "--canary", "50,100", "--dwell", str(dwell_s))
        eventually(lambda: (rollout := versions().rollout) is not None and rollout.is_over)
        over = versions().rollout
        assert over is not None
        return over

    def instances(version: str) -> set[str]:
        members = [one for one in store.members() if one.model == ROLLED_OUT and one.version == version]
        return {one.instance for one in members if one.state is MemberState.READY}

    with ExitStack() as loads, core_waits() as waited:
        url = f"{live.running['gateway']}/v2/models/{{}}/infer"
        sent = {name: loads.enter_context(load(url.format(name), RPS)) for name in FACTORS}
        first = versions().stable
        second = rolled_out("30", 60)
        assert second.phase is RolloutPhase.PROMOTED
        assert versions().stable == second.candidate
        eventually(lambda: row["id"] in instances(second.candidate) and not instances(first))
        eventually(lambda: set(sent[ROLLED_OUT].since(time.monotonic() - 1.0)) == {30.0})
        at = time.monotonic()
        bad = rolled_out("'bad'", 100_000)
        assert bad.phase is RolloutPhase.ABORTED
        eventually(lambda: not instances(bad.candidate))
        assert set(sent[ROLLED_OUT].since(at)) == {30.0}
    for name, one in sent.items():
        statuses = Counter(answer.status for answer in one.answers)
        assert set(statuses) == {200}, name
        values = list(dict.fromkeys(answer.value for answer in one.answers))
        assert values == ([3.0, 30.0] if name == ROLLED_OUT else [FACTORS[name]])
        in_time = sum(answer.took_s <= OBJECTIVE_S for answer in one.answers)
        found = {"sent": len(one.answers), "attained": in_time / len(one.answers), "waited_s": waited[0]}
        assert_in_time(found, 0.99, rate=RPS)


def test_its_rent_is_on_the_bill_once(live: Rig) -> None:
    report = live.ask("report", "--policy", "none")
    rent = [line for line in report["shared"] if "c5.large" in line["item"]]
    assert len(rent) == 1, report["shared"]
    assert rent[0]["usd"] > 0
    used = {model["name"]: model["shared_usd"] for model in report["models"]}
    assert min(used.values()) > 0.0, "each has answered"
    assert sum(used.values()) + report["shared_idle_usd"] == pytest.approx(rent[0]["usd"])
    status = live.ask("status")
    assert status["shared"]["cost_usd"]["instances"] >= rent[0]["usd"]
    assert {model["name"] for model in status["models"] if model["shared_usd"] >= used[model["name"]]} == set(used)

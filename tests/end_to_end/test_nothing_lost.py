"""Whatever breaks under load: each request gets one answer, in time, and the service heals.

Others reach the service, so a token guards it; and it refuses what cannot be done.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from mark.domain.errors import RetryLater
from mark.domain.fleet.instances import Role
from mark.store.connect import AsyncLink, connect_async
from mark.store.data_plane import AgentStore
from tests.end_to_end.rig import LIGHT, Rig, assert_in_time, core_waits, eventually, fetch, launched_by_token, rig
from tests.end_to_end.test_refusals import assert_refused

SLOW = pytest.mark.slow
"""Each drives a load for some ten seconds and more, beside a service that needs both cores."""

MODEL = "inception-v3"
RATE = 30
KILL_S, SPOT_S, FAULT_S, SPEED = 8, 14, 16, 20
"""Real seconds that a load lasts at least; spot notices and boots are quick where the clock is."""
LONGEST_S = 300
"""Longer than any test waits: it ends its load."""
SENT_BEFORE = 60
"""Requests before something breaks: two seconds of the load."""
HOST = "0.0.0.0"  # noqa: S104 - what is asked for: others reach it


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The service, which the last test ends."""
    with rig(tmp_path_factory.mktemp("broken"), "broken") as made:
        document = made.up(LIGHT.format(name=made.name).replace("port: 0", f"host: {HOST}\n  port: 0", 1))
        keys = {"aws_access_key_id", "aws_secret_access_key"}
        assert set(document) == {"gateway", "grpc", "status_page", "aws_endpoint", "token", "models", *keys}
        assert set(document["models"][0]) == {"name", "example"}
        yield made


@contextmanager
def loaded(live: Rig, *, wall_s: float, speed: int = 1) -> Iterator[dict[str, Any]]:
    """A load that begins well before the body and lasts as long as it, and at least for so many real seconds.

    Its document is there when the body is over.
    """
    seconds = str(LONGEST_S * speed)
    document: dict[str, Any] = {}
    load = live.start(
        "load", "--rate", str(RATE), "--duration", seconds, "--speed", str(speed), "--name", live.name, "--json"
    )
    try:
        with core_waits() as waits:
            sent = live.store.arrived(MODEL)
            eventually(lambda: live.store.arrived(MODEL) >= sent + SENT_BEFORE)
            yield document
            eventually(lambda: live.store.arrived(MODEL) >= sent + RATE * wall_s)
            load.send_signal(signal.SIGINT)
            out, err = load.communicate(timeout=wall_s + 70)
    finally:
        load.kill()
        load.communicate()
    assert load.returncode == 0, err
    document.update(json.loads(out), waited_s=waits[0])


def assert_nothing_lost(load: dict[str, Any], *, wall_s: float) -> None:
    assert load["sent"] > RATE * wall_s * 0.7
    assert load["in_flight"] == 0
    wrong = {name: count for name, count in load["errors"].items() if name != "retried"}
    assert wrong == {}
    assert sum(load["by"].values()) == load["sent"]
    assert load["answered"] + load["by"]["shed"] == load["sent"]
    assert_in_time(load, 0.98, rate=RATE)


def assert_one_fleet_for_a_token(live: Rig) -> None:
    """What was launched is what the journal ordered, once."""
    ordered = launched_by_token(live.ticks(MODEL))
    there = Counter(row["tags"]["mark:token"] for row in live.instances())
    for token, count in there.items():
        assert count <= ordered[token], f"{token}: {count} instances, {ordered[token]} ordered"


def observed(live: Rig) -> Counter[str]:
    """Serving instances that are there or on their way, by offering; those with a notice are lost already."""
    return Counter(
        row["tags"]["mark:offering"]
        for row in live.instances("pending", "running")
        if row["tags"]["mark:role"] == Role.SERVING.value and row["terminates_at"] is None
    )


def assert_heals(live: Rig) -> None:
    """All processes are back, and AWS holds what is planned; no agent is there that AWS does not know."""

    def is_whole() -> bool:
        told = live.store.status(f"model:{MODEL}")
        assert told is not None
        planned = Counter(told["planned"])
        members = {member.instance for member in live.store.membership(MODEL).members()}
        known = {row["id"] for row in live.instances("running")}
        return observed(live) >= planned and members <= known

    eventually(is_whole)
    assert_one_fleet_for_a_token(live)


def test_a_token_guards_what_others_reach(live: Rig) -> None:
    running = live.running
    token = running["token"]
    assert len(token) >= 32
    gateway = running["gateway"].replace(HOST, "127.0.0.1")
    page = running["status_page"].replace(HOST, "127.0.0.1")
    model = running["models"][0]
    for wrong in (None, "", token[:-1], f"{token}x"):
        status, body, _ = fetch(f"{gateway}/v2/models/{model['name']}/infer", model["example"], token=wrong)
        assert status == 401, body
        assert fetch(page, token=wrong)[0] == 401
    status, body, _ = fetch(f"{gateway}/v2/models/{model['name']}/infer", model["example"], token=token)
    assert status == 200
    assert json.loads(body)["outputs"]
    assert fetch(page, token=token)[0] == 200


def test_an_agents_user_gets_no_request_by_announcing_what_was_never_launched(live: Rig) -> None:
    model, token = live.running["models"][0], live.running["token"]
    url = f"{live.running['gateway'].replace(HOST, '127.0.0.1')}/v2/models/{MODEL}/infer"
    serving = live.store.membership(MODEL).members()

    async def announce(link: AsyncLink, port: int) -> None:
        for member in (replace(serving[0], instance="i-0666"), *serving):
            await AgentStore(link, live.name).announce(replace(member, host="127.0.0.1", port=port))

    async def attack() -> None:
        asked: list[object] = []
        link = connect_async(live.running["stores"]["agent"])
        async with await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0) as thief:
            for _ in range(60):
                await announce(link, thief.sockets[0].getsockname()[1])
                status, _, _ = await asyncio.to_thread(fetch, url, model["example"], token=token)
                assert status == 200
        await link.aclose()
        assert not asked

    asyncio.run(attack())


@pytest.mark.parametrize(
    "victim", ["agent", *(pytest.param(name, marks=SLOW) for name in ("gateway", "controller", "store"))]
)
def test_a_killed_process_loses_nothing_and_is_started_again(live: Rig, victim: str) -> None:
    with loaded(live, wall_s=KILL_S) as load:
        agents = {row["id"]: row["pid"] for row in live.instances("running")}
        roles = {number: name for name, number in live.running["processes"].items()}
        killed = live.ask("chaos", "kill", victim)
        assert killed["killed"] == victim
        pid = killed["pid"]
        if victim == "agent":
            instance = next(name for name, number in agents.items() if number == pid)
            eventually(lambda: pid_of(live, instance) not in {None, pid})
        else:
            eventually(lambda: live.running["processes"][roles[pid]] != pid)
    assert_nothing_lost(load, wall_s=KILL_S)
    assert_heals(live)


def pid_of(live: Rig, instance: str) -> int | None:
    return next((row.get("pid") for row in live.instances("running") if row["id"] == instance), None)


@SLOW
def test_when_the_acting_controller_is_killed_the_other_goes_on(live: Rig) -> None:
    assert set(live.running["processes"]) >= {"controller-0", "controller-1"}
    acting = live.store.leases.held_by()
    ticks = len(live.ticks(MODEL))
    assert live.ask("chaos", "kill", "controller")["killed"] == "controller"
    eventually(lambda: live.store.leases.held_by() not in {None, acting})
    eventually(lambda: len(live.ticks(MODEL)) > ticks)
    told = live.ask("explain")
    assert told["reproduces"] is True
    assert told["mismatches"] == []
    assert_heals(live)


@SLOW
def test_an_emulated_aws_that_ends_comes_back_with_what_the_service_needs(live: Rig) -> None:
    before = live.ask("status")["restarts"]["aws"]["count"]
    with loaded(live, wall_s=2 * FAULT_S, speed=SPEED):
        assert live.ask("chaos", "kill", "aws")["killed"] == "aws"
        eventually(lambda: live.ask("status")["restarts"]["aws"]["count"] > before)
        eventually(lambda: live.ask("status")["account"] is None)
        eventually(lambda: sum(observed(live).values()))
    eventually(lambda: observed(live) >= planned(live))
    assert_heals(live)
    told = live.ask("status")
    assert told["restarts"]["aws"]["status"] == -signal.SIGKILL
    assert told["down"] == []
    url = f"{live.running['gateway']}/v2/models/{MODEL}/infer"
    assert fetch(url, live.running["models"][0]["example"], token=live.running["token"])[0] == 200


@SLOW
def test_a_stopped_gateway_is_replaced(live: Rig) -> None:
    stopped = live.running["processes"]["gateway-0"]
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: live.running["processes"]["gateway-0"] != stopped)
    eventually(lambda: "silent" in live.ask("status")["restarts"]["gateway-0"]["why"])
    assert "gateway-0" in live.mark("status", "--name", live.name).out


@SLOW
@pytest.mark.parametrize("share", [0.2, 0.4, 0.8])
def test_interrupted_spot_instances_lose_nothing(live: Rig, share: float) -> None:
    with loaded(live, wall_s=SPOT_S, speed=SPEED) as load:
        taken = live.ask("interrupt", "--share", str(share))["instances"]
        assert taken
        eventually(lambda: not {row["id"] for row in live.instances("running")} & set(taken))
        eventually(lambda: observed(live) >= planned(live))
    assert_nothing_lost(load, wall_s=SPOT_S)
    assert_heals(live)


def faults(live: Rig) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        fetch(f"{live.running['aws_endpoint']}/_mark/faults", token=live.running["aws_secret_access_key"])[1]
    )
    return found


def planned(live: Rig) -> Counter[str]:
    told = live.store.status(f"model:{MODEL}")
    assert told is not None
    return Counter(told["planned"])


@SLOW
@pytest.mark.parametrize("fault", ["throttle", "refuse", "slow"])
def test_aws_that_misbehaves_while_instances_are_taken_loses_nothing(live: Rig, fault: str) -> None:
    with loaded(live, wall_s=FAULT_S, speed=SPEED) as load:
        assert live.ask("chaos", fault, "--seconds", "3600")["fault"]["seconds"] == 3600
        taken = live.ask("interrupt", "--share", "0.4")["instances"]
        assert taken
        eventually(lambda: faults(live)[0]["hits"])
        assert live.ask("chaos", "clear")["said"]
        assert faults(live) == []
        eventually(lambda: not {row["id"] for row in live.instances("running")} & set(taken))
    assert_nothing_lost(load, wall_s=FAULT_S)
    assert_heals(live)
    assert live.ask("explain")["reproduces"] is True


def test_refusals_of_a_service_that_runs(live: Rig) -> None:
    name = ("--name", live.name)
    assert_refused(live.mark, "up", "--detach", *name, says=f"process {live.running['pid']} holds {live.folder}")
    assert live.mark("interrupt", "--share", "0.01", *name).out.startswith("0.01 of ")
    assert_refused(live.mark, "chaos", "nonsense", *name, says="throttle")
    assert_refused(live.mark, "chaos", "kill", "nobody", *name, says="agent")
    assert_refused(live.mark, "chaos", "refuse", "--offering", "c5.lrge:spot", *name, says="c5.large:spot")
    assert_refused(live.mark, "interrupt", "--share", "1.5", *name, says="--share")
    assert_refused(
        live.mark, "load", "--rate", "5", "--duration", "1", "--model", "nope", *name, says="inception-v3"
    )
    assert_refused(live.mark, "load", "--duration", "1", *name, says="--trace FILE or --rate RPS")


def test_a_store_that_loses_its_data_is_told_anew_what_the_service_is(live: Rig) -> None:
    with loaded(live, wall_s=KILL_S) as load:
        assert live.store.leases.held_by()
        live.lose_store()

        def is_planned() -> bool:
            with suppress(RetryLater):  # until the store is there again
                return live.store.leases.held_by() is not None and live.store.status(f"model:{MODEL}") is not None
            return False

        eventually(is_planned)
    assert_nothing_lost(load, wall_s=KILL_S)
    assert live.ask("status")["down"] == []
    eventually(lambda: observed(live) >= planned(live))


def test_a_dead_supervisor_leaves_nothing(live: Rig) -> None:
    live.judge()
    agents = {row["pid"] for row in live.instances("running")}
    assert agents
    assert agents <= live.seen
    os.kill(live.running["pid"], signal.SIGKILL)
    eventually(lambda: not live.processes())
    assert_refused(live.mark, "status", "--name", live.name, says=f"no service named {live.name} is up")

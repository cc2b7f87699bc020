"""A service that is paused, and one whose budget is reached, as their user meets them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mark.domain.fleet.orders import Launch, Order, StartStandby
from tests.end_to_end.rig import LIGHT, Rig, eventually, rig

pytestmark = pytest.mark.slow
LIVE = ("pending", "running", "stopping", "stopped")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, "paused") as made:
        yield made


def load(live: Rig) -> dict[str, Any]:
    return live.ask("load", "--rate", "20", "--duration", "2")


def test_a_pause_ends_what_costs_and_going_on_brings_it_back(home: Rig) -> None:
    home.up(LIGHT.format(name=home.name))
    assert load(home)["by"]["instance"] > 0
    told = home.ask("pause")
    assert (told["heard"], told["instances_left"]) == (True, 0)
    assert not home.instances("pending", "running", "stopping", "stopped")
    refused = home.mark("load", "--rate", "20", "--duration", "2", "--name", home.name, "--json")
    assert refused.status == 1, "nobody was answered"
    counts = json.loads(refused.out)
    assert counts["by"]["shed"] == counts["sent"]
    assert "Nothing is rented" in home.mark("status", "--name", home.name).out

    assert home.ask("pause", "--off")["paused"] is False
    eventually(lambda: home.instances("pending", "running"))
    assert home.ask("explain", "--model", "inception-v3")["reproduces"] is True
    home.down()


def test_a_pause_from_outside_needs_no_store_and_nothing_comes_back_before_its_end(home: Rig) -> None:
    home.up(LIGHT.format(name=home.name))
    eventually(lambda: not home.ask("status")["models"][0]["fleet"]["requested"])  # a tick has seen them
    supervisor, store = home.running["pid"], home.running["processes"]["store"]
    os.kill(supervisor, signal.SIGSTOP)  # it would start the store again
    os.kill(store, signal.SIGKILL)
    told = home.ask("pause", "--aws", "--within", "0.5")
    assert (len(told["ended_here"]) > 0, told["instances_left"]) == (True, 0)
    assert not home.instances(*LIVE)
    asked = polls(home)
    eventually(lambda: polls(home) > asked + 2)  # more than the controllers: each heard of it
    os.kill(supervisor, signal.SIGCONT)

    eventually(lambda: home.mark("status", "--name", home.name).status == 0)
    before = len(home.ticks("inception-v3"))
    eventually(lambda: len(home.ticks("inception-v3")) > before)
    status = home.ask("status")
    assert (status["budget"]["limited_by"], status["budget"]["limit_cause"]) == ("pause", "outside")
    assert not home.instances(*LIVE)
    assert not [order for tick in home.ticks("inception-v3")[before:] for order in tick.orders if is_launch(order)]
    assert home.ask("pause", "--aws", "--off")["stood"] is True
    eventually(lambda: home.instances("pending", "running"))
    home.down()


def test_controllers_that_live_obey_a_pause_from_outside_themselves(home: Rig) -> None:
    home.up(LIGHT.format(name=home.name))
    told = home.ask("pause", "--aws")
    assert told["ended_by_controllers"] > 0
    assert (told["ended_here"], told["instances_left"]) == ([], 0)
    assert not home.instances(*LIVE)
    assert "Paused from outside by arn:aws:" in home.mark("status", "--name", home.name).out
    assert home.mark("pause", "--off", "--name", home.name).status == 1  # it is not that pause which stands
    assert home.ask("pause", "--aws", "--off")["stood"] is True
    eventually(lambda: home.instances("pending", "running"))
    home.down()


def polls(home: Rig) -> int:
    """The number of times that controllers asked whether somebody paused the service from outside."""
    used = home.controls.state()["permissions"]["used"]
    return int(used["controller"]["OutsidePause ssm:GetParameter"])


def is_launch(order: Order) -> bool:
    return isinstance(order, Launch | StartStandby)


def test_a_budget_that_is_reached_keeps_one_instance_and_calls_no_lambda(home: Rig) -> None:
    home.up(f"{LIGHT.format(name=home.name)}\nbudget: {{daily_usd: 0.000001, when_reached: floor}}\n")
    eventually(lambda: home.ask("status")["budget"]["limited_by"] == "floor")
    eventually(lambda: len(home.instances("pending", "running")) == 1)
    assert load(home)["by"]["lambda"] == 0
    assert "One instance a model stays" in home.mark("status", "--name", home.name).out
    home.down()

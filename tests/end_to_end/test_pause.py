"""A service that is paused, and one whose budget is reached, as their user meets them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.rig import LIGHT, Rig, eventually, rig

pytestmark = pytest.mark.slow


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
    refused = load(home)
    assert refused["by"]["shed"] == refused["sent"]
    assert "Nothing is rented" in home.mark("status", "--name", home.name).out

    assert home.ask("pause", "--off")["paused"] is False
    eventually(lambda: home.instances("pending", "running"), within_s=30)
    assert home.ask("explain", "--model", "inception-v3")["reproduces"] is True
    home.down()


def test_a_budget_that_is_reached_keeps_one_instance_and_calls_no_lambda(home: Rig) -> None:
    home.up(f"{LIGHT.format(name=home.name)}\nbudget: {{daily_usd: 0.000001, when_reached: floor}}\n")
    eventually(lambda: home.ask("status")["budget"]["limited_by"] == "floor", within_s=60)
    eventually(lambda: len(home.instances("pending", "running")) == 1, within_s=60)
    assert load(home)["by"]["lambda"] == 0
    assert "One instance a model stays" in home.mark("status", "--name", home.name).out
    home.down()

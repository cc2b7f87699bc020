"""A pool of unlike instances within an hourly budget: what is rented, and what it serves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mark.controller.journal import read_journal
from mark.domain.fleet.instances import InstanceState
from mark.domain.fleet.orders import Launch
from tests.end_to_end.rig import Rig, eventually, rig

MODEL = "rm2"
BUDGET_USD_PER_HOUR = 0.85
FAST, CHEAP = "g4dn.xlarge:on-demand", "r5n.large:on-demand"
"""Only the fast one answers the largest requests in time; four of the cheap ones cost about as much."""
CONFIG = """
service:
  name: {name}
  port: 0
  status_port: 0
  gateways: 1
  serve:
    - model: rm2
      offerings: {{types: [g4dn.xlarge, r5n.large]}}
policies: [kairos]
policy: {{budget_usd_per_hour: 0.85, size_window: 200}}
objective: {{latency_ms: 350}}
trace: {{sizes: kairos}}
rollout: {{machines: [{{architecture: amd64}}, {{architecture: amd64, accelerator: nvidia}}]}}
"""
LARGE_SIZES, SMALL_SIZES = "kairos", "lognormal:4,0.6,1,400"
SPEED, RATE = 20, 15
"""A plan is made and an instance boots within seconds where the clock is quick; requests take their real time."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("budget"), "budget") as made:
        made.up(CONFIG.format(name=made.name))
        yield made
        made.down()


def serving(live: Rig) -> Counter[str]:
    """Members that take requests, by offering."""
    return Counter(member.offering for member in live.store.membership(MODEL).members())


@contextmanager
def loaded(live: Rig, sizes: str, *, wall_s: float) -> Iterator[dict[str, Any]]:
    """A load beside the body; its document is there when both are over."""
    duration = ("--duration", str(wall_s * SPEED), "--speed", str(SPEED))
    document: dict[str, Any] = {}
    load = live.start("load", "--rate", str(RATE), *duration, "--sizes", sizes, "--name", live.name, "--json")
    try:
        yield document
        out, err = load.communicate(timeout=wall_s + 60)
    finally:
        load.kill()
        load.communicate()
    assert load.returncode == 0, err
    document.update(json.loads(out))


def assert_each_is_answered_once(found: dict[str, Any]) -> None:
    assert found["answered"] == found["sent"] == sum(found["by"].values())
    assert found["in_flight"] == 0
    assert found["errors"].keys() == {"retried"}


def assert_never_above_the_budget(live: Rig) -> None:
    """At no entry of the journal does what is there, and what was ordered and has not appeared, cost more."""
    header, _ = read_journal(live.store.journal_lines(MODEL))
    usd_per_hour = {item.name: item.usd_per_hour for item in header.policy.known_offerings}
    coming: dict[str, tuple[str, int]] = {}
    seen: set[str] = set()
    for tick in live.ticks(MODEL):
        for instance in tick.seen.fleet:
            if instance.id not in seen:
                name, count = coming[instance.token]
                coming[instance.token] = (name, count - 1)
                seen.add(instance.id)
        launches = (order for order in tick.orders if isinstance(order, Launch))
        coming |= {order.token: (order.offering, order.count) for order in launches}
        assert all(count >= 0 for _, count in coming.values())
        there = sum(usd_per_hour[i.offering] for i in tick.seen.fleet if i.state is not InstanceState.STOPPED)
        on_their_way = sum(count * usd_per_hour[name] for name, count in coming.values())
        assert there + on_their_way <= BUDGET_USD_PER_HOUR + 1e-9, tick


def shares(live: Rig) -> list[dict[str, int]]:
    """Agents of each gateway, by offering."""
    (model,) = live.ask("status")["models"]
    return [one["agents"] for one in model["gateways"]]


@pytest.mark.slow
def test_two_unlike_types_within_the_budget_serve_all_sizes_in_time(live: Rig) -> None:
    eventually(lambda: serving(live) == {FAST: 1, CHEAP: 2})
    with loaded(live, LARGE_SIZES, wall_s=8) as found:
        pass
    assert_each_is_answered_once(found)
    assert found["sent"] > 0.7 * RATE * 8
    assert found["attained"] >= 0.95
    assert_never_above_the_budget(live)


@pytest.mark.slow
def test_sizes_that_drift_change_the_pool_within_the_budget_and_no_request_is_lost(live: Rig) -> None:
    eventually(lambda: serving(live) == {FAST: 1, CHEAP: 2})
    with loaded(live, SMALL_SIZES, wall_s=30) as found:
        eventually(lambda: serving(live) == {CHEAP: 5})
    assert_each_is_answered_once(found)
    assert found["sent"] > 0.7 * RATE * 30
    assert_never_above_the_budget(live)
    last = next(tick.seen.plan for tick in reversed(live.ticks(MODEL)) if tick.seen.plan)
    assert "measured:" in last.reason
    (model,) = live.ask("status")["models"]
    assert model["pool"]["sizes"] == "measured"
    assert model["pool"]["measured"] >= 100
    assert 0 < model["pool"]["usd_per_hour"] <= model["pool"]["budget_usd_per_hour"] == BUDGET_USD_PER_HOUR
    eventually(lambda: shares(live) == [serving(live)])  # an agent that was just replaced is not ready yet
    told = live.ask("explain", "--model", MODEL)
    assert told["reproduces"] is True

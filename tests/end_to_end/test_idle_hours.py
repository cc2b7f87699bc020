"""Hours in which nearly nobody asks: no process ends, ticks go on, all are answered, and the bill is the plan's.

The clock runs SPEED times as fast as the wall: an instance that takes two real seconds to start takes twenty
minutes of the service's, and a request stands for SPEED of them on the bill and in the load. Much faster, and
instances would be ended as overdue before they are there.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from mark.domain.clock import ClockAnchor
from mark.domain.fleet.orders import Launch
from mark.live.local.clock_control import set_clock
from tests.end_to_end.rig import Rig, eventually, fetch, rig

SPEED = 300.0
HOUR_S = 3600.0
EACH_S = HOUR_S / 2
"""Two requests an hour, to one model and the other in turn."""
BOOT_AND_DRAIN_H = 2 * 2.0 * SPEED / HOUR_S
"""What a launch is billed for before and after its plan wants it: two real seconds each."""
CONFIG = """
service:
  name: {name}
  port: 0
  status_port: 0
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("idle"), "idle") as made:
        made.up(CONFIG.format(name=made.name))
        yield made
        made.down()


@pytest.mark.slow
def test_a_day_of_two_requests_an_hour(live: Rig) -> None:
    soak(live, hours=24)


def soak(live: Rig, *, hours: int) -> None:
    """Let hours pass, and look at what has become of the service."""
    pass_time(live, hours=1)  # what the first plans rented for an assumed load is gone
    before, processes, holder = live.ask("status"), live.running["processes"], live.store.leases.held_by()
    answers = pass_time(live, hours=hours)
    after = live.ask("status")

    assert sum(answers.values()) == hours * HOUR_S / EACH_S
    assert set(answers) == {200}
    assert live.running["processes"] == processes
    assert live.store.leases.held_by() == holder
    assert errors(live) == []
    for model in after["models"]:
        name, since, until = model["name"], before["now"], after["now"]
        ticks = [tick for tick in live.ticks(name) if tick.seen.now >= since - HOUR_S]
        units = [tick.seen.demand.start_at for tick in ticks if tick.seen.demand]
        assert all(later - earlier == 60.0 for earlier, later in pairwise(units))  # each minute, once
        assert units[-1] >= until - 180.0
        spent = usd(model) - usd(next(one for one in before["models"] if one["name"] == name))
        planned = sum(
            tick_plan(ticks, earlier) * (min(later, until) - max(earlier, since)) / HOUR_S
            for earlier, later in pairwise([tick.seen.now for tick in ticks])
            if later > since
        )
        booting = sum(
            order.count * live.store.spec().served(name).offering(order.offering).usd_per_hour * BOOT_AND_DRAIN_H
            for tick in ticks
            for order in tick.orders
            if isinstance(order, Launch)
        )
        assert 0.9 * planned - 0.03 <= spent <= 1.1 * planned + booting + 0.03, name


def tick_plan(ticks: list[Any], at: float) -> float:
    """USD an hour of the last plan that was made by then."""
    plans = [tick.seen.plan.usd_per_hour for tick in ticks if tick.seen.plan is not None and tick.seen.now <= at]
    return float(plans[-1]) if plans else 0.0


def usd(model: dict[str, Any]) -> float:
    return float(model["cost_usd"]["instances"] + model["cost_usd"]["standby"])


def pass_time(live: Rig, *, hours: int) -> Counter[int]:
    """Let the clock run for so many hours; statuses of the answers. It stands still after."""
    store, controls = live.store, live.controls
    models, answers = live.running["models"], Counter[int]()
    wall = time.time()
    start = store.clock().service_time(wall)
    set_clock(store, controls, ClockAnchor(wall_at=wall, service_at=start, speed=SPEED))
    for number in range(round(hours * HOUR_S / EACH_S)):
        eventually(partial(has_come, live, start + (number + 0.5) * EACH_S))
        model = models[number % len(models)]
        status, _, _ = fetch(f"{live.running['gateway']}/v2/models/{model['name']}/infer", model["example"])
        answers[status] += 1
    eventually(partial(has_come, live, start + hours * HOUR_S))
    set_clock(store, controls, ClockAnchor(wall_at=time.time(), service_at=now(live), speed=0.0))
    eventually(lambda: all(caught_up(live, model["name"]) for model in models))
    return answers


def now(live: Rig) -> float:
    return live.store.clock().service_time(time.time())


def has_come(live: Rig, at: float) -> bool:
    return now(live) >= at


def caught_up(live: Rig, model: str) -> bool:
    """Whether the controller has seen every minute that is over."""
    last = max((tick.seen.demand.start_at for tick in live.ticks(model) if tick.seen.demand), default=0.0)
    return now(live) < last + 120.0


def errors(live: Rig) -> list[str]:
    """What processes logged as errors, or did not log as a line of JSON: a traceback."""
    found = []
    for path in sorted((live.folder / "logs").glob("*.log")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                is_error = json.loads(line)["level"] == "error"
            except (ValueError, KeyError, TypeError):
                is_error = not line.startswith("{")
            if is_error:
                found.append(f"{path.name}: {line}")
    return found

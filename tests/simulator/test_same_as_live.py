"""A replay and the live service count alike: the same requests give the same SLO windows, units and rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mark.controller.demand_units import MonitorState, advance_monitor
from mark.controller.policy import MonitorPolicy
from mark.dispatch.objective import attainment
from mark.domain.clock import ClockAnchor
from mark.domain.load.traffic import ModelTraffic
from mark.domain.models.objective import SloWindow
from mark.live.control.data_plane import LiveDataPlane
from mark.simulator.engine import arrays, kernel
from mark.simulator.engine.compiled import plain_kernel
from mark.simulator.engine.kernel_tally import RunTally, answer, shed, window_closed
from mark.simulator.replay import _Plane
from tests.simulator.engines import engine

SLOW_S, QUICK_S = 1.0, 0.1
START = 3600.0


def engine_rules(monitor: MonitorPolicy, seconds: int) -> Any:
    made = arrays.records(kernel.RULES, 1)[0]
    made.monitor_requests, made.monitor_s, made.objective_s = monitor.requests, monitor.seconds, 0.5
    made.target, made.speed, made.last_second = 0.9, 1.0, seconds
    return made


def live_traffic(outcomes: list[str]) -> ModelTraffic:
    late, shed_ = outcomes.count("late"), outcomes.count("shed")
    return ModelTraffic(model="m", instance=len(outcomes) - shed_, late=late, shed=shed_)


def in_engine(outcome: str, at: float, rules: Any, tally: RunTally) -> None:
    if outcome == "shed":
        shed(at, rules, tally)
    else:
        answer(at, at + (SLOW_S if outcome == "late" else QUICK_S), rules, tally)


@given(
    looks=st.lists(
        st.tuples(st.floats(0.1, 40.0), st.lists(st.sampled_from(["kept", "late", "shed"]), max_size=8)),
        min_size=1,
        max_size=30,
    ),
    requests=st.integers(1, 20),
    seconds=st.floats(1.0, 90.0),
)
def test_the_monitors_windows(looks: list[tuple[float, list[str]]], requests: int, seconds: float) -> None:
    """Both are looked at at the same instants."""
    monitor = MonitorPolicy(offering="T", requests=requests, seconds=seconds)
    rules, tally = engine_rules(monitor, 3000), arrays.tally(0.0, 3000)
    state, now, outcomes = MonitorState(opened_at=0.0, finished=0, missed=0), 0.0, list[str]()
    for after_s, more in looks:
        now += after_s
        outcomes += more
        for outcome in more:
            in_engine(outcome, now, rules, tally)
        window_closed(now, rules, tally.totals)
        state, window = advance_monitor(state, live_traffic(outcomes), now, monitor)
        if window is not None:
            totals = tally.totals
            assert window == SloWindow(
                closed_at=float(totals.closed_at), requests=totals.last_requests, missed=totals.last_missed
            )
        assert state.opened_at == tally.totals.opened_at
    counted = live_traffic(outcomes)
    assert int(tally.seconds.missed.sum()) == counted.missed
    assert attainment(counted.missed, counted.finished) == pytest.approx(
        outcomes.count("kept") / len(outcomes) if outcomes else None
    )


@example(arrivals=[5.0], looks=[1.0] * 5, speed=1.0)
@given(
    arrivals=st.lists(st.floats(0.0, 299.0), max_size=60),
    looks=st.lists(st.floats(0.5, 50.0), min_size=1, max_size=12),
    speed=st.sampled_from([1.0, 8.0]),
)
def test_units_and_recent_rates(arrivals: list[float], looks: list[float], speed: float) -> None:
    instants = np.sort(np.array(arrivals, dtype=np.float64)) + START
    made = engine(plain_kernel(), instants, start_at=START, duration_s=700.0)
    replayed = _Plane(made, START, speed, sizes=None)

    def counted(_: str) -> ModelTraffic:
        """What gateways would have counted of the same requests."""
        outcomes = made.outcomes()
        return ModelTraffic(model="m", instance=outcomes.finished, late=outcomes.missed)

    store: Any = SimpleNamespace(
        traffic=counted,
        clocks=lambda: (ClockAnchor(wall_at=0.0, service_at=0.0, speed=speed),),
        arrivals=lambda _, first, last: np.diff(
            np.searchsorted(instants, np.arange(first, last + 2) * 5.0)
        ).tolist(),
        shared=lambda _, first, last: [0] * (last + 1 - first),
    )
    clock: Any = SimpleNamespace(now=lambda: made.now)
    live = LiveDataPlane(store, "m", clock=clock, next_unit_at=START, monitor=None, target=0.9)
    for after_s in looks:
        made.run_until(made.now + after_s)
        assert replayed.recent_rps() == pytest.approx(live.recent_rps())
        assert replayed.next_unit() == live.next_unit()

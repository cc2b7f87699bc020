"""The engine with a central queue: the figures of a fixed pool, and nothing lost where instances come and go."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.dispatch.central.policy import CentralPolicy, CentralRule, TooLate
from mark.dispatch.central.queue import CentralCode
from mark.dispatch.policy import DispatchPolicy
from mark.domain.load.sizes import size_distribution
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.simulator.engine.central_plane import CentralEngine, CentralServing
from mark.simulator.engine.compiled import (
    CentralKernel,
    Kernel,
    compiled_central_code,
    compiled_central_kernel,
)
from mark.simulator.engine.data_plane import EngineSetup
from mark.simulator.fixed.fixed_pool import FixedPool, PoolLoad
from tests.planner.builders import offering
from tests.simulator.engines import poisson

CACHE = Path(tempfile.gettempdir()) / "mark-test-engine"
TIMES_S = {"fast": (0.06, 0.10, 0.14, 0.18), "slow": (0.15, 0.30, 0.45, 0.60)}
SIZES = size_distribution("mix", {1: 5, 2: 3, 3: 1, 4: 1})
SLO = Slo(latency_s=0.4, target=0.98)
OFFERINGS = {name: offering(name, points=dict(enumerate(times, start=1))) for name, times in TIMES_S.items()}
FAST, SLOW = OFFERINGS.values()
POOL = {"fast": 2, "slow": 3}
POLICIES = (
    CentralPolicy(rule=CentralRule.KAIROS),
    CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.OVERFLOW),
    CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.COMMIT),
    CentralPolicy(rule=CentralRule.FCFS),
    CentralPolicy(rule=CentralRule.CLOCKWORK),
    CentralPolicy(rule=CentralRule.DRS, threshold=2),
)


@pytest.fixture(scope="module")
def code() -> CentralCode:
    return compiled_central_code(CACHE)


@pytest.fixture(scope="module")
def fixed() -> CentralKernel:
    return compiled_central_kernel(CACHE)


def engine(
    kernel: Kernel,
    code: CentralCode,
    policy: CentralPolicy,
    arrivals: list[float],
    sizes: list[int],
    *,
    duration_s: float,
    give_up_s: float = 1e9,
    zones: tuple[str, ...] = ("",),
) -> CentralEngine:
    instants, items = np.array(arrivals), np.array(sizes, dtype=np.int64)
    return CentralEngine(
        CentralServing(policy, code),
        tuple(OFFERINGS.values()),
        EngineSetup(
            kernel=kernel,
            arrivals=lambda from_s, to_s: instants[(instants >= from_s) & (instants < to_s)],
            slo=SLO,
            dispatch=replace(DispatchPolicy(), give_up_s=give_up_s),
            overflow=None,
            start_at=0.0,
            duration_s=duration_s,
            rng=np.random.default_rng(1),
            monitor=None,
            noise=np.random.default_rng(2),
            sizes=lambda from_s, to_s: items[(instants >= from_s) & (instants < to_s)],
            largest=4,
            zones=zones,
        ),
    )


@pytest.mark.parametrize("policy", POLICIES, ids=lambda one: f"{one.rule}-{one.too_late}")
def test_a_pool_that_stays_attains_what_a_fixed_pool_does(
    kernel: Kernel, code: CentralCode, fixed: CentralKernel, policy: CentralPolicy
) -> None:
    qps = 30.0 if policy.rule is CentralRule.KAIROS else 12.0
    times_ms = {name: tuple(1000 * value for value in times) for name, times in TIMES_S.items()}
    table = LatencyTable(model="m", sizes=(1, 2, 3, 4), mean_ms=times_ms)
    pool = FixedPool(table, SLO, PoolLoad(sizes=SIZES, queries=3000), kernel=fixed)
    due_s, sizes = pool.queries(qps)
    expected = pool.run(POOL, policy, qps)
    end_s = float(np.ceil(due_s[-1])) + 1000.0
    made = engine(kernel, code, policy, due_s.tolist(), sizes, duration_s=end_s)
    for name, count in POOL.items():
        for _ in range(count):
            made.add(OFFERINGS[name], standby=False)
    for at in np.arange(0.7, end_s, 61.3):  # a control loop looks in between
        made.run_until(float(at))
    made.run_until(end_s)
    served = made.served()
    assert served.in_flight == 0
    assert served.instance + served.shed == 3000
    assert made.attained() == pytest.approx(expected.attained, abs=0.003)


def test_what_an_instance_answers_in_another_zone_than_it_came_in_has_crossed(
    kernel: Kernel, code: CentralCode
) -> None:
    arrivals = [0.37 * number for number in range(400)]
    made = engine(kernel, code, POLICIES[0], arrivals, [1] * 400, duration_s=200.0, zones=("a", "b"))
    made.add(FAST, standby=False, zone="a")
    made.run_until(200.0)
    assert made.served().instance == 400
    assert made.crossed() == pytest.approx(200, abs=20)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fast", "slow", "stop", "notice", "lose", "remove"]),
        st.integers(0, 9),
        st.floats(0.0, 3.0),
    ),
    max_size=25,
)


@settings(max_examples=12, deadline=None)
@given(steps=STEPS, policy=st.sampled_from(POLICIES), seed=st.integers(0, 5))
def test_nothing_is_lost_or_answered_twice_where_instances_come_and_go(
    kernel: Kernel, code: CentralCode, steps: list[tuple[str, int, float]], policy: CentralPolicy, seed: int
) -> None:
    arrivals = poisson(20.0, 30.0, seed).tolist()
    sizes = np.random.default_rng(seed).integers(1, 5, len(arrivals)).tolist()
    made = engine(kernel, code, policy, arrivals, sizes, duration_s=400.0, give_up_s=5.0)
    slots = [made.add(FAST, standby=False)]
    now = 0.0
    for what, which, pause_s in steps:
        slot = slots[which % len(slots)] if slots else None
        kinds: dict[str, Offering] = {"fast": FAST, "slow": SLOW}
        if what in kinds:
            slots.append(made.add(kinds[what], standby=False))
        elif slot is not None and what == "stop":
            made.stop_accepting(slot)
        elif slot is not None and what == "notice":
            made.will_go(slot, now + 1.0)
        elif slot is not None and (what == "lose" or made.is_idle(slot)):
            made.remove(slot, redispatch=seed % 2 == 0)
            slots.remove(slot)
        elif slot is not None:
            assert made.drained_at(slot) > now
        now += pause_s
        made.run_until(now)
        assert made.served().total == sum(at < now for at in arrivals)
    made.run_until(400.0)
    made.run_until(400.0)
    served = made.served()
    assert served.total == len(arrivals)
    assert served.in_flight == 0
    assert int(made.seconds().answered.sum()) == served.instance
    assert int(made.seconds().arrivals.sum()) == len(arrivals)


def test_an_instance_that_goes_soon_gets_nothing_it_might_not_finish(kernel: Kernel, code: CentralCode) -> None:
    made = engine(kernel, code, POLICIES[0], [1.0, 4.45, 4.5], [4, 1, 1], duration_s=20.0)
    first = made.add(SLOW, standby=False)
    made.run_until(0.5)
    made.will_go(first, 5.0)
    made.run_until(5.0)
    assert made.served().instance == 1
    assert made.is_idle(first)
    made.remove(first, redispatch=True)
    made.add(FAST, standby=False)
    made.run_until(20.0)
    assert made.served().instance == 3


def test_what_has_waited_for_the_time_out_is_shed(kernel: Kernel, code: CentralCode) -> None:
    made = engine(kernel, code, POLICIES[3], [1.0, 2.0], [1, 1], duration_s=20.0, give_up_s=5.0)
    made.run_until(6.5)
    assert (made.served().shed, made.served().in_flight) == (1, 1)
    made.add(FAST, standby=False)
    made.run_until(20.0)
    assert made.served().instance == 1
    assert made.attained() == 0.0

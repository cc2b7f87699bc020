"""Models that share devices: compiled and plain agree, and each request keeps to `dispatch/instance/device.py`."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mark.controller.policy import MonitorPolicy
from mark.dispatch.instance.device_share import SHARE_S
from mark.dispatch.policy import Bounced, DispatchPolicy, Late
from mark.domain.models.objective import Slo
from mark.simulator.engine.compiled import DeviceKernel, Kernel, plain_device_kernel, plain_kernel
from mark.simulator.engine.host_plane import HostPlane
from mark.simulator.engine.shared_plane import SharedPlane
from tests.planner.builders import offering
from tests.simulator.engines import batching, engine_setup, lambda_offering, poisson

Floats = NDArray[np.float64]
FOREVER = DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=None, give_up_s=1e9)


def plane(
    kernel: DeviceKernel,
    loads: Sequence[Floats],
    objectives_s: Sequence[float],
    dispatch: DispatchPolicy,
    *,
    duration_s: float,
    with_lambda: bool = False,
    burst: int = 6,
) -> SharedPlane:
    """A model a load, none of them placed anywhere."""
    return SharedPlane(
        kernel,
        [
            engine_setup(
                plain_kernel(),
                load,
                dispatch=dispatch,
                overflow=lambda_offering(cv=0.2, burst=burst) if with_lambda else None,
                slo=Slo(latency_s=objective_s, target=0.98),
                monitor=MonitorPolicy(offering="T", requests=100, seconds=5.0),
                duration_s=duration_s,
                seed=number,
            )
            for number, (load, objective_s) in enumerate(zip(loads, objectives_s, strict=True))
        ],
    )


def busy_day(kernel: DeviceKernel, dispatch: DispatchPolicy) -> SharedPlane:
    """Three models on two shared devices and one of its own; one device is lost, a tenant is evicted."""
    loads = [poisson(rps, 30.0, seed) for seed, rps in enumerate((20.0, 6.0, 12.0))]
    made = plane(kernel, loads, (0.6, 1.0, 0.3), dispatch, duration_s=40.0, with_lambda=True)
    first, second, third = made.engines
    one, two = made.new_device(), made.new_device()
    slots = [
        (engine, engine.place(item, device, share_rps=1e6))
        for device in (one, two)
        for engine, item in ((first, batching(4, 0.05, 0.12)), (second, offering(rps=8.0)))
    ]
    evicted = third.place(batching(2, 0.03, 0.05), one, share_rps=1e6)
    third.add(offering(rps=20.0), standby=False)
    for stop in (10.0, 20.0, 40.0):
        while (missed := made.run_until(stop)) is not None:
            made.engines[missed].quiet_until(made.now + 3.0)
        if stop == 10.0:
            third.stop_accepting(evicted)
        if stop == 20.0:
            assert third.is_idle(evicted)
            third.remove(evicted, redispatch=True)
            lost = [slot for slot in slots if slot[1] in made.neighbours(slots[2][1])]
            for engine, slot in lost:
                engine.stop_accepting(slot)
            for engine, slot in lost:
                engine.remove(slot, redispatch=True)
    return made


@pytest.mark.parametrize(("late", "factor"), [(Late.SERVE, None), (Late.SHED, 0.98)])
def test_compiled_and_plain_give_the_same_run(
    device_kernel: DeviceKernel, late: Late, factor: float | None
) -> None:
    dispatch = DispatchPolicy(late=late, admission_factor=factor, admission_confidence=0.9)
    fast, slow = busy_day(device_kernel, dispatch), busy_day(plain_device_kernel(), dispatch)
    for one, other in zip(fast.engines, slow.engines, strict=True):
        assert one.served() == other.served()
        assert one.served().instance > 100
        assert np.array_equal(one.tally.seconds, other.tally.seconds)
        assert np.array_equal(one.tally.histogram, other.tally.histogram)
        assert one.lambda_usage() == other.lambda_usage()
    assert np.array_equal(fast.fleet.servers, slow.fleet.servers)


def earliest_first(loads: Sequence[Floats], due_s: Sequence[float], service_s: Sequence[float]) -> list[Floats]:
    """Latencies of each model on one device without batches, by an event list that knows nothing of the kernel."""
    events = sorted((at, model) for model, load in enumerate(loads) for at in load)
    queues: list[deque[float]] = [deque() for _ in loads]
    found: list[list[float]] = [[] for _ in loads]
    free_at, place = 0.0, 0
    while place < len(events) or any(queues):
        if not any(queues):
            free_at = max(free_at, events[place][0])
        while place < len(events) and events[place][0] <= free_at:
            at, model = events[place]
            queues[model].append(at)
            place += 1
        heads = [(queue[0] + due_s[model], model) for model, queue in enumerate(queues) if queue]
        _, model = heapq.nsmallest(1, heads)[0]
        free_at += service_s[model]
        found[model].append(free_at - queues[model].popleft())
    return [np.array(one) for one in found]


def test_latencies_are_those_of_earliest_deadline_first(device_kernel: DeviceKernel) -> None:
    service_s, due_s = (0.02, 0.1, 0.05), (0.3, 2.0, 0.5)
    loads = [poisson(rps, 500.0, seed) for seed, rps in enumerate((15.0, 3.0, 5.0))]
    made = plane(device_kernel, loads, due_s, FOREVER, duration_s=600.0)
    device = made.new_device()
    for engine, seconds in zip(made.engines, service_s, strict=True):
        engine.place(offering(rps=1.0 / seconds), device)
    while made.run_until(600.0) is not None:
        pass
    for engine, expected in zip(made.engines, earliest_first(loads, due_s, service_s), strict=True):
        assert engine.served().instance == expected.size
        assert engine.latency().mean_s == pytest.approx(expected.mean())
        assert engine.seconds().latency_max_s.max() == pytest.approx(expected.max())


@given(
    rates=st.lists(st.floats(1.0, 60.0), min_size=2, max_size=5),
    seed=st.integers(0, 2**16),
    batch=st.integers(1, 4),
)
def test_who_is_admitted_is_answered_in_time(
    device_kernel: DeviceKernel, rates: list[float], seed: int, batch: int
) -> None:
    """Times do not vary here, so a promise can be kept whatever comes later."""
    rng = np.random.default_rng(seed)
    objectives_s = rng.uniform(0.2, 2.0, len(rates)).tolist()
    loads = [poisson(rate, 20.0, seed + number) for number, rate in enumerate(rates)]
    dispatch = DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=1.0, late=Late.SHED)
    made = plane(device_kernel, loads, objectives_s, dispatch, duration_s=60.0)
    device = made.new_device()
    for engine in made.engines:
        engine.place(batching(batch, 0.01, float(rng.uniform(0.02, 0.1))), device)
    while made.run_until(60.0) is not None:
        pass
    for engine in made.engines:
        served = engine.served()
        assert served.in_flight == 0
        assert engine.outcomes().missed == served.shed
    assert sum(engine.served().instance for engine in made.engines) > 0


def test_a_lone_model_is_served_as_by_an_engine_of_its_own(kernel: Kernel, device_kernel: DeviceKernel) -> None:
    """Whose neighbours have no load shares nothing."""
    load = poisson(14.0, 100.0, 3)
    made = plane(device_kernel, [load, np.empty(0)], (0.6, 0.6), DispatchPolicy(), duration_s=120.0)
    device = made.new_device()
    for engine in made.engines:
        engine.place(batching(4, 0.05, 0.12), device)
    made.run_until(120.0)
    assert made.engines[1].served().total == 0
    assert made.engines[0].served().instance == load.size


@pytest.mark.parametrize("redispatch", [True, False])
@pytest.mark.parametrize("is_another_there", [True, False])
def test_requests_of_a_lost_instance_are_counted_once(
    device_kernel: DeviceKernel, redispatch: bool, is_another_there: bool
) -> None:
    """They go to another shared instance or to Lambda, and nowhere where the model forbids it."""
    load, item = np.array([1.0, 1.01, 1.02, 1.03]), batching(4, 0.05, 0.12)
    made = plane(device_kernel, [load], (0.6,), DispatchPolicy(), duration_s=40.0, with_lambda=True)
    hosts, (engine,) = HostPlane(made, [redispatch]), made.engines
    lost = hosts.add(item, standby=False)
    hosts.place(lost, 0, item, 1e6)
    made.run_until(1.04)
    assert engine.on_shared() == load.size
    if is_another_there:
        hosts.place(hosts.add(item, standby=False), 0, item, 1e6)
    hosts.remove(lost, redispatch=True)
    made.run_until(40.0)
    served = engine.served()
    assert (served.in_flight, served.total) == (0, load.size)
    assert engine.on_shared() == served.instance == (load.size if redispatch and is_another_there else 0)
    assert served.shed == (0 if redispatch else load.size)
    assert engine.window_counts(0.0, 5.0).tolist() == [load.size - engine.on_shared()]


def test_a_share_is_of_real_seconds_on_any_clock(device_kernel: DeviceKernel) -> None:
    """Of 4 requests/s it takes 2 and, at first, those of SHARE_S and a batch; its own instance takes the rest."""
    counted = []
    for speed in (1.0, 16.0):
        setup = engine_setup(plain_kernel(), [n * speed / 4.0 for n in range(240)], duration_s=60.0 * speed)
        made = SharedPlane(device_kernel, [replace(setup, speed=speed)])
        hosts, (engine,), item = HostPlane(made, [True]), made.engines, offering(rps=20.0)
        hosts.place(hosts.add(item, standby=False), 0, item, 2.0)
        engine.add(item, standby=False)
        made.run_until(60.0 * speed)
        counted.append(engine.on_shared())
    assert counted[0] == counted[1] == pytest.approx(2.0 * (60.0 + SHARE_S), abs=2)
    assert engine.shared_rps() == pytest.approx(2.0, abs=0.3), "of the trace's, 16 for each that came"


def test_what_is_handed_over_is_load_of_the_models_own_fleet(device_kernel: DeviceKernel) -> None:
    """Its own instance takes it, and would be given back if that were no load of its own."""
    made = plane(
        device_kernel,
        [np.array([0.2 * n for n in range(20)], np.float64)],
        (0.6,),
        DispatchPolicy(),
        duration_s=10.0,
    )
    hosts, (engine,) = HostPlane(made, [True]), made.engines
    shared = hosts.add(offering(rps=20.0), standby=False)
    hosts.place(shared, 0, offering(rps=20.0), 1e6)
    engine.add(offering(rps=20.0), standby=False)
    hosts.hand_over(shared, 0)
    made.run_until(3.99)
    assert hosts.is_idle(shared)
    assert engine.window_counts(0.0, 5.0).tolist() == [20]


def test_without_lambda_what_is_beyond_the_share_is_load_of_the_own_fleet(device_kernel: DeviceKernel) -> None:
    """Each such request alone would be in time on the shared instance, all of them together may not be."""
    slow = offering(rps=0.2)
    made = plane(device_kernel, [np.full(4, 1.0)], (60.0,), DispatchPolicy(), duration_s=40.0)
    hosts, (engine,) = HostPlane(made, [True]), made.engines
    hosts.place(hosts.add(slow, standby=False), 0, slow, 1e-6)
    own = engine.add(slow, standby=False)
    made.run_until(2.0)
    engine.remove(own, redispatch=True)
    made.run_until(39.0)
    assert engine.served().instance == 4
    assert engine.on_shared() == 1
    assert engine.window_counts(0.0, 5.0).tolist() == [3]


def test_models_have_lambdas_concurrency_between_them(device_kernel: DeviceKernel) -> None:
    """Of 24 calls at once 20 are let through; those that ended count no more, whose ever they were."""
    at_once = np.full(12, 1.0)
    loads = [at_once, at_once + 0.001, at_once + 9.0]
    made = plane(device_kernel, loads, (2.0,) * 3, DispatchPolicy(), duration_s=40.0, with_lambda=True, burst=50)
    made.run_until(1.1)
    assert [int(engine.pool.marks.warm + engine.pool.marks.cold) for engine in made.engines] == [12, 8, 0]
    made.run_until(40.0)
    assert [engine.served().lambda_ for engine in made.engines] == [12, 8, 12]
    assert [engine.throttled() > 0 for engine in made.engines] == [False, True, False]

"""The kernel: compiled and plain agree to the last bit, and both with models that share no code with them."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from mark.controller.policy import MonitorPolicy
from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.dispatch.routing import SERVER_FIELDS
from mark.domain.models.objective import Slo
from mark.domain.models.profile import LatencyPoint
from mark.domain.offerings.offering import LambdaOffering
from mark.simulator.engine.arrays import noise_factors
from mark.simulator.engine.compiled import DeviceKernel, Kernel, plain_kernel
from mark.simulator.engine.data_plane import Engine
from tests.planner.builders import offering
from tests.simulator.engines import batching, burstable, engine, lambda_offering, poisson

Floats = NDArray[np.float64]
ALONE = DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=None)
ONLY_LAMBDA = DispatchPolicy(bounced=Bounced.LAMBDA)


def eventful(
    kernel: Kernel | DeviceKernel,
    dispatch: DispatchPolicy,
    seed: int,
    largest: int | None = None,
    *,
    varies: bool = True,
) -> Engine:
    """Instances of four kinds come, slow down, are warned, drained and lost, under a load in waves.

    Two kinds and Lambda take longer at times than at others. largest: the largest size; None for no sizes.
    varies: whether batches on instances do.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.concatenate(
        [poisson(25.0, 8.0, seed), 8.0 + poisson(90.0, 2.0, seed), 10.0 + poisson(20.0, 6.0, 1)]
    )
    overflow = lambda_offering(cv=0.3) if rng.random() < 0.8 else None
    made = engine(
        kernel,
        arrivals,
        dispatch=dispatch,
        overflow=overflow,
        monitor=MonitorPolicy(offering="T", requests=60, seconds=2.5),
        duration_s=20.0,
        network_s=0.001,
        sizes=None
        if largest is None
        else np.random.default_rng(9).integers(1, largest + 1, arrivals.size).tolist(),
    )
    kinds = [batching(4, 0.1, 0.25), offering(rps=8.0), burstable(0.2), batching(16, 0.05, 0.5)]
    if largest is not None and largest > 1:  # profiled up to the largest size
        points = (LatencyPoint(batch=1, latency_s=0.05), LatencyPoint(batch=largest, latency_s=0.4))
        kinds = [replace(kind, profile=replace(kind.profile, points=points)) for kind in kinds]
        kinds[0] = replace(kinds[0], batch=replace(kinds[0].batch, max_batch=4))
    kinds = (
        [replace(kind, cv=cv) for kind, cv in zip(kinds, (0.1, 0.0, 0.25, 0.1), strict=True)] if varies else kinds
    )
    slots = [made.add(kind, standby=kind is kinds[2], balance=0.01) for kind in kinds]
    stops = sorted(rng.uniform(0.0, 16.0, 12))
    for place, stop in enumerate(stops):
        while made.run_until(stop) < stop:
            made.quiet_until(made.now + 3.0)
        slot = slots[int(rng.integers(len(slots)))]
        action = place % 6
        if action == 0:
            slots.append(made.add(kinds[int(rng.integers(len(kinds)))], standby=bool(rng.random() < 0.3)))
        elif action == 1:
            made.will_go(slot, stop + 0.7)
        elif action == 2:
            made.stop_accepting(slot)
        elif action == 3 and len(slots) > 2:
            slots.remove(slot)
            made.remove(slot, redispatch=bool(rng.random() < 0.7))
        elif action == 4:
            made.warm(int(rng.integers(1, 12)))
    while made.run_until(16.0) < 16.0:
        made.quiet_until(made.now + 3.0)
    return made


LIMITS = [(0.98, 60.0), (1.0, 0.9), (None, 60.0), (None, 1.2)]
RULES = [
    DispatchPolicy(
        routing=routing,
        bounced=bounced,
        late=late,
        admission_factor=LIMITS[at % 4][0],
        give_up_s=LIMITS[at % 4][1],
    )
    for turn, routing in enumerate(Routing)
    for at, (bounced, late) in enumerate(product(Bounced, Late), turn)
] + [
    DispatchPolicy(routing=routing, bounced=bounced, admission_confidence=0.9)
    for routing, bounced in product(Routing, Bounced)
]


@pytest.mark.parametrize("dispatch", RULES, ids=lambda d: f"{d.routing}-{d.bounced}-{d.late}-{d.admission_factor}")
def test_compiled_and_plain_give_the_same_run(kernel: Kernel, dispatch: DispatchPolicy) -> None:
    seed = 1 + RULES.index(dispatch) % 2
    fast, slow = eventful(kernel, dispatch, seed), eventful(plain_kernel(), dispatch, seed)
    assert fast.served() == slow.served()
    assert fast.served().total > 300
    assert np.array_equal(fast._tally.seconds, slow._tally.seconds)
    assert np.array_equal(fast._tally.histogram, slow._tally.histogram)
    assert fast._tally.totals == slow._tally.totals
    assert np.array_equal(fast._fleet.servers, slow._fleet.servers)
    assert fast.lambda_usage() == slow.lambda_usage()
    assert fast.slo_window() == slow.slo_window()


@pytest.mark.parametrize("dispatch", RULES[:6], ids=lambda d: f"{d.routing}-{d.bounced}-{d.late}")
def test_compiled_and_plain_give_the_same_run_with_sizes(kernel: Kernel, dispatch: DispatchPolicy) -> None:
    fast, slow = eventful(kernel, dispatch, 1, 16), eventful(plain_kernel(), dispatch, 1, 16)
    assert fast.served() == slow.served()
    assert np.array_equal(fast._tally.histogram, slow._tally.histogram)
    assert np.array_equal(fast._fleet.servers, slow._fleet.servers)


@pytest.mark.parametrize("dispatch", RULES, ids=lambda d: f"{d.routing}-{d.bounced}-{d.late}-{d.admission_factor}")
def test_requests_of_one_item_are_served_as_those_without_sizes(kernel: Kernel, dispatch: DispatchPolicy) -> None:
    sized, plain = eventful(kernel, dispatch, 2, 1), eventful(kernel, dispatch, 2)
    assert sized._tally.totals == plain._tally.totals
    assert np.array_equal(sized._tally.seconds, plain._tally.seconds)
    assert np.array_equal(sized._tally.histogram, plain._tally.histogram)
    for name in SERVER_FIELDS:
        assert np.array_equal(sized._fleet.servers[name], plain._fleet.servers[name]), name


@pytest.mark.parametrize("dispatch", RULES, ids=lambda d: f"{d.routing}-{d.bounced}-{d.late}-{d.admission_factor}")
def test_a_device_with_one_tenant_does_what_an_instance_does(
    kernel: Kernel, device_kernel: DeviceKernel, dispatch: DispatchPolicy
) -> None:
    shared = eventful(device_kernel, dispatch, 1, varies=False)
    own = eventful(kernel, dispatch, 1, varies=False)
    assert shared.served() == own.served()
    for name in ("missed", "throttled", "invocations", "cold", "pings", "batches", "latency_sum"):
        assert shared._tally.totals[name] == pytest.approx(own._tally.totals[name]), name
    for name in ("arrivals", "answered", "missed", "to_lambda", "latency_max"):
        assert np.array_equal(shared._tally.seconds[name], own._tally.seconds[name]), name
    assert np.array_equal(shared._tally.histogram, own._tally.histogram)
    assert shared.lambda_usage() == own.lambda_usage()


def test_the_eventful_run_reaches_every_outcome(kernel: Kernel) -> None:
    """Without this, two runs in which nothing happens would agree as well."""
    runs = [eventful(kernel, dispatch, seed) for dispatch in RULES for seed in (1, 2)]
    served = [run.served() for run in runs]
    for name in ("instance", "standby", "lambda_", "shed", "in_flight"):
        assert any(getattr(one, name) for one in served), name
    assert any(run._tally.totals.throttled for run in runs)
    assert any(run._fleet.queue.shape[1] > 64 for run in runs), "a ring has grown"
    servers = [run._fleet.servers[slot] for run in runs for slot in run._used]
    assert any(server.burn_per_s > 0 and server.full_batch_s > 1.9 for server in servers), "credits have run out"


def latencies_of_shared_queue(arrivals: Floats, service_s: float, servers: int) -> Floats:
    """FIFO M/D/c by a heap of the instants at which servers become free."""
    free = [0.0] * servers
    found = np.empty(arrivals.size)
    for place, at in enumerate(arrivals):
        finish_at = max(at, heapq.heappop(free)) + service_s
        heapq.heappush(free, finish_at)
        found[place] = finish_at - at
    return found


@pytest.mark.parametrize(("servers", "load"), [(1, 0.8), (4, 0.7), (10, 0.9)])
def test_latencies_of_a_queue_without_batching(kernel: Kernel, servers: int, load: float) -> None:
    """Least finish on equal servers is one FIFO queue: every latency is known from a heap."""
    service_s = 0.1
    arrivals = poisson(load * servers / service_s, 2000.0, seed=servers)
    made = engine(kernel, arrivals, dispatch=ALONE)
    for _ in range(servers):
        made.add(offering(rps=1.0 / service_s), standby=False)
    made.run_until(2100.0)
    expected = latencies_of_shared_queue(arrivals, service_s, servers)
    found = made.latency()
    assert made.served().instance == arrivals.size
    assert found.mean_s == pytest.approx(expected.mean(), rel=1e-9)
    for name, share in (("p50_s", 0.5), ("p95_s", 0.95), ("p99_s", 0.99)):
        exact = np.quantile(expected, share, method="inverted_cdf")
        assert exact - 1e-9 <= getattr(found, name) + 1e-9
        assert getattr(found, name) - exact <= 1.001e-4
    assert made.seconds().missed.sum() == np.count_nonzero(expected > 0.6 + 1e-12)
    assert made.seconds().latency_max_s.max() == pytest.approx(expected.max())
    assert made.attained() == pytest.approx(1.0 - np.mean(expected > 0.6 + 1e-12))


@pytest.mark.parametrize("cv", [0.1, 0.25, 1.0])
def test_latencies_of_a_queue_whose_times_vary(kernel: Kernel, cv: float) -> None:
    """One server in order of arrival: the n-th request takes the n-th draw, whatever waits."""
    service_s = 0.1
    arrivals = poisson(7.0, 1000.0, seed=7)
    made = engine(kernel, arrivals, dispatch=ALONE, seed=3, network_s=0.002)
    made.add(replace(offering(rps=1.0 / service_s), cv=cv), standby=False)
    factors = noise_factors(cv, np.random.default_rng(4).standard_normal(2**14))
    free_at, expected = 0.0, np.empty(arrivals.size)
    for place, at in enumerate(arrivals):
        free_at = max(at, free_at) + service_s * factors[place % factors.size]
        expected[place] = free_at - at + 0.002
    made.run_until(1100.0)
    assert made.latency().mean_s == pytest.approx(expected.mean(), rel=1e-9)
    assert made.seconds().latency_max_s.max() == pytest.approx(expected.max())


@pytest.mark.parametrize("routing", Routing)
def test_what_is_decided_does_not_know_how_long_a_batch_will_take(kernel: Kernel, routing: Routing) -> None:
    """Three requests while both instances work on their first batch: where they go depends on no draw."""
    kind = replace(batching(4, 0.1, 0.2), cv=1.0)
    dispatch = DispatchPolicy(routing=routing, bounced=Bounced.LAMBDA)
    found = set()
    for seed in range(20):
        made = engine(
            kernel, [0.0, 0.0, 0.001, 0.002, 0.003], dispatch=dispatch, overflow=lambda_offering(), seed=seed
        )
        slots = [made.add(kind, standby=False) for _ in range(2)]
        made.run_until(0.0035)
        servers = made._fleet.servers[slots]
        found.add(
            tuple(
                zip(servers.in_service.tolist(), servers.waiting.tolist(), servers.free_at.tolist(), strict=True)
            )
        )
    assert len(found) == 1


def test_a_batch_that_is_overdue_keeps_its_instance_busy(kernel: Kernel) -> None:
    kind = replace(batching(1, 0.1, 0.1), cv=1.0)
    overdue = 0
    for seed in range(20):
        made = engine(kernel, [0.0, 0.15], dispatch=ALONE, seed=seed)
        slot = made.add(kind, standby=False)
        made.run_until(0.16)
        server = made._fleet.servers[slot]
        if server.waiting:
            overdue += 1
            assert server.in_service == 1
            assert server.free_at < 0.15 < server.done_at
    assert overdue > 0


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.98])
def test_admission_keeps_its_confidence(kernel: Kernel, confidence: float) -> None:
    """One instance, single requests, an objective of 0.3 s: of those admitted no more are late than allowed."""
    dispatch = DispatchPolicy(admission_factor=1.0, admission_confidence=confidence)
    quick = lambda_offering(latency_s=0.1, cold_start_s=0.0, concurrency=1000, burst=1000)
    arrivals = poisson(12.0, 2000.0, seed=2)
    made = engine(kernel, arrivals, dispatch=dispatch, overflow=quick, slo=Slo(latency_s=0.3, target=0.9))
    made.add(replace(offering(rps=10.0), cv=0.25), standby=False)
    made.run_until(2000.0)
    served = made.served()
    assert 0 < made.seconds().missed.sum() / served.instance < 1.0 - confidence
    assert served.instance > 0.5 * served.total


def latencies_of_batches(arrivals: Floats, batch_s: list[float]) -> Floats:
    """One work-conserving batching server, stepped batch by batch. batch_s: seconds by size, entry 0 not used."""
    found, waiting, place, free_at = np.empty(arrivals.size), deque[int](), 0, 0.0
    while place < arrivals.size or waiting:
        if not waiting:
            free_at = max(free_at, arrivals[place])
        while place < arrivals.size and (arrivals[place] < free_at or not waiting):
            waiting.append(place)
            place += 1
            if len(waiting) == 1 and arrivals[waiting[0]] >= free_at:
                break
        took = [waiting.popleft() for _ in range(min(len(waiting), len(batch_s) - 1))]
        free_at += batch_s[len(took)]
        for one in took:
            found[one] = free_at - arrivals[one]
    return found


@pytest.mark.parametrize("rps", [5.0, 15.0, 19.0, 30.0])
def test_latencies_of_a_batching_server(kernel: Kernel, rps: float) -> None:
    kind = batching(8, 0.1, 0.4)
    arrivals = poisson(rps, 300.0, seed=3)
    made = engine(
        kernel, arrivals, dispatch=DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=None, give_up_s=1e9)
    )
    made.add(kind, standby=False)
    made.run_until(2000.0)
    batch_s = [0.0, *(kind.profile.latency_s(size) for size in range(1, 9))]
    expected = latencies_of_batches(arrivals, batch_s)
    assert made.latency().mean_s == pytest.approx(expected.mean(), rel=1e-9)
    assert made.seconds().latency_max_s.max() == pytest.approx(expected.max())


@dataclass(slots=True)
class NaivePool:
    """Lambda by lists: every environment is looked at for every call. `lives_s` are the idle lives in turn."""

    offering: LambdaOffering
    lives_s: Floats
    noise: Floats
    cold: int = 0
    throttled: int = 0
    draws: int = 0

    def serve(self, arrivals: Floats) -> Floats:
        """Latency by arrival; NaN for what was refused."""
        found = np.full(arrivals.size, np.nan)
        busy: list[tuple[float, int]] = []  # end of the call, arrival
        idle: list[tuple[float, float]] = []  # end of the last call, end of its idle life
        starts: list[float] = []
        for place, now in enumerate(arrivals):
            for ended_at, _ in sorted(call for call in busy if call[0] <= now):
                idle.append((ended_at, ended_at + self.lives_s[self.draws]))
                self.draws += 1
            busy = [call for call in busy if call[0] > now]
            idle = [one for one in idle if one[1] > now]
            if len(busy) >= self.offering.concurrency:
                self.throttled += 1
                continue
            takes_s = self.offering.latency_s * self.noise[np.count_nonzero(~np.isnan(found))]
            if idle:
                idle.remove(max(idle))
            elif sum(1 for at in starts if now - at < self.offering.burst_window_s) >= self.offering.burst:
                self.throttled += 1
                continue
            else:
                starts.append(now)
                self.cold += 1
                takes_s += self.offering.cold_start_s
            busy.append((now + takes_s, place))
            found[place] = takes_s
        return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"cv": 0.4},
        {"cv": 0.4, "concurrency": 4},
        {"burst": 3},
        {"concurrency": 3},
        {"idle_min_s": 1.0, "idle_max_s": 30.0},
        {"burst_window_s": 0.1},
    ],
    ids=str,
)
def test_the_warm_environments_agree_with_a_naive_count(
    kernel: Kernel, seed: int, limits: dict[str, float]
) -> None:
    gaps = [0.0, 3.0, 9.0, 21.0, 30.0]
    arrivals = np.sort(np.concatenate([at + poisson(12.0, 3.0, seed + int(at)) for at in gaps]))
    pool = lambda_offering(**limits)
    made = engine(kernel, arrivals, dispatch=ONLY_LAMBDA, overflow=pool, seed=seed)
    naive = NaivePool(pool, made._pool.idle_life_s.copy(), made._pool.noise.copy())
    expected = naive.serve(arrivals)
    made.run_until(60.0)
    assert made.invocations() == (int(np.count_nonzero(~np.isnan(expected))), naive.cold)
    assert made.served().shed == np.count_nonzero(np.isnan(expected)) == naive.throttled
    assert made.latency().mean_s == pytest.approx(np.nanmean(expected))


def test_a_thousand_start_in_ten_seconds_and_no_more(kernel: Kernel) -> None:
    arrivals = np.concatenate(
        [np.linspace(0.0, 0.1, 1200), np.linspace(9.0, 9.1, 1200), np.linspace(10.2, 10.3, 1800)]
    )
    pool = lambda_offering(concurrency=3000, burst=1000, burst_window_s=10.0, idle_min_s=2700.0, idle_max_s=3600.0)
    made = engine(kernel, arrivals, dispatch=ONLY_LAMBDA, overflow=pool)
    made.run_until(20.0)
    # 1,000 start at 0 s and are warm at 9 s (200 refused twice); from 10 s on another 800 may start.
    assert made.invocations() == (1000 + 1000 + 1800, 1800)
    assert made.served().shed == 400


@pytest.mark.parametrize("calls_a_life", [0.3, 1.0, 3.0])
def test_a_guess_of_cold_starts_is_what_random_calls_meet(kernel: Kernel, calls_a_life: float) -> None:
    lives = {"idle_min_s": 270.0, "idle_max_s": 360.0}
    brief = LambdaOffering(latency_s=0.3, provenance=offering().profile.provenance, **lives)
    rps = calls_a_life / 315.0
    made = engine(kernel, poisson(rps, 4000 / rps, seed=3), dispatch=ONLY_LAMBDA, overflow=brief)
    made.run_until(4000 / rps)
    calls, cold = made.invocations()
    assert cold / calls == pytest.approx(brief.cold_share(rps), abs=0.025)

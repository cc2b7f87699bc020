"""A rehearsal moves through its trace X times as fast: what is exact about it, and what agrees within noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market
from mark.plugins.load import build_forecaster
from mark.simulator.engine.compiled import Kernel
from mark.simulator.engine.data_plane import Engine, EngineSetup
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import trace_of_arrivals
from mark.simulator.workload import Workload
from tests.planner.builders import SLO
from tests.scenarios import builders
from tests.simulator.engines import batching, lambda_offering, poisson

RATE_RPS = 400.0
HOUR_S = 3600.0


@given(
    doublings=st.integers(1, 6),
    seed=st.integers(0, 50),
    routing=st.sampled_from(Routing),
    bounced=st.sampled_from(Bounced),
    late=st.sampled_from(Late),
)
@settings(max_examples=60, deadline=None)
def test_a_stretch_of_real_seconds_looks_the_same_on_any_clock(
    kernel: Kernel, doublings: int, seed: int, routing: Routing, bounced: Bounced, late: Late
) -> None:
    """With a power of two every product is exact, so each answer is the same to the last bit."""
    speed = 2.0**doublings
    arrivals = poisson(90.0, 12.0, seed)
    dispatch = DispatchPolicy(routing=routing, bounced=bounced, late=late, give_up_s=3.0)
    plain, fast = (rehearsal(kernel, arrivals * clock, clock, dispatch) for clock in (1.0, speed))
    assert fast.served() == plain.served()
    assert fast.attained() == plain.attained()
    assert (fast._tally.histogram == plain._tally.histogram).all()
    assert fast.latency().mean_s == plain.latency().mean_s
    assert fast.invocations() == plain.invocations()
    assert fast.throttled() == plain.throttled()


def rehearsal(kernel: Kernel, arrivals: np.ndarray, speed: float, dispatch: DispatchPolicy) -> Engine:
    """Fifteen real seconds on two instances; Lambda's idle lives, on the trace's clock, are stretched alike."""
    overflow = lambda_offering()
    made = Engine(
        EngineSetup(
            kernel=kernel,
            arrivals=lambda from_s, to_s: arrivals[(arrivals >= from_s) & (arrivals < to_s)],
            slo=SLO,
            dispatch=dispatch,
            overflow=replace(
                overflow, idle_min_s=overflow.idle_min_s * speed, idle_max_s=overflow.idle_max_s * speed
            ),
            start_at=0.0,
            duration_s=15.0 * speed,
            rng=np.random.default_rng(1),
            noise=np.random.default_rng(2),
            monitor=None,
            speed=speed,
        )
    )
    made.add(batching(4, 0.05, 0.11), standby=False)
    made.add(batching(2, 0.08, 0.12), standby=True)
    made.run_until(15.0 * speed)
    return made


@pytest.mark.parametrize("speed", [1.0, 3.0, 20.0])
def test_a_single_request_takes_its_real_time(kernel: Kernel, speed: float) -> None:
    arrivals = np.array([7.0])
    dispatch = DispatchPolicy()
    made = rehearsal(kernel, arrivals, speed, dispatch)
    assert made.served().total == made.served().instance == 1
    assert made.latency().mean_s == pytest.approx(0.05, abs=1e-12)


def test_lambda_is_billed_for_what_each_request_stands_for_and_cold_starts_once(kernel: Kernel) -> None:
    arrivals = np.arange(10.0)
    overflow = lambda_offering()
    used = []
    for speed in (1.0, 8.0):
        made = Engine(
            EngineSetup(
                kernel=kernel,
                arrivals=lambda low, high, at=arrivals * speed: at[(at >= low) & (at < high)],  # type: ignore[misc]
                slo=SLO,
                dispatch=DispatchPolicy(),
                overflow=replace(overflow, idle_min_s=1e4, idle_max_s=1e4),
                start_at=0.0,
                duration_s=20.0 * speed,
                rng=np.random.default_rng(1),
                noise=np.random.default_rng(2),
                monitor=None,
                speed=speed,
            )
        )
        made.run_until(20.0 * speed)
        used.append(made.lambda_usage())
    plain, fast = used
    assert (fast.requests, plain.requests) == (80, 10)
    assert fast.cold_starts == plain.cold_starts
    cold_gib_s = plain.cold_starts * overflow.cold_start_s * overflow.memory_gib
    assert fast.gib_s - cold_gib_s == pytest.approx(8 * (plain.gib_s - cold_gib_s))


def test_speed_one_is_the_plain_load() -> None:
    trace = constant(20.0, duration_s=900.0, seed=4)
    plain, same = Workload(trace=trace, seed=4), Workload(trace=trace, seed=4, speed=1.0)
    assert same.arrivals(0.0, 900.0).tolist() == plain.arrivals(0.0, 900.0).tolist()
    assert same.at_trace_speed is same
    assert same.notes == plain.notes


@pytest.mark.parametrize("speed", [2.0, 20.0])
def test_a_thinned_load_keeps_the_rates(speed: float) -> None:
    """A count of n draws has a relative deviation of n ** -1/2: five of them are allowed."""
    trace = constant(200.0, duration_s=HOUR_S, seed=4)
    thinned = Workload(trace=trace, seed=4, speed=speed)
    sent = thinned.arrivals(0.0, HOUR_S).size
    wanted = 200.0 * HOUR_S / speed
    assert abs(sent - wanted) < 5 * wanted**0.5
    demand = thinned.demand(0.0, HOUR_S)
    assert sum(demand.mean_rps) / len(demand) == pytest.approx(speed * sent / HOUR_S)
    assert max(demand.max_rps) > 200.0
    assert thinned.history(HOUR_S, 60) == Workload(trace=trace, seed=4).history(HOUR_S, 60)
    assert any("one request in" in note for note in thinned.notes)


def test_of_raw_instants_a_share_is_sent() -> None:
    raw = np.sort(np.random.default_rng(3).uniform(0.0, 100.0, 10_000))
    trace = trace_of_arrivals("raw", raw)
    sent = Workload(trace=trace, seed=1, speed=5.0).arrivals(0.0, 100.0)
    assert set(sent.tolist()) <= set(trace.arrivals_s.tolist())  # type: ignore[union-attr]
    assert abs(sent.size - 2000) < 5 * 2000**0.5


@pytest.mark.parametrize("speed", [0.0, 0.5, float("nan"), float("inf")])
def test_a_speed_below_one_is_refused(speed: float) -> None:
    with pytest.raises(Misconfigured, match="1 or more"):
        Workload(trace=constant(1.0, duration_s=60.0), seed=1, speed=speed)


def on_a_smooth_load(kernel: Kernel, policy: str, speed: float, *, start_s: float = HOUR_S) -> RunResult:
    """An hour of it, which begins with the trace where nothing is known before."""
    made = builders.experiment(kernel, Market.ON_DEMAND, trace=constant(RATE_RPS, duration_s=2 * HOUR_S, seed=2))
    load = made.spec.workload
    workload = Workload(trace=load.trace, seed=load.seed, start_s=start_s, duration_s=HOUR_S, speed=speed)
    spec = replace(made.spec, workload=workload)
    return builders.run(type(made)(spec, kernel=kernel, build_forecaster=build_forecaster), policy)


def test_a_fixed_fleet_costs_the_same_and_serves_alike(kernel: Kernel) -> None:
    """Attainment is of 72,000 requests at 20x, but within 180 real seconds: a burst of a few seconds weighs."""
    plain, fast = (on_a_smooth_load(kernel, "static-peak", speed) for speed in (1.0, 20.0))
    assert fast.cost.instances == plain.cost.instances
    assert fast.cost.total == pytest.approx(plain.cost.total, rel=0.02)
    assert fast.attained == pytest.approx(plain.attained, abs=0.03)
    assert fast.requests == pytest.approx(plain.requests / 20, rel=0.02)


def test_lambda_alone_costs_the_same(kernel: Kernel) -> None:
    """72,000 requests at 20x: three deviations of their number are 1.1 %."""
    plain, fast = (on_a_smooth_load(kernel, "lambda-only", speed, start_s=0.0) for speed in (1.0, 20.0))
    assert fast.cost.lambda_ == pytest.approx(plain.cost.lambda_, rel=0.015)
    assert fast.cold_starts == plain.cold_starts  # the burst that is allowed, when the load sets in
    assert plain.served.shed > 0
    deviation = math.sqrt(plain.served.shed + fast.served.shed)  # of the difference of two numbers of Poisson's
    assert fast.served.shed == pytest.approx(plain.served.shed, abs=5.0 * deviation)


def test_a_planned_fleet_costs_more_by_the_noise_of_shorter_windows(kernel: Kernel) -> None:
    """A window of 5 s of the trace holds 2,000 requests, at 4x 500: the highest of the 72 windows
    that a cool-down looks back on lies 2.4 deviations above the mean, 5.4 % or 10.7 %. The fleet follows the
    maxima: up to twice the difference of 5.3 % is allowed, for whole instances.
    """
    plain, fast = (on_a_smooth_load(kernel, "greedy-oracle", speed) for speed in (1.0, 4.0))
    assert plain.cost.serving <= fast.cost.serving <= 1.107 * plain.cost.serving
    assert fast.attained == pytest.approx(plain.attained, abs=0.01)

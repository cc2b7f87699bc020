from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.dispatch.central.policy import CentralPolicy, CentralRule, TooLate
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import sizes_from_formula
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo
from mark.planner.queueing import mean_wait_s
from mark.simulator.fixed.fixed_pool import Arrivals, FixedPool, PoolLoad, ServiceTimes

TABLE = LatencyTable(
    model="m",
    sizes=(50, 100, 200),
    mean_ms={"fast": (4.0, 6.0, 8.0), "slow": (6.0, 14.0, 60.0)},
    samples_ms={
        "fast": ((3.0, 5.0), (5.0, 7.0), (7.0, 9.0)),
        "slow": ((5.0, 7.0), (12.0, 16.0), (55.0, 65.0)),
    },
)
SLO = Slo(latency_s=0.03, target=0.99)
LOAD = PoolLoad(sizes=sizes_from_formula("lognormal:4.3,0.5,1,200"), queries=2000)
POLICIES = {str(rule): CentralPolicy(rule=rule) for rule in CentralRule}
KAIROS = POLICIES["kairos"]
MIX = {"fast": 1, "slow": 3}


@pytest.fixture
def evaluator(central_kernel):
    def made(load: PoolLoad = LOAD, table: LatencyTable = TABLE) -> FixedPool:
        return FixedPool(table, SLO, load, kernel=central_kernel)

    return made


@pytest.mark.parametrize("name", POLICIES)
def test_the_allowable_rate_is_the_last_that_keeps_the_objective(evaluator, name):
    judge = evaluator()
    qps = judge.allowable_qps(MIX, POLICIES[name])

    assert judge.run(MIX, POLICIES[name], qps).attained >= SLO.target - 1e-9
    assert judge.run(MIX, POLICIES[name], 1.1 * qps).attained < SLO.target


def test_kairos_serves_more_than_its_rivals_and_less_than_the_oracle(evaluator):
    judge = evaluator()
    rates = {name: judge.allowable_qps(MIX, policy) for name, policy in POLICIES.items()}

    assert max(rates, key=lambda name: rates[name]) == "kairos-oracle"
    assert rates["kairos"] > max(rates["fcfs"], rates["drs"], rates["clockwork"])


def test_the_same_seed_gives_the_same_run_and_another_another(evaluator):
    first, again = (evaluator().run(MIX, KAIROS, 300.0) for _ in range(2))

    assert first == again
    assert evaluator(replace(LOAD, seed=1)).run(MIX, KAIROS, 300.0) != first


def test_one_instance_waits_as_a_queue_with_constant_service(evaluator):
    """M/D/1 at a load of 0.8: the mean wait is known."""
    load = PoolLoad(sizes=sizes_from_formula("constant:50"), queries=200_000)
    found = evaluator(load).run({"fast": 1}, POLICIES["fcfs"], 200.0)

    assert found.latency_ms["mean"] - 4.0 == pytest.approx(1000 * mean_wait_s(200.0, 0.004, 1), rel=0.05)


def test_integer_gaps_are_whole_milliseconds_and_keep_the_rate(evaluator):
    judge = evaluator(replace(LOAD, arrivals=Arrivals.INTEGER, queries=20_000))
    arrived_ms = judge._arrived_ms(200.0)

    assert np.all(arrived_ms == np.round(arrived_ms))
    assert arrived_ms[-1] / 20_000 == pytest.approx(5.0, rel=0.02)


def test_sampled_times_are_those_of_the_table(evaluator):
    load = replace(LOAD, latency=ServiceTimes.SAMPLE, sizes=sizes_from_formula("constant:50"))
    found = evaluator(load).run({"fast": 8}, POLICIES["fcfs"], 1.0)

    assert found.latency_ms["p99"] == pytest.approx(5.0)
    assert found.latency_ms["mean"] == pytest.approx(4.0, abs=0.1)


def test_samples_that_are_not_there_are_missed(evaluator):
    with pytest.raises(Misconfigured, match="no single timings"):
        evaluator(replace(LOAD, latency=ServiceTimes.SAMPLE), replace(TABLE, samples_ms={}))


def test_learned_times_are_soon_those_of_the_table(evaluator):
    """At a rate that all keep, only the first queries can miss: they are sent where nothing is known yet."""
    rate = 0.8 * evaluator().allowable_qps(MIX, KAIROS)
    known, learned = (
        evaluator(replace(LOAD, latency=times)).run(MIX, KAIROS, rate).attained
        for times in (ServiceTimes.MEAN, ServiceTimes.LEARNED)
    )

    assert known - 10 / LOAD.queries <= learned < 1


def test_noise_lowers_the_rate(evaluator):
    steady, noisy = evaluator(), evaluator(replace(LOAD, noise=0.1))

    assert noisy.allowable_qps(MIX, KAIROS) < steady.allowable_qps(MIX, KAIROS)


def test_overflow_hands_on_what_cannot_be_in_time(evaluator):
    found = evaluator().run(MIX, replace(KAIROS, too_late=TooLate.OVERFLOW), 2000.0)

    assert found.attained < 0.9
    assert found.latency_ms["p99"] <= 30.0


def test_a_threshold_is_found_by_climbing(evaluator):
    policy = evaluator().with_threshold(MIX, POLICIES["drs"])

    assert policy.threshold == 100  # a query of 200 items takes a slow one 60 ms, which is too long


def test_a_homogeneous_pool_serves_alike_under_fcfs_and_drs(evaluator):
    judge = evaluator()

    assert judge.allowable_qps({"fast": 2}, POLICIES["drs"]) == judge.allowable_qps({"fast": 2}, POLICIES["fcfs"])


def test_a_pool_that_never_keeps_the_objective_serves_nothing(evaluator):
    load = replace(LOAD, sizes=sizes_from_formula("constant:200"))

    assert evaluator(load).allowable_qps({"slow": 3}, KAIROS) == 0.0
    assert evaluator(load).allowable_qps({"slow": 3}, POLICIES["kairos-oracle"]) == 0.0


def test_sizes_beyond_the_profile_are_refused(evaluator):
    with pytest.raises(Misconfigured, match="size 201 is beyond the profile of m"):
        evaluator(replace(LOAD, sizes=sizes_from_formula("constant:201")))


@settings(max_examples=15)
@given(st.integers(0, 3), st.integers(0, 4), st.sampled_from(sorted(set(POLICIES) - {"kairos-oracle", "drs"})))
def test_no_rule_serves_more_than_the_oracle(central_kernel, fast, slow, name):
    """Within what a run of 1000 queries may still hold when it ends: the queue drains after the last arrival."""
    if fast + slow == 0:
        return
    judge = FixedPool(TABLE, SLO, replace(LOAD, queries=1000), kernel=central_kernel)
    pool = {"fast": fast, "slow": slow}
    most = judge.allowable_qps(pool, POLICIES["kairos-oracle"])

    assert judge.allowable_qps(pool, POLICIES[name]) <= 1.05 * most

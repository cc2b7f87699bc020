"""Rivals in replays: what they are tuned on, and that none waits for what could only be late."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from mark.domain.errors import Misconfigured
from mark.domain.offering import Market
from mark.policies.bundles import tuning_grid
from mark.policies.spec import Overrides
from mark.policies.tuning import DAY_S, Setting
from mark.simulator.engine.compiled import Kernel
from mark.simulator.experiment import Experiment
from mark.simulator.faults import FaultScript
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from tests.scenarios.builders import HISTORY_S, experiment, run, surging, up_and_down

CALM = FaultScript(stress=0.0)
TUNED = ("autoscaler", "autoscaler-spill", "sagemaker-tuned")


def stepping(before: float, after: float) -> Trace:
    """An hour that steps between one and three times a rate every ten minutes, then ten minutes."""
    at_s = np.arange(HISTORY_S + 600.0)
    rates = np.where(at_s // 600 % 2 == 0, before, 3 * before)
    rates[int(HISTORY_S) :] = after
    return Trace(name="steps", start_at=0.0, bin_s=1.0, rates_rps=rates, whole_counts=True)


def untuned(policy: str) -> Overrides | None:
    """One setting of those that an autoscaler is tuned among: to try all takes seconds."""
    return Overrides(setting=tuning_grid(policy)[2]) if policy in TUNED else None


@pytest.mark.parametrize("policy", ["autoscaler", pytest.param("sagemaker-tuned", marks=pytest.mark.slow)])
def test_what_comes_in_the_run_changes_nothing_that_is_tuned(kernel: Kernel, policy: str) -> None:
    one, other = (
        experiment(kernel, Market.ON_DEMAND, trace=stepping(5.0, after), types=("c5.large",))
        for after in (5.0, 50.0)
    )
    first, second = run(one, policy), run(other, policy)
    assert first.tuned is not None
    assert first.tuned == second.tuned
    assert first.requests != second.requests


def test_the_setting_that_runs_is_the_best_of_the_grid_on_the_load_before(kernel: Kernel) -> None:
    load = stepping(5.0, 5.0)
    given = experiment(kernel, Market.ON_DEMAND, trace=load, types=("c5.large",))
    found = run(given, "autoscaler").tuned
    assert found is not None
    assert (found.replays, found.load_s) == (len(tuning_grid("autoscaler")), HISTORY_S - 60.0)
    past = dataclasses.replace(
        given.spec, workload=Workload(trace=load, seed=1, start_s=60.0, duration_s=HISTORY_S - 60.0)
    )
    again = Experiment(past, kernel=kernel, build_forecaster=given._build)
    for setting in tuning_grid("autoscaler"):
        replayed = again.run("autoscaler", overrides=Overrides(setting=setting))
        assert replayed.tuned is None
        if replayed.attained >= replayed.slo.target:
            assert found.trial.attained >= replayed.slo.target
            assert found.trial.cost_usd <= replayed.cost.total


def test_a_policy_is_tuned_once_and_says_so_while_it_is(kernel: Kernel) -> None:
    given = experiment(kernel, Market.ON_DEMAND, trace=stepping(5.0, 5.0), types=("c5.large",))
    seen: list[tuple[str, float]] = []
    first = given.run("autoscaler", progress=lambda label, share: seen.append((label, share)))
    tuning = [share for label, share in seen if "tuning autoscaler" in label]
    assert tuning == sorted(tuning)
    assert tuning[-1] == 1.0
    seen.clear()
    second = given.run("autoscaler", progress=lambda label, share: seen.append((label, share)))
    assert {label for label, _ in seen} == {"replaying autoscaler"}
    assert second.tuned is first.tuned
    assert second.cost == first.cost
    assert first.tuned is not None
    assert first.notes[0] == first.tuned.sentence


@pytest.mark.parametrize("policy", TUNED)
def test_a_trace_without_load_before_the_run_says_what_to_do(kernel: Kernel, policy: str) -> None:
    given = experiment(kernel, Market.ON_DEMAND)
    early = dataclasses.replace(given.spec, workload=Workload(trace=constant(5.0, duration_s=600.0), seed=0))
    with pytest.raises(Misconfigured, match=f"{policy} is tuned on the load before the run.*--start-s of 120"):
        Experiment(early, kernel=kernel, build_forecaster=given._build).bundle(policy)


@pytest.mark.parametrize("policy", ["sagemaker", "sagemaker-fast", "reactive", "autoscaler"])
@pytest.mark.parametrize("trace", [surging(40.0, plus=2.0), up_and_down()], ids=["surge", "waves"])
def test_nobody_waits_for_an_answer_that_could_only_be_late(kernel: Kernel, policy: str, trace: Trace) -> None:
    given = experiment(kernel, Market.ON_DEMAND, trace=trace, faults=CALM, types=("c5.large",))
    result = given.run(policy, overrides=untuned(policy))
    finished = result.requests - result.served.in_flight
    assert result.attained == pytest.approx(1.0 - result.served.shed / finished, abs=1e-9)
    assert result.latency.p99_s <= result.slo.latency_s


@pytest.mark.parametrize("market", list(Market))
def test_an_autoscaler_rents_one_type_in_the_market_that_is_asked(kernel: Kernel, market: Market) -> None:
    given = experiment(kernel, market, trace=up_and_down())
    controller = given.bundle("autoscaler").controller
    (kind,) = controller.offerings
    assert kind.market is market
    assert 2 * kind.latency_s <= given.spec.slo.latency_s
    assert kind.batch.max_batch > 1
    twins = [twin.name for twin in controller.fallbacks]
    assert twins == ([f"{kind.instance_type.name}:on-demand"] if market is Market.SPOT else [])


def test_serverless_pays_for_what_is_provisioned_and_less_for_what_it_answers(kernel: Kernel) -> None:
    plain = experiment(kernel, Market.ON_DEMAND)
    load = Workload(trace=constant(40.0, duration_s=DAY_S + 1800.0), seed=1, start_s=DAY_S)
    given = Experiment(
        dataclasses.replace(plain.spec, workload=load), kernel=kernel, build_forecaster=plain._build
    )
    half = Overrides(setting=Setting(rule="provisioned-concurrency", utilisation=0.5))
    overflow = given.supply.overflow
    assert overflow is not None
    counts = given.bundle("serverless", half).controller.provisioned_by_hour
    first_hour = max(given.ingredients.history.mean_rps[:60])
    assert len(counts) == 24
    assert counts[0] == math.ceil(first_hour * overflow.latency_s / 0.5)
    result, without = given.run("serverless", overrides=half), given.run("lambda-only")
    lines = {line.item: line for line in result.bill}
    assert lines["provisioned"].quantity == pytest.approx(counts[0] * 1800.0 * overflow.memory_gib)
    assert lines["provisioned"].usd == pytest.approx(4.1667e-6 * lines["provisioned"].quantity)
    discount = lines["duration on provisioned"]
    assert 0.9 < discount.quantity / (result.requests * overflow.latency_s * overflow.memory_gib) <= 1.0
    assert discount.usd == pytest.approx(discount.quantity * (9.7222e-6 - overflow.usd_per_gib_s))
    assert result.cold_starts < without.cold_starts
    assert result.cost.overhead == 0.0


def test_managed_instances_keep_three_and_pay_their_fees(kernel: Kernel) -> None:
    given = experiment(kernel, Market.SPOT, trace=constant(1.0, duration_s=HISTORY_S + 1200.0))
    result = run(given, "managed-instances")
    (kind,) = given.bundle("managed-instances").controller.offerings
    assert not kind.instance_type.accelerator
    assert (result.minutes.ready == 3).all()
    assert result.cost.instances == pytest.approx(
        3 * 1200 / 3600 * 1.15 * kind.instance_type.on_demand_usd_per_hour
    )
    assert result.cost.lambda_ == pytest.approx(0.2e-6 * result.requests)
    assert result.cost.overhead == 0.0


def test_what_spills_keeps_more_than_what_refuses(kernel: Kernel) -> None:
    given = experiment(
        kernel,
        Market.ON_DEMAND,
        trace=surging(40.0, plus=2.0),
        types=("c5.large",),
        profile_sets=("assumed-lambda",),
    )
    spilling, refusing = (given.run(name, overrides=untuned(name)) for name in ("autoscaler-spill", "autoscaler"))
    assert spilling.served.lambda_ > 0
    assert spilling.attained > refusing.attained
    assert (refusing.served.lambda_, refusing.cost.lambda_) == (0, 0.0)


def test_a_fast_metric_attains_more_in_a_surge(kernel: Kernel) -> None:
    given = experiment(kernel, Market.ON_DEMAND, trace=surging(40.0, plus=2.0), types=("c5.large",))
    assert run(given, "sagemaker-fast").attained > run(given, "sagemaker").attained

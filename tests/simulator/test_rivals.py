"""Rivals in replays: what they are tuned on, and that none waits for what could only be late."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mark.domain.errors import Misconfigured
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import PING_S, Market
from mark.policies.bundles import tuning_grid
from mark.policies.spec import Overrides
from mark.policies.tuning import DAY_S, Setting
from mark.simulator import experiment as experiments
from mark.simulator.engine.compiled import Kernel
from mark.simulator.experiment import Experiment
from mark.simulator.faults import FaultScript, Interrupt, Refuse
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from tests.scenarios.builders import (
    FIXED,
    FIXED_WORLD,
    HISTORY_S,
    MemoryJournal,
    experiment,
    run,
    surging,
    up_and_down,
)
from tests.scenarios.test_replay_law import told

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """A run whose policy was tuned for it, and what was told meanwhile."""

    given: Experiment
    first: RunResult
    told: list[tuple[str, float]]


@pytest.fixture(scope="module")
def few_settings() -> Iterator[tuple[Setting, ...]]:
    """An autoscaler is tuned among four of its settings."""
    few = tuning_grid("autoscaler")[::4]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "tuning_grid", lambda name: few if name == "autoscaler" else tuning_grid(name))
        yield few


@pytest.fixture(scope="module")
def tuned(kernel: Kernel, few_settings: tuple[Setting, ...]) -> Tuned:
    """An autoscaler on steps that go on as before: to tune it is most of the time of those who ask."""
    given = experiment(kernel, Market.ON_DEMAND, trace=stepping(5.0, 5.0), types=("c5.large",))
    told: list[tuple[str, float]] = []
    first = given.run("autoscaler", progress=lambda label, share: told.append((label, share)))
    return Tuned(given=given, first=first, told=told)


def test_what_comes_in_the_run_changes_nothing_that_is_tuned(kernel: Kernel, tuned: Tuned) -> None:
    other = experiment(kernel, Market.ON_DEMAND, trace=stepping(5.0, 50.0), types=("c5.large",))
    first, second = run(tuned.given, "autoscaler"), run(other, "autoscaler")
    assert first.tuned is not None
    assert first.tuned == second.tuned
    assert first.requests != second.requests


def test_the_setting_that_runs_is_the_best_of_the_grid_on_the_load_before(
    kernel: Kernel, tuned: Tuned, few_settings: tuple[Setting, ...]
) -> None:
    given, found = tuned.given, tuned.first.tuned
    assert found is not None
    assert (found.replays, found.load_s) == (len(few_settings), HISTORY_S - 60.0)
    past = dataclasses.replace(
        given.spec,
        workload=Workload(trace=given.spec.workload.trace, seed=1, start_s=60.0, duration_s=HISTORY_S - 60.0),
    )
    again = Experiment(past, kernel=kernel, build_forecaster=given._build)
    for setting in few_settings:
        replayed = again.run("autoscaler", overrides=Overrides(setting=setting))
        assert replayed.tuned is None
        if replayed.attained >= replayed.slo.target:
            assert found.trial.attained >= replayed.slo.target
            assert found.trial.cost_usd <= replayed.cost.total


def test_a_policy_is_tuned_once_and_says_so_while_it_is(tuned: Tuned) -> None:
    first, again = tuned.first, set[str]()
    tuning = [share for label, share in tuned.told if "tuning autoscaler" in label]
    assert tuning == sorted(tuning)
    assert tuning[-1] == 1.0
    second = tuned.given.run("autoscaler", progress=lambda label, _: again.add(label))
    assert again == {"replaying autoscaler"}
    assert second.tuned is first.tuned
    assert second.cost == first.cost
    assert first.tuned is not None
    assert first.notes[0] == first.tuned.sentence


def test_a_setting_that_rents_one_instance_does_what_busier_ones_do(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = constant(0.2, duration_s=HISTORY_S + 600.0)
    given = experiment(kernel, Market.ON_DEMAND, trace=trace, faults=CALM, types=("c5.large",))
    past, settings, asked = given.before("autoscaler"), tuning_grid("autoscaler"), list[Setting | None]()
    every = [past.run("autoscaler", overrides=Overrides(setting=setting)) for setting in settings[::5]]
    plain = Experiment.run

    def counted(self: Experiment, policy: str, **more: Any) -> RunResult:
        asked.append(more["overrides"].setting)
        result: RunResult = plain(self, policy, **more)
        return result

    monkeypatch.setattr(Experiment, "run", counted)
    found = given.tuned("autoscaler", Overrides(), grid=settings)

    assert {(one.launches, one.cost.total, one.attained) for one in every} == {
        (1, every[0].cost.total, every[0].attained)
    }
    assert asked == [setting for setting in settings if setting.utilisation == 0.3]
    assert found is not None
    assert (found.trial.setting, found.trial.cost_usd) == (settings[0], every[0].cost.total)


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


def test_a_ping_each_five_minutes_is_billed_and_spares_the_cold_start_of_a_rare_request(kernel: Kernel) -> None:
    at_s = np.arange(8 * 3600)
    rare = Trace(
        name="rare",
        start_at=0.0,
        bin_s=1.0,
        rates_rps=np.where(at_s % 7200 == 1800, 1.0, 0.0),
        whole_counts=True,
    )
    plain = experiment(kernel, Market.ON_DEMAND, trace=rare)
    asked, pinged = (plain.run(name) for name in ("lambda-only", "lambda-pinged"))
    assert (asked.requests, asked.cold_starts) == (pinged.requests, asked.requests)
    assert pinged.cold_starts == 0
    overflow = plain.supply.overflow
    assert overflow is not None
    pings = 7 * 12
    usd = pings * (overflow.usd_per_request + PING_S * overflow.memory_gib * overflow.usd_per_gib_s)
    served = pinged.requests * overflow.usd_per_warm_request
    assert pinged.cost.lambda_ == pytest.approx(usd + served, rel=0.02)


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


ZONED = replace(FIXED_WORLD, zones=("a", "b", "c"), spot_zone_spread=0.1)
HEDGE = Overrides(setting=Setting(rule="spothedge", utilisation=0.5, spare=1))


def hedging(kernel: Kernel, *faults: Interrupt) -> tuple[RunResult, MemoryJournal]:
    """SpotHedge for half an hour of a steady load, in three zones."""
    load = constant(40.0, duration_s=HISTORY_S + 1800.0)
    script = FaultScript(stress=0.0, interrupts=faults)
    given = experiment(kernel, Market.SPOT, trace=load, faults=script, types=("c5.large",), world=ZONED)
    journal = MemoryJournal()
    return given.run("spothedge", overrides=HEDGE, open_journal=journal.open), journal


def test_spothedge_leaves_an_interrupted_zone_and_bridges_on_demand_what_is_not_ready(kernel: Kernel) -> None:
    calm, steady = hedging(kernel)
    fleet = Counter(i.zone for i in steady.seen[-1].fleet)
    assert set(fleet) == {"a", "b", "c"}, "spot alone, in every zone"
    (full, _), *_ = fleet.most_common()
    lost, journal = hedging(kernel, Interrupt(at_s=600.0, share=1.0, offering=f"c5.large:spot:{full}"))
    assert told(journal.lines) == []
    begin = journal.seen[0].now
    launches = [(at - begin, order) for at, order in journal.of(Launch) if at - begin >= 600.0]
    bridged = [at for at, order in launches if order.offering == "c5.large:on-demand"]
    assert 600.0 <= min(bridged) <= 620.0 < 600.0 + FIXED.spot_notice_s, "a warned instance is not ready"
    assert f"c5.large:spot:{full}" not in {order.offering for _, order in launches}
    assert sum(order.count for _, order in launches if ":spot:" in order.offering) == fleet[full]
    on_demand = [sum(i.offering.endswith("on-demand") for i in seen.fleet) for seen in journal.seen]
    assert max(on_demand[20:]) == fleet[full], "one for each warned instance, though it still serves"
    assert on_demand[-1] == 0
    assert lost.cost.instances > calm.cost.instances


def test_a_refused_pool_is_replaced_by_the_next_one_alone(kernel: Kernel) -> None:
    refused = FaultScript(refusals=(Refuse(from_s=0.0, to_s=3600.0, offering="c5.large:on-demand"),))
    given = experiment(kernel, Market.ON_DEMAND, trace=surging(40.0, plus=2.0), faults=refused)
    half = Overrides(setting=Setting(rule="target-tracking", utilisation=0.5))
    names = [item.name for item in given.bundle("sagemaker-pools", half).controller.offerings]
    assert names[:2] == ["c5.large:on-demand", "c5.xlarge:on-demand"]
    journal = MemoryJournal()
    result = given.run("sagemaker-pools", overrides=half, open_journal=journal.open)
    assert told(journal.lines) == []
    asked = {order.offering for _, order in journal.of(Launch)}
    assert asked == set(names[:2])
    assert {i.offering for i in journal.seen[-1].fleet} == {names[1]}
    assert result.refusals > 0
    plain = experiment(kernel, Market.ON_DEMAND, trace=surging(40.0, plus=2.0))
    tuned, pools = (plain.run(name, overrides=half) for name in ("sagemaker-tuned", "sagemaker-pools"))
    assert pools.cost == tuned.cost, "where nothing is refused, pools are one type"


def test_headroom_over_the_usual_hour_is_rented_before_the_load_comes(kernel: Kernel) -> None:
    at_s = np.arange(DAY_S + 3600.0)
    trace = Trace(
        name="hours",
        start_at=0.0,
        bin_s=1.0,
        rates_rps=np.where(at_s // 3600 % 24 == 0, 40.0, 4.0),
        whole_counts=True,
    )
    plain = experiment(kernel, Market.ON_DEMAND, types=("c5.large",), faults=CALM, world=FIXED_WORLD)
    load = Workload(trace=trace, seed=1, start_s=DAY_S - 900.0, duration_s=1800.0)
    given = Experiment(
        dataclasses.replace(plain.spec, workload=load), kernel=kernel, build_forecaster=plain._build
    )
    result = given.run(
        "ema-headroom", overrides=Overrides(setting=Setting(rule="ema-headroom", utilisation=0.5, alpha=0.5))
    )
    (kind,) = given.bundle("autoscaler", untuned("autoscaler")).controller.offerings
    ready = result.minutes.ready.sum(axis=1).tolist()
    assert ready[5] == math.ceil(4.0 / (0.5 * kind.capacity_rps))
    assert ready[14] == ready[-1] == math.ceil(40.0 / (0.5 * kind.capacity_rps)), "there before the hour begins"


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


def test_pods_of_one_model_are_billed_as_the_nodes_they_are_on(kernel: Kernel) -> None:
    given = experiment(kernel, Market.ON_DEMAND, trace=constant(10.0, duration_s=HISTORY_S + 900.0), faults=CALM)
    setting = Overrides(setting=Setting(rule="pod-autoscaler", utilisation=0.7))
    on_nodes = given.run("kubernetes-packed", overrides=setting)
    by_share = given.run("kubernetes-packed", overrides=setting, on_nodes=False)
    assert on_nodes.served == by_share.served
    assert on_nodes.attained >= 0.98
    assert all("pod" not in line.item for line in on_nodes.bill)
    assert any("pod" in line.item for line in by_share.bill)
    assert on_nodes.cost.instances >= by_share.cost.instances > 0.0
    assert on_nodes.cost.lambda_ == 0.0


def test_a_model_that_is_cheaper_on_lambda_has_no_pods(kernel: Kernel) -> None:
    given = experiment(
        kernel,
        Market.ON_DEMAND,
        trace=constant(0.01, duration_s=HISTORY_S + 900.0),
        profile_sets=("assumed-lambda",),
        faults=CALM,
    )
    alone = Overrides(setting=tuning_grid("kubernetes-packed-spill")[-1])
    result = given.run("kubernetes-packed-spill", overrides=alone)
    assert (result.policy, result.cost.instances) == ("kubernetes-packed-spill", 0.0)
    assert result.served.lambda_ + result.served.in_flight == result.served.total

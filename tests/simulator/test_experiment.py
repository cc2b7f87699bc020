"""Experiments: what runs cost, to the cent, and that the two yardsticks lie where they claim to."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from mark.cloudmodel.world import IDEAL, TYPICAL
from mark.config.footprint import footprint_of
from mark.config.policies import chosen_limits, chosen_tuning
from mark.config.settings import ManagedSettings, PolicySettings, Settings
from mark.controller.policy import MonitorPolicy
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import Market
from mark.plugins.load import build_forecaster
from mark.policies.bundles import KAIROS
from mark.policies.overrides import OWN_POLICIES, SETTINGS
from mark.policies.spec import Overrides
from mark.policies.tuning import Setting
from mark.simulator.engine.compiled import Kernel
from mark.simulator.experiment import Experiment
from mark.simulator.faults import FaultScript, Refuse
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import constant, mmpp
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from tests.scenarios.builders import (
    FIXED_WORLD,
    HISTORY_S,
    UNTRAINED,
    MemoryJournal,
    experiment,
    run,
    surging,
    up_and_down,
)

POLICIES = ("hedged", "mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only")
RIVALS = {
    "autoscaler": Setting(rule="target-tracking", utilisation=0.6),
    "autoscaler-spill": Setting(rule="two-windows", utilisation=0.9),
    "serverless": Setting(rule="provisioned-concurrency", utilisation=1.0),
}
"""Tuned rivals, with settings near the edge."""
SHOWN = (
    "lead_min", "cooldown_min", "max_instances", "launch_weight_usd_per_s", "admission_factor",
    "admission_confidence",
    "standby.max_count",
    "monitor.requests", "monitor.seconds", "monitor.count", "monitor.cooldown_s", "monitor.instance_type",
)  # fmt: skip
"""Every tunable setting, as notes name it."""
CALM = FaultScript(stress=0.0)


def jumping(seed: int) -> Trace:
    """An hour and 25 minutes that jump between 10 and 70 requests/s."""
    return mmpp((10.0, 40.0, 70.0), (240.0, 300.0, 120.0), duration_s=HISTORY_S + 1500.0, seed=seed)


TRACES = {
    "constant": constant(30.0, duration_s=HISTORY_S + 1200.0, seed=2),
    "surge": surging(40.0, plus=1.0),
    "fall": surging(60.0, plus=-0.8),
    "waves": up_and_down(),
    "jumps": jumping(1),
    "other jumps": jumping(2),
    "hardly any": constant(0.3, duration_s=HISTORY_S + 1200.0, seed=2),
}
QUICK = {"surge", "waves", "hardly any"}
"""Every run of the suite takes these, make test-all all of them."""
SOME_TRACES = [
    pytest.param(trace, id=name, marks=[] if name in QUICK else [pytest.mark.slow])
    for name, trace in TRACES.items()
]


@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize("trace", SOME_TRACES)
def test_the_floor_lies_below_every_run_that_attains_its_target(
    kernel: Kernel, market: Market, trace: Trace
) -> None:
    attaining = 0
    given = experiment(kernel, market, trace=trace)
    reference, floor, _ = given.yardsticks()
    assert reference is not None
    assert floor is not None
    assert 0.0 < floor <= reference * (1 + 1e-9)
    for policy in POLICIES:
        result = run(given, policy)
        if result.attained >= result.slo.target:
            attaining += 1
            assert floor <= result.cost.serving * (1 + 1e-9), policy
    assert attaining >= 3


@st.composite
def small_runs(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """An experiment on load that jumps, in some market and world, with some standby; and a policy."""
    rates = draw(st.lists(st.floats(2.0, 70.0), min_size=2, max_size=3))
    trace = mmpp(rates, [240.0] * len(rates), duration_s=HISTORY_S + 1200.0, seed=draw(st.integers(1, 99)))
    asked = {
        "market": draw(st.sampled_from(Market)),
        "trace": trace,
        "world": draw(st.sampled_from([IDEAL, TYPICAL])),
        "standby_type": draw(st.sampled_from([None, "c5.large", "t2.medium", "t2.small"])),
        "types": draw(st.sampled_from([(), ("c5.large",), ("c5.xlarge", "p2.xlarge")])),
        "faults": draw(st.sampled_from([CALM, FaultScript(stress=2000.0)])),
    }
    if asked["world"] is TYPICAL and "p2.xlarge" in asked["types"]:
        asked["types"] = ("c5.xlarge",)  # an account has no quota for P types
    return asked, draw(st.sampled_from([*POLICIES, *RIVALS]))


def check_floor(kernel: Kernel, asked: dict[str, Any], policy: str) -> None:
    given = experiment(kernel, **asked)
    known = given.yardsticks()
    forced = Overrides(forecaster=UNTRAINED.get(policy), setting=RIVALS.get(policy))
    result = given.run(policy, overrides=forced)
    assert known.reference_usd is not None
    assert known.floor_usd is not None
    assert known.floor_usd <= known.reference_usd * (1 + 1e-9)
    if result.attained >= result.slo.target:
        assert known.floor_usd <= result.cost.serving * (1 + 1e-9)


@settings(max_examples=4, deadline=None)
@hypothesis.given(small_runs())
def test_the_floor_holds_on_small_random_instances(kernel: Kernel, drawn: tuple[dict[str, Any], str]) -> None:
    check_floor(kernel, *drawn)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@hypothesis.given(small_runs())
def test_the_floor_holds_on_many_random_instances(kernel: Kernel, drawn: tuple[dict[str, Any], str]) -> None:
    check_floor(kernel, *drawn)


@pytest.mark.parametrize("market", list(Market))
def test_every_type_may_stand_by_in_either_market(kernel: Kernel, market: Market) -> None:
    given = experiment(kernel, market)
    names = {item.name for item in given.assembly.standby_types}
    assert {"c5.large:on-demand", "p2.xlarge:on-demand", "t2.medium:on-demand"} <= names
    assert experiment(kernel, market, standby_share=0.0).assembly.standby_types == ()
    without = experiment(kernel, market, standby_share=0.0).yardsticks()
    assert given.yardsticks().reference_usd == without.reference_usd
    assert given.yardsticks().floor_usd < without.floor_usd


@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize("trace", SOME_TRACES)
def test_the_reference_lies_below_greedy_with_perfect_forecasts(
    kernel: Kernel, market: Market, trace: Trace
) -> None:
    given = experiment(kernel, market, trace=trace, faults=CALM)
    reference = given.yardsticks().reference_usd
    result = run(given, "greedy-oracle")
    assert reference is not None
    assert reference <= result.cost.serving
    assert result.attained >= result.slo.target


@pytest.mark.parametrize("types", [("c5.large",), ("c5.large", "c5.xlarge"), ("p2.xlarge",)])
@pytest.mark.parametrize("overflow", [True, False])
def test_both_yardsticks_hold_for_other_choices_of_types(
    kernel: Kernel, types: tuple[str, ...], overflow: bool
) -> None:
    given = experiment(kernel, Market.SPOT, trace=jumping(3), types=types, overflow=overflow, standby_share=0.2)
    reference, floor, _ = given.yardsticks()
    result = run(given, "greedy-oracle")
    assert reference is not None
    assert floor is not None
    assert floor <= reference
    if result.attained >= result.slo.target:
        assert floor <= result.cost.serving


def test_a_tiny_runs_bill_by_hand(kernel: Kernel) -> None:
    """12 minutes in which 8 requests/s become 24, on c5.large with boots of exactly 150 s."""
    trace = surging(8.0, plus=2.0, minutes=12.0)
    given = experiment(
        kernel, Market.ON_DEMAND, trace=trace, types=("c5.large",), world=FIXED_WORLD, managed_cpu_factor=1.2
    )
    journal = MemoryJournal()
    result = run(given, "sagemaker", journal)
    launches = [(at - HISTORY_S, order.count) for at, order in journal.orders if isinstance(order, Launch)]
    assert len(journal.orders) == len(launches) > 1, "it scales up, and 12 minutes are too short to scale down"
    (first_at, first), *later = launches
    assert first_at == 0.0
    # The first fleet is there from the start. Later ones pay from the end of their 15 s pending, boot included.
    seconds = first * 720 + sum(count * (720 - int(at) - 15) for at, count in later)
    assert result.cost.instances == pytest.approx(seconds / 3600 * 0.085 * 1.2, rel=1e-12)
    assert result.launches == first + sum(count for _, count in later)
    assert (result.cost.lambda_, result.cost.standby) == (0.0, 0.0)
    payload_gib = result.requests * given.spec.model.payload_mib / 1024
    assert result.cost.overhead == pytest.approx(payload_gib * 0.016, rel=1e-12)
    ready = result.minutes.ready.sum(axis=1)
    assert ready[0] == first
    assert ready[-1] == first + sum(count for at, count in later if at + 150 <= 11 * 60)


def test_standbys_that_only_sleep_by_hand(kernel: Kernel) -> None:
    """They slept before the run: each pays its disk of 8 GiB at 0.08 USD a month of 730 h, and no start."""
    trace = constant(30.0, duration_s=HISTORY_S + 1200.0, seed=2)
    given = experiment(kernel, trace=trace, faults=CALM)
    journal = MemoryJournal()
    result = run(given, "greedy-oracle", journal)
    launched = [(at, o.count) for at, o in journal.orders if isinstance(o, Launch) and o.role is Role.STANDBY]
    assert result.wakes == 0
    assert [at for at, _ in launched] == [HISTORY_S]
    count = launched[0][1]
    disk = 8 * 0.08 * 1200 / 3600 / 730
    assert result.cost.standby == pytest.approx(count * disk, rel=1e-9)
    assert given.assembly.standby is not None
    planned = journal.seen[0].plan
    assert planned is not None
    assert count == math.ceil(0.5 * planned.capacity_rps / given.assembly.standby.offering.capacity_rps)


def test_static_peaks_bill_is_its_count_times_the_hours(kernel: Kernel) -> None:
    given = experiment(kernel, Market.ON_DEMAND, trace=up_and_down())
    bundle = given.bundle("static-peak")
    (kind,) = bundle.controller.offerings
    highest = max(given.ingredients.history.mean_rps)
    count = math.ceil(highest * kind.profile.latency_s(1) - 1e-9)
    result = run(given, "static-peak")
    assert result.cost.instances == pytest.approx(count * 35 / 60 * kind.usd_per_hour, rel=1e-12)
    assert (result.launches, result.cost.lambda_, result.cost.standby) == (count, 0.0, 0.0)
    assert (result.minutes.ready.sum(axis=1) == count).all()


def test_sagemaker_pays_its_premium_and_for_the_bytes_in_place_of_an_overhead(kernel: Kernel) -> None:
    plain = experiment(kernel, Market.ON_DEMAND, managed_cpu_factor=1.0, managed_gpu_factor=1.0)
    dear = experiment(kernel, Market.ON_DEMAND, managed_cpu_factor=1.2, managed_gpu_factor=1.2)
    first, second = run(plain, "sagemaker"), run(dear, "sagemaker")
    assert second.cost.instances == pytest.approx(1.2 * first.cost.instances)
    (data,) = [line for line in second.bill if line.component == "overhead"]
    assert (data.item, data.unit) == ("data processed", "GiB")
    assert data.usd == pytest.approx(second.requests * plain.spec.model.payload_mib / 1024 * 0.016)
    assert run(experiment(kernel, Market.ON_DEMAND, overhead=False), "sagemaker").cost.overhead == 0.0
    assert run(plain, "reactive").cost.overhead > 0.0


def test_lambda_only_pays_for_lambda_only(kernel: Kernel) -> None:
    result = run(experiment(kernel, Market.ON_DEMAND), "lambda-only")
    assert result.served.lambda_ + result.served.in_flight == result.requests
    assert (result.cost.instances, result.cost.standby, result.cost.overhead) == (0.0, 0.0, 0.0)
    gib_s = (result.lambda_invocations * 0.38 + result.cold_starts * 2.9) * 3.0
    assert result.cost.lambda_ == pytest.approx(result.lambda_invocations * 0.2e-6 + gib_s * 1.66667e-5)
    assert result.cold_starts > 0


def test_what_is_left_to_lambda_begins_as_warm_as_lambda_alone(kernel: Kernel) -> None:
    small = experiment(kernel, Market.ON_DEMAND, trace=constant(0.006, duration_s=HISTORY_S + 1200.0, seed=2))
    left = small.run("hedged", overrides=Overrides(forecaster="last-value"))
    alone = run(small, "lambda-only")
    assert left.launches == 0
    assert left.served.lambda_ > 0
    assert left.cold_starts <= alone.cold_starts


def test_the_same_seed_gives_every_policy_the_same_arrivals(kernel: Kernel) -> None:
    given = experiment(kernel, Market.SPOT)
    runs = [run(given, policy) for policy in POLICIES]
    assert len({result.requests for result in runs}) == 1
    for result in runs[1:]:
        assert np.array_equal(result.seconds.arrivals, runs[0].seconds.arrivals)


def flat(result: RunResult) -> dict[str, object]:
    """A result as comparable values, without the time it took."""
    values = dataclasses.asdict(dataclasses.replace(result, wall_s=0.0))

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value.tobytes() if isinstance(value, np.ndarray) else value

    return {key: plain(value) for key, value in values.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_result_twice(kernel: Kernel, policy: str) -> None:
    faults = FaultScript(stress=3000.0)
    first, again = (flat(run(experiment(kernel, seed=3, faults=faults), policy)) for _ in range(2))
    assert first == again


def test_another_seed_gives_another_run(kernel: Kernel) -> None:
    one, other = (flat(run(experiment(kernel, seed=seed), "greedy-oracle")) for seed in (1, 2))
    assert one != other


def test_a_run_does_not_depend_on_the_runs_before_it(kernel: Kernel) -> None:
    given = experiment(kernel, faults=FaultScript(stress=3000.0))
    alone = flat(run(given, "mark"))
    run(given, "greedy-oracle")
    assert flat(run(given, "mark")) == alone


def test_without_overhead_only_serving_is_billed(kernel: Kernel) -> None:
    bare, whole = (run(experiment(kernel, overhead=asked), "greedy-oracle") for asked in (False, True))
    assert bare.cost.overhead == 0.0
    assert bare.cost.serving == pytest.approx(whole.cost.serving)
    assert whole.cost.overhead > 0.0


def test_minutes_show_what_was_ready_and_what_was_forecast(kernel: Kernel) -> None:
    given = experiment(kernel, Market.ON_DEMAND, trace=surging(40.0, plus=1.0))
    result = run(given, "greedy-oracle")
    minutes = result.minutes
    assert minutes.ready.shape == (20, len(minutes.offerings))
    by_name = {offering.name: offering.capacity_rps for offering in given.supply.offerings}
    expected = minutes.ready * np.array([by_name[name] for name in minutes.offerings])
    assert np.allclose(minutes.capacity_rps, expected)
    known = ~np.isnan(minutes.forecast_max_rps)
    assert known.sum() == 15  # from one lead (five minutes) on
    assert np.allclose(minutes.forecast_max_rps[known], np.array(given.truth.max_rps[:20])[known])


def test_settings_as_they_come_change_nothing(kernel: Kernel) -> None:
    """The defaults of the section `policy` are those of the code: otherwise every run would be tuned unasked."""
    given = experiment(kernel, tuning=chosen_tuning(Settings()), overflow_limits=chosen_limits(Settings()))
    plain = experiment(kernel)
    for policy in POLICIES:
        assert given.bundle(policy) == plain.bundle(policy)
        assert given.changes(policy) == ()
    assert PolicySettings().managed == ManagedSettings(
        cpu=plain.spec.managed_cpu_factor, gpu=plain.spec.managed_gpu_factor
    )


def test_every_tunable_setting_reaches_our_own_policies_and_no_baseline(kernel: Kernel) -> None:
    tree = {
        "lead_min": 4,
        "cooldown_min": 10,
        "max_instances": 80,
        "launch_weight_usd_per_s": 0.001,
        "admission_factor": 0.9,
        "admission_confidence": 0.7,
        "standby": {"max_count": 3},
        "monitor": {
            "requests": 500, "seconds": 30.0, "count": 2, "cooldown_s": 120.0, "instance_type": "c5.xlarge",
        },
    }  # fmt: skip
    tuning = chosen_tuning(Settings.model_validate({"policy": tree}))
    assert set(tuning) == set(chosen_tuning(Settings())) == set(SHOWN) == {setting.key for setting in SETTINGS}
    assert not [key for key, value in tuning.items() if value in (None, chosen_tuning(Settings())[key])]
    given, plain = experiment(kernel, tuning=tuning), experiment(kernel)
    own_policies = [policy for policy in OWN_POLICIES if policy != KAIROS]  # that one is made with a budget
    for policy in own_policies:
        bundle = given.bundle(policy)
        asked = bundle.controller
        assert (asked.lead_units, asked.cooldown_s, asked.max_instances) == (4, 600.0, 80)
        assert bundle.dispatch.admission_factor == 0.9
        assert bundle.dispatch.admission_confidence == 0.7
        assert asked.standby is not None
        assert asked.standby.max_count == 3
        if plain.bundle(policy).controller.monitor is not None:
            assert asked.monitor == MonitorPolicy(
                offering="c5.xlarge:spot", requests=500, seconds=30.0, count=2, cooldown_s=120.0
            )
        own = [key for key in SHOWN if asked.monitor is not None or not key.startswith("monitor.")]
        told = [f"policy.{key}" for key in own if asked.planner == "milp" or key != "launch_weight_usd_per_s"]
        assert [note.split()[0] for note in given.changes(policy)] == told
    assert [given.bundle(policy).controller.monitor is None for policy in own_policies] == 2 * [True] + 3 * [False]
    for policy in set(POLICIES) - set(OWN_POLICIES):
        assert given.bundle(policy) == plain.bundle(policy)


def test_a_limit_of_instances_that_cuts_a_plan_is_noted(kernel: Kernel) -> None:
    given = experiment(kernel, Market.ON_DEMAND, tuning={"max_instances": 2})
    notes = run(given, "greedy-oracle").notes
    assert any(note.startswith("the limit of 2 instances cut what was wanted") for note in notes)


@pytest.mark.parametrize(("rate_rps", "is_noted"), [(250.0, False), (300.0, True)], ids=["carried", "too much"])
def test_a_load_that_two_nodes_do_not_carry_is_noted(kernel: Kernel, rate_rps: float, is_noted: bool) -> None:
    load = constant(rate_rps, duration_s=HISTORY_S + 300.0)
    notes = run(experiment(kernel, Market.ON_DEMAND, trace=load), "static-peak").notes
    assert any(note.startswith("the load takes 3 nodes, and 2 are deployed at most") for note in notes) == is_noted


def test_a_load_that_takes_more_gateways_than_are_deployed_is_noted_but_for_managed_rivals(kernel: Kernel) -> None:
    ha = footprint_of(Settings.model_validate({"rollout": {"shape": "ha", "peak_rps": 20}}))
    load = constant(300.0, duration_s=HISTORY_S + 300.0)
    given = experiment(kernel, Market.ON_DEMAND, trace=load, footprint=ha)
    noted = "the load takes 4 gateways, and 2 are deployed: set rollout.peak_rps"
    assert any(note.startswith(noted) for note in run(given, "static-peak").notes)
    assert not any("gateways" in note for note in run(given, "sagemaker").notes)


def test_refused_launches_are_noted(kernel: Kernel) -> None:
    faults = FaultScript(stress=0.0, refusals=(Refuse(from_s=0.0, to_s=1200.0),))
    result = run(experiment(kernel, Market.ON_DEMAND, faults=faults), "greedy-oracle")
    assert result.refusals > 0
    launches = "launch" if result.refusals == 1 else "launches"
    assert f"EC2 refused {result.refusals:,} {launches}" in result.notes


@pytest.mark.parametrize(
    ("known_h", "run_h", "said"),
    [
        (1.0, 0.1, "1 h came before the run: here target tracking decided alone all the time"),
        (23.0, 1.1, "23 h came before the run: here target tracking decided alone for 1 h"),
        (24.0, 0.1, None),
    ],
)
def test_a_forecast_of_ec2_that_has_not_begun_is_noted(
    kernel: Kernel, known_h: float, run_h: float, said: str | None
) -> None:
    load = constant(1.0, duration_s=(known_h + run_h) * 3600.0)
    spec = experiment(kernel, Market.ON_DEMAND, trace=load).spec
    spec = dataclasses.replace(spec, workload=Workload(trace=load, seed=1, start_s=known_h * 3600.0))
    given = Experiment(spec, kernel=kernel, build_forecaster=build_forecaster)
    for policy, rule in (("predictive", "predictive-scaling"), ("autoscaler", "target-tracking")):
        result = given.run(policy, overrides=Overrides(setting=Setting(rule=rule, utilisation=0.7)))
        told = [note for note in result.notes if "EC2 forecasts nothing before it knows a day" in note]
        assert len(told) == (policy == "predictive" and said is not None)
        assert all(str(said) in note for note in told)

"""The two yardsticks against generated loads and seeds by the dozen, on whole hours of a day with floods too."""

from __future__ import annotations

import pytest

from mark.catalog.load import model
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.domain.offerings.offering import Market
from mark.plugins.load import build_forecaster
from mark.simulator.engine.compiled import Kernel
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript
from mark.simulator.traces.generators import diurnal_floods, mmpp
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from tests.scenarios.builders import HISTORY_S, experiment, run

POLICIES = ("hedged", "mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only")
CALM = FaultScript(stress=0.0)


def jumping(seed: int) -> Trace:
    """An hour and 40 minutes that jump between four rates."""
    rates, stays_s = (5.0, 25.0, 60.0, 110.0), (200.0, 400.0, 250.0, 90.0)
    return mmpp(rates, stays_s, duration_s=HISTORY_S + 2400.0, seed=seed)


def check(given: Experiment) -> set[str]:
    """Asserts on every policy; those that attained their target."""
    reference, floor, _ = given.yardsticks()
    assert reference is not None
    assert floor is not None
    assert 0.0 < floor <= reference * (1 + 1e-9)
    attaining: set[str] = set()
    for policy in POLICIES:
        result = run(given, policy)
        if result.attained >= result.slo.target:
            attaining.add(policy)
            assert floor <= result.cost.serving * (1 + 1e-9), policy
    return attaining


@pytest.mark.slow
@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize("seed", range(10, 34))
def test_the_floor_lies_below_every_attaining_run_on_jumping_load(
    kernel: Kernel, market: Market, seed: int
) -> None:
    assert {"hedged", "lambda-only"} <= check(experiment(kernel, market, trace=jumping(seed), seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize("seed", range(10, 34))
def test_the_reference_lies_below_greedy_with_perfect_forecasts_on_jumping_load(
    kernel: Kernel, market: Market, seed: int
) -> None:
    given = experiment(kernel, market, trace=jumping(seed), seed=seed, faults=CALM)
    reference = given.yardsticks().reference_usd
    result = run(given, "greedy-oracle")
    assert reference is not None
    assert reference <= result.cost.serving
    assert result.attained >= result.slo.target


@pytest.mark.slow
@pytest.mark.parametrize("market", list(Market))
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_the_floor_lies_below_every_attaining_run_on_a_day_with_floods(
    kernel: Kernel, market: Market, seed: int
) -> None:
    spec = model("inception-v3")
    workload = Workload(trace=diurnal_floods(seed, 2), seed=seed, start_s=86_400.0)
    given = Experiment(
        ExperimentSpec(
            footprint=footprint_of(Settings()), model=spec, slo=spec.slo, market=market, workload=workload
        ),
        kernel=kernel,
        build_forecaster=build_forecaster,
    )
    assert {"hedged", "lambda-only"} <= check(given)

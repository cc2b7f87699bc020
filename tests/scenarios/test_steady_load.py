"""A constant load is served within the objective, however small a part of one instance it is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mark.catalog.load import model
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.domain.fleet.orders import Launch
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.plugins.load import build_forecaster
from mark.policies.bundles import PolicyBundle
from mark.policies.spec import Overrides
from mark.simulator.engine.compiled import Kernel
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from tests.scenarios.builders import HISTORY_S, MemoryJournal

SLO = Slo(latency_s=0.2, target=0.98)
RUN_S = 5400.0
SETTLED_S = 600.0
"""From then on a steady load needs no launch."""
UNTRAINED = {"hedged": "moving-mean", "mark": "last-value", "milp": "last-value", "greedy-oracle": None}
LAMBDA_MS = 20.0
SLOWEST_RPS, PUBLISHED_RPS = 10.0, 50.0
"""Capacity of an instance that answers in half of the objective, and in a tenth: the published plan bounds the
mean latency at half of the objective, which says nothing of the last percents where an answer takes so long."""


def digits_experiment(
    kernel: Kernel, folder: Path, trace: Trace, times_ms: dict[str, float], *, seed: int = 0, settle_s: float = 0.0
) -> Experiment:
    """One type on demand, and Lambda where it has a time; what is before HISTORY_S is the history."""
    profiles = [
        {
            "model": "digits", "instance_type": name, "evidence": "assumed", "formula": "a test's",
            "source": "a test",
            "latency_ms_by_batch": {"1": time_ms},
        }
        for name, time_ms in times_ms.items()
    ]  # fmt: skip
    file = folder / "profiles.json"
    file.write_text(json.dumps({"format": "mark-profiles/1", "profiles": profiles}))
    spec = ExperimentSpec(
        footprint=footprint_of(Settings()),
        model=replace(model("inception-v3"), name="digits", memory_gib=0.4),
        slo=SLO,
        market=Market.ON_DEMAND,
        workload=Workload(trace=trace, seed=seed, start_s=HISTORY_S),
        types=("c5.large",),
        profile_sets=(file,),
        overflow="lambda" in times_ms,
    )
    return Settling(spec, kernel=kernel, build_forecaster=build_forecaster, settle_s=settle_s)


class Settling(Experiment):
    """An experiment whose policies may know nothing of the load at first, as those of a new service do."""

    def __init__(self, spec: ExperimentSpec, *, settle_s: float, **given: Any) -> None:
        super().__init__(spec, **given)
        self._settle_s = settle_s

    def bundle(self, policy: str, overrides: Overrides | None = None) -> PolicyBundle:
        made = super().bundle(policy, overrides)
        return replace(made, controller=replace(made.controller, settle_s=self._settle_s))


def launches_of(given: Experiment, policy: str, forecaster: str | None = None) -> tuple[RunResult, list[float]]:
    """A run, and when it launched instances, in seconds of the run."""
    journal = MemoryJournal()
    overrides = Overrides(forecaster=forecaster or UNTRAINED[policy])
    run = given.run(policy, overrides=overrides, open_journal=journal.open)
    return run, [at - HISTORY_S for at, _ in journal.of(Launch)]


@pytest.mark.parametrize(
    ("policy", "on_lambda"), [*((policy, False) for policy in UNTRAINED), ("hedged", True), ("mark", True)]
)
@settings(deadline=None, max_examples=2)
@given(
    load=st.floats(-0.5, 1.6).map(lambda power: 10.0**power),
    over=st.floats(0.0, 5.0).map(lambda power: 10.0**power),
    seed=st.integers(0, 99),
)
@example(load=20.0, over=315.0, seed=1)
def test_the_objective_is_kept(
    kernel: Kernel, tmp_path_factory: pytest.TempPathFactory, policy: str, on_lambda: bool, load: float,
    over: float, seed: int,
) -> None:  # fmt: skip
    """Under our own policy without launches once the first are there; `mark` follows each minute's maximum."""
    slowest = SLOWEST_RPS if policy == "hedged" else PUBLISHED_RPS
    times_ms = {"c5.large": 1000.0 / max(slowest, load * over)} | ({"lambda": LAMBDA_MS} if on_lambda else {})
    trace = constant(load, duration_s=HISTORY_S + RUN_S, seed=seed)
    wanted = digits_experiment(kernel, tmp_path_factory.mktemp("run"), trace, times_ms, seed=seed)
    run, launches = launches_of(wanted, policy)
    assert run.attained >= SLO.target
    if policy == "hedged":  # where Lambda costs about as much as the rent, one more may pay at last
        assert len([at for at in launches if at > SETTLED_S]) <= on_lambda


def test_a_load_at_the_edge_of_one_instance_is_served_in_time_and_launches_none(
    kernel: Kernel, tmp_path: Path
) -> None:
    """`hedged` at 6 of the 10 requests/s of an instance without Lambda."""
    trace = constant(10.0**0.78125, duration_s=HISTORY_S + RUN_S, seed=0)
    run, launches = launches_of(digits_experiment(kernel, tmp_path, trace, {"c5.large": 100.0}), "hedged")
    assert run.attained >= SLO.target
    assert not [at for at in launches if at > SETTLED_S]


def bursts(rps: float, *, on_s: int, off_s: int) -> Trace:
    """An hour of 20 requests/s that nobody sent, and one in which `rps` come and go."""
    rng = np.random.default_rng(1)
    at_s = np.arange(2 * HISTORY_S)
    means = np.where(at_s < HISTORY_S, 20.0, np.where(at_s % (on_s + off_s) < on_s, rps, 0.0))
    rates = rng.poisson(means).astype(float)
    return Trace(name="bursts", start_at=0.0, bin_s=1.0, rates_rps=rates, whole_counts=True)


@pytest.mark.parametrize(
    ("times_ms", "on_s"),
    [({"c5.large": 0.2, "lambda": 20.0}, 100), ({"c5.large": 40.0, "lambda": 60.0}, 300)],
)
def test_a_first_hour_that_knows_nothing_keeps_the_objective_and_what_it_rents(
    kernel: Kernel, tmp_path: Path, times_ms: dict[str, float], on_s: int
) -> None:
    """Twice the expected load comes and goes; what is rented is not given back at each lull and rented again."""
    trace = bursts(40.0, on_s=on_s, off_s=300)
    _, often = launches_of(digits_experiment(kernel, tmp_path, trace, times_ms), "hedged", "last-value")
    given = digits_experiment(kernel, tmp_path, trace, times_ms, settle_s=3600.0)
    run, launches = launches_of(given, "hedged", "last-value")
    assert run.attained >= SLO.target
    assert len(launches) < len(often)

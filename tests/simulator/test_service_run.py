"""Runs of a service's models joined: nothing is lost, and what stands around the fleets is paid for once."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.billing import Load, bill_shared, bill_traffic, cost_of
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.domain.billing.costs import BillLine
from mark.report.service.service_verdict import service_replay_verdict
from mark.simulator.results import RunResult, ServedCounts
from mark.simulator.rng import seed_of
from mark.simulator.services.service_replay import ServiceReplay
from mark.simulator.services.service_run import join_runs, peak_rps
from mark.simulator.traces.generators import constant
from mark.simulator.workload import Workload
from tests.report.fakes import fake_run

DURATION_S = 900
FOOTPRINT = footprint_of(Settings(), models=3)


def run(model: str, usd: float, seed: int = 1, policy: str = "hedged") -> RunResult:
    """A run whose instances cost so much, with the overhead that its own load takes."""
    plain = fake_run(policy, duration_s=DURATION_S, seed=seed, model=model).result
    load = Load(duration_s=float(DURATION_S), peak_rps=peak_rps([plain]), requests=plain.requests, payload_mib=0.1)
    instances = BillLine(component="instances", item="c5.large", quantity=1.0, unit="instance-hours", usd=usd)
    shared = bill_shared(FOOTPRINT, load.peak_rps, load.duration_s, mib_per_s=load.mib_per_s)
    bill = (instances, *shared, *bill_traffic(FOOTPRINT, load))
    changed = {"bill": bill, "cost": cost_of(bill), "load": load, "gateways": 2}
    return fake_run(policy, duration_s=DURATION_S, seed=seed, model=model, **changed).result


def test_a_lone_model_costs_what_its_run_says() -> None:
    alone = run("a", 3.0)
    joined = join_runs(ServiceReplay(results=(alone,)), FOOTPRINT)
    assert joined.cost.total == pytest.approx(alone.cost.total)
    assert [model.model for model in joined.models] == ["a"]
    assert joined.models[0].cost.total + joined.around_usd == pytest.approx(alone.cost.total)


@given(costs=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6), shuffle=st.randoms(use_true_random=False))
def test_models_and_what_stands_around_them_add_up_in_any_order(
    costs: list[float], shuffle: random.Random
) -> None:
    runs = [run(f"m{number}", usd, seed=number) for number, usd in enumerate(costs)]
    joined = join_runs(ServiceReplay(results=tuple(runs)), FOOTPRINT)
    assert sum(model.cost.total for model in joined.models) + joined.around_usd == pytest.approx(joined.cost.total)
    assert sum(line.usd for line in joined.bill) == pytest.approx(joined.cost.total)
    assert (
        joined.around_usd <= sum(one.cost.total for one in runs) - sum(m.cost.total for m in joined.models) + 1e-9
    )
    shuffled = list(runs)
    shuffle.shuffle(shuffled)
    again = join_runs(ServiceReplay(results=tuple(shuffled)), FOOTPRINT)
    assert again.cost.total == pytest.approx(joined.cost.total)
    assert sorted(m.model for m in again.models) == sorted(m.model for m in joined.models)


@pytest.mark.parametrize(
    ("on_shared", "requests", "words"),
    [(10, 100, "on Lambda"), (90, 100, "together on 1 instance"), (0, 0, "on Lambda")],
)
def test_the_verdict_says_who_takes_most_of_a_models_requests(on_shared: int, requests: int, words: str) -> None:
    """Nothing was rented for it alone."""
    joined = join_runs(ServiceReplay(results=(run("a", 3.0),)), FOOTPRINT)
    served = ServedCounts(instance=on_shared, standby=0, lambda_=requests - on_shared, shed=0, in_flight=0)
    model = replace(joined.models[0], instances=0.0, on_shared=on_shared, served=served)
    verdict = service_replay_verdict([replace(joined, models=(model,), hosts=1.0)])
    assert f"(1 model {words})" in verdict.sentence


def test_a_managed_service_has_nothing_around_it() -> None:
    managed = fake_run("sagemaker", duration_s=DURATION_S).result
    joined = join_runs(ServiceReplay(results=(managed, managed)), FOOTPRINT)
    assert (joined.around_usd, joined.cost.total) == (0.0, pytest.approx(2 * sum(one.usd for one in managed.bill)))


def test_models_on_one_trace_draw_arrivals_of_their_own() -> None:
    trace = constant(20, duration_s=600)
    a, b = (Workload(trace=trace, seed=seed_of(0, name)).arrivals(0, 60) for name in ("a", "b"))
    assert not set(a.tolist()) & set(b.tolist())
    assert seed_of(0, "a") == seed_of(0, "a") != seed_of(1, "a")

"""The rival that ours is measured by."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.billing.costs import CostUsd
from mark.policies.tuning import Setting, Trial, TunedSetting
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.rivals import best_of, usd_per_million, usd_per_month
from mark.report.runs.run_documents import run_document
from mark.simulator.results import RunResult
from tests.report.fakes import fake_run

RIVALS = ("sagemaker", "reactive", "autoscaler", "autoscaler-spill", "static-peak", "lambda-only")
FAKE = fake_run("hedged", duration_s=120).result


def result(policy: str, usd: float, attained: float, **changed: object) -> RunResult:
    cost = CostUsd(instances=usd, standby=0.0, lambda_=0.0, overhead=0.0)
    return dataclasses.replace(FAKE, policy=policy, cost=cost, attained=attained, **changed)  # type: ignore[arg-type]


OURS = result("hedged", 10.0, 0.99)


@given(st.lists(st.tuples(st.floats(-0.02, 0.1), st.floats(0.1, 100.0), st.sampled_from(RIVALS)), min_size=1))
def test_what_lacks_something_is_best_only_where_all_lack_something(
    rivals: list[tuple[float, float, str]],
) -> None:
    lacking, usd, _ = best_of(
        rivals, lacking=lambda one: one[0], usd=lambda one: one[1], name=lambda one: one[2]
    ) or (0.0, 0.0, "")
    keeping = [one for one in rivals if one[0] <= 0.0]
    if keeping:
        assert lacking <= 0.0
        assert usd == min(one[1] for one in keeping)
    else:
        assert lacking == min(one[0] for one in rivals)


def test_costs_a_month_and_a_million_requests() -> None:
    run = result("hedged", 7.3, 0.99, duration_s=36000.0, speed=2.0)
    assert usd_per_month(run) == pytest.approx(7.3 * 73)
    assert usd_per_million(run) == pytest.approx(7.3e6 / (2 * run.requests))


def test_the_document_tells_what_a_rival_was_tuned_to() -> None:
    trial = Trial(setting=Setting(rule="two-windows", utilisation=0.7), cost_usd=3.0, attained=0.99)
    tuned = TunedSetting(trial=trial, replays=16, load_s=86400.0)
    document = run_document(ComparedRun(result=result("autoscaler", 1.0, 1.0, tuned=tuned)))
    assert document["tuned"] == {
        "rule": "two-windows", "utilisation": 0.7, "cost_usd": 3.0, "attained": 0.99,
        "replays": 16, "load_s": 86400.0,
    }  # fmt: skip
    assert run_document(ComparedRun(result=OURS))["tuned"] is None

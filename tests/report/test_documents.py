"""The JSON of `mark simulate`: its keys, its sums, and no figure that JSON does not know."""

import dataclasses
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_documents import simulate_document
from mark.simulator.results import ServedCounts
from tests.report.fakes import fake_run

KEYS = {
    "policy", "market", "model", "trace", "seed", "requests", "duration_s", "cost_usd",
    "reference_usd", "floor_usd", "reference_total_usd",
    "cost_over_reference", "cost_over_floor", "slo", "latency_ms", "served", "cold_start_rate", "assumed_profiles",
    "stand_in_profiles", "launches", "interruptions", "wall_s", "speed",
}  # fmt: skip
COUNTS = st.integers(min_value=0, max_value=10**9)
RUN = fake_run(duration_s=300)


def test_run_has_the_documented_keys() -> None:
    (run,) = simulate_document([RUN])["runs"]
    assert set(run) == KEYS | {
        "notes", "wakes", "refusals", "throttled", "forecasts", "stood_in", "tuned",
        "usd_per_month", "usd_per_million", "world", "accuracy", "most_accurate", "quality",
    }  # fmt: skip
    assert set(run["cost_usd"]) == {"instances", "standby", "lambda", "serving", "overhead", "total"}
    assert set(run["slo"]) == {"latency_ms", "target", "attained"}
    assert set(run["latency_ms"]) == {"mean", "p50", "p95", "p99"}
    assert (run["slo"]["latency_ms"], run["slo"]["target"]) == (600.0, 0.98)


def test_costs_add_up() -> None:
    cost = simulate_document([RUN])["runs"][0]["cost_usd"]
    assert math.isclose(cost["serving"], cost["instances"] + cost["standby"] + cost["lambda"])
    assert math.isclose(cost["total"], cost["serving"] + cost["overhead"])


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_requests_are_the_sum_of_served(
    instance: int, standby: int, by_lambda: int, shed: int, flight: int
) -> None:
    served = ServedCounts(instance=instance, standby=standby, lambda_=by_lambda, shed=shed, in_flight=flight)
    changed = dataclasses.replace(RUN, result=dataclasses.replace(RUN.result, served=served))
    (run,) = simulate_document([changed])["runs"]
    assert set(run["served"]) == {"instance", "standby", "lambda", "shed", "in_flight"}
    assert run["requests"] == sum(run["served"].values())


@given(st.sampled_from([math.nan, math.inf, -math.inf]))
def test_what_is_not_a_number_is_null(value: float) -> None:
    result = dataclasses.replace(
        RUN.result, attained=value, latency=dataclasses.replace(RUN.result.latency, p99_s=value)
    )
    document = simulate_document([ComparedRun(result=result, reference_usd=value, floor_usd=None)])
    text = json.dumps(document, allow_nan=False)
    (run,) = json.loads(text)["runs"]
    assert run["slo"]["attained"] is None
    assert run["latency_ms"]["p99"] is None
    assert (run["reference_usd"], run["floor_usd"], run["cost_over_reference"]) == (None, None, None)


def test_cost_over_reference_is_serving_over_reference() -> None:
    serving = RUN.result.cost.serving
    assert ComparedRun(result=RUN.result, reference_usd=serving / 2).cost_over_reference == 2.0
    assert ComparedRun(result=RUN.result, reference_usd=0.0).cost_over_reference is None
    assert ComparedRun(result=RUN.result).cost_over_reference is None


def test_cost_over_floor_says_nothing_of_a_run_that_misses_its_objective_or_of_hours() -> None:
    serving, target = RUN.result.cost.serving, RUN.result.slo.target
    day = dataclasses.replace(RUN.result, duration_s=86_400.0)
    kept, missed = (dataclasses.replace(day, attained=share) for share in (target, target - 1e-3))
    assert ComparedRun(result=kept, floor_usd=serving / 2).cost_over_floor == 2.0
    assert ComparedRun(result=missed, floor_usd=serving / 2).cost_over_floor is None
    assert ComparedRun(result=kept, floor_usd=0.0).cost_over_floor is None
    hours = dataclasses.replace(kept, duration_s=6 * 3600.0)
    assert ComparedRun(result=hours, floor_usd=serving / 2).cost_over_floor is None
    assert ComparedRun(result=missed, reference_usd=serving / 2).cost_over_reference == 2.0


def test_a_run_without_answers_has_no_latency_and_attains_nothing() -> None:
    nothing = ServedCounts(instance=0, standby=0, lambda_=0, shed=0, in_flight=3)
    (run,) = simulate_document([fake_run(served=nothing)])["runs"]
    assert run["slo"]["attained"] is None
    assert set(run["latency_ms"].values()) == {None}

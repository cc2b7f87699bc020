"""`mark plan` and `mark bound` of a service of several models, beside its replay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.acceptance.zoo import write_zoo
from tests.command_line import Mark
from tests.offline.test_shared_instances import MODELS, _zoo

__all__ = ["_zoo"]


def change(**settings: Any) -> None:
    """Change the service's settings; those of a model by its name."""
    file = Path("zoo/service.yaml")
    given = yaml.safe_load(file.read_text())
    for model in given["service"]["serve"]:
        own = settings.pop(model["model"], {})
        model.update(own)
        for key in [key for key, value in own.items() if value is None]:
            del model[key]
    file.write_text(yaml.safe_dump({"forecaster": "last-value"} | given | settings))


def plan(mark: Mark, *arguments: str) -> dict[str, Any]:
    answer = mark("plan", "--config", "zoo/service.yaml", "--json", *arguments)
    assert answer.status == 0, answer.err
    found: dict[str, Any] = json.loads(answer.out)
    return found


def test_the_models_of_a_plan_add_up_to_it_and_share_what_its_replay_rents(mark: Mark) -> None:
    change()
    found = plan(mark)
    (host,) = found["shared"]
    assert {tenant["model"] for tenant in host["tenants"]} == {"a", "b", "c"}
    assert sum(tenant["usd_per_hour"] for tenant in host["tenants"]) == pytest.approx(host["usd_per_hour"])
    assert found["usd_per_hour"] == pytest.approx(sum(model["usd_per_hour"] for model in found["models"]))
    assert host["busy"] <= host["busy_peak"] <= 0.6 + 1e-9
    assert host["memory_used_gib"] == pytest.approx(1.5)
    batch = {tenant["model"]: tenant["batch_ms"] for tenant in host["tenants"]}
    for tenant in host["tenants"]:
        assert tenant["wait_ms"] == max(ms for name, ms in batch.items() if name != tenant["model"])
    said = mark("plan", "--config", "zoo/service.yaml").out
    assert f"1: {host['offering']}" in said

    replay = ("simulate", "--policy", "hedged", "--duration-s", "60", "--config", "zoo/service.yaml", "--json")
    (run,) = json.loads(mark(*replay).out)["runs"]
    assert run["cost_usd"]["instances"] == pytest.approx(host["usd_per_hour"] / 60.0, rel=1e-6)


def test_a_model_by_itself_rents_its_own_or_is_left_to_lambda(mark: Mark) -> None:
    change(a={"sharing": "alone", "trace": None, "expected_rps": 60.0})
    found = plan(mark)
    alone, *_ = found["models"]
    assert alone["shared_rps"] == 0.0
    assert alone["mean_rps"] == pytest.approx(60.0, rel=0.05)
    assert alone["own_usd_per_hour"] > 0.0
    assert all(tenant["model"] != "a" for host in found["shared"] for tenant in host["tenants"])
    change(policies=["lambda-only"])
    for model in plan(mark)["models"]:
        assert (model["own"], model["shared_rps"]) == ([], 0.0)
        assert model["usd_per_hour"] == model["lambda_usd_per_hour"] > 0.0


def test_the_moment_of_a_plan_is_asked_for_or_the_end_of_the_traces(mark: Mark) -> None:
    change()
    at_six, at_noon = (plan(mark, "--start-s", str(86_400 + hour * 3600)) for hour in (5, 11))
    assert at_six["models"][0]["mean_rps"] > at_noon["models"][0]["mean_rps"]
    change(trace={})
    assert plan(mark)["looked_s"] == 90_000, "a day, and an hour to compare with the day before"


@pytest.mark.parametrize("has_lambda", [True, False])
def test_what_is_late_goes_to_lambda_where_there_is_one(mark: Mark, has_lambda: bool) -> None:
    file = Path("zoo/profiles.json")
    given = json.loads(file.read_text())
    given["profiles"] = [one for one in given["profiles"] if has_lambda or one["instance_type"] != "lambda"]
    file.write_text(json.dumps(given))
    change()
    said = " ".join(mark("plan", "--config", "zoo/service.yaml").out.split())
    assert "shared instance" in said
    assert ("goes to Lambda" in said) == has_lambda


@pytest.mark.parametrize(
    ("settings", "arguments", "says"),
    [
        ({}, ["--rate", "5"], "--rate is of one model: add --model, one of a, b, c"),
        ({"a": {"trace": None}}, [], "a has no load: name service.serve[].trace or its expected_rps"),
        ({"a": {"trace": "nowhere.csv"}}, [], "a: "),
        ({"a": {"model": "b"}}, [], "the model b is served twice"),
        ({"a": {"trace": {"file": "a.csv", "start_s": 30}}}, [], "mark: a: a plan looks at the load before it"),
        ({}, ["--start-s", "0"], "--start-s 0: a plan looks at the load before it"),
    ],
)
def test_a_service_that_cannot_be_planned_says_why_in_one_line(
    mark: Mark, settings: dict[str, Any], arguments: list[str], says: str
) -> None:
    change(**settings)
    answer = mark("plan", "--config", "zoo/service.yaml", *arguments)
    assert answer.status == 2, answer.out
    assert says in answer.err.splitlines()[-1]


def test_the_bound_of_a_service_adds_up_and_lies_below_its_replay(mark: Mark) -> None:
    file = Path("zoo/service.yaml")
    change(trace=yaml.safe_load(file.read_text())["trace"] | {"duration_s": 1200})
    found = json.loads(mark("bound", "--config", str(file), "--json").out)
    assert found["floor_usd"] == pytest.approx(sum(model["floor_usd"] for model in found["models"]))
    assert {model["model"]: model["may_share"] for model in found["models"]} == dict.fromkeys("abc", True)
    said = mark("bound", "--config", str(file)).out
    assert "no run in which every model keeps its objective serves for less" in " ".join(said.split())
    replay = ("simulate", "--policy", "hedged", "--config", str(file), "--json")
    (run,) = json.loads(mark(*replay).out)["runs"]
    assert 0.0 < found["floor_usd"] < run["cost_usd"]["serving"]
    alone = json.loads(mark("bound", "--config", str(file), "--model", "a", "--json").out)
    assert alone["model"] == "a"


def capped(**limits: Any) -> dict[str, Any]:
    """The zoo's service under a cap."""
    service = yaml.safe_load(Path("zoo/service.yaml").read_text())["service"]
    return {"service": service | {"aws": limits}}


def test_a_cap_that_is_loose_changes_nothing_and_a_tight_one_is_kept(mark: Mark) -> None:
    write_zoo(Path("zoo"), [replace(model, peak_rps=20 * model.peak_rps) for model in MODELS], seed=1)
    change()
    free = plan(mark)
    change(**capped(max_vcpus=10_000, max_gpus=1, max_usd_per_hour=1000.0))
    assert plan(mark) == free

    def rent(planned: dict[str, Any]) -> float:
        shared = sum(host["usd_per_hour"] for host in planned["shared"])
        return float(shared + sum(model["own_usd_per_hour"] for model in planned["models"]))

    limit = rent(free) / 2
    change(**capped(max_usd_per_hour=limit))
    assert limit / 2 < rent(plan(mark)) <= limit


def test_a_replay_under_a_loose_cap_costs_the_same_to_the_cent_and_keeps_a_tight_one(mark: Mark) -> None:
    write_zoo(Path("zoo"), [replace(model, peak_rps=20 * model.peak_rps) for model in MODELS], seed=1)

    def run(**limits: Any) -> dict[str, Any]:
        change(**capped(**limits))
        arguments = ("--policy", "hedged", "--duration-s", "600", "--json")
        answer = mark("simulate", "--config", "zoo/service.yaml", *arguments)
        assert answer.status == 0, answer.err
        (found,) = json.loads(answer.out)["runs"]
        return dict(found)

    free, loose, tight = run(), run(max_vcpus=10_000), run(max_vcpus=4)
    assert loose["cost_usd"] == free["cost_usd"]
    assert free["instances_rented"] > 2 >= tight["instances_rented"] > 0, "the smallest type has two processors"


def test_a_cap_below_the_floors_says_so_in_one_line(mark: Mark) -> None:
    change(a={"capacity": [{"min_rps": 500}]})
    change(**capped(max_vcpus=4))
    answer = mark("plan", "--config", "zoo/service.yaml")
    assert answer.status == 2, answer.out
    assert "service.aws.max_vcpus is 4, and the models need" in answer.err.splitlines()[-1]

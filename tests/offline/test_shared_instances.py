"""`mark simulate` of a service whose models share instances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.acceptance.zoo import GPUS, ZooModel, write_zoo
from tests.command_line import Mark
from tests.offline.test_sweep import here
from tests.once import once_a_run

__all__ = ["here"]

MODELS = [
    ZooModel("a", latency_ms=40.0, peak_rps=8.0, peak_hour=6.0),
    ZooModel("b", latency_ms=20.0, peak_rps=12.0, peak_hour=18.0),
    ZooModel("c", latency_ms=60.0, peak_rps=6.0, peak_hour=12.0),
]
"""None is worth an instance of its own; together they fill one, because they are busy at different hours."""


@pytest.fixture(autouse=True)
def _zoo(mark: Mark) -> None:
    write_zoo(Path("zoo"), MODELS, seed=1)


HOURS = 0.25
"""So long are the replays."""


def simulate(mark: Mark, *arguments: str, hours: float = HOURS, **settings: Any) -> dict[str, Any]:
    """The zoo, with these settings beside; those of a model by its name."""
    file = Path("zoo/service.yaml")
    given = yaml.safe_load(file.read_text())
    given["trace"]["duration_s"] = round(3600 * hours)
    for model in given["service"]["serve"]:
        model.update(settings.pop(model["model"], {}))
    file.write_text(yaml.safe_dump(given | settings))
    answer = mark("simulate", "--forecaster", "last-value", "--config", str(file), *arguments, "--out", "run")
    assert answer.status == 0, answer.err
    found: dict[str, Any] = json.loads(Path("run/runs.json").read_text())
    return found | {"out": answer.out}


@pytest.fixture
def simulated(mark: Mark, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answer of a run of two policies, and its folder `run`: replayed once, and written anew for each test."""

    def made() -> tuple[dict[str, Any], dict[Path, bytes]]:
        said = simulate(mark, "--policy", "hedged,fleet-per-model")
        files = [*Path("run").rglob("*"), Path("zoo/service.yaml")]
        return said, {file: file.read_bytes() for file in files if file.is_file()}

    said, files = once_a_run(tmp_path_factory, "shared-instances", made)
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return said


def shares(run: dict[str, Any]) -> dict[str, float]:
    """Share of each model's requests that shared instances took."""
    return {model["model"]: model["on_shared"] / model["requests"] for model in run["models"]}


def test_small_models_share_an_instance_and_pay_for_one(mark: Mark, simulated: dict[str, Any]) -> None:
    said = simulated
    shared, apart = said["runs"]
    assert shared["instances_rented"] == pytest.approx(1.0, abs=0.01)
    assert min(shares(shared).values()) > 0.9
    assert set(shares(apart).values()) == {0.0}
    assert shared["cost_usd"]["total"] < apart["cost_usd"]["total"]
    serving_usd = sum(shared["cost_usd"][part] for part in ("instances", "standby", "lambda"))
    bound = json.loads(mark("bound", "--config", "zoo/service.yaml", "--json").out)
    assert 0.0 < said["reference_usd"] == bound["reference_usd"] < serving_usd
    for run in said["runs"]:
        for model in run["models"]:
            assert model["slo"]["attained"] >= 0.98, (run["policy"], model["model"])
    requests = [{model["model"]: model["requests"] for model in run["models"]} for run in said["runs"]]
    assert requests[0] == requests[1]
    own = sum(model["cost_usd"]["total"] for model in shared["models"])
    parts = own + shared["hosts_usd"] + shared["around_usd"]
    assert shared["cost_usd"]["total"] == pytest.approx(parts, rel=1e-6)
    assert "MArk (3 models together on 1 instance)" in said["verdict"]["sentence"]
    assert "Not in these rows: what no model used of 1.0 shared instances, " in said["out"]
    used = {model["model"]: model["shared_usd"] for model in shared["models"]}
    assert min(used.values()) > 0.0
    assert sum(used.values()) + shared["idle_usd"] == pytest.approx(shared["hosts_usd"])
    (host,) = shared["shared"]
    assert sum(used.values()) / host["usd"] == pytest.approx(host["busy"], rel=0.3), "as was expected"


def test_commitments_of_the_account_are_paid_and_used_once(mark: Mark) -> None:
    reserved = {"name": "two", "instance_type": "c5.large", "count": 2, "usd_per_hour": 0.05}
    owned = {"format": "mark-commitments/1", "reserved_instances": [reserved]}
    Path("zoo/owned.json").write_text(json.dumps(owned))
    said = simulate(mark, "--policy", "hedged,fleet-per-model", account={"commitments": "owned.json"})

    shared, apart = said["runs"]
    assert shared["hosts_usd"] > HOURS * 0.085  # of the c5.large that they share
    assert apart["instances_rented"] == pytest.approx(2.0, abs=0.01), "three models, and two that are paid for"
    for run in said["runs"]:
        paid_usd = 2 * HOURS * 0.05  # whoever uses them; less than a minute is billed as one
        assert run["commitments_usd"] == pytest.approx(paid_usd - run["cost_usd"]["instances"], abs=2e-3)
        own = sum(model["cost_usd"]["total"] for model in run["models"])
        parts = own + run["hosts_usd"] + run["around_usd"] + run["commitments_usd"]
        assert run["cost_usd"]["total"] == pytest.approx(parts, rel=1e-6)
    planned = json.loads(mark("plan", "--config", "zoo/service.yaml", "--json").out)
    assert planned["commitments"]["covered_usd_per_hour"] == pytest.approx(0.085)


def test_a_type_that_is_paid_for_draws_the_models_to_it(mark: Mark, simulated: dict[str, Any]) -> None:
    xlarge = {"instance_type": "c5.xlarge", "count": 1, "usd_per_hour": 0.1}
    reserved = [xlarge | {"name": zone, "zone": zone} for zone in ("us-east-1a", "us-east-1b")]
    owned = {"format": "mark-commitments/1", "reserved_instances": reserved}
    Path("zoo/owned.json").write_text(json.dumps(owned))
    listed, _ = simulated["runs"]
    (paid,) = simulate(mark, "--policy", "hedged", account={"commitments": "owned.json"})["runs"]
    for run, kind in ((listed, "c5.large"), (paid, "c5.xlarge")):
        assert [one["offering"] for one in run["shared"]] == [f"{kind}:on-demand"]
        assert min(shares(run).values()) > 0.9
    beside = paid["cost_usd"]["total"] - 2 * HOURS * 0.1  # what it costs beside the reservations
    assert beside < listed["cost_usd"]["total"] - HOURS * 0.085 + 2e-3
    planned = json.loads(mark("plan", "--config", "zoo/service.yaml", "--json").out)
    assert planned["commitments"]["covered_usd_per_hour"] == pytest.approx(0.17)


def explained(mark: Mark, *arguments: str) -> dict[str, Any]:
    answer = mark("explain", "run", *arguments, "--json")
    assert answer.status == 0, answer.err
    found: dict[str, Any] = json.loads(answer.out)
    return found


@pytest.mark.usefixtures("simulated")
def test_who_sits_where_and_why_is_explained(mark: Mark) -> None:
    """The placements of the service, and each model's own fleet beside where it sits."""
    whole = explained(mark)
    assert whole["reproduces"]
    assert whole["orders"] == {"launch": 1, "place": 3}
    (placement,) = whole["placements"]
    (shared,) = placement["shared"]
    assert [tenant["model"] for tenant in shared["tenants"]] == ["a", "b", "c"]
    assert shared["busy_peak"] <= shared["busy_if_together"]
    alone = {load["model"]: load["usd_per_hour_alone"] for load in placement["loads"]}
    assert all(tenant["usd_per_hour"] < alone[tenant["model"]] for tenant in shared["tenants"])
    assert explained(mark, "--at", "10")["placements"] == [placement]
    of_one = explained(mark, "--model", "b")
    assert (of_one["model"], of_one["reproduces"]) == ("b", True)
    assert of_one["placements"] == [placement]
    assert "placements" not in explained(mark, "--policy", "fleet-per-model", "--model", "b")
    said = mark("explain", "run").out
    assert f"place a on {shared['instance']}: " in said
    assert f"placed on {shared['instance']}" in mark("explain", "run", "--model", "a").out
    assert "shares no instance" in mark("explain", "run", "--policy", "fleet-per-model").out
    for arguments, words in (
        (("--model", "x"), "unknown model in run 'x'"),
        (("--at", "31"), "--at 31 is outside"),
        (("--policy", "mark"), "unknown policy in run 'mark'"),
    ):
        answer = mark("explain", "run", *arguments)
        assert (answer.status, answer.err.count("\n")) == (2, 1)
        assert words in answer.err


@pytest.mark.usefixtures("simulated")
def test_a_run_killed_while_it_wrote_is_explained_up_to_there(mark: Mark) -> None:
    file = Path("run/placements.jsonl")
    kept = file.read_bytes()
    file.write_bytes(kept[: len(kept) // 2])
    assert explained(mark)["placements"] == []
    file.write_bytes(kept + b"{}\n")
    assert "line 3 of the journal cannot be read" in mark("explain", "run").out
    assert [line["line"] for line in explained(mark)["missing"]] == [3]
    file.write_bytes(b"{}\n")
    answer = mark("explain", "run")
    assert answer.status == 2
    assert "line 1 of the journal cannot be read" in answer.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_placements_and_not_the_runs(mark: Mark) -> None:
    Path("run").mkdir()
    Path("run/placements.jsonl").symlink_to("/dev/full")
    arguments = ("--policy", "hedged", "--forecaster", "last-value", "--duration-s", "600", "--out", "run")
    answer = mark("simulate", "--config", "zoo/service.yaml", *arguments, "--json")
    assert answer.status == 2
    assert "cannot write the journal run/placements.jsonl" in answer.err
    assert len(json.loads(answer.out)["runs"]) == 1


@pytest.mark.usefixtures("simulated")
def test_a_run_of_one_model_explains_no_service_that_ran_there_before(mark: Mark) -> None:
    arguments = ("--model", "inception-v3", "--trace", "load.csv.gz", "--policy", "lambda-only", "--out", "run")
    assert mark("simulate", *arguments).status == 0
    assert explained(mark)["model"] == "inception-v3"
    assert not [*Path("run").glob("models/*/journal.jsonl")]
    answer = mark("explain", "run", "--model", "a")
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "unknown model in run 'a'" in answer.err


def test_who_shares_with_nobody_shares_nothing(mark: Mark) -> None:
    (run,) = simulate(mark, "--policy", "hedged", a={"sharing": "alone"})["runs"]
    assert shares(run)["a"] == 0.0
    (run,) = simulate(mark, "--policy", "hedged", a={"sharing": "team", "team": "blue"})["runs"]
    assert shares(run)["a"] == 0.0


def test_a_lost_shared_instance_is_replaced(mark: Mark) -> None:
    faults = {"interrupts": [{"at_min": 5, "share": 1.0}]}
    (run,) = simulate(mark, "--policy", "hedged", hours=0.5, market="spot", faults=faults)["runs"]
    lost, found = run["shared"]
    assert lost["from_s"] == 0.0
    assert 300.0 <= found["from_s"] < lost["to_s"] <= 480.0, "the notice is of two minutes"
    assert found["to_s"] == 1800.0
    assert lost["usd"] + found["usd"] <= run["hosts_usd"]
    for one in (lost, found):
        assert [stay["model"] for stay in one["tenants"]] == ["a", "b", "c"]
        assert {stay["to_s"] for stay in one["tenants"]} == {one["to_s"]}
        assert 0.0 < one["busy"] <= 0.6
    assert explained(mark, "--at", "5")["placements"][0]["lost"] == [lost["instance"]]
    assert 0.8 < run["instances_rented"] < 1.3
    assert min(shares(run).values()) > 0.7
    for model in run["models"]:
        assert model["slo"]["attained"] >= 0.97, model["model"]


def test_a_refused_shared_instance_leaves_its_models_to_lambda_and_other_types(mark: Mark) -> None:
    faults = {
        "refusals": [
            {"from_min": 0, "to_min": 30, "offering": f"c5.{size}:on-demand"}
            for size in ("large", "xlarge", "2xlarge")
        ]
    }
    (run,) = simulate(mark, "--policy", "hedged", faults=faults)["runs"]
    assert run["instances_rented"] == 0.0
    for model in run["models"]:
        assert model["served"]["lambda"] == model["requests"] - model["served"]["in_flight"]


def test_pods_of_several_models_are_on_common_nodes_which_the_service_pays(mark: Mark) -> None:
    said = simulate(mark, "--policy", "kubernetes-packed", trace={"start_s": 600, "duration_s": 900})
    (run,) = said["runs"]
    assert min(shares(run).values()) > 0.95
    assert {model["instances_rented"] for model in run["models"]} == {0.0}
    assert 0.0 < run["instances_rented"] < len(MODELS)
    assert all(model["slo"]["attained"] >= 0.98 for model in run["models"])
    own = sum(model["cost_usd"]["total"] for model in run["models"])
    assert own + run["hosts_usd"] + run["around_usd"] == pytest.approx(run["cost_usd"]["total"])
    assert run["hosts_usd"] > 0.0


def test_models_that_lambda_cannot_answer_share_a_gpu(mark: Mark) -> None:
    models = [ZooModel(name, latency_ms=20.0, peak_rps=6.0, peak_hour=0.0, memory_gib=2.0) for name in "abc"]
    write_zoo(Path("zoo"), models, seed=1, machines=GPUS)
    said = simulate(mark, "--policy", "hedged,fleet-per-model")
    shared, apart = said["runs"]
    assert min(shares(shared).values()) > 0.9
    assert shared["instances_rented"] < 0.6 * apart["instances_rented"]
    assert shared["cost_usd"]["total"] < 0.6 * apart["cost_usd"]["total"]
    for model in shared["models"]:
        assert model["slo"]["attained"] >= 0.98, model["model"]


@pytest.mark.usefixtures("here")
def test_a_sweep_replays_the_whole_service_and_goes_on_where_it_stopped(
    mark: Mark, simulated: dict[str, Any]
) -> None:
    said = simulated
    flags = ("--policy", "hedged,fleet-per-model", "--set", "forecaster=last-value")

    def sweep(config: str = "zoo/service.yaml") -> tuple[dict[str, Any], str]:
        answer = mark("sweep", "--config", config, *flags, "--out", "swept", "--json")
        assert answer.status == 0, answer.err
        return json.loads(answer.out), answer.err

    found, _ = sweep()
    again, told = sweep()
    apart = Path("zoo/apart.yaml")
    given = yaml.safe_load(Path("zoo/service.yaml").read_text())
    given["service"]["serve"][0]["sharing"] = "alone"
    apart.write_text(yaml.safe_dump(given))
    other, _ = sweep(str(apart))

    shared = ("cost_usd", "models", "hosts_usd", "shared", "instances_rented")
    assert [{key: cell[key] for key in shared} for cell in found["cells"]] == [
        {key: run[key] for key in shared} for run in said["runs"]
    ]
    assert told == "note: 3 of 3 replays and yardsticks are there already\n"
    assert again["rows"] == found["rows"]
    assert other["rows"] != found["rows"], "with whom a model shares is part of a result's key"
    row = next(row for row in found["rows"] if row["policy"] == "hedged")
    assert row["keeps_objective"]
    assert [model["model"] for model in row["models"]] == ["a", "b", "c"]
    assert row["attained"]["mean"] == min(model["attained"]["mean"] for model in row["models"])
    assert "Models with hedged" in Path("swept/sweep.html").read_text()


def test_advice_asks_for_the_name_of_one_model(mark: Mark) -> None:
    answer = mark("advise", "--config", "zoo/service.yaml")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.strip().endswith("add --model, one of a, b, c")


@pytest.mark.usefixtures("here")
def test_a_sweep_takes_a_model_of_a_service_by_its_own_settings(mark: Mark) -> None:
    flags = ("--policy", "lambda-only", "--duration-s", "600", "--out", "swept")
    answer = mark("sweep", "--config", "zoo/service.yaml", "--model", "a,b", *flags, "--json")
    assert answer.status == 0, answer.err
    found = json.loads(answer.out)
    assert len({cell["cost_usd"]["total"] for cell in found["cells"]}) == 2, "each has a trace of its own"


def test_a_multi_model_endpoint_is_tuned_on_the_load_before(mark: Mark) -> None:
    trace = {"start_s": 240, "duration_s": 240}
    (run,) = simulate(mark, "--policy", "sagemaker-mme", trace=trace)["runs"]
    assert run["instances_rented"] == pytest.approx(1.0)
    for model in run["models"]:
        (note,) = model["notes"]
        assert "before the run: target tracking at utilisation 0." in note
        assert "the best of 5 there" in note
        assert model["on_shared"] == model["served"]["instance"] > 0
        assert model["slo"]["attained"] >= 0.98

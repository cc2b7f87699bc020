"""`mark simulate` of a service with several models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark import api
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import write_trace
from tests.command_line import Mark

SERVICE = """
forecaster: last-value
trace: {start_s: 600}
service:
  serve:
    - {model: inception-v3, trace: load.csv.gz}
    - model: digits
      trace: {file: small.csv.gz, duration_s: 300}
      backend: {kind: python, target: "mark.models.digits:Digits"}
"""


@pytest.fixture(autouse=True)
def _service(mark: Mark) -> None:
    write_trace(constant(0.05, duration_s=900, seed=2), Path("small.csv.gz"))
    Path("service.yaml").write_text(SERVICE)


def test_all_models_are_replayed_with_one_bill_and_one_verdict(mark: Mark) -> None:
    arguments = ("simulate", "--config", "service.yaml", "--policy", "hedged,lambda-only", "--out", "run")
    answer = mark(*arguments)
    assert answer.status == 0, answer.err
    said = json.loads(Path("run/runs.json").read_text())
    hedged, on_lambda = said["runs"]
    assert [run["policy"] for run in said["runs"]] == ["hedged", "lambda-only"]
    assert {model["model"] for model in hedged["models"]} == {"inception-v3", "digits"}
    own = sum(model["cost_usd"]["total"] for model in hedged["models"])
    assert own < hedged["cost_usd"]["total"], "what stands around them is there once"
    assert on_lambda["instances_rented"] == 0
    assert {model["served"]["instance"] for model in on_lambda["models"]} == {0}
    sentence = said["verdict"]["sentence"]
    assert "MArk (1 model on Lambda, 1 on instances)" in sentence
    assert answer.out.rstrip().endswith(sentence)
    page = " ".join(Path("run/report.html").read_text().replace("\u00a0", " ").split())
    assert sentence.split(". ")[0] in page


def test_in_python_it_is_the_same_service(mark: Mark) -> None:
    answer = mark("simulate", "--config", "service.yaml", "--policy", "hedged,lambda-only", "--json")
    traces = {"inception-v3": "load.csv.gz", "digits": api.read_trace("small.csv.gz")}
    runs = api.simulate(models=traces, config="service.yaml", policies=["hedged", "lambda-only"])

    assert json.loads(json.dumps(runs.document)) == json.loads(answer.out)
    assert runs.verdict == json.loads(answer.out)["verdict"]["sentence"]
    frame = runs.to_frame()
    assert list(frame.loc["hedged", "model"]) == ["inception-v3", "digits"]
    assert runs[:1].document["runs"] == runs.document["runs"][:1]
    assert "lambda-only</th>" in runs._repr_html_()
    with pytest.raises(api.Misconfigured, match="a trace, or models="):
        api.simulate("load.csv.gz", models=traces)  # type: ignore[call-overload]


def test_one_model_of_the_service_is_replayed_by_its_own_settings_under_the_flags(mark: Mark) -> None:
    arguments = ("simulate", "--config", "service.yaml", "--model", "digits", "--policy", "lambda-only", "--json")
    (own,) = json.loads(mark(*arguments).out)["runs"]
    assert (own["model"], own["trace"], own["duration_s"]) == ("digits", "small", 300)
    (asked,) = json.loads(mark(*arguments, "--duration-s", "120", "--slo-ms", "900").out)["runs"]
    assert (asked["trace"], asked["duration_s"], asked["slo"]["latency_ms"]) == ("small", 120, 900)
    planned = mark("plan", "--config", "service.yaml", "--model", "digits", "--rate", "5")
    assert planned.status == 0, planned.err
    file = Path("service.yaml")
    file.write_text(
        file.read_text().replace("    - model: digits", "    - model: digits\n      objective: {target: 0.9}")
    )
    (asked,) = json.loads(mark(*arguments, "--slo-target", "0.95").out)["runs"]
    assert asked["slo"]["target"] == 0.95


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (", trace: load.csv.gz", "", "inception-v3 has no traffic: name service.serve[].trace"),
        ("load.csv.gz", "nowhere.csv", "inception-v3: "),
        (
            ", duration_s: 300",
            ", duration_s: 100",
            "not inception-v3 5 min from 600 s, digits 100 s from 600 s; give a --start-s and a --duration-s",
        ),
        (
            ", duration_s: 300",
            ", duration_s: 300, start_s: 500",
            "not inception-v3 5 min from 600 s, digits 5 min from 500 s; give a --start-s and a --duration-s",
        ),
        ("model: digits", "model: inception-v3", "inception-v3 is served twice"),
    ],
)
def test_a_service_that_cannot_be_replayed_says_why_in_one_line(mark: Mark, old: str, new: str, says: str) -> None:
    Path("service.yaml").write_text(SERVICE.replace(old, new))
    answer = mark("simulate", "--config", "service.yaml", "--policy", "hedged")
    assert answer.status == 2, answer.out
    assert says in answer.err.splitlines()[-1]

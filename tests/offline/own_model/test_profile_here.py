"""`mark profile` on this machine: what it claims of what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.aws.ec2.imds import instance_type_here
from mark.catalog.schema import parse_profiles
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.models.profile import Evidence, LatencyPoint, Parallelism, Profile, Provenance
from mark.offline.own_model import profile

MODEL = """
import numpy as np
from mark.domain.tensor import TensorSpec

class Doubler:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 4)),)

    def predict(self, tensors):
        return {"y": np.asarray(tensors["x"]) * 2}
"""
SPEC = {"name": "doubler", "latency_ms": 200, "target_percent": 99, "memory_gib": 0.5, "payload_mib": 0.01}
MEASURE = (
    "profile",
    "--target",
    "doubler.py:Doubler",
    "--model",
    "doubler",
    "--seconds",
    "0.03",
    "--out",
    "p.json",
)
ALONE = (*MEASURE, "--parallelism", "1x1")


@pytest.fixture
def folder(mark, monkeypatch) -> None:
    Path("doubler.py").write_text(MODEL)
    Path("model.json").write_text(json.dumps({"format": "mark-models/1", "models": [SPEC]}))
    monkeypatch.setattr(profile, "instance_type_here", lambda: None)


def written():
    return parse_profiles(Path("p.json").read_text(), "p.json")


def test_what_another_machine_measured_is_a_stand_in_and_every_report_says_so(mark, folder):
    answer = mark(*ALONE, "--as", "c5.large")
    assert answer.status == 0, answer.err
    assert "a stand-in for c5.large" in answer.err
    (made,) = written()
    assert made.provenance.evidence is Evidence.STAND_IN
    assert made.provenance.machine

    mark("trace", "generate", "constant", "--rps", "5", "--duration-s", "300", "--out", "load.csv.gz")
    given = ("--models", "model.json", "--profiles", "p.json", "--model", "doubler")
    replay = (
        "simulate",
        *given,
        "--trace",
        "load.csv.gz",
        "--start-s",
        "120",
        "--policy",
        "static-peak",
        "--out",
        "run",
    )
    said = mark(*replay).out
    stand_in = f"doubler on c5.large: measured on {made.provenance.machine}"
    assert stand_in in " ".join(said.split())
    assert "No assumed profiles" not in said
    assert stand_in in Path("run/report.html").read_text()
    assert json.loads(mark(*replay, "--json").out)["runs"][0]["stand_in_profiles"] == [stand_in]
    assert f"stand-in: {stand_in}" in mark("plan", *given, "--rate", "5").out
    assert json.loads(mark("plan", *given, "--rate", "5", "--json").out)["stand_in_profiles"] == [stand_in]


def test_only_an_instance_of_the_type_measures_the_type(mark, folder, monkeypatch):
    monkeypatch.setattr(profile, "instance_type_here", lambda: "c5.large")

    document = json.loads(mark(*ALONE, "--json").out)
    assert (document["instance_type"], document["evidence"]) == ("c5.large", "measured")
    assert document["machine"] == "EC2 c5.large"
    document = json.loads(mark(*ALONE, "--as", "c5.xlarge", "--json").out)
    assert (document["instance_type"], document["evidence"]) == ("c5.xlarge", "stand-in")


def test_lambda_is_measured_one_request_at_a_time(mark, folder):
    document = json.loads(mark(*MEASURE, "--as", "lambda", "--json").out)

    assert [point["batch"] for point in document["points"]] == [1]
    assert written()[0].provenance.evidence is Evidence.STAND_IN
    refused = mark(*MEASURE, "--as", "lambda", "--batches", "1,8")
    assert refused.status == 2
    assert "Lambda answers one request at a time" in refused.err


def test_what_was_not_stable_is_kept_in_the_file(mark, folder):
    document = json.loads(mark(*ALONE, "--json").out)

    unstable = tuple(point["batch"] for point in document["points"] if not point["stable"])
    assert written()[0].provenance.unstable_batches == unstable


def test_a_machine_that_amazon_did_not_make_is_asked_nothing(tmp_path):
    (tmp_path / "sys_vendor").write_text("QEMU\n")

    assert instance_type_here(tmp_path, "http://127.0.0.1:9") is None


def test_a_busy_machine_is_said_before_it_measures():
    assert profile.busy_warning(0.4, 2) == ""
    assert "busy (load average 6.0 on 2 processors)" in profile.busy_warning(6.0, 2)


def test_a_profile_that_the_settings_name_needs_no_naming(mark, folder):
    assert "name it under profiles" in mark(*ALONE).out
    Path("mark.yaml").write_text("models: model.json\nprofiles: [p.json]\nmodel: doubler\n")
    named = mark(*ALONE, "--config", "mark.yaml")
    assert named.status == 0, named.err
    assert "wrote p.json" in named.out
    assert "name it" not in named.out


def test_the_file_says_the_replicas_and_threads_that_were_chosen_and_the_times_of_the_others(
    mark, folder, monkeypatch
):
    monkeypatch.setattr(profile, "processors", lambda: 2)
    document = json.loads(mark(*MEASURE, "--json").out)
    (made,) = written()

    assert (made.parallelism.replicas, made.parallelism.threads) == (document["replicas"], document["threads"])
    others = [one.parallelism for one in made.provenance.also_measured]
    assert {made.parallelism, *others} == {Parallelism(1, 1), Parallelism(1, 2), Parallelism(2, 1)}
    assert all(one.points for one in made.provenance.also_measured)
    mark(*MEASURE, "--parallelism", "1x2,1x2")
    (made,) = written()
    assert (made.parallelism, made.provenance.also_measured) == (Parallelism(1, 2), ())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("0x1", "must be 1 or more, not 0x1"),
        ("2x0", "must be 1 or more, not 2x0"),
        ("1x3", "1x3 needs 3 processors, c5.large has 2"),
        ("3x1", "3x1 needs 3 processors, c5.large has 2"),
        ("2", "'2' must read RxT"),
        (",", "--parallelism names nothing to measure"),
    ],
)
def test_replicas_and_threads_that_the_type_cannot_run_are_one_line(mark, folder, monkeypatch, asked, said):
    monkeypatch.setattr(profile, "processors", lambda: 8)
    answer = mark(*MEASURE, "--as", "c5.large", "--parallelism", asked)

    assert answer.status == 2
    assert said in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def measured(replicas: int, *batch_ms: float) -> Profile:
    return Profile(
        model="m",
        instance_type="c5.xlarge",
        points=tuple(LatencyPoint(batch=2**i, latency_s=ms / 1000) for i, ms in enumerate(batch_ms)),
        provenance=Provenance(evidence=Evidence.MEASURED, source="a test"),
        parallelism=Parallelism(replicas, 1),
    )


def spec(latency_ms: float) -> ModelSpec:
    return ModelSpec(
        name="m",
        slo=Slo(latency_s=latency_ms / 1000, target=0.99),
        memory_gib=1,
        payload_mib=0.01,
        source="a test",
    )


@pytest.mark.parametrize(
    ("profiles", "latency_ms", "chosen"),
    [
        ((measured(1, 10, 19), measured(2, 10, 10)), None, 1),  # the fastest
        ((measured(1, 10, 19), measured(2, 9.9, 18.5)), None, 0),  # not worth its memory
        ((measured(1, 10, 19), measured(2, 30, 30, 30)), 20.0, 0),  # the fastest is late
        ((measured(1, 50, 90), measured(2, 40, 40)), 20.0, 1),  # all are late
    ],
)
def test_the_fastest_within_the_objective_is_chosen_and_few_replicas_where_it_makes_no_difference(
    profiles, latency_ms, chosen
):
    known = None if latency_ms is None else spec(latency_ms)

    assert profile.best_of(profiles, known) == chosen

"""`mark doctor` and `mark status --aws` as their user meets them: findings, what to do, exit statuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mark.catalog.load import load_prices
from mark.cli.main import run
from mark.deployment import destroy
from tests.emulator.conftest import World, config_for, fleet, template

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/shop/agent:1"
CONFIG = """
model: inception-v3
market: spot
offerings: {{types: [c5.large, p2.xlarge]}}
profiles: [assumed-lambda]
policy: {{overflow_limits: {{concurrency: 2000}}}}
service: {{name: shop, serve: [{{model: inception-v3, expected_rps: 500}}]}}
rollout:
  {rollout}
"""
Doctor = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    types = {item.name: item for item in load_prices().types}
    quotas = {"L-34B43A08": 10.0, "L-7212CCBC": 0.0}
    made = World(config_for(tmp_path_factory.mktemp("doctor"), types=types, quotas=quotas))
    yield made
    made.stop()


@pytest.fixture
def account(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (
        ("AWS_ENDPOINT_URL", world.url),
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("MARK_STATE", str(tmp_path / "state")),
    ):
        monkeypatch.setenv(name, value)


@pytest.fixture
def doctor(account: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    def ask(rollout: str = "owner: team", *flags: str) -> tuple[int, dict[str, dict[str, Any]]]:
        config = tmp_path / "mark.yaml"
        config.write_text(CONFIG.format(rollout=rollout))
        status = run(["doctor", "--config", str(config), "--json", *flags])
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] == (status == 0)
        return status, {finding["check"]: finding for finding in document["findings"]}

    return ask


def test_each_finding_says_what_to_do(doctor: Doctor) -> None:
    kepler = "machines: [{architecture: amd64}, {accelerator: nvidia, ami: ami-0123}]"
    status, found = doctor(f"image: {IMAGE}\n  {kepler}\n  report: {{sender: a@example.org, to: [b@example.org]}}")
    assert status == 1
    states = {name: finding["state"] for name, finding in found.items()}
    assert states == {
        "credentials": "ok",
        "prices": "warning",
        "offerings inception-v3": "ok",
        "zones": "ok",
        "plan": "ok",
        "egress": "ok",
        "types by zone": "ok",
        "vCPUs standard spot": "warning",
        "vCPUs standard on-demand": "ok",
        "vCPUs p spot": "error",
        "vCPUs p on-demand": "ok",
        "Lambda": "error",
        "instance types": "error",  # p2 has been retired
        "image": "error",
        "machines[1].ami": "error",
        "agent_image": "skipped",
        "model_image": "skipped",
        "training_image": "skipped",
        "functions.infer_image": "skipped",
        "certificate": "skipped",
        "sender": "error",
        "SES": "error",
        "webhook": "skipped",
        "template sizes": "skipped",
    }
    both = "infra/image/Dockerfile --target models --platform linux/amd64,linux/arm64"
    assert f"{both} -t {IMAGE} --push ." in found["image"]["remedy"]
    assert "--quota-code L-7212CCBC" in found["vCPUs p spot"]["remedy"]
    assert found["instance types"]["message"] == "not in us-east-1: p2.xlarge"
    assert "policy.overflow_limits.concurrency to 1000" in found["Lambda"]["remedy"]
    assert "create-email-identity --email-identity a@example.org" in found["sender"]["remedy"]
    assert "b@example.org" in found["SES"]["message"]
    assert all(
        finding["remedy"] for finding in found.values() if finding["state"] in {"warning", "error", "unknown"}
    )


PAUSE = "/mark/shop/pause"


def test_a_pause_from_outside_is_a_warning_that_says_what_ends_it(world: World, doctor: Doctor) -> None:
    assert "pause" not in doctor()[1]
    world.client("ssm").put_parameter(Name=PAUSE, Value='{"by": "anna", "at": 0}', Type="String")
    found = doctor()[1]["pause"]
    assert (found["state"], "paused from outside by anna" in found["message"]) == ("warning", True)
    assert "`mark pause --aws --off --name shop`" in found["remedy"]
    world.client("ssm").delete_parameter(Name=PAUSE)


def test_what_is_paused_from_outside_is_said_of_the_account_and_goes_with_the_service(
    world: World,
    account: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(destroy, "loose_volumes", lambda *_: ())  # the emulated AWS has no disks to lose
    config = tmp_path / "mark.yaml"
    config.write_text("service: {name: shop, serve: [{model: inception-v3}]}")
    world.client("ssm").put_parameter(Name=PAUSE, Value="stop", Type="String")
    assert run(["status", "--aws", "--config", str(config)]) == 0
    assert "shop is paused from outside, until `mark pause --aws --off`" in capsys.readouterr().out
    assert run(["destroy", "--yes", "--config", str(config)]) == 0
    assert run(["status", "--aws", "--json", "--config", str(config)]) == 0
    said = capsys.readouterr().out
    assert json.loads(said[said.index("{") :])["paused"] is None


def test_an_account_of_default_quotas_is_asked_for_nothing_that_the_rollout_cannot_launch(doctor: Doctor) -> None:
    """No kind of machine for GPUs is declared, so that a quota of P vCPUs would be of no use."""
    _, found = doctor()
    assert not [name for name in found if name.startswith("vCPUs p")]
    assert found["instance types"]["state"] == "ok"
    said = found["offerings inception-v3"]["message"]
    assert said.startswith("c5.large; left out: ")
    assert (
        "p2.xlarge: rollout.machines has amd64 and arm64: add {architecture: amd64, accelerator: nvidia}" in said
    )


SECRET = "node: {{certificate: arn:aws:secretsmanager:{}:123456789012:secret:tls-AbCdEf}}".format
ACM = "shape: ha\n  certificate: arn:aws:acm:{}:123456789012:certificate/0".format
SHAPES = pytest.mark.parametrize("certificate_in", [SECRET, ACM], ids=["lean, the default", "ha"])


@SHAPES
def test_what_was_fixed_is_ok(world: World, doctor: Doctor, certificate_in: Callable[[str], str]) -> None:
    world.mark("POST", "mail", {"verify": ["example.org"], "sandbox": False})
    certificate = certificate_in("us-east-1")
    _, found = doctor(f"{certificate}\n  report: {{sender: a@example.org, to: [b@example.org]}}")
    assert [found[name]["state"] for name in ("sender", "SES", "certificate")] == ["ok"] * 3


def test_an_image_of_functions_that_is_missing_says_what_makes_it(doctor: Doctor) -> None:
    _, found = doctor(f"model_image: {IMAGE}\n  functions: {{infer_image: {IMAGE}}}")
    assert found["functions.infer_image"]["state"] == found["model_image"]["state"] == "error"
    assert f"--provenance=false -t {IMAGE} . && docker push {IMAGE}" in found["functions.infer_image"]["remedy"]
    assert found["model_image"]["remedy"].startswith("push it")


@SHAPES
def test_another_account_or_region_must_be_fixed(doctor: Doctor, certificate_in: Callable[[str], str]) -> None:
    status, found = doctor('account: "999999999999"')
    assert (status, set(found)) == (1, {"credentials", "prices"})
    assert "999999999999" in found["credentials"]["message"]
    _, found = doctor(certificate_in("eu-west-1"))
    assert found["certificate"]["state"] == "error"
    assert "--region us-east-1" in found["certificate"]["remedy"]


def test_what_may_not_be_asked_is_unknown_and_no_error(world: World, doctor: Doctor) -> None:
    fault = {"kind": "error", "code": "AccessDeniedException", "status": 400, "action": "ListServiceQuotas"}
    world.mark("POST", "faults", fault)
    try:
        _, found = doctor()
    finally:
        world.mark("DELETE", "faults")
    assert found["vCPU quotas"]["state"] == "unknown"
    assert "AccessDenied" in found["vCPU quotas"]["message"]
    assert "mark.aws.permissions.policies" in found["vCPU quotas"]["remedy"]
    assert found["image"]["state"] == "skipped"
    world.mark("POST", "faults", {**fault, "code": "ThrottlingException"})
    try:
        _, found = doctor()
    finally:
        world.mark("DELETE", "faults")
    assert found["vCPU quotas"]["remedy"] == "try again later"


def test_the_table_and_bad_input(account: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mark.yaml"
    config.write_text(CONFIG.format(rollout="owner: team"))
    assert run(["doctor", "--config", str(config), "--prices", str(tmp_path / "p.json")]) == 1
    told = capsys.readouterr().out
    assert "must be fixed" in told
    groups = re.findall(r"^ *(will fail|will cost|fine|not asked for)\b", told, re.MULTILINE)
    assert groups[:4] == ["will fail", "will cost", "fine", "not asked for"]
    assert load_prices(tmp_path / "p.json").region == "us-east-1"
    assert run(["doctor", "--config", str(tmp_path / "none.yaml")]) == 2


def test_status_asks_aws_for_what_bears_the_tag(
    world: World, account: None, capsys: pytest.CaptureFixture[str]
) -> None:
    made = template(world)
    tags = {"mark:service": "shop", "mark:model": "m", "mark:role": "serving", "mark:offering": "c5.large:spot"}
    fleet(world, made, 2, market="spot", tags=tags)
    fleet(world, made, 1, tags={"mark:service": "other"})
    assert run(["status", "--aws", "--name", "shop", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    price = load_prices().instance_type("c5.large").spot_usd_per_hour
    assert price is not None
    assert document["usd_per_hour"] == pytest.approx(2 * price)
    assert {(row["model"], row["role"], row["market"]) for row in document["instances"]} == {
        ("m", "serving", "spot")
    }
    assert run(["status", "--aws", "--name", "shop"]) == 0
    assert "2 instances" in capsys.readouterr().out
    alerts = document["alerts"]
    assert alerts == {
        "at": alerts["at"],
        "dead_letters": None,
        "ringing": [],
        "unknown": alerts["unknown"],
    }
    assert alerts["at"] > 0
    url = world.client("sqs").create_queue(QueueName="mark-shop-raw-dead")["QueueUrl"]
    world.client("sqs").send_message(QueueUrl=url, MessageBody="poison")
    assert run(["status", "--aws", "--name", "shop"]) == 0
    assert "1 message about instances is a dead letter" in capsys.readouterr().out
    assert run(["status", "--aws", "--name", "none"]) == 0
    assert "has no instance" in capsys.readouterr().out

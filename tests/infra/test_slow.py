"""What takes minutes or an environment of its own: checkov, other settings, and the rehearsal on ministack."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mark.config.rollout import MAIL_ENDPOINTS, PROCESS_ENDPOINTS
from mark.config.service import ServedSettings
from mark.deployment.synth import Synthesis, synthesise
from mark.infra.app import what_is_missing
from mark.infra.bundles.build import packed
from scripts.own_venvs import tool
from scripts.rehearsal.run import PARTS, rehearse
from scripts.rehearsal.trial import REGIONS
from tests.infra.conftest import REGION, WEBHOOK, ZONES, of_type, plain, settings

CHECKOV = ("--framework", "cloudformation", "--skip-download", "-o", "json")
IN_ONE_PROCESS = {"CHECKOV_PARALLELIZATION_TYPE": "none"}
"""Of itself it parses a file in a child process, and reports nothing at all where that child was killed."""
NOTHING: dict[str, Any] = {"failed_checks": [], "skipped_checks": []}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "all is there"),
]


def checkov(name: str, template: Any, folder: Path) -> dict[str, Any]:
    """Its results on one template."""
    file = folder / f"{name}.template.json"
    file.write_text(json.dumps(template))
    done = subprocess.run(  # noqa: S603 - installed by own_venvs
        [str(tool("checkov") / "checkov"), "-f", str(file), *CHECKOV],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **IN_ONE_PROCESS},
    )
    told = json.loads(done.stdout)
    assert done.returncode in (0, 1), f"{name}: {done.stderr}"
    # without results it has read the file, and has no check for any resource in it
    found: dict[str, Any] = told.get("results", NOTHING)
    assert "results" in told or told["parsing_errors"] == 0, f"{name} was not read: {told} {done.stderr}"
    return found


@pytest.mark.parametrize("shape", ["synthesis", "lean_synthesis", "trial_synthesis"])
def test_checkov_finds_nothing_and_no_suppression_is_stale(
    shape: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: Synthesis = request.getfixturevalue(shape)
    for name, template in made.templates.items():
        found = checkov(name, template, tmp_path)
        assert [(one["check_id"], one["resource"]) for one in found["failed_checks"]] == []
        skipped = {(one["resource"].rpartition(".")[2], one["check_id"]) for one in found["skipped_checks"]}
        declared = {
            (resource, skip["id"])
            for resource, body in template["Resources"].items()
            for skip in body.get("Metadata", {}).get("checkov", {}).get("skip", ())
        }
        assert declared == skipped, name


def test_a_model_more_renames_no_resource_of_another(synthesis: Synthesis, tmp_path: Path) -> None:
    """CloudFormation would make one's function under the name that the other's still bears."""
    more = settings(tmp_path)
    (tmp_path / "infer.zip").write_bytes(packed({"mark/models/digits/__init__.py": b""}))
    digits = {"model": "digits", "backend": {"kind": "python", "target": "mark.models.digits:Digits"}}
    serve = (ServedSettings.model_validate(digits), *more.service.serve)
    service = more.service.model_copy(update={"serve": serve})
    again = synthesise(more.model_copy(update={"service": service}))
    for part, kind, name in (
        ("functions", "AWS::Lambda::Function", "FunctionName"),
        ("archive", "AWS::Logs::LogGroup", "LogGroupName"),
    ):
        before, after = (
            {one[name]: logical for logical, one in of_type(made.templates[f"mark-shop-{part}"], kind).items()}
            for made in (synthesis, again)
        )
        assert before.items() < after.items()


def exports(template: Any) -> set[str]:
    return {out["Export"]["Name"] for out in template["Outputs"].values()}


def test_the_same_settings_give_the_same_templates_and_another_threshold_of_an_alarm_its_own_alone(
    synthesis: Synthesis, tmp_path: Path
) -> None:
    alarms = {"to": ["team@example.com"], "webhook": WEBHOOK, "max_usd_per_hour": 6}
    again = synthesise(settings(tmp_path, alarms=alarms)).templates
    assert [name for name in again if again[name] != synthesis.templates[name]] == ["mark-shop-watch"]


def test_a_network_that_is_there_is_used(synthesis: Synthesis, tmp_path: Path) -> None:
    network = {"vpc": "vpc-1", "zones": ["us-east-1a", "us-east-1c"], "subnets": ["subnet-1", "subnet-2"]}
    made = synthesise(settings(tmp_path, network=network, report={}, functions={"bundles": str(tmp_path)}))
    assert "mark-shop-network" not in made.templates
    assert "mark-shop-reports" not in made.templates
    for part in ("launch", "state"):  # a mail that is switched off takes nothing from what others import
        assert exports(made.templates[f"mark-shop-{part}"]) == exports(synthesis.templates[f"mark-shop-{part}"])
    [group] = of_type(made.templates["mark-shop-gateways"], "AWS::AutoScaling::AutoScalingGroup").values()
    assert group["VPCZoneIdentifier"] == ["subnet-1", "subnet-2"]


def test_a_private_network_has_endpoints_and_no_way_out(tmp_path: Path) -> None:
    made = synthesise(settings(tmp_path, network={"egress": "private", "zones": ZONES}))
    network = made.templates["mark-shop-network"]
    assert of_type(network, "AWS::EC2::InternetGateway") == {}
    assert of_type(network, "AWS::EC2::Route") == {}
    reached = [plain(one["ServiceName"]) for one in of_type(network, "AWS::EC2::VPCEndpoint").values()]
    called = {"s3", *PROCESS_ENDPOINTS, *MAIL_ENDPOINTS}
    assert sorted(name.removeprefix(f"com.amazonaws.{REGION}.") for name in reached) == sorted(called)
    assert not any(subnet["MapPublicIpOnLaunch"] for subnet in of_type(network, "AWS::EC2::Subnet").values())
    [service] = of_type(made.templates["mark-shop-control"], "AWS::ECS::Service").values()
    assert service["NetworkConfiguration"]["AwsvpcConfiguration"]["AssignPublicIp"] == "DISABLED"


def test_a_rollout_is_rehearsed_from_nothing_to_nothing() -> None:
    rehearse(tuple(part for part in PARTS if part != "trial"))


@pytest.mark.parametrize("region", REGIONS)
def test_a_first_day_is_rehearsed_in_each_region(region: str) -> None:
    rehearse(["trial"], [region])

"""`mark doctor --deep`: the controllers' role is asked about every call, in DryRuns, reads and simulations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mark.aws.account.preflight import Caller
from mark.aws.account.role_checks import CallCheck
from mark.aws.permissions.policies import Names
from mark.aws.session import Aws
from mark.config.settings import Settings
from mark.deployment.checks.deep import RoleFacts, check_deep, role_findings
from mark.deployment.checks.findings import Finding
from mark.emulator.config import ACCOUNT, REGION
from mark.live.models import make_live_models
from tests.aws.builders import aws
from tests.emulator.conftest import World, config_for

NAMES = Names(
    service="shop", region=REGION, account=ACCOUNT, bucket="mark-shop-archive", zone="Z1", host="shop.example.org"
)
WHO = Caller(account=ACCOUNT, arn=f"arn:aws:iam::{ACCOUNT}:user/anna")
TAGS = [{"Key": "mark:service", "Value": "shop"}]
SETTINGS = Settings.model_validate(
    {
        "offerings": {"types": ["c5.large"], "overflow": False},
        "service": {"name": "shop", "serve": [{"model": "inception-v3"}]},
        "rollout": {"node": {"zone": "Z1", "name": "shop.example.org"}},
    }
)
ARCHIVE = {
    "Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "mark-shop-archive"}}},
    "Outputs": {"B": {"Value": {"Ref": "Bucket"}, "Export": {"Name": "mark-shop-bucket"}}},
}
SERVING = "mark-shop-serving"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(config_for(tmp_path_factory.mktemp("deep"), names=NAMES))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def world(bare: World) -> World:
    """The parts of a deployed service that the controllers' calls are about."""
    make_template(bare, TAGS)
    bare.client("cloudformation").create_stack(StackName="mark-shop-archive", TemplateBody=json.dumps(ARCHIVE))
    bare.client("sqs").create_queue(QueueName="mark-shop-raw-dead")
    key = [("part", "HASH"), ("place", "RANGE")]
    bare.client("dynamodb").create_table(
        TableName="mark-shop-lease",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in key],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in key],
        BillingMode="PAY_PER_REQUEST",
    )
    return bare


def make_template(world: World, tags: list[dict[str, str]]) -> None:
    specified = {"TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}]} if tags else {}
    world.client("ec2").create_launch_template(
        LaunchTemplateName=SERVING, LaunchTemplateData={"ImageId": "ami-12c6146b"}, **specified
    )


@pytest.fixture
def there(world: World) -> Iterator[Aws]:
    made = aws(endpoint_url=world.url, role="doctor")
    yield made
    world.mark("DELETE", "faults")
    made.close()


def found(there: Aws) -> dict[str, Finding]:
    return {one.check: one for one in check_deep(SETTINGS, make_live_models(SETTINGS), there, WHO)}


def fault(world: World, action: str, code: str) -> None:
    world.mark("POST", "faults", {"kind": "error", "action": action, "code": code, "status": 403})


def test_a_service_that_is_not_deployed_is_asked_nothing(bare: World) -> None:
    other = Settings.model_validate({"service": {"name": "other", "serve": [{"model": "inception-v3"}]}})
    client = aws(endpoint_url=bare.url, role="doctor")
    assert [one.state for one in check_deep(other, make_live_models(other), client, WHO)] == ["skipped"]
    client.close()


def test_a_role_that_may_make_all_its_calls_is_one_finding_and_nothing_is_launched(
    world: World, there: Aws
) -> None:
    findings = found(there)
    assert {name: (one.state, one.message) for name, one in findings.items()}.keys() == {"deep"}, findings
    assert findings["deep"].state == "ok"
    assert "tried by DryRun and reads" in findings["deep"].message
    assert findings["deep"].remedy == ""
    assert world.instances() == {}
    assert not world.state()["permissions"]["refused"]


def test_who_may_not_take_the_role_has_it_simulated(world: World, there: Aws) -> None:
    fault(world, "AssumeRole", "AccessDenied")
    findings = found(there)
    assert {name: one.state for name, one in findings.items()} == {"deep": "ok"}
    assert "simulated by IAM, not tried: you may not take the role" in findings["deep"].message


def test_what_can_neither_be_tried_nor_simulated_is_unknown(world: World, there: Aws) -> None:
    fault(world, "AssumeRole", "AccessDenied")
    fault(world, "SimulatePrincipalPolicy", "AccessDenied")
    findings = found(there)
    assert {name: one.state for name, one in findings.items()} == {"deep": "unknown"}
    assert "iam:SimulatePrincipalPolicy" in findings["deep"].remedy


def test_each_refused_call_is_a_finding_that_says_what_renews_the_role(world: World, there: Aws) -> None:
    calls = {
        "CreateFleet": "ec2:CreateFleet",
        "RunInstances": "ec2:RunInstances",
        "DescribeInstances": "ec2:DescribeInstances",
        "DescribeSpotPriceHistory": "ec2:DescribeSpotPriceHistory",
        "DescribeAlarms": "cloudwatch:DescribeAlarms",
        "ListServiceQuotas": "servicequotas:ListServiceQuotas",
        "GetQueueUrl": "sqs:GetQueueUrl",
        "GetParameter": "ssm:GetParameter",
        "GetItem": "dynamodb:GetItem",
        "Query": "dynamodb:Query",
    }
    for call, action in calls.items():
        fault(world, call, "UnauthorizedOperation" if action.startswith("ec2:") else "AccessDenied")
    findings = found(there)
    assert {name: one.state for name, one in findings.items()} == dict.fromkeys(calls.values(), "error")
    for finding in findings.values():
        assert "mark-shop-node" in finding.message
        assert "`mark deploy`" in finding.remedy
        assert "get-role-policy --role-name mark-shop-node" in finding.remedy


def test_calls_on_instances_are_tried_where_there_is_one(world: World, there: Aws) -> None:
    [launched] = rent(world)
    calls = ("StartInstances", "StopInstances", "TerminateInstances")
    for call in calls:
        fault(world, call, "UnauthorizedOperation")
    states = {name: one.state for name, one in found(there).items()}
    assert states == {f"ec2:{call}": "error" for call in calls}
    assert world.instances()[launched]["state"] in ("pending", "running")
    world.mark("DELETE", "faults")
    world.client("ec2").terminate_instances(InstanceIds=[launched])


def rent(world: World) -> list[str]:
    tags = [*TAGS, {"Key": "mark:model", "Value": "inception-v3"}]
    reply = world.client("ec2").run_instances(
        LaunchTemplate={"LaunchTemplateName": SERVING},
        InstanceType="c5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return [one["InstanceId"] for one in reply["Instances"]]


def test_dry_runs_are_judged_by_the_roles_policies_and_find_what_is_not_there(world: World, there: Aws) -> None:
    ec2 = world.client("ec2")
    ec2.delete_launch_template(LaunchTemplateName=SERVING)
    findings = found(there)
    assert {name: one.state for name, one in findings.items()} == dict.fromkeys(
        ("ec2:CreateFleet", "ec2:RunInstances"), "error"
    )
    assert "InvalidLaunchTemplateName" in findings["ec2:CreateFleet"].message
    assert "get-role-policy" not in findings["ec2:CreateFleet"].remedy
    make_template(world, [])  # somebody else's: it bears no tag of the service
    refused = found(there)["ec2:CreateFleet"]
    assert "UnauthorizedOperation" in refused.message
    assert "get-role-policy" in refused.remedy
    ec2.delete_launch_template(LaunchTemplateName=SERVING)
    make_template(world, TAGS)


def test_an_organisations_refusal_is_not_mended_by_a_deploy() -> None:
    refused: Any = CallCheck(action="s3:PutObject", answer="refused", detail="implicitDeny", by_organisation=True)
    [finding] = role_findings(RoleFacts(service="shop", role="mark-shop-node", checks=(refused, refused)))
    assert "service control policy" in finding.remedy
    assert "mark deploy" not in finding.remedy

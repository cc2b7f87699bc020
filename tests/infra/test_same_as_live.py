"""The templates describe what the live service makes by itself on the emulated AWS; it launches from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from mark.aws.archive import Keeping, lifecycle_rules
from mark.aws.ec2.launch import FleetSetup, fleet_request, machine_of
from mark.aws.names import template_name
from mark.aws.provision import set_up
from mark.config.settings import load_settings
from mark.domain.fleet import Role
from mark.domain.offering import InstanceType
from mark.domain.orders import Launch
from mark.live.models import make_live_models
from mark.rollout.synth import _blueprint
from tests.aws.builders import REPORT, aws, service
from tests.emulator.conftest import TYPES, World, config_for
from tests.infra.conftest import Template, of_type, plain
from tests.planner.builders import offering

GRAVITON = InstanceType(
    name="c7g.large", vcpus=2, memory_gib=4.0, architecture="arm64", on_demand_usd_per_hour=0.07
)
EMULATED = {name: replace(kind, architecture="amd64") for name, kind in TYPES.items()} | {"c7g.large": GRAVITON}


@pytest.fixture
def made() -> Iterator[Any]:
    """A client factory for the AWS in which `set_up` has made the service."""
    with mock_aws(config={"lambda": {"use_docker": False}}):
        there = aws()
        set_up(there, service(report=REPORT))
        yield lambda name: boto3.client(
            name, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        there.close()


def test_launch_templates_have_the_same_names_and_rules(templates: dict[str, Template], made: Any) -> None:
    described = {
        one["LaunchTemplateName"]: one["LaunchTemplateData"]
        for one in of_type(templates["launch"], "AWS::EC2::LaunchTemplate").values()
    }
    ec2 = made("ec2")
    for role in Role:
        name = template_name("shop", role)
        [version] = ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
        live = version["LaunchTemplateData"]
        assert described[name]["InstanceInitiatedShutdownBehavior"] == live["InstanceInitiatedShutdownBehavior"]
        options = live["MetadataOptions"]
        assert {key: options[key] for key in described[name]["MetadataOptions"]} == described[name][
            "MetadataOptions"
        ]


def test_queues_are_the_same(templates: dict[str, Template], made: Any) -> None:
    sqs = made("sqs")
    for queue in of_type(templates["events"], "AWS::SQS::Queue").values():
        url = sqs.get_queue_url(QueueName=queue["QueueName"])["QueueUrl"]
        live = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        if queue["QueueName"] != "mark-shop-raw-dead":  # dead letters are kept longer where somebody reads them
            assert queue["MessageRetentionPeriod"] == int(live["MessageRetentionPeriod"])
        if "RedrivePolicy" in queue:
            redrive = json.loads(live["RedrivePolicy"])
            assert queue["RedrivePolicy"]["maxReceiveCount"] == int(redrive["maxReceiveCount"])
            assert queue["VisibilityTimeout"] == int(live["VisibilityTimeout"])
    urls = sqs.list_queues()["QueueUrls"]
    assert len(urls) == len(of_type(templates["events"], "AWS::SQS::Queue"))


def test_rules_are_the_same(templates: dict[str, Template], made: Any) -> None:
    live = {rule["Name"]: json.loads(rule["EventPattern"]) for rule in made("events").list_rules()["Rules"]}
    described = of_type(templates["events"], "AWS::Events::Rule").values()
    assert {rule["Name"]: rule["EventPattern"] for rule in described} == live


def test_handlers_are_the_same(templates: dict[str, Template], made: Any) -> None:
    described = {
        one["FunctionName"]: one for one in of_type(templates["functions"], "AWS::Lambda::Function").values()
    }
    client = made("lambda")
    for handler in ("interruption", "report", "warm"):
        name = f"mark-shop-{handler}"
        live, told = client.get_function_configuration(FunctionName=name), described[name]
        assert [told[key] for key in ("Handler", "Runtime", "Timeout", "MemorySize")] == [
            live[key] for key in ("Handler", "Runtime", "Timeout", "MemorySize")
        ]
        there = {name.replace("STORE_URL", "STORE_SECRET") for name in live["Environment"]["Variables"]}
        assert told["Environment"]["Variables"].keys() == there  # a stack's store has a password
    [live] = client.list_event_source_mappings()["EventSourceMappings"]
    [told] = of_type(templates["functions"], "AWS::Lambda::EventSourceMapping").values()
    assert told["BatchSize"] == live["BatchSize"]
    assert told["FunctionResponseTypes"] == live["FunctionResponseTypes"]


def test_the_report_s_schedule_is_the_same(templates: dict[str, Template], made: Any) -> None:
    [told] = of_type(templates["reports"], "AWS::Scheduler::Schedule").values()
    live = made("scheduler").get_schedule(Name=told["Name"])
    for key in ("FlexibleTimeWindow", "ScheduleExpression", "ScheduleExpressionTimezone"):
        assert told[key] == live[key]
    assert told["Target"]["RetryPolicy"] == live["Target"]["RetryPolicy"]


def test_the_alarm_on_dead_letters_is_the_same(templates: dict[str, Template], made: Any) -> None:
    [live] = made("cloudwatch").describe_alarms()["MetricAlarms"]
    described = {one["AlarmName"]: one for one in of_type(templates["watch"], "AWS::CloudWatch::Alarm").values()}
    told = described[live["AlarmName"]]
    for key in told.keys() - {"AlarmActions", "AlarmDescription", "OKActions", "Tags"}:
        assert told[key] == live[key], key


def test_the_bucket_forgets_the_same(templates: dict[str, Template], made: Any) -> None:
    """The templates' settings: journals for 400 days, reports for ever."""
    [told] = of_type(templates["archive"], "AWS::S3::Bucket").values()
    described = {rule["Id"]: rule for rule in told["LifecycleConfiguration"]["Rules"]}
    live = {rule["ID"]: rule for rule in lifecycle_rules(Keeping(journals_days=400))}
    assert described.keys() == live.keys()
    for name, rule in live.items():
        assert described[name].get("Prefix", "") == rule["Filter"]["Prefix"]
        assert described[name].get("ExpirationInDays") == rule.get("Expiration", {}).get("Days")


@pytest.fixture
def world(start: Callable[..., World]) -> World:
    return start(types=EMULATED)


@pytest.fixture
def start(tmp_path: Any) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**changes: Any) -> World:
        worlds.append(World(config_for(tmp_path / "logs", **changes)))
        return worlds[-1]

    yield make
    for world in worlds:
        world.stop()


def test_controllers_launch_from_the_stack_on_the_emulated_aws(
    templates: dict[str, Template], world: World
) -> None:
    """Strict: a type that is not made there is refused. Images come from parameters of AWS, so they are given."""
    cloudformation, ec2 = world.client("cloudformation"), world.client("ec2")
    cloudformation.create_stack(
        StackName="mark-shop-network", TemplateBody=json.dumps(_network(templates["network"]))
    )
    launch = json.loads(json.dumps(templates["launch"]))
    exports = {"mark-shop-bucket": "bucket"}
    body = _with(launch, exports)
    cloudformation.create_stack(
        StackName="mark-shop-launch", TemplateBody=body, Capabilities=["CAPABILITY_NAMED_IAM"]
    )
    [stack] = cloudformation.describe_stacks(StackName="mark-shop-launch")["Stacks"]
    told = {out["ExportName"]: out["OutputValue"] for out in stack["Outputs"]}
    subnet = ec2.describe_subnets(Filters=[{"Name": "cidrBlock", "Values": ["10.77.0.0/20"]}])["Subnets"][0]

    setup = FleetSetup(
        service="shop",
        model="m",
        run="run",
        owner="team@example.com",
        offerings={
            kind: replace(offering(kind), instance_type=EMULATED[kind]) for kind in ("c5.large", "c7g.large")
        },
        templates={role: template_name("shop", role) for role in Role},
        machines={(role, "arm64"): template_name("shop", role, "arm64") for role in Role},
        subnets=(("us-east-1a", subnet["SubnetId"]),),
    )
    used = {}
    for kind in ("c5.large", "c7g.large"):
        order = Launch(token=kind, offering=kind, count=1, reason="a test", role=Role.STANDBY)
        reply = ec2.create_fleet(**fleet_request(setup, order))
        assert not reply.get("Errors")
        [group] = reply["Instances"]
        used[kind] = group["LaunchTemplateAndOverrides"]["LaunchTemplateSpecification"]
        [reservation] = ec2.describe_instances(InstanceIds=group["InstanceIds"])["Reservations"]
        [instance] = reservation["Instances"]
        assert [one["GroupId"] for one in instance["SecurityGroups"]] == [told["mark-shop-agents-group"]]
        assert {"Key": "mark:owner", "Value": "team@example.com"} in instance["Tags"]
    names = {
        one["LaunchTemplateId"]: one["LaunchTemplateName"]
        for one in ec2.describe_launch_templates()["LaunchTemplates"]
    }
    told_names = {
        kind: one.get("LaunchTemplateName") or names[one["LaunchTemplateId"]] for kind, one in used.items()
    }
    assert told_names == {"c5.large": "mark-shop-standby", "c7g.large": "mark-shop-standby-arm64"}


def test_a_machine_is_named_as_its_templates_are() -> None:
    gpu = replace(GRAVITON, architecture="amd64", accelerator="T4", accelerator_count=1)
    assert machine_of(GRAVITON) == "arm64"
    assert machine_of(gpu) == "amd64-nvidia"
    assert machine_of(replace(gpu, accelerator="Inferentia2")) == "amd64-inferentia"


def _network(template: Template) -> dict[str, Any]:
    """Without what emulated AWS has no use for: endpoints, which moto does not make."""
    text = json.loads(json.dumps(template))
    kept = {
        name: resource
        for name, resource in text["Resources"].items()
        if resource["Type"] != "AWS::EC2::VPCEndpoint" and name != "EndpointGroup"
    }
    return {**text, "Resources": kept}


def _with(template: dict[str, Any], exports: dict[str, str]) -> str:
    """The template with images, and with values of stacks that are not there."""
    for parameter in template.get("Parameters", {}).values():
        parameter.update(Type="String", Default="ami-12c6146b")
    return json.dumps(_resolved(template, exports))


def _resolved(value: Any, exports: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_resolved(item, exports) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("Fn::ImportValue") in exports:
        return exports[value["Fn::ImportValue"]]
    return {key: _resolved(item, exports) for key, item in value.items()}


def test_plain_reads_functions() -> None:
    assert plain({"Fn::Join": ["", ["a", {"Ref": "AWS::Region"}]]}) == "aus-east-1"


def test_no_folder_of_the_deploying_machine_is_in_a_template(tmp_path: Path) -> None:
    """The same settings give the same templates wherever they are deployed from."""
    path = tmp_path / "mark.yaml"
    path.write_text(
        'service: {serve: [{model: digits, backend: {kind: python, target: "models.digits:Digits"}}]}\n'
    )
    read = load_settings(path, {})
    models = make_live_models(read)
    assert models[0].folder == tmp_path

    blueprint = _blueprint(read, models, ())

    assert blueprint["infer"]
    assert str(tmp_path) not in json.dumps(blueprint)

"""The templates describe what the live service makes by itself on the emulated AWS; it launches from them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from mark.aws.ec2.launch import FleetSetup, fleet_request
from mark.aws.ec2.tags import OWNER
from mark.aws.names import HANDLERS, TRAIN, template_name
from mark.config.settings import load_settings
from mark.deployment.model_versions import first_bundles
from mark.deployment.spending import Spending
from mark.deployment.synth import _blueprint
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import Launch
from mark.domain.offerings.offering import InstanceType
from mark.live.aws_resources import make_resources
from mark.live.local.running import Running
from mark.live.models import make_live_models
from tests.aws.builders import aws
from tests.emulator.conftest import TYPES, World, config_for
from tests.infra.conftest import REGION, Template, of_type, plain, settings
from tests.planner.builders import offering

GRAVITON = InstanceType(
    name="c7g.large", vcpus=2, memory_gib=4.0, architecture="arm64", on_demand_usd_per_hour=0.07
)
EMULATED = {name: replace(kind, architecture="amd64") for name, kind in TYPES.items()} | {"c7g.large": GRAVITON}


Facts = dict[str, dict[str, Any]]
"""Name -> what is said of it."""
LATER = "<known later>"
"""Keys of addresses: a reference in the other world, and never the same."""
LEFT_TO_WHO_MAKES_IT = {"IamInstanceProfile", "ImageId", "SecurityGroupIds", "UserData"}
"""Of a launch template: what runs is a process in one world and a container in the other."""
TOLD_BY_MAIL = {"AlarmActions", "OKActions"}
"""Of an alarm: no mail is sent from one machine."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client factory for the AWS in which the service of the templates was made without them."""
    asked = settings(tmp_path_factory.mktemp("bundles"))
    with mock_aws(config={"lambda": {"use_docker": False}}):
        there = aws()
        running = Running(name=asked.service.name, pid=0, store="redis://x")
        make_resources(there, running, [model.served for model in make_live_models(asked)], asked)
        yield lambda name: boto3.client(name, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
        there.close()


def tags(given: Any) -> dict[str, str]:
    """Tags as one mapping. The owner is a setting in an account, and nobody but this machine on this machine."""
    read = given if isinstance(given, dict) else {tag["Key"]: tag["Value"] for tag in given}
    assert read.get(OWNER) in ("mark", "team@example.com")
    return {key: value for key, value in read.items() if key != OWNER}


def named(value: Any, names: dict[str, str]) -> Any:
    """A value with ARNs, and references to resources of its template, as the name of what is meant."""
    if isinstance(value, list):
        return [named(item, names) for item in value]
    if isinstance(value, dict):
        return {key: named(item, names) for key, item in value.items()}
    if isinstance(value, str) and value.startswith("arn:"):
        return re.split("[:/]", value)[-1]
    return names.get(value, value) if isinstance(value, str) else value


def described(template: Template, kind: str, key: str) -> Facts:
    """The resources of a type, as a template has them."""
    references = {
        f"<{logical}.Arn>": str(resource["Properties"][name])
        for logical, resource in template["Resources"].items()
        for name in ("Name", "QueueName")
        if name in resource.get("Properties", {})
    }
    found = (named(plain(one), references) for one in of_type(template, kind).values())
    return {one[key]: one for one in found}


def test_queues_are_the_same(templates: dict[str, Template], made: Any) -> None:
    told = described(templates["events"], "AWS::SQS::Queue", "QueueName")
    policies = of_type(templates["events"], "AWS::SQS::QueuePolicy").values()
    logical = {name: one["QueueName"] for name, one in of_type(templates["events"], "AWS::SQS::Queue").items()}
    arns = {f"<{name}.Arn>": queue for name, queue in logical.items()}
    rules = of_type(templates["events"], "AWS::Events::Rule").items()
    arns |= {f"<{name}.Arn>": one["Name"] for name, one in rules}
    allowed = {logical[one["Queues"][0]["Ref"]]: named(plain(one["PolicyDocument"]), arns) for one in policies}
    sqs, live = made("sqs"), {}
    for url in sqs.list_queues()["QueueUrls"]:
        read = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        live[url.rpartition("/")[2]] = read | {"Tags": tags(sqs.list_queue_tags(QueueUrl=url)["Tags"])}
    assert live.keys() == told.keys() == allowed.keys()
    for name, there in live.items():
        queue = {"VisibilityTimeout": SQS_VISIBILITY_S, "RedrivePolicy": {}} | told[name]
        assert int(there["MessageRetentionPeriod"]) == queue["MessageRetentionPeriod"]
        assert int(there["VisibilityTimeout"]) == queue["VisibilityTimeout"]
        assert json.loads(there["SqsManagedSseEnabled"]) == queue["SqsManagedSseEnabled"]
        assert named(json.loads(there.get("RedrivePolicy", "{}")), {}) == queue["RedrivePolicy"]
        assert _as_cdk(named(json.loads(there["Policy"]), {})) == _as_cdk(allowed[name])
        assert there["Tags"] == tags(queue["Tags"])


SQS_VISIBILITY_S = 30
"""Where nothing is said (SQS developer guide)."""


def _as_cdk(document: dict[str, Any]) -> dict[str, Any]:
    """CDK writes a list of one as that one, and sorts statements' keys."""
    return {**document, "Statement": sorted(document["Statement"], key=lambda one: str(one["Effect"]))}


def test_rules_are_the_same(templates: dict[str, Template], made: Any) -> None:
    told = described(templates["events"], "AWS::Events::Rule", "Name")
    events, live = made("events"), {}
    for rule in events.list_rules()["Rules"]:
        targets = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
        live[rule["Name"]] = {
            "Name": rule["Name"],
            "Description": rule["Description"],
            "EventPattern": json.loads(rule["EventPattern"]),
            "State": rule["State"],
            "Targets": named(targets, {}),
            "Tags": tags(events.list_tags_for_resource(ResourceARN=rule["Arn"])["Tags"]),
        }
    assert live == {name: rule | {"Tags": tags(rule["Tags"])} for name, rule in told.items()}


def _of_zip(function: dict[str, Any], runtime: str) -> dict[str, Any]:
    """What an image says instead: its command is the handler, and its base the runtime."""
    if "ImageConfig" not in function:
        return {}
    (handler,) = function["ImageConfig"]["Command"]
    return {"Handler": handler, "Runtime": runtime}


def test_functions_are_the_same(templates: dict[str, Template], made: Any) -> None:
    told = described(templates["functions"], "AWS::Lambda::Function", "FunctionName")
    client = made("lambda")
    live = {one["FunctionName"]: one for one in client.list_functions()["Functions"]}
    assert set(live) == set(told) == {f"mark-shop-{part}" for part in ("inception-v3", TRAIN, *HANDLERS)}
    for name, there in live.items():
        function = told[name]
        said = {**function, **_of_zip(function, there["Runtime"])}
        for key in ("Handler", "MemorySize", "Runtime", "Timeout"):
            assert there[key] == said[key], f"{name}: {key}"
        assert named(_variables(there), {}) == _variables(function), name
        assert tags(client.list_tags(Resource=there["FunctionArn"])["Tags"]) == tags(function["Tags"])


def _variables(function: Any) -> dict[str, str]:
    """Its environment. Stacks import addresses, and their store has a password, so its URL is a secret."""
    read = function["Environment"]["Variables"]
    given = {name.replace("STORE_SECRET", "STORE_URL"): value for name, value in read.items()}
    return given | {name: LATER for name in given if name in ADDRESSES}


ADDRESSES = {"EVENTS_QUEUE_URL", "MARK_BUCKET", "MARK_REPORT_BUCKET", "MARK_STORE_URL", "MARK_TRAINING_BUCKET"}


def test_the_raw_queue_is_read_the_same(templates: dict[str, Template], made: Any) -> None:
    [live] = made("lambda").list_event_source_mappings()["EventSourceMappings"]
    [told] = of_type(templates["functions"], "AWS::Lambda::EventSourceMapping").values()
    function = templates["functions"]["Resources"][told["FunctionName"]["Ref"]]["Properties"]
    assert named(live["FunctionArn"], {}) == function["FunctionName"]
    assert (named(live["EventSourceArn"], {}), plain(told["EventSourceArn"])) == (
        "mark-shop-raw",
        "<mark-shop-raw-arn>",
    )
    for key in ("BatchSize", "FunctionResponseTypes"):
        assert live[key] == told[key]


def test_launch_templates_are_the_same(templates: dict[str, Template], made: Any) -> None:
    """Each role has one for each kind of machine, in both worlds."""
    told = described(templates["launch"], "AWS::EC2::LaunchTemplate", "LaunchTemplateName")
    ec2, live = made("ec2"), {}
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        name = template["LaunchTemplateName"]
        [version] = ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
        live[name] = _launches(version["LaunchTemplateData"]) | {"Own": tags(template["Tags"])}
    assert live == {
        name: _launches(template["LaunchTemplateData"]) | {"Own": tags(template["TagSpecifications"][0]["Tags"])}
        for name, template in told.items()
    }
    assert len(live) == len(Role) * 3


def _launches(data: dict[str, Any]) -> dict[str, Any]:
    """Kinds that a launch tags, with their tags; moto counts the template's own tags among those."""
    launched = {one["ResourceType"]: tags(one["Tags"]) for one in data["TagSpecifications"]}
    launched.pop("launch-template", None)
    left = {key: value for key, value in data.items() if key not in LEFT_TO_WHO_MAKES_IT}
    return left | {"TagSpecifications": launched}


@pytest.mark.parametrize("part", ["functions", "reports"])
def test_schedules_are_the_same(templates: dict[str, Template], made: Any, part: str) -> None:
    [told] = of_type(templates[part], "AWS::Scheduler::Schedule").values()
    live = made("scheduler").get_schedule(Name=told["Name"])
    for key in told.keys() - {"Target"}:
        assert live[key] == told[key], key
    assert live["Target"]["RetryPolicy"] == told["Target"]["RetryPolicy"]
    assert live["Target"].keys() == told["Target"].keys()


def test_the_alarm_on_dead_letters_is_the_same(templates: dict[str, Template], made: Any) -> None:
    """The others look at what only an account measures."""
    cloudwatch = made("cloudwatch")
    [live] = cloudwatch.describe_alarms()["MetricAlarms"]
    told = described(templates["watch"], "AWS::CloudWatch::Alarm", "AlarmName")[live["AlarmName"]]
    assert told["Namespace"] == "AWS/SQS"
    for key in told.keys() - TOLD_BY_MAIL - {"Tags"}:
        assert live[key] == told[key], key
    given = cloudwatch.list_tags_for_resource(ResourceARN=live["AlarmArn"])["Tags"]
    assert tags(given) == tags(told["Tags"])


def test_the_bucket_keeps_the_same(templates: dict[str, Template], made: Any) -> None:
    [told] = of_type(templates["archive"], "AWS::S3::Bucket").values()
    s3 = made("s3")
    [bucket] = [one["Name"] for one in s3.list_buckets()["Buckets"]]
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [_as_stack_rule(rule) for rule in rules] == told["LifecycleConfiguration"]["Rules"]
    assert len(rules) == 3
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == told["VersioningConfiguration"]["Status"]
    assert tags(s3.get_bucket_tagging(Bucket=bucket)["TagSet"]) == tags(told["Tags"])


def _as_stack_rule(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule of S3's as CloudFormation spells it."""
    others = ("AbortIncompleteMultipartUpload", "NoncurrentVersionExpiration", "Status")
    return {
        "Id": rule["ID"],
        **{key: rule[key] for key in others if key in rule},
        **({"Prefix": rule["Filter"]["Prefix"]} if rule["Filter"]["Prefix"] else {}),
        **({"ExpirationInDays": rule["Expiration"]["Days"]} if "Expiration" in rule else {}),
    }


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
        tags={"cost-centre": "research"},
        offerings={
            kind: replace(offering(kind), instance_type=EMULATED[kind]) for kind in ("c5.large", "c7g.large")
        },
        templates={
            (role, machine): template_name("shop", role, suffix)
            for role in Role
            for machine, suffix in (("amd64", ""), ("arm64", "arm64"))
        },
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
        assert {"Key": "cost-centre", "Value": "research"} in instance["Tags"]
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
    assert GRAVITON.machine == "arm64"
    assert gpu.machine == "amd64-nvidia"
    assert replace(gpu, accelerator="Inferentia2").machine == "amd64-inferentia"


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


def test_no_folder_of_the_deploying_machine_is_in_a_template(tmp_path: Path) -> None:
    """The same settings give the same templates wherever they are deployed from."""
    path = tmp_path / "mark.yaml"
    path.write_text(
        'service: {serve: [{model: digits, backend: {kind: python, target: "mark.models.digits:Digits"}}]}\n'
    )
    read = load_settings(path, {})
    models = make_live_models(read)
    assert models[0].folder == tmp_path

    spending = Spending(around_usd=0.1, limit_usd=1.0, named=True, lambda_usd=0.0)
    blueprint = _blueprint(read, models, (), spending, first_bundles(read, models))

    assert blueprint["infer"]
    assert str(tmp_path) not in json.dumps(blueprint)

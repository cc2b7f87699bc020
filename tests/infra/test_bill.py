"""The bill is that of the stacks: each resource has a line, or a reason why it is free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mark.catalog.billing import Load, bill_overhead, bill_running
from mark.config.footprint import TRAINING_GIB_S, footprint_of, sized
from mark.config.settings import Settings
from mark.deployment.synth import LEFT_OUT
from mark.domain.billing.footprint import Footprint
from mark.live.models import make_live_models
from tests.infra.conftest import LEAN, PRIVATE, Template, of_type, settings

BILLED: Mapping[str, tuple[str, ...]] = {
    "AWS::AutoScaling::AutoScalingGroup": ("gateways", "gateways' disks", "service's addresses"),
    "AWS::CloudWatch::Alarm": ("alarms", "metrics"),
    "AWS::CloudWatch::Dashboard": ("dashboards",),
    "AWS::EC2::LaunchTemplate": ("disks",),
    "AWS::ECS::Cluster": ("container insights",),
    "AWS::ECS::Service": ("controllers' CPUs", "controllers' memory"),
    "AWS::ElastiCache::ReplicationGroup": ("store",),
    "AWS::ElasticLoadBalancingV2::LoadBalancer": (
        "load balancer",
        "load balancer traffic",
        "traffic between zones",
    ),
    "AWS::Logs::LogGroup": ("logs",),
    "AWS::DynamoDB::Table": ("lease table's writes", "lease table's reads"),
    "AWS::Route53::HostedZone": ("hosted zones",),
    "AWS::SQS::Queue": ("queues",),
    "AWS::SecretsManager::Secret": ("secrets",),
}
"""Lines of the bill by type of resource, whatever the settings."""
OF_FUNCTIONS = ("invocations", "duration", "provisioned")
"""Lines of Lambda: `bill_lambda` and `bill_provisioned`."""
ELSEWHERE: Mapping[str, str] = {
    "AWS::EC2::VPCEndpoint": "interface endpoints are the line `endpoints`; gateway endpoints are free",
    "AWS::Lambda::Alias": f"{OF_FUNCTIONS}: environments that it keeps are LambdaOffering.provisioned",
    "AWS::Lambda::Function": f"{OF_FUNCTIONS} of inference, `Lambda's logs`, `training`; handlers run seconds a "
    "day, under 0.05 USD a month, and count failures alone",
}
NETWORK = "a part of a network, which Amazon VPC does not bill"
PERMISSION = "IAM is free"
PART = "a part of a resource that is billed"
FREE: Mapping[str, str] = {
    "AWS::AutoScaling::ScheduledAction": PART,
    "AWS::Budgets::Budget": "one without actions is free (BudgetsUsage of AWS's list AWSBudgets, 2020-10-01: "
    "huggingface.co/datasets/labofsahil/aws-pricing-dataset 50682afa, read 2026-11-22)",
    "AWS::EC2::EgressOnlyInternetGateway": NETWORK,
    "AWS::EC2::SubnetCidrBlock": NETWORK,
    "AWS::EC2::VPCCidrBlock": NETWORK,
    "AWS::EC2::InternetGateway": f"{NETWORK}; the addresses behind it have a line",
    "AWS::EC2::Route": NETWORK,
    "AWS::EC2::RouteTable": NETWORK,
    "AWS::EC2::SecurityGroup": NETWORK,
    "AWS::EC2::SecurityGroupIngress": NETWORK,
    "AWS::EC2::Subnet": NETWORK,
    "AWS::EC2::SubnetRouteTableAssociation": NETWORK,
    "AWS::EC2::VPC": NETWORK,
    "AWS::EC2::VPCGatewayAttachment": NETWORK,
    "AWS::ECS::TaskDefinition": PART,
    "AWS::ElastiCache::User": PART,
    "AWS::ElastiCache::UserGroup": PART,
    "AWS::ElastiCache::ParameterGroup": PART,
    "AWS::ElastiCache::SubnetGroup": PART,
    "AWS::ElasticLoadBalancingV2::Listener": PART,
    "AWS::ElasticLoadBalancingV2::TargetGroup": PART,
    "AWS::Events::Rule": "events of AWS's own services are free (EventBridge pricing)",
    "AWS::IAM::InstanceProfile": PERMISSION,
    "AWS::IAM::Role": PERMISSION,
    "AWS::Lambda::EventInvokeConfig": "says that a training is not run again, and who hears of orphans",
    "AWS::Lambda::EventSourceMapping": "its polls are in the line `queues`",
    "AWS::Lambda::Permission": PERMISSION,
    "AWS::Lambda::Version": "billed as the function that it is of",
    "AWS::S3::Bucket": "0.023 USD a GiB and month of what users keep there: journals take a few MiB a day",
    "AWS::S3::BucketPolicy": PERMISSION,
    "AWS::SNS::Subscription": "messages to functions of Lambda are free (SNS pricing)",
    "AWS::SNS::Topic": "the first thousand mails of a month are free (SNS pricing)",
    "AWS::SNS::TopicPolicy": PERMISSION,
    "AWS::SQS::QueuePolicy": PERMISSION,
    "AWS::Scheduler::Schedule": "the first 14 million calls of a month are free (EventBridge pricing)",
}


def types_in(templates: Mapping[str, Template]) -> set[str]:
    return {resource["Type"] for template in templates.values() for resource in template["Resources"].values()}


def count(templates: Mapping[str, Template], kind: str) -> int:
    return sum(len(of_type(template, kind)) for template in templates.values())


def the_one(templates: Mapping[str, Template], kind: str) -> dict[str, Any]:
    (found,) = (one for template in templates.values() for one in of_type(template, kind).values())
    return found


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    return tmp_path


def test_every_resource_has_a_line_or_a_reason_why_it_is_free(
    templates: dict[str, Template], others: dict[str, Template], lean: dict[str, Template], bundles: Path
) -> None:
    made = types_in(templates) | types_in(others) | types_in(lean)
    assert made - BILLED.keys() - ELSEWHERE.keys() - FREE.keys() == set(), (
        "give it a line in the bill, or a reason"
    )
    assert (BILLED.keys() | ELSEWHERE.keys() | FREE.keys()) - made == set(), "no stack makes it any more"
    assert not BILLED.keys() & FREE.keys()

    load = Load(duration_s=3600.0, requests=1000, payload_mib=0.5)
    shapes = (footprint_of(settings(bundles, **differs)) for differs in ({}, LEAN))
    bills = ((*bill_overhead(footprint, load), *bill_running(footprint, 3600.0)) for footprint in shapes)
    lines = {line.item for bill in bills for line in bill if line.usd}
    assert {item for items in BILLED.values() for item in items} <= lines


def check(templates: Mapping[str, Template], footprint: Footprint) -> None:
    """The footprint counts what the templates make."""
    group = the_one(templates, "AWS::AutoScaling::AutoScalingGroup")
    assert footprint.gateways.count == int(group["DesiredCapacity"])
    launched = of_type(templates["gateways"], "AWS::EC2::LaunchTemplate").values()
    (gateway,) = (template["LaunchTemplateData"] for template in launched)
    assert footprint.gateways.instance_type == gateway["InstanceType"]
    disks = {
        launch["LaunchTemplateName"]: launch["LaunchTemplateData"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]
        for template in templates.values()
        for launch in of_type(template, "AWS::EC2::LaunchTemplate").values()
    }
    assert disks["mark-shop-serving"] == disks["mark-shop-standby"] == footprint.disk_gib
    assert disks["mark-shop-gateway"] == footprint.gateways.disk_gib

    nodes = the_one(templates, "AWS::ElastiCache::ReplicationGroup")
    store = footprint.store
    assert (store.engine, store.node_type, store.count) == (
        nodes["Engine"],
        nodes["CacheNodeType"],
        nodes["NumCacheClusters"],
    )
    service, task = the_one(templates, "AWS::ECS::Service"), the_one(templates, "AWS::ECS::TaskDefinition")
    controllers = footprint.controllers
    assert controllers.count == service["DesiredCount"]
    assert (1024 * controllers.vcpus, 1024 * controllers.memory_gib) == (int(task["Cpu"]), int(task["Memory"]))
    assert (
        task["RuntimePlatform"]["CpuArchitecture"]
        == {"amd64": "X86_64", "arm64": "ARM64"}[controllers.architecture]
    )
    network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert footprint.public == (network["AssignPublicIp"] == "ENABLED")

    assert footprint.zones == count(templates, "AWS::EC2::Subnet")
    endpoints = of_type(templates["network"], "AWS::EC2::VPCEndpoint").values()
    interfaces = [one for one in endpoints if one["VpcEndpointType"] == "Interface"]
    assert footprint.endpoints == sum(len(one["SubnetIds"]) for one in interfaces)
    assert footprint.lambda_through_endpoint == any(one["ServiceName"].endswith(".lambda") for one in interfaces)
    balancer = the_one(templates, "AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert footprint.internet_facing == (balancer["Scheme"] == "internet-facing")

    made = count(templates, "AWS::SecretsManager::Secret")
    assert footprint.secrets == made + 1, "that of the webhook is the team's"
    watched = footprint.monitoring
    assert watched.alarms == count(templates, "AWS::CloudWatch::Alarm")
    assert watched.dashboards == count(templates, "AWS::CloudWatch::Dashboard")
    kept = {one["RetentionInDays"] for one in of_type(templates["archive"], "AWS::Logs::LogGroup").values()}
    assert kept == {watched.keep_logs_days}


def test_the_footprint_counts_what_the_stacks_make(templates: dict[str, Template], bundles: Path) -> None:
    check(templates, footprint_of(settings(bundles)))


def test_the_footprint_of_a_private_network_has_its_endpoints(others: dict[str, Template], bundles: Path) -> None:
    footprint = footprint_of(settings(bundles, **PRIVATE))
    check(others, footprint)
    assert (footprint.public, footprint.store.engine) == (False, "redis")


@pytest.mark.parametrize(
    ("differs", "usd"), [({}, 0.91), ({"training_image": None}, None)], ids=["in a function", "without one"]
)
def test_a_month_of_trainings_is_billed_where_a_function_trains(
    templates: dict[str, Template], bundles: Path, differs: dict[str, Any], usd: float | None
) -> None:
    month = bill_overhead(footprint_of(settings(bundles, **differs)), Load(duration_s=730 * 3600.0))
    billed = {line.item: round(line.usd, 2) for line in month}
    assert billed.get("training") == usd
    function = of_type(templates["functions"], "AWS::Lambda::Function")["Train"]
    assert function["MemorySize"] / 1024 * function["Timeout"] == TRAINING_GIB_S


@pytest.mark.parametrize("memory_mib", [2048, None, 6144])
def test_processes_in_the_account_plan_with_the_function_that_was_deployed(
    bundles: Path, memory_mib: int | None
) -> None:
    given = settings(bundles, **({"functions": {"memory_mib": memory_mib}} if memory_mib else {}))
    told = Settings.model_validate_json(given.model_dump_json(exclude_defaults=True, exclude=LEFT_OUT))
    here, there = ([model.served.overflow for model in make_live_models(one)] for one in (given, told))
    assert here == there
    assert all(overflow is None or overflow.memory_gib == (memory_mib or 3008) / 1024 for overflow in here)


@pytest.mark.parametrize(
    "changed",
    [{}, PRIVATE, {"gateway": {"instance_type": "c6i.large"}}, LEAN],
    ids=["ha", "private", "another type", "lean"],
)
def test_processes_in_the_account_bill_what_was_deployed(bundles: Path, changed: dict[str, Any]) -> None:
    """They read the settings without what does not concern them."""
    given = settings(bundles, **changed)
    told = sized(given).model_dump_json(exclude_defaults=True, exclude=LEFT_OUT)
    assert footprint_of(Settings.model_validate_json(told)) == footprint_of(given)
    assert "team@example.com" not in told

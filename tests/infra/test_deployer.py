"""Who deploys may do what CloudFormation does for the stacks, and little more."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.names import bucket_pattern, role_name
from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.evaluation import Access, evaluate
from mark.aws.permissions.policies import Names, statements
from mark.aws.stacks.access import access_template, boundary
from mark.aws.stacks.actions import STACK_ACTIONS, stack_actions
from mark.aws.stacks.cloudformation import Stacks
from mark.aws.stacks.deployer import (
    LONGEST_POLICY,
    deployer_policy,
    length_of,
    rollout_policies,
    stack_statements,
)
from mark.deployment.synth import Synthesis
from mark.deployment.templates import ACCESS, SCRIPT, types_of, write_templates
from mark.infra.app import what_is_missing
from tests.aws.builders import aws
from tests.aws.iam import reference
from tests.infra.conftest import ACCOUNT, COLLECTOR_SECRET, REGION, WEBHOOK, of_type, plain, settings

AWS_LOGS = ("/aws/lambda/mark-shop-", "/aws/ecs/containerinsights/mark-shop-")
NAMES = Names(
    service="shop",
    region=REGION,
    account=ACCOUNT,
    bucket=bucket_pattern("shop"),
    sender="mark@example.com",
    zone="Z0",
    host="shop.example.org",
    webhook=WEBHOOK,
)
LONGEST_SERVICE, LONGEST_REGION = "s" * 31, "ap-southeast-1"
LONGEST_INLINE = 10_240
BY_ID = "id-0123456789abcdef0"
RANDOM = "1TKLTMITMM0EO"
CERTIFICATE = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:shop-tls-AbCdEf"


def test_the_table_has_the_types_of_the_templates_and_no_others(
    synthesis: Synthesis, lean_synthesis: Synthesis
) -> None:
    assert types_of(synthesis) | types_of(lean_synthesis) == set(STACK_ACTIONS)


def test_every_action_is_one_that_iam_knows_and_stands_in_one_statement() -> None:
    actions = stack_actions(STACK_ACTIONS)
    assert [action for action in actions if not reference().knows(action)] == []
    written = [action for item in stack_statements(NAMES, STACK_ACTIONS) for action in item.actions]
    assert len(set(written)) == len(written)
    covered = {action for action in actions for one in written if fnmatchcase(action, one)}
    assert covered == actions
    exact = {one for one in written if not one.endswith(":Describe*")}
    assert exact - actions == {"ssm:GetParameters"}


def test_what_is_changed_is_the_services_by_name_or_tag() -> None:
    """Stars stand where something is seen or made, or where AWS lets nothing be named."""
    for item in stack_statements(NAMES, STACK_ACTIONS):
        assert item.why
        if "*" in item.resources:
            assert item.conditions == {"StringEquals": {"aws:RequestedRegion": REGION}}
            assert not any(
                re.match(r"\w+:(Delete|Modify|Update|Put|Terminate)(?!EventSource)", a) for a in item.actions
            )
    owned = {item.sid: item for item in stack_statements(NAMES, STACK_ACTIONS)}["StackOwned"]
    assert owned.conditions == {"StringEquals": {"aws:ResourceTag/mark:service": "shop"}}
    assert "ec2:DeleteVpc" in owned.actions


def test_less_is_allowed_where_less_is_deployed() -> None:
    few = rollout_policies(NAMES, ["AWS::SQS::Queue"])
    actions = {action for policy in few for item in policy["Statement"] for action in item["Action"]}
    assert "sqs:CreateQueue" in actions
    assert "ec2:CreateVpc" not in actions


def test_people_ask_for_changes_of_the_services_stacks_and_hand_over_one_role() -> None:
    """All else CloudFormation does in that role: nobody makes a role, a function or a network of their own."""
    people = deployer_policy(NAMES)
    changes = {
        action
        for item in people["Statement"]
        for action in item["Action"]
        if not re.match(r"\w+:(Describe|Get|List)", action)
    }
    assert {action.partition(":")[0] for action in changes} == {
        "cloudformation", "ec2", "iam", "route53", "s3", "ssm"
    }  # fmt: skip
    assert {one for one in changes if one.startswith(("ec2:", "iam:"))} == {
        "ec2:DeleteVolume",
        "ec2:TerminateInstances",
        "iam:CreateServiceLinkedRole",
        "iam:PassRole",
    }
    role = f"arn:aws:iam::{ACCOUNT}:role/mark.shop.rollout"

    def may(action: str, resource: str, **context: str) -> bool:
        given = {key.replace("_", ":"): (value,) for key, value in context.items()}
        return evaluate(Access(action=action, resource=resource, context=given), [people]).allowed

    assert may("iam:PassRole", role, iam_PassedToService="cloudformation.amazonaws.com")
    assert not may("iam:PassRole", role, iam_PassedToService="ec2.amazonaws.com")
    assert not may(
        "iam:PassRole", role.replace("shop", "bank"), iam_PassedToService="cloudformation.amazonaws.com"
    )
    stack = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack"
    assert may("cloudformation:ExecuteChangeSet", f"{stack}/mark-shop-launch/1")
    assert not may("cloudformation:ExecuteChangeSet", f"{stack}/mark-bank-launch/1")


@pytest.mark.parametrize("service", ["a", LONGEST_SERVICE], ids=["shortest", "longest"])
def test_no_policy_is_longer_than_iam_takes(service: str) -> None:
    """A role takes ten managed policies, of 6,144 letters each (IAM quotas)."""
    names = replace(NAMES, service=service, region=LONGEST_REGION, bucket=bucket_pattern(service))
    rights = rollout_policies(names, STACK_ACTIONS)
    assert len(rights) <= 10
    for policy in (*rights, deployer_policy(names), boundary(names, (CERTIFICATE,))):
        assert policy["Statement"]
        assert length_of(policy) <= LONGEST_POLICY
    for shape in rights:
        sids = [item["Sid"] for item in shape["Statement"]]
        assert len(set(sids)) == len(sids)


@pytest.mark.parametrize("models", [1, 10])
@pytest.mark.parametrize("roles", [(role,) for role in ROLES] + [("controller", "gateway", "node")], ids=str)
def test_no_role_has_more_than_iam_takes_within_it(roles: tuple[str, ...], models: int) -> None:
    """A role's own policies have 10,240 letters (IAM quotas); each model has a function and its alias."""
    longest = f"mark-{LONGEST_SERVICE}-"
    functions = (longest + str(number).rjust(64 - len(longest), "m") for number in range(models))
    names = replace(
        NAMES,
        service=LONGEST_SERVICE,
        region=LONGEST_REGION,
        bucket="b" * 63,
        infer=tuple(name for function in functions for name in (function, f"{function}:live")),
    )
    written = [item.document() for role in roles for item in statements(role, names)]
    assert length_of({"Version": "2012-10-17", "Statement": written}) <= LONGEST_INLINE


GENERATED: dict[str, Callable[[str, str], str]] = {
    "AWS::AutoScaling::AutoScalingGroup": (
        lambda stack, logical: f"autoScalingGroup:{RANDOM}:autoScalingGroupName/{stack}-{logical}-{RANDOM}"
    ),
    "AWS::Budgets::Budget": lambda stack, _: f"budget/{stack.removesuffix('watch')}spending",
    "AWS::ElastiCache::ParameterGroup": (
        lambda stack, logical: f"parametergroup:{f'{stack}-{logical}-{RANDOM}'.lower()}"
    ),
    "AWS::ElasticLoadBalancingV2::Listener": lambda stack, _: f"listener/net/{stack[:5]}-Balan-{RANDOM}/1/2",
    "AWS::ElasticLoadBalancingV2::LoadBalancer": (
        lambda stack, logical: f"loadbalancer/net/{stack[:5]}-{logical[:5]}-{RANDOM}/1"
    ),
    "AWS::ElasticLoadBalancingV2::TargetGroup": (
        lambda stack, logical: f"targetgroup/{stack[:5]}-{logical[:5]}-{RANDOM}/1"
    ),
    "AWS::IAM::Role": lambda stack, logical: f"role/{stack[:24]}-{logical[:24]}-{RANDOM}",
    "AWS::Lambda::EventSourceMapping": lambda *_: f"event-source-mapping:{BY_ID}",
    "AWS::S3::Bucket": lambda stack, logical: shortened(f"{stack}-{logical}-{RANDOM}".lower(), 63),
    "AWS::SecretsManager::Secret": lambda _, logical: f"secret:{logical}-{RANDOM}-AbCdEf",
}
"""CloudFormation's names of what a template gives none: type -> the end of its ARN, of stack and logical name. (A
budget's is in the template, deeper than others'.)

From AWS's own examples (user guides of CloudFormation, Auto Scaling and Secrets Manager); how a name that would be
too long is cut is not documented, and assumed here to be as short as examples show. Types with ids are left out.
"""
NAMED: dict[str, tuple[str, str]] = {
    "AWS::CloudWatch::Alarm": ("AlarmName", "alarm:{}"),
    "AWS::CloudWatch::Dashboard": ("DashboardName", "dashboard/{}"),
    "AWS::DynamoDB::Table": ("TableName", "table/{}"),
    "AWS::ECS::Cluster": ("ClusterName", "cluster/{}"),
    "AWS::ECS::Service": ("ServiceName", "service/mark-shop-control/{}"),
    "AWS::ECS::TaskDefinition": ("Family", "task-definition/{}:1"),
    "AWS::ElastiCache::ReplicationGroup": ("ReplicationGroupId", "replicationgroup:{}"),
    "AWS::ElastiCache::SubnetGroup": ("CacheSubnetGroupName", "subnetgroup:{}"),
    "AWS::ElastiCache::User": ("UserId", "user:{}"),
    "AWS::ElastiCache::UserGroup": ("UserGroupId", "usergroup:{}"),
    "AWS::Events::Rule": ("Name", "rule/{}"),
    "AWS::IAM::InstanceProfile": ("InstanceProfileName", "instance-profile/{}"),
    "AWS::IAM::Role": ("RoleName", "role/{}"),
    "AWS::Lambda::Function": ("FunctionName", "function:{}"),
    "AWS::Logs::LogGroup": ("LogGroupName", "log-group:{}"),
    "AWS::SNS::Topic": ("TopicName", "{}"),
    "AWS::SQS::Queue": ("QueueName", "{}"),
    "AWS::Scheduler::Schedule": ("Name", "schedule/default/{}"),
    "AWS::SecretsManager::Secret": ("Name", "secret:{}-AbCdEf"),
}
"""The property that names a resource of a type, and the end of its ARN."""
PART_OF = {
    "AWS::AutoScaling::ScheduledAction",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::Permission",
    "AWS::Lambda::Version",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
}
"""Types whose actions are on what they belong to."""
WITHOUT_REGION = {
    "budgets": f"arn:aws:budgets::{ACCOUNT}:",
    "iam": f"arn:aws:iam::{ACCOUNT}:",
    "s3": "arn:aws:s3:::",
}
OF_DASHBOARDS = f"arn:aws:cloudwatch::{ACCOUNT}:"


def shortened(name: str, most: int) -> str:
    """A generated name as CloudFormation may cut it: little of each part is left."""
    return name if len(name) <= most else f"{name[:24]}-{RANDOM.lower()}"


def arn_of(kind: str, stack: str, logical: str, properties: Mapping[str, Any]) -> str:
    key, end = NAMED.get(kind, ("", ""))
    given = properties.get(key)
    rest = end.format(given) if isinstance(given, str) else GENERATED[kind](stack, logical)
    service = next(iter(STACK_ACTIONS[kind])).partition(":")[0]
    if kind == "AWS::CloudWatch::Dashboard":
        return f"{OF_DASHBOARDS}{rest}"
    service = {"AWS::Lambda::Function": "lambda", "AWS::Scheduler::Schedule": "scheduler"}.get(kind, service)
    return f"{WITHOUT_REGION.get(service, f'arn:aws:{service}:{REGION}:{ACCOUNT}:')}{rest}"


def test_every_resource_of_the_templates_may_be_made_and_removed_under_the_name_that_it_gets(
    synthesis: Synthesis, lean_synthesis: Synthesis, others_synthesis: Synthesis
) -> None:
    """Of those that have names; the rest is EC2's, by tag, or Route 53's, by id."""
    rights = rollout_policies(NAMES, STACK_ACTIONS)
    tried = set()
    for made in (synthesis, lean_synthesis, others_synthesis):
        for stack, template in made.templates.items():
            for logical, resource in template["Resources"].items():
                kind = resource["Type"]
                if kind.split("::")[1] in ("EC2", "Route53") or kind in PART_OF:
                    continue
                arn = arn_of(kind, stack, logical, resource.get("Properties", {}))
                tried.add(kind)
                service = arn.split(":")[2]
                own = {one for one in stack_actions([kind]) if one.startswith(f"{service}:")} - {"iam:PassRole"}
                assert refused(rights, own, arn) == [], kind
    assert {kind for kind in STACK_ACTIONS if kind.split("::")[1] not in ("EC2", "Route53")} == tried | PART_OF


def refused(rights: Iterable[Mapping[str, Any]], actions: Iterable[str], arn: str) -> list[str]:
    """Actions that the role may take neither on that ARN nor on all."""
    context = {
        "aws:RequestedRegion": (REGION,),
        "iam:AWSServiceName": ("ecs.amazonaws.com",),
        "iam:PassedToService": ("lambda.amazonaws.com",),
        "iam:PermissionsBoundary": (f"arn:aws:iam::{ACCOUNT}:policy/mark.shop.boundary",),
    }
    policies = tuple(rights)
    return [
        action
        for action in actions
        if not any(
            evaluate(Access(action=action, resource=one, context=context), policies).allowed for one in (arn, "*")
        )
    ]


def test_a_longest_service_s_bucket_and_roles_have_names_that_the_role_may_use() -> None:
    names = replace(NAMES, service=LONGEST_SERVICE)
    rights = rollout_policies(names, STACK_ACTIONS)
    stack = f"mark-{LONGEST_SERVICE}-archive"
    bucket = f"arn:aws:s3:::{GENERATED['AWS::S3::Bucket'](stack, 'Bucket')}"
    assert refused(rights, ["s3:CreateBucket", "s3:DeleteBucket"], bucket) == []
    longest = f"mark-{LONGEST_SERVICE}-"
    function = longest + "m" * (64 - len(longest))
    assert len(role_name(function)) <= 64
    assert role_name(function).startswith(longest)
    assert role_name(function) != role_name(function[:-1] + "n")
    assert role_name("mark-shop-agent") == "mark-shop-agent-role"


def test_no_role_is_made_without_its_boundary_nor_handed_over_by_another_name() -> None:
    rights = rollout_policies(NAMES, STACK_ACTIONS)
    bounds, role = (
        f"arn:aws:iam::{ACCOUNT}:policy/mark.shop.boundary",
        f"arn:aws:iam::{ACCOUNT}:role/mark-shop-agent",
    )

    def may(action: str, resource: str, **context: str) -> bool:
        given = {f"iam:{key}": (value,) for key, value in context.items()}
        return evaluate(Access(action=action, resource=resource, context=given), rights).allowed

    for action in ("iam:CreateRole", "iam:PutRolePolicy", "iam:PutRolePermissionsBoundary"):
        assert may(action, role, PermissionsBoundary=bounds)
        assert not may(action, role)
        assert not may(action, role, PermissionsBoundary="arn:aws:iam::aws:policy/AdministratorAccess")
        assert not may(action, f"arn:aws:iam::{ACCOUNT}:role/admin", PermissionsBoundary=bounds)
        assert not may(action, f"arn:aws:iam::{ACCOUNT}:role/mark.shop.rollout", PermissionsBoundary=bounds)
    assert not may("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin", PassedToService="lambda.amazonaws.com")
    for action in ("iam:CreatePolicyVersion", "iam:DeleteRolePermissionsBoundary", "iam:AttachRolePolicy"):
        assert not may(action, bounds)
        assert not may(action, role, PermissionsBoundary=bounds)


def test_the_boundary_allows_what_the_roles_of_the_templates_may_and_nothing_of_others(
    synthesis: Synthesis, lean_synthesis: Synthesis, others_synthesis: Synthesis
) -> None:
    """Each action on each resource of each role, with a letter for every star and the values that it asks for."""
    bounds = boundary(NAMES, (CERTIFICATE, COLLECTOR_SECRET))
    tried = set()
    for made in (synthesis, lean_synthesis, others_synthesis):
        for template in made.templates.values():
            for role in of_type(template, "AWS::IAM::Role").values():
                for policy in plain(role.get("Policies") or []):
                    for access in accesses_of(policy["PolicyDocument"]):
                        assert evaluate(access, [bounds]).allowed, access
                        tried.add(access.action)
    assert {"ec2:RunInstances", "ses:SendRawEmail", "dynamodb:GetItem", "lambda:InvokeFunction"} <= tried
    for action, resource in (
        ("s3:GetObject", "arn:aws:s3:::another/x"),
        ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:another-AbCdEf"),
        ("iam:CreateRole", f"arn:aws:iam::{ACCOUNT}:role/mark-shop-x"),
        ("ec2:TerminateInstances", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-1"),
        ("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/admin"),
    ):
        assert not evaluate(Access(action=action, resource=resource), [bounds]).allowed, action


def accesses_of(document: Mapping[str, Any]) -> Iterator[Access]:
    """What a policy allows, as calls would ask for it."""
    for item in document["Statement"]:
        context = {
            key: tuple([value] if isinstance(value, str) else value[:1])
            for values in item.get("Condition", {}).values()
            for key, value in values.items()
        }
        for action in item["Action"]:
            for resource in item["Resource"]:
                known = EXPORTS.get(resource, resource)
                for export, value in EXPORTS.items():
                    known = known.replace(export, value)
                filled = known if known == "*" else known.replace("*", "x").replace("?", "x")
                yield Access(action=action, resource=filled, context={**context, "aws:RequestedRegion": (REGION,)})


EXPORTS = {
    "<mark-shop-bucket>": "mark-shop-archive-bucket-1abc",
    "<mark-shop-report-arn>": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:mark-shop-report",
    "<mark-shop-controller-secret>": (
        f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:mark-shop-store-controller-AbCdEf"
    ),
    "<mark-shop-report-secret>": f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:mark-shop-store-report-AbCdEf",
    "<mark-shop-zone>": "Z0",
}
"""What earlier stacks export -> a value that it may have."""


def test_names_of_the_templates_are_those_of_the_policy(synthesis: Synthesis) -> None:
    stacks = set(synthesis.templates)
    assert all(name.startswith("mark-shop-") for name in stacks)
    named = {"AWS::SQS::Queue": "QueueName", "AWS::SNS::Topic": "TopicName", "AWS::Logs::LogGroup": "LogGroupName"}
    for template in synthesis.templates.values():
        for resource in template["Resources"].values():
            key = named.get(resource["Type"])
            value = resource.get("Properties", {}).get(key) if key else None
            if isinstance(value, str):
                assert value.startswith(("mark-shop-", "/mark/shop/", *AWS_LOGS)), value


def test_cfn_lint_finds_no_error(
    synthesis: Synthesis, lean_synthesis: Synthesis, trial_synthesis: Synthesis, tmp_path: Path
) -> None:
    """In a shape's stacks, in those that differ in the others, and in the administrator's template."""
    lean = ("functions", "launch", "state", "nodes", "watch")
    access = access_template(replace(NAMES, account="${AWS::AccountId}"), STACK_ACTIONS, secrets=(CERTIFICATE,))
    linted = {ACCESS: access} | {f"ha-{name}": made for name, made in synthesis.templates.items()}
    for shape, parts, one in (("lean", lean, lean_synthesis), ("trial", ("nodes",), trial_synthesis)):
        linted |= {f"{shape}-{part}": one.templates[f"mark-shop-{part}"] for part in parts}
    files = [tmp_path / f"{name}.template.json" for name in linted]
    for file, made in zip(files, linted.values(), strict=True):
        file.write_text(json.dumps(made))
    done = subprocess.run(  # noqa: S603 - our own tool
        [
            str(Path(sys.executable).parent / "cfn-lint"),
            *("--format", "parseable", "--ignore-checks", "W3010"),  # the zones are settings
            *("--", *map(str, files)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_cloudformation_acts_in_the_role_that_is_given() -> None:
    """Making, changing and removing a stack, and no call beside those has it."""
    role, asked = f"arn:aws:iam::{ACCOUNT}:role/mark.shop.rollout", dict[str, str]()
    with mock_aws():
        there = aws()
        there.stacks.meta.events.register(
            "provide-client-params.cloudformation",
            lambda params, model, **_: asked.__setitem__(model.name, params.get("RoleARN", "")),
        )
        stacks = Stacks(there, poll_s=0.0, role=role)
        queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "mark-shop-raw"}}
        made = stacks.prepare("mark-shop-events", {"Resources": {"Raw": queue}}, tags={})
        assert made is not None
        list(stacks.carry_out(made))
        state = stacks.state("mark-shop-events")
        assert state is not None
        list(stacks.remove(state))
        there.close()
    assert {name for name, given in asked.items() if given == role} == {"CreateChangeSet", "DeleteStack"}


@pytest.mark.slow
def test_synth_writes_it(tmp_path: Path) -> None:
    """The administrator's template, in which CloudFormation fills in the account; roles have their boundary."""
    if lacking := what_is_missing():
        pytest.skip(lacking)
    given = settings(tmp_path, service_role=True)
    write_templates(given, tmp_path / "out")
    access = json.loads((tmp_path / "out" / ACCESS).read_text())
    assert f":{ACCOUNT}:" not in json.dumps(access["Resources"]["Boundary"]).replace(WEBHOOK, "the team's")
    role = access["Resources"]["Rollout"]["Properties"]
    assert role["RoleName"] == "mark.shop.rollout"
    assert [one["Ref"] for one in role["ManagedPolicyArns"]] == [
        name for name in access["Resources"] if name.startswith("Rights")
    ]
    [control] = (tmp_path / "out").glob("*-mark-shop-control.template.json")
    for made in of_type(json.loads(control.read_text()), "AWS::IAM::Role").values():
        assert plain(made["PermissionsBoundary"]) == f"arn:aws:iam::{ACCOUNT}:policy/mark.shop.boundary"
    assert (tmp_path / "out" / SCRIPT).read_text().count("role/mark.shop.rollout") == len(
        list((tmp_path / "out").glob("*-mark-shop-*.template.json"))
    )

"""What roles may do: no more than their calls need, on resources of the service alone."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from botocore import xform_name

from mark.aws.permissions.calls import ROLES
from mark.aws.permissions.evaluation import Access
from mark.aws.permissions.policies import Names, Statement, policy, statements
from mark.domain.errors import Misconfigured
from tests.aws.iam import NAMES, action_of, decided, reference

PREFIXES = {
    "MachineImages",
    *("LaunchFrom", "LaunchedAlong", "Artifacts", "Images", "Objects", "Journals", "Plans", "Reports"),
    *("LinkedRoles", "Mail", "MailIdentities"),
    "Trainings",
    "VersionFiles",
    "Versions",
}
SEEN_AS_A_WHOLE = {"ce:GetCostAndUsage", "cloudformation:DescribeStacks", "cloudwatch:DescribeAlarms"}
"""They take a resource, but are asked for all: which there are is what is asked."""
LAUNCH = {"ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "iam:CreateServiceLinkedRole"}
LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}
BESIDE = {
    "agent": {
        "ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer", "s3:GetObject", "secretsmanager:GetSecretValue",
    },
    "controller": LAUNCH,
    "deployer": {"s3:DeleteObjectVersion", "s3:ListBucket"},
    "infer": LOGS,
    "interruption": LOGS | {"sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"},
    "node": {"dynamodb:ConditionCheckItem"},
    "orphans": LOGS | {"s3:ListBucket", "sns:Publish"},
    "probe": LOGS,
    "profiler": LAUNCH - {"ec2:RunInstances", "iam:CreateServiceLinkedRole"},
    "releaser": {"s3:ListBucket"},
    "report": LOGS | {"ses:SendRawEmail"},
    "snapshot-report": LOGS | {"ses:SendRawEmail"},
    "setup": {
        "cloudwatch:TagResource", "ec2:CreateTags", "events:TagResource", "iam:PassRole", "iam:TagRole",
        "lambda:TagResource", "sqs:TagQueue",
    },
    "train": LOGS,
    "warm": LOGS,
    "webhook": LOGS | {"sqs:SendMessage"},
}  # fmt: skip
"""What AWS asks for beside a call's own action: tags, roles that are handed over, what AWS does as the role."""


def of(role: str, action: str) -> list[Statement]:
    return [item for item in statements(role, NAMES) if action in item.actions]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_its_calls_need_and_no_more(role: str) -> None:
    """Its calls are those that were recorded (`test_calls.py`); actions are named as AWS documents them."""
    needed = {action_of(call.service, call.action) for call in ROLES[role]} - {"sts:GetCallerIdentity"}
    assert {action for item in statements(role, NAMES) for action in item.actions} == (
        needed | BESIDE.get(role, set())
    )


@pytest.mark.parametrize("role", ROLES)
def test_iam_knows_every_action_and_takes_its_resources(role: str) -> None:
    """An ARN that an action does not take allows nothing, and neither does one where it takes only `*`."""
    known, written = reference(), statements(role, NAMES)
    for action in {action for item in written for action in item.actions}:
        assert known.knows(action), action
        over = [one for item in written if action in item.actions for one in item.resources]
        if not known.takes(action):
            assert set(over) == {"*"}, action
        elif action in SEEN_AS_A_WHOLE:
            assert over == ["*"], action
        else:
            assert any(any(known.types_of(action, one)) for one in over), action


def test_every_resource_is_one_that_an_action_of_its_scope_takes() -> None:
    """Whichever role has that action: both ways to launch share their scopes."""
    scopes: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for item in (item for role in ROLES for item in statements(role, NAMES)):
        scopes[item.sid] |= {(one, action) for one in item.resources for action in item.actions}
    for pairs in scopes.values():
        suit = {one for one, action in pairs if any(reference().types_of(action, one))}
        assert {one for one, _ in pairs} - suit <= {"*"}


@pytest.mark.parametrize("role", ROLES)
def test_a_condition_asks_what_the_action_tells_of_such_a_resource(role: str) -> None:
    """A key that an action does not tell is absent whenever it is asked: the statement would allow nothing."""
    for item in statements(role, NAMES):
        asked = {re.sub(r"Tag/.*", "Tag/${TagKey}", key) for keys in item.conditions.values() for key in keys}
        for action in item.actions:
            told = [reference().keys(action, one) for one in item.resources]
            assert any(asked <= keys for keys in told), (item.sid, action, asked - frozenset().union(*told))
        for one in item.resources:
            suit = [action for action in item.actions if any(reference().types_of(action, one))]
            assert not suit or any(asked <= reference().keys(action, one) for action in suit), (item.sid, one)


def test_a_policy_that_lacks_what_is_called_is_seen() -> None:
    queues = [NAMES.arn("sqs", name) for name in ("mark-shop-events", "x")]
    refused, unused = decided(
        "interruption", [Access(action="sqs:SendMessage", resource=q) for q in queues], NAMES
    )
    assert refused == ["interruption: sqs:SendMessage on arn:aws:sqs:us-east-1:123456789012:x"]
    assert unused == set()
    assert decided("interruption", [], NAMES)[1] == {("EventsQueue", "sqs:SendMessage")}
    assert not reference().knows("ec2:CreateFleets")
    assert not reference().takes("ec2:DescribeInstances")


@pytest.mark.parametrize("role", ROLES)
def test_every_statement_is_one_that_iam_takes_and_says_why(role: str) -> None:
    written = statements(role, NAMES)
    assert len({item.sid for item in written}) == len(written)
    for item in written:
        assert re.fullmatch(r"[A-Za-z0-9]+", item.sid)
        assert all(re.fullmatch(r"[a-z0-9]+:[A-Za-z]+", action) for action in item.actions)
        assert item.resources
        assert item.why
        for resource in item.resources:
            assert resource == "*" or re.fullmatch(r"arn:aws:[a-z0-9]+:[a-z0-9-]*:\d*:\S+", resource)
    assert len(json.dumps(policy(NAMES, role))) < 6144  # what a managed policy may have


@pytest.mark.parametrize("role", ROLES)
def test_only_what_takes_no_resource_is_allowed_on_all(role: str) -> None:
    for item in statements(role, NAMES):
        if "*" in item.resources:
            assert "no resource" in item.why
            limited = "ArnLike" in item.conditions
            for action in item.actions:
                assert limited or re.match(r"\w+:(Describe|List|Get)", action), action


@pytest.mark.parametrize("role", ROLES)
def test_what_is_changed_bears_the_service_s_name_or_tags(role: str) -> None:
    """Wildcards stand only where tags are asked for, or where nothing of anybody else can be meant."""
    for item in statements(role, NAMES):
        asked = json.dumps(item.document().get("Condition", {}))
        tagged = '/mark:service": "shop"' in asked
        for resource in item.resources:
            if resource.endswith("/*") or resource == "*":
                exempt = item.sid in PREFIXES or resource == "*"
                assert tagged or exempt, item


def test_a_launch_tags_what_it_makes_starts_from_own_templates_and_hands_over_one_role() -> None:
    launches = {item.sid: item for item in of("controller", "ec2:RunInstances")}
    assert set(launches) == {"LaunchFrom", "LaunchTemplates", "LaunchedAlong", "LaunchedTagged"}
    made = launches["LaunchedTagged"]
    assert made.conditions == {"StringEquals": {"aws:RequestTag/mark:service": "shop"}}
    assert made.resources == tuple(
        f"arn:aws:ec2:us-east-1:123456789012:{kind}/*" for kind in ("fleet", "instance", "volume")
    )
    assert "aws:ResourceTag/mark:service" in launches["LaunchTemplates"].conditions["StringEquals"]
    (tagging,) = of("controller", "ec2:CreateTags")
    assert tagging.conditions["StringEquals"]["ec2:CreateAction"] == ["CreateFleet", "RunInstances"]
    (passing,) = of("controller", "iam:PassRole")
    assert passing.resources == ("arn:aws:iam::123456789012:role/mark-shop-agent",)
    assert passing.conditions == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


def test_instances_of_others_are_not_ended() -> None:
    for action in ("ec2:TerminateInstances", "ec2:StopInstances", "ec2:StartInstances"):
        (item,) = of("controller", action)
        assert item.conditions == {"StringEquals": {"aws:ResourceTag/mark:service": "shop"}}


def test_what_a_service_has_not_is_not_granted() -> None:
    bare = Names(service="shop", region="us-east-1", account="123456789012")
    assert statements("agent", bare) == ()
    assert not any(action.startswith("ce:") for item in statements("report", bare) for action in item.actions)
    assert of("report", "ce:GetCostAndUsage")
    untrained = {item.sid for item in statements("controller", replace(NAMES, train=""))}
    assert {item.sid for item in statements("controller", NAMES)} - untrained == {"Training", "Trainings"}
    assert {item.sid for item in statements("agent", NAMES)} == {"Artifacts", "Image", "ImageLogin", "StoreSecret"}


def test_a_policy_of_several_roles_has_each_scope_once() -> None:
    both = policy(NAMES, "controller", "gateway", "warm")
    sids = [item["Sid"] for item in both["Statement"]]
    assert len(sids) == len(set(sids))
    assert policy(NAMES, "gateway") == policy(NAMES, "gateway", "gateway")


def test_an_unknown_role_is_refused_with_the_nearest() -> None:
    with pytest.raises(Misconfigured, match="did you mean 'controller'"):
        statements("controler", NAMES)


def test_rollouts_call_what_is_listed_for_the_deployer() -> None:
    """Read off the sources: a rollout takes minutes and is tested elsewhere."""
    house = Path(__file__).parents[2] / "mark"
    folders = ("deployment", "deployment/checks", "aws/stacks")
    sources = [path for one in folders for path in (house / one).glob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    found = set(re.findall(r"_client\.(?!get_paginator)(\w+)\(", text))
    found |= set(re.findall(r"aws\.(?:objects|identity|parameters|ec2)\.(\w+)\(", text))
    found |= set(re.findall(r"get_paginator\(\"(\w+)\"", text))
    if "end_instances" in text:
        found |= {"describe_instances", "terminate_instances"}
    if "remove_addresses" in text:
        found |= {"change_resource_record_sets", "list_resource_record_sets"}
    if "tagged_resources" in text:
        found |= {"get_resources"}
    if "empty_bucket(" in text:
        found |= {"list_object_versions", "delete_objects", "delete_volume"}
    if "loose_volumes" in text:
        found |= {"describe_volumes"}
    if "manifest_type(" in text:
        found |= {"describe_images"}
    if "holds_object(" in text:
        found |= {"head_object"}
    if "make_linked_roles(" in text:
        found |= {"create_service_linked_role"}
    if "require_name_is_free(" in text:
        found |= {"get_role"}
    if "read_quotas(" in text:
        found |= {"list_service_quotas"}
    if "available_zones" in text:
        found |= {"describe_availability_zones", "describe_subnets"}
    assert found == {xform_name(call.action) for call in ROLES["deployer"]}


def test_a_report_is_from_its_sender_whichever_identities_ses_asks_for() -> None:
    [sends] = of("report", "ses:SendRawEmail")
    where = f"arn:aws:ses:{NAMES.region}:{NAMES.account}"
    assert sends.resources == (f"{where}:identity/*", f"{where}:configuration-set/*")
    assert sends.conditions == {"StringEquals": {"ses:FromAddress": NAMES.sender}}
    assert not [one for one in statements("report", replace(NAMES, sender="")) if one.sid == "Mail"]


@pytest.mark.parametrize("role", ["controller", "gateway", "profiler", "warm"])
def test_whoever_calls_functions_calls_those_that_infer_by_their_names(role: str) -> None:
    """Not the one that mails, nor those that read events or warm up; a controller also the one that trains."""
    invoking = [item for item in statements(role, NAMES) if "lambda:InvokeFunction" in item.actions]
    called = {"Inference": NAMES.infer} | ({"Training": (NAMES.train,)} if role == "controller" else {})
    assert {item.sid: item.resources for item in invoking} == {
        sid: tuple(NAMES.arn("lambda", f"function:{name}") for name in names) for sid, names in called.items()
    }
    assert not any("*" in resource for item in invoking for resource in item.resources)
    assert not any(
        "lambda:InvokeFunction" in item.actions for item in statements(role, replace(NAMES, infer=(), train=""))
    )

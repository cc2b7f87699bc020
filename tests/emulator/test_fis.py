"""Experiments of FIS: what AWS would refuse is refused, and spot instances get their notice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.emulator.conftest import World, fleet, ids_of, template
from tests.emulator.test_spot import queue_of, receive
from tests.waiting import until

ROLE = "arn:aws:iam::123456789012:role/fis"
TAGS = {"mark:service": "demo"}


def role(
    world: World,
    *,
    trusted: str = "fis.amazonaws.com",
    tag: str = "demo",
    finds: str = "ec2:DescribeInstances",
) -> None:
    iam = world.client("iam")
    trust = {"Statement": [{"Effect": "Allow", "Principal": {"Service": trusted}, "Action": "sts:AssumeRole"}]}
    find = {"Effect": "Allow", "Action": finds, "Resource": "*"}
    allow = {
        "Effect": "Allow",
        "Action": "ec2:SendSpotInstanceInterruptions",
        "Resource": "arn:aws:ec2:us-east-1:123456789012:instance/*",
        "Condition": {"StringEquals": {"aws:ResourceTag/mark:service": tag}},
    }
    iam.create_role(RoleName="fis", AssumeRolePolicyDocument=json.dumps(trust))
    iam.put_role_policy(
        RoleName="fis",
        PolicyName="fis",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [find, allow]}),
    )


def asked(**changes: Any) -> dict[str, Any]:
    target = {"resourceType": "aws:ec2:spot-instance", "resourceTags": TAGS, "selectionMode": "ALL"}
    action = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "parameters": {"durationBeforeInterruption": "PT2M"},
        "targets": {"SpotInstances": "fleet"},
    }
    return {
        "clientToken": "one",
        "description": "interrupt",
        "roleArn": ROLE,
        "stopConditions": [{"source": "none"}],
        "targets": {"fleet": {**target, **changes.pop("target", {})}},
        "actions": {"interrupt": {**action, **changes.pop("action", {})}},
        **changes,
    }


def run(world: World, request: dict[str, Any]) -> dict[str, Any]:
    """Start an experiment; how it stands then."""
    fis = world.client("fis", attempts=1)
    made = fis.create_experiment_template(**request)["experimentTemplate"]["id"]
    started = fis.start_experiment(clientToken="start", experimentTemplateId=made)["experiment"]
    assert fis.delete_experiment_template(id=made)["experimentTemplate"]["id"] == made
    found: dict[str, Any] = fis.get_experiment(id=started["id"])["experiment"]
    return found


def test_running_spot_instances_with_the_tag_get_their_notice(world: World) -> None:
    role(world)
    made = template(world)
    spot = ids_of(fleet(world, made, count=2, market="spot"))
    kept = ids_of(fleet(world, made)) + ids_of(fleet(world, made, market="spot", tags={"mark:service": "other"}))
    for name in (*spot, *kept):
        world.wait(name, "running")
    url = queue_of(world, {"detail-type": ["EC2 Spot Instance Interruption Warning"]})
    running = run(world, asked())
    assert running["state"]["status"] in ("running", "completed")
    for name in spot:
        world.wait(name, "terminated")
    assert {world.instances()[name]["state"] for name in kept} == {"running"}
    fis = world.client("fis")
    until(lambda: fis.get_experiment(id=running["id"])["experiment"]["state"]["status"] == "completed")
    told = {one["detail"]["instance-id"] for one in receive(world, url, 2)}
    assert told == {*spot}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"trusted": "ec2.amazonaws.com"}, "is not trusted"),
        ({"tag": "other"}, "is not authorized to perform: ec2:SendSpotInstanceInterruptions"),
        ({"finds": "ec2:DescribeImages"}, "is not authorized to perform: ec2:DescribeInstances"),
        (None, "does not exist"),
    ],
)
def test_a_role_that_may_not_do_it_fails_the_experiment(
    world: World, options: dict[str, str] | None, reason: str
) -> None:
    if options is not None:
        role(world, **options)
    [name] = ids_of(fleet(world, template(world), market="spot"))
    world.wait(name, "running")
    failed = run(world, asked())
    assert (failed["state"]["status"], reason in failed["state"]["reason"]) == ("failed", True)
    assert world.instances()[name]["terminates_at"] is None


def test_templates_are_checked_as_fis_does(start: Callable[..., World]) -> None:
    world = start()
    role(world)
    fis = world.client("fis", attempts=1)
    wrong = [
        (asked(action={"parameters": {"durationBeforeInterruption": "PT1M"}}), "PT2M to PT15M"),
        (asked(action={"parameters": {}}), "durationBeforeInterruption and no other"),
        (asked(action={"targets": {"Instances": "fleet"}}), "takes the target SpotInstances"),
        (asked(action={"actionId": "aws:ec2:stop-instances"}), "NotEmulated"),
        (asked(target={"selectionMode": "SOME"}), "selectionMode"),
        (asked(target={"resourceArns": [f"arn:aws:ec2:us-east-1:123456789012:instance/i-{'0' * 17}"]}), "either"),
        (asked(stopConditions=[]), "stopConditions must not be empty"),
        (asked(roleArn="arn:aws:iam::999999999999:role/fis"), "not a role of this account"),
    ]
    for request, why in wrong:
        with pytest.raises(ClientError, match=why):
            fis.create_experiment_template(**request)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        fis.start_experiment(clientToken="x", experimentTemplateId="EXT1")
    made = fis.create_experiment_template(**asked())["experimentTemplate"]
    assert fis.create_experiment_template(**asked())["experimentTemplate"]["id"] == made["id"]
    with pytest.raises(ClientError, match="ConflictException"):
        fis.create_experiment_template(**asked(description="another"))
    empty = fis.start_experiment(clientToken="y", experimentTemplateId=made["id"])["experiment"]["state"]
    assert "returned empty set" in empty["reason"]

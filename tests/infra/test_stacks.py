"""CloudFormation's answers as values, the lock, and what a rollout makes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError
from moto import mock_aws

from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import Change, StackEvent, Stacks, StackState, first_failure
from mark.aws.stacks.lock import STALE_S, Holder, RolloutLock
from mark.deployment.deployment_plan import StackPlan, compare, is_long, refuse_stuck, template_changes
from mark.deployment.machine_images import newest_image
from mark.deployment.show import plan_document, plan_table
from mark.deployment.spending import Spending
from mark.deployment.synth import Synthesis
from mark.domain.errors import Misconfigured
from mark.report.terminal import show
from tests.aws.builders import aws
from tests.footprints import FOOTPRINT

QUEUE = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "mark-shop-a", "DelaySeconds": 1}}
TAGS = {"mark:service": "shop", "mark:owner": "mark"}


def template(**resources: Any) -> dict[str, Any]:
    return {"Resources": resources or {"Queue": QUEUE}}


def synthesis(**templates: Any) -> Synthesis:
    return Synthesis(
        templates={f"mark-shop-{part}": one for part, one in templates.items()},
        bundles=(),
        assembly={},
        models=(),
        versions={},
        footprint=FOOTPRINT,
        spending=Spending(around_usd=0.1, limit_usd=1.0, named=True, lambda_usd=0.0),
        sizes=(),
        blueprint="{}",
    )


@pytest.fixture
def there() -> Iterator[Aws]:
    with mock_aws():
        made = aws()
        yield made
        made.close()


@pytest.fixture
def stacks(there: Aws) -> Stacks:
    return Stacks(there, poll_s=0.01)


def made(stacks: Stacks, name: str, body: dict[str, Any], tags: dict[str, str] = TAGS) -> None:
    change_set = stacks.prepare(name, body, tags=tags)
    assert change_set is not None
    list(stacks.carry_out(change_set))


def test_a_stack_is_made_and_read_back(stacks: Stacks) -> None:
    assert stacks.state("mark-shop-a") is None
    made(stacks, "mark-shop-a", template())

    state = stacks.state("mark-shop-a")
    assert state is not None
    assert state.stands
    assert state.tags == TAGS
    assert stacks.template("mark-shop-a") == template()
    assert list(stacks.resources("mark-shop-a")) == ["Queue"]


def test_a_change_set_that_is_not_carried_out_leaves_nothing(stacks: Stacks) -> None:
    change_set = stacks.prepare("mark-shop-a", template(), tags=TAGS)
    assert change_set is not None
    stacks.discard("mark-shop-a", change_set.id)
    assert stacks.state("mark-shop-a") is None


def test_a_stack_goes(stacks: Stacks) -> None:
    made(stacks, "mark-shop-a", template())
    state = stacks.state("mark-shop-a")
    assert state is not None
    list(stacks.remove(state))
    assert stacks.state("mark-shop-a") is None


def test_what_is_deployed_is_compared_with_what_is_wanted(stacks: Stacks) -> None:
    changed = template(Queue={**QUEUE, "Properties": {**QUEUE["Properties"], "DelaySeconds": 2}})
    made(stacks, "mark-shop-a", template())
    made(stacks, "mark-shop-b", template(Other={"Type": "AWS::SNS::Topic", "Properties": {}}))
    made(stacks, "mark-shop-old", template(Old={"Type": "AWS::SNS::Topic", "Properties": {}}))
    made(
        stacks,
        "mark-shop-b-else",
        template(X={"Type": "AWS::SNS::Topic", "Properties": {}}),
        {**TAGS, "mark:service": "shop-b"},
    )

    wanted = synthesis(a=changed, b=stacks.template("mark-shop-b"), c=template())
    plans = compare(stacks, wanted, "shop")

    assert [(plan.name, plan.act) for plan in plans] == [
        ("mark-shop-old", "delete"),  # another service's stack is none of ours
        ("mark-shop-a", "update"),
        ("mark-shop-b", "keep"),
        ("mark-shop-c", "create"),
    ]
    assert plans[1].changes == (
        Change(action="Modify", resource="Queue", type="AWS::SQS::Queue", differs="DelaySeconds"),
    )


def test_a_network_of_ones_own_is_not_left_behind(stacks: Stacks) -> None:
    made(stacks, "mark-shop-network", template())
    with pytest.raises(Misconfigured, match=r"rollout\.network\.vpc cannot change"):
        compare(stacks, synthesis(a=template()), "shop")


@pytest.mark.parametrize(
    ("shape", "was", "becomes"), [("ha", "gateways", "nodes"), ("lean", "nodes", "gateways")], ids=["ha", "lean"]
)
def test_a_service_that_stands_keeps_its_shape(stacks: Stacks, shape: str, was: str, becomes: str) -> None:
    made(stacks, f"mark-shop-{was}", template())
    with pytest.raises(Misconfigured, match=rf"write shape: {shape} to go on .*another service\.name"):
        compare(stacks, synthesis(**{becomes: template()}), "shop")
    [plan] = compare(stacks, synthesis(**{was: template()}), "shop")
    assert plan.act == "keep"


@pytest.mark.parametrize(("was", "becomes"), [("Zip", "Image"), ("Image", "Zip"), ("", "Image")])
def test_a_function_that_would_change_its_kind_is_refused_with_what_to_do(was: str, becomes: str) -> None:
    def functions(kind: str) -> dict[str, Any]:
        packed = {"PackageType": kind} if kind else {}
        properties = {"FunctionName": "mark-shop-digits", "MemorySize": 1024 + len(kind), **packed}
        return template(Infer={"Type": "AWS::Lambda::Function", "Properties": properties})

    state = StackState(name="mark-shop-a", id="a", status="UPDATE_COMPLETE", tags=TAGS)
    there: Any = SimpleNamespace(named=lambda _prefix: (state,), template=lambda _name: functions(was))
    with pytest.raises(Misconfigured, match=r"mark-shop-digits is an? (zip|image), .*overflow: false"):
        compare(there, synthesis(a=functions(becomes)), "shop")
    [plan] = compare(there, synthesis(a=functions(was)), "shop")
    assert plan.act == "keep"
    [plan] = compare(there, synthesis(a=template()), "shop")
    assert plan.act == "update"


def test_templates_differ_by_resources_outputs_and_parameters() -> None:
    before = {"Resources": {"A": QUEUE, "B": QUEUE}, "Outputs": {"X": {"Value": 1}}}
    after = {"Resources": {"A": QUEUE, "C": QUEUE}, "Outputs": {"X": {"Value": 2}}, "Parameters": {"P": {}}}
    found = [(change.action, change.resource) for change in template_changes(before, after)]
    assert found == [("Remove", "B"), ("Add", "C"), ("Modify", "X"), ("Add", "P")]
    assert list(template_changes(after, after)) == []


def test_a_long_template_is_known() -> None:
    assert not is_long(template())
    assert is_long(template(Queue={**QUEUE, "Metadata": "x" * 52_000}))


def test_a_stuck_stack_is_refused_with_what_to_do() -> None:
    state = StackState(name="mark-shop-a", id="a", status="UPDATE_ROLLBACK_FAILED", reason="no such role")
    plan = StackPlan(name="mark-shop-a", act="update", state=state)
    with pytest.raises(Misconfigured, match=r"no such role.*continue-update-rollback --stack-name mark-shop-a"):
        refuse_stuck((plan,))


def event(at: float, resource: str, status: str, reason: str = "") -> StackEvent:
    return StackEvent(id=f"{at}", at=at, resource=resource, type="T", status=status, reason=reason)


def test_a_look_that_aws_throttles_is_made_again(there: Aws, stacks: Stacks) -> None:
    made(stacks, "mark-shop-a", template())
    all_events = [event.id for event in stacks.events("mark-shop-a")]
    refused = ["DescribeStacks", "DescribeStackEvents"]

    def throttle(model: Any, **_: Any) -> None:
        if model.name in refused:
            refused.remove(model.name)
            raise ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, model.name)

    there.stacks.meta.events.register("provide-client-params.cloudformation.*", throttle)
    assert [event.id for event in stacks.follow("mark-shop-a")] == all_events
    assert refused == []


class Events:
    """CloudFormation's events of a stack, newest first, in pages of two; `pages`: those that were asked for."""

    def __init__(self, count: int) -> None:
        at = datetime(2026, 11, 23, tzinfo=UTC)
        self.rows, self.pages = [{"EventId": str(number), "Timestamp": at} for number in range(count)], 0

    def get_paginator(self, name: str) -> Events:
        assert name == "describe_stack_events"
        return self

    def paginate(self, **_: str) -> Iterator[dict[str, Any]]:
        newest = self.rows[::-1]
        for start in range(0, len(newest), 2):
            self.pages += 1
            yield {"StackEvents": newest[start : start + 2]}


@pytest.mark.parametrize(("known", "pages"), [(0, 4), (1, 4), (6, 1), (7, 1)])
def test_events_are_asked_for_until_one_is_known(known: int, pages: int) -> None:
    told = Events(7)
    found = Stacks(SimpleNamespace(stacks=told)).events("mark-shop-a", {str(number) for number in range(known)})  # type: ignore[arg-type]
    assert [event.id for event in found] == [str(number) for number in range(known, 7)]
    assert told.pages == pages


def test_the_first_failure_is_the_cause() -> None:
    events = [
        event(1, "A", "CREATE_IN_PROGRESS"),
        event(2, "B", "CREATE_FAILED", "already exists"),
        event(3, "A", "CREATE_FAILED", "Resource creation cancelled"),
        event(4, "stack", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [B]"),
    ]
    failure = first_failure(events, "stack")
    assert failure is not None
    assert (failure.resource, failure.reason) == ("B", "already exists")
    alone = first_failure(events[3:], "stack")
    assert alone is not None
    assert alone.resource == "stack"
    assert first_failure(events[:1], "stack") is None


def test_plans_are_shown_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    change = Change(action="Modify", resource="Queue", type="AWS::SQS::Queue", replaced="True", differs="Delay")
    new = Change(action="Add", resource="Topic", type="AWS::SNS::Topic")
    plans = (
        StackPlan(name="mark-shop-a", act="update", changes=(change,)),
        StackPlan(name="mark-shop-b", act="create", changes=(new, replace(new, resource="Other"))),
        StackPlan(name="mark-shop-c", act="delete"),
    )
    show(plan_table(plans))
    said = capsys.readouterr().out
    assert "~ Queue" in said
    assert "Delay; replaced" in said
    assert "2 Topic" in said
    told = plan_document(plans)
    assert json.loads(json.dumps(told))[0]["changes"][0]["replaced"] == "True"


ME = Holder(host="here", pid=os.getpid(), since=1000.0, at=1000.0)


def rollout_lock(there: Aws, holder: Holder, *, runs: bool = True) -> RolloutLock:
    return RolloutLock(there, "shop", holder, runs=lambda _: runs)


def test_one_rolls_out_at_a_time(there: Aws) -> None:
    other = Holder(host="there", pid=7, since=1005.0, at=1005.0)
    with (
        rollout_lock(there, ME) as held,
        pytest.raises(Misconfigured, match="being rolled out by process"),
        rollout_lock(there, other),
    ):
        pass
    assert held.holder() is None
    with rollout_lock(there, other) as again:
        assert again.holder() == other


@pytest.mark.parametrize(
    ("left", "runs"),
    [
        (Holder(host="here", pid=7, since=990.0, at=990.0), False),
        (Holder(host="there", pid=7, since=1.0, at=1000.0 - STALE_S), True),
    ],
)
def test_what_a_killed_rollout_held_is_taken_over(
    there: Aws, left: Holder, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mark.aws.stacks.lock.SETTLE_S", 0.0)
    killed = rollout_lock(there, left)
    killed.__enter__()
    with rollout_lock(there, ME, runs=runs) as mine:
        assert mine.holder() == ME
        mine.confirm()
        with pytest.raises(Misconfigured, match="being rolled out by process"):
            killed.confirm()  # it only slept: another goes on from here
    assert mine.holder() is None
    killed.__exit__(None, None, None)


def test_a_template_that_cdk_deployed_is_read_as_the_same(there: Aws, stacks: Stacks) -> None:
    """CDK's command line sends YAML, in which a policy's version must not become a date."""
    wanted = template(Queue=QUEUE) | {"Metadata": {"Version": "2012-10-17"}}
    there.stacks.create_stack(StackName="mark-shop-events", TemplateBody=yaml.safe_dump(wanted))
    assert stacks.template("mark-shop-events") == wanted


NEWEST = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"


def test_a_newer_machine_image_is_told_and_taken_on_request_or_with_any_change(there: Aws) -> None:
    """As CloudFormation answers (DescribeStacks, ResolvedValue), which moto leaves out."""
    told = {"ParameterKey": "Image", "ParameterValue": NEWEST, "ResolvedValue": "ami-1"}
    stack = {"StackName": "mark-shop-a", "StackStatus": "UPDATE_COMPLETE", "Parameters": [told]}
    client: Any = SimpleNamespace(describe_stacks=lambda **_: {"Stacks": [stack]})
    state = Stacks(SimpleNamespace(stacks=client)).state("mark-shop-a")  # type: ignore[arg-type]
    stands: Any = SimpleNamespace(named=lambda _: (state,), template=lambda _: template())
    changed = template(Queue={**QUEUE, "Properties": {"QueueName": "b"}})

    def acts(wanted: dict[str, Any], newest: str, *, new_images: bool = False) -> tuple[str, list[str]]:
        names = {NEWEST: newest}.__getitem__
        [plan] = compare(stands, synthesis(a=wanted), "shop", names, new_images=new_images)
        assert [change.differs for change in plan.images] == [f"ami-1 -> {newest}"] * (newest != "ami-1")
        return plan.act, [change.resource for change in plan.changes]

    assert acts(template(), "ami-1", new_images=True) == ("keep", [])
    assert acts(template(), "ami-2") == ("keep", [])
    assert acts(template(), "ami-2", new_images=True) == ("update", ["Image"])
    assert acts(changed, "ami-2") == ("update", ["Queue", "Image"])
    assert newest_image(there)(NEWEST).startswith("ami-")

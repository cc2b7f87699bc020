"""Alarms to a webhook in the stacks: the topic calls the function, and no template holds an address."""

from __future__ import annotations

import json

import pytest

from mark.deployment.synth import Synthesis
from mark.protocols.alert_messages import ADVICE, UNPOSTED, kind_of
from tests.infra.conftest import WEBHOOK, Template, of_type, plain


@pytest.fixture(params=["ha", "lean"])
def made(request: pytest.FixtureRequest) -> dict[str, Template]:
    found: dict[str, Template] = request.getfixturevalue({"ha": "templates", "lean": "lean"}[request.param])
    return found


def test_the_topic_calls_the_function_and_may(made: dict[str, Template]) -> None:
    watch = made["watch"]
    (topic,) = of_type(watch, "AWS::SNS::Topic")
    (subscription,) = of_type(watch, "AWS::SNS::Subscription").values()
    (permission,) = of_type(watch, "AWS::Lambda::Permission").values()
    assert subscription["TopicArn"] == permission["SourceArn"] == {"Ref": topic}
    assert subscription["Protocol"] == "lambda"
    assert subscription["Endpoint"] == permission["FunctionName"]
    assert (permission["Action"], permission["Principal"]) == ("lambda:InvokeFunction", "sns.amazonaws.com")


def test_the_function_reads_its_secret_alone_and_keeps_what_it_could_not_post(made: dict[str, Template]) -> None:
    functions = made["functions"]
    (function,) = (
        one
        for one in of_type(functions, "AWS::Lambda::Function").values()
        if one["FunctionName"] == "mark-shop-webhook"
    )
    assert "VpcConfig" not in function, "it reaches the internet"
    assert function["Environment"]["Variables"]["MARK_WEBHOOK_SECRET"] == WEBHOOK
    (logical, queue), *_ = (
        (name, one)
        for name, one in of_type(functions, "AWS::SQS::Queue").items()
        if one["QueueName"] == "mark-shop-webhook-dead"
    )
    assert queue["SqsManagedSseEnabled"]
    assert function["DeadLetterConfig"]["TargetArn"] == {"Fn::GetAtt": [logical, "Arn"]}
    (role,) = (
        one for one in of_type(functions, "AWS::IAM::Role").values() if one["RoleName"] == "mark-shop-webhook-role"
    )
    (policy,) = role["Policies"]
    granted = {one["Sid"]: one for one in plain(policy["PolicyDocument"])["Statement"]}
    assert granted.keys() == {"Logs", "UnpostedQueue", "Webhook"}
    assert granted["Webhook"]["Resource"] == [WEBHOOK]
    (unposted,) = granted["UnpostedQueue"]["Resource"]
    assert unposted.endswith(":mark-shop-webhook-dead")


def test_each_alarm_has_advice_and_that_on_unposted_messages_is_there(made: dict[str, Template]) -> None:
    names = {one["AlarmName"] for one in of_type(made["watch"], "AWS::CloudWatch::Alarm").values()}
    kinds = {kind_of(name, "shop") for name in names}
    assert UNPOSTED in kinds
    assert kinds - {UNPOSTED} <= ADVICE.keys()


def test_advice_is_for_alarms_that_there_are(templates: dict[str, Template], lean: dict[str, Template]) -> None:
    alarms = (of_type(one["watch"], "AWS::CloudWatch::Alarm").values() for one in (templates, lean))
    assert {kind_of(one["AlarmName"], "shop") for found in alarms for one in found} - {UNPOSTED} == ADVICE.keys()


def test_processes_do_not_change_with_the_secrets_name(lean_synthesis: Synthesis) -> None:
    assert WEBHOOK not in json.dumps(lean_synthesis.templates["mark-shop-nodes"])


def test_without_the_setting_nothing_of_it_is_there(trial_synthesis: Synthesis) -> None:
    assert "webhook-dead" not in json.dumps(trial_synthesis.templates)

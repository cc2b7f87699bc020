"""Alarms on queues are evaluated on the service's clock; those that would never be are refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.domain.clock import ClockAnchor
from tests.emulator.conftest import World
from tests.emulator.test_spot import queue_of, receive
from tests.waiting import until

STAND = 1_800_000_000.0
ALARM = {
    "AlarmName": "dead",
    "Namespace": "AWS/SQS",
    "MetricName": "ApproximateNumberOfMessagesVisible",
    "Dimensions": [{"Name": "QueueName", "Value": "dead"}],
    "Statistic": "Maximum",
    "Period": 60,
    "EvaluationPeriods": 1,
    "Threshold": 0.0,
    "ComparisonOperator": "GreaterThanThreshold",
    "TreatMissingData": "notBreaching",
}


@pytest.fixture
def still(start: Callable[..., World]) -> World:
    return start(anchor=ClockAnchor(wall_at=time.time(), service_at=STAND, speed=0.0))


def minutes(world: World, count: int) -> None:
    """Let so many minutes pass, one after another."""
    for _ in range(count):
        at = world.state()["service_time"] + 60.0
        world.mark("POST", "clock", {"wall_at": time.time(), "service_at": at, "speed": 0.0})


def test_a_message_raises_the_alarm_and_its_absence_ends_it(still: World) -> None:
    told = queue_of(still, {"source": ["aws.cloudwatch"]}, name="told")
    sqs, cloudwatch = still.client("sqs"), still.client("cloudwatch")
    url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    cloudwatch.put_metric_alarm(**ALARM)

    def state() -> str:
        (alarm,) = cloudwatch.describe_alarms(AlarmNames=["dead"])["MetricAlarms"]
        return alarm["StateValue"]

    assert state() in {"OK", "INSUFFICIENT_DATA"}
    minutes(still, 1)
    until(lambda: still.state()["alarms"] == {"dead": "OK"})
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    assert still.state()["queues"]["dead"]["ApproximateNumberOfMessagesVisible"] == 1.0
    assert state() == "OK"
    minutes(still, 1)
    until(lambda: state() == "ALARM")
    sqs.purge_queue(QueueUrl=url)
    minutes(still, 1)
    until(lambda: state() == "OK")
    events = [
        (event["detail"]["alarmName"], event["detail"]["state"]["value"]) for event in receive(still, told, 2)
    ]
    assert events[-2:] == [("dead", "ALARM"), ("dead", "OK")]


def test_several_minutes_may_have_to_break_it(still: World) -> None:
    url = still.client("sqs").create_queue(QueueName="dead")["QueueUrl"]
    still.client("cloudwatch").put_metric_alarm(**ALARM | {"EvaluationPeriods": 3, "DatapointsToAlarm": 2})
    still.client("sqs").send_message(QueueUrl=url, MessageBody="m")
    minutes(still, 1)
    assert still.state()["alarms"]["dead"] == "OK"
    minutes(still, 1)
    until(lambda: still.state()["alarms"]["dead"] == "ALARM")


@pytest.mark.parametrize(
    "change",
    [
        {"Namespace": "MArk"},
        {"MetricName": "NumberOfMessagesSent"},
        {"Dimensions": []},
        {"Statistic": "SampleCount"},
        {"Period": 10},
        {"AlarmActions": ["arn:aws:sns:us-east-1:123456789012:topic"]},
        {"TreatMissingData": "breaching"},
    ],
    ids=str,
)
def test_an_alarm_that_nobody_would_look_at_is_refused(still: World, change: dict[str, Any]) -> None:
    cloudwatch = still.client("cloudwatch", attempts=1)
    with pytest.raises(ClientError, match="NotEmulated"):
        cloudwatch.put_metric_alarm(**ALARM | change)
    assert cloudwatch.describe_alarms()["MetricAlarms"] == []


def test_metrics_are_not_kept(still: World) -> None:
    cloudwatch = still.client("cloudwatch", attempts=1)
    with pytest.raises(ClientError, match=r"NotEmulated.*PutMetricData"):
        cloudwatch.put_metric_data(Namespace="n", MetricData=[{"MetricName": "m", "Value": 1.0}])

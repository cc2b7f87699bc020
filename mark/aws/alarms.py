"""Dead letters and alarms: the one on dead letters made and removed, and what rings now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mark.aws.ec2.launch import OWNER, SERVICE
from mark.aws.errors import translated
from mark.aws.names import name_of
from mark.aws.session import Aws
from mark.domain.errors import MarkError

DEAD_LETTERS = "raw-dead"
MINUTE_S = 60
DEAD_LETTER_ALARM: dict[str, Any] = {
    "Namespace": "AWS/SQS",
    "MetricName": "ApproximateNumberOfMessagesVisible",
    "Statistic": "Maximum",
    "ComparisonOperator": "GreaterThanThreshold",
    "Threshold": 0.0,
    "Period": MINUTE_S,
    "EvaluationPeriods": 1,
    "TreatMissingData": "notBreaching",
}
"""As the rollout's stack `watch` has it, which sends a mail too."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Ringing:
    """An alarm that rings: its name, and CloudWatch's reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """`dead_letters`: messages about instances that could not be read; `ringing`: alarms of the service.

    None where AWS did not say; `unknown` has its words then.
    """

    dead_letters: int | None
    ringing: tuple[Ringing, ...] | None
    unknown: str = ""


def make_alarm(aws: Aws, service: str, *, owner: str) -> None:
    """The alarm on dead letters; asking again changes nothing."""
    with translated():
        aws.alarms.put_metric_alarm(
            AlarmName=_alarm_name(service),
            Dimensions=[{"Name": "QueueName", "Value": name_of(service, DEAD_LETTERS)}],
            Tags=[{"Key": SERVICE, "Value": service}, {"Key": OWNER, "Value": owner}],
            **DEAD_LETTER_ALARM,
        )


def remove_alarm(aws: Aws, service: str) -> None:
    """Remove it; CloudWatch does not object where there is none."""
    with translated():
        aws.alarms.delete_alarms(AlarmNames=[_alarm_name(service)])


def read_alerts(aws: Aws, service: str) -> Alerts:
    """Read dead letters and ringing alarms of a service. What AWS does not answer is None."""
    letters: int | None = None
    ringing: tuple[Ringing, ...] | None = None
    unknown = []
    try:
        letters = _dead_letters(aws, service)
    except MarkError as error:
        unknown.append(str(error))
    try:
        ringing = _ringing(aws, service)
    except MarkError as error:
        unknown.append(str(error))
    return Alerts(dead_letters=letters, ringing=ringing, unknown="; ".join(unknown))


def _dead_letters(aws: Aws, service: str) -> int:
    with translated():
        url = aws.sqs.get_queue_url(QueueName=name_of(service, DEAD_LETTERS))["QueueUrl"]
        read = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    return int(read["Attributes"]["ApproximateNumberOfMessages"])


def _ringing(aws: Aws, service: str) -> tuple[Ringing, ...]:
    with translated():
        pages = aws.alarms.get_paginator("describe_alarms").paginate(
            AlarmNamePrefix=name_of(service, ""), AlarmTypes=["MetricAlarm"]
        )
        found = [alarm for page in pages for alarm in page["MetricAlarms"] if alarm["StateValue"] == "ALARM"]
    return tuple(sorted(Ringing(name=one["AlarmName"], reason=one.get("StateReason", "")) for one in found))


def _alarm_name(service: str) -> str:
    return name_of(service, "deadletters")

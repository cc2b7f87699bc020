"""Dead letters and alarms: the one on dead letters made and removed, and what rings now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mark.aws.errors import translated
from mark.aws.names import DEAD_LETTER_ALARM, DEAD_LETTERS, name_of
from mark.aws.resources import MINUTE_S, AlarmSpec, tag_list
from mark.aws.session import Aws
from mark.domain.alerts import AlarmStatus, AlertsStatus
from mark.domain.errors import MarkError


def make_alarm(aws: Aws, alarm: AlarmSpec, tags: Mapping[str, str]) -> None:
    """The alarm, which tells nobody: a stack's sends a mail too. Asking again changes nothing."""
    with translated():
        aws.alarms.put_metric_alarm(
            AlarmName=alarm.name,
            AlarmDescription=alarm.about,
            Namespace=alarm.namespace,
            MetricName=alarm.metric,
            Dimensions=[{"Name": key, "Value": value} for key, value in alarm.dimensions.items()],
            Statistic=alarm.statistic,
            ComparisonOperator=alarm.comparison,
            Threshold=alarm.threshold,
            Period=MINUTE_S,
            EvaluationPeriods=alarm.minutes,
            TreatMissingData=alarm.missing,
            Tags=tag_list(tags),
        )


def remove_alarm(aws: Aws, service: str) -> None:
    """Remove it; CloudWatch does not object where there is none."""
    with translated():
        aws.alarms.delete_alarms(AlarmNames=[name_of(service, DEAD_LETTER_ALARM)])


def read_alerts(aws: Aws, service: str, *, at: float) -> AlertsStatus:
    """Read dead letters and ringing alarms of a service, `at` an instant. What AWS does not answer is None."""
    letters: int | None = None
    ringing: tuple[AlarmStatus, ...] | None = None
    unknown = []
    try:
        letters = _dead_letters(aws, service)
    except MarkError as error:
        unknown.append(str(error))
    try:
        ringing = _ringing(aws, service)
    except MarkError as error:
        unknown.append(str(error))
    return AlertsStatus(at=at, dead_letters=letters, ringing=ringing, unknown="; ".join(unknown))


def _dead_letters(aws: Aws, service: str) -> int:
    with translated():
        url = aws.sqs.get_queue_url(QueueName=name_of(service, DEAD_LETTERS))["QueueUrl"]
        read = aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
    return int(read["Attributes"]["ApproximateNumberOfMessages"])


def _ringing(aws: Aws, service: str) -> tuple[AlarmStatus, ...]:
    with translated():
        pages = aws.alarms.get_paginator("describe_alarms").paginate(
            AlarmNamePrefix=name_of(service, ""), AlarmTypes=["MetricAlarm"]
        )
        found = [alarm for page in pages for alarm in page["MetricAlarms"] if alarm["StateValue"] == "ALARM"]
    return tuple(sorted(map(_rings, found), key=lambda one: one.name))


def _rings(alarm: Any) -> AlarmStatus:
    changed = alarm.get("StateTransitionedTimestamp") or alarm.get("StateUpdatedTimestamp")
    return AlarmStatus(
        name=alarm["AlarmName"],
        reason=alarm.get("StateReason", ""),
        about=alarm.get("AlarmDescription", ""),
        since=changed.timestamp() if changed is not None else None,
    )

"""CloudWatch alarms on queues: moto keeps them, here they are evaluated, once a minute of the service's clock.

Only what queues say of themselves is known (`METRICS`), one value a minute; alarms on anything else are refused,
as they would never leave INSUFFICIENT_DATA. A state that changes is an event of EventBridge, as on AWS.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from mark.emulator.clock import ServiceClock, iso
from mark.emulator.events.bus import BusEvent, event_of
from mark.emulator.moto_parts import CLOUDWATCH_BACKEND, backend_of, instead_of

MINUTE_S = 60.0
NAMESPACE = "AWS/SQS"
METRICS: Mapping[str, Callable[[Any], float]] = {
    "ApproximateNumberOfMessagesVisible": lambda queue: float(queue.approximate_number_of_messages),
    "ApproximateNumberOfMessagesNotVisible": lambda queue: float(queue.approximate_number_of_messages_not_visible),
}
STATISTICS: Mapping[str, Callable[[list[float]], float]] = {
    "Maximum": max,
    "Minimum": min,
    "Average": lambda values: sum(values) / len(values),
    "Sum": sum,
}
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanOrEqualToThreshold": operator.le,
    "LessThanThreshold": operator.lt,
}
MOST_VALUES = 24 * 60
"""Minutes of a queue's values: an alarm looks back a day at most."""

Emit = Callable[[BusEvent], None]


class Alarms:
    """Evaluates all alarms. All calls are made on the event loop's thread."""

    def __init__(self, clock: ServiceClock, emit: Emit) -> None:
        self._clock = clock
        self._emit = emit
        self._values: dict[tuple[str, str], deque[float]] = {}
        _refuse_what_has_no_value()

    def start(self) -> None:
        """Look each minute from now on."""
        self._next(self._clock.now())

    def state(self) -> dict[str, str]:
        """Each alarm's state by name."""
        return {name: str(alarm.state_value) for name, alarm in list(backend_of("cloudwatch").alarms.items())}

    def queues(self) -> dict[str, dict[str, float]]:
        """Metrics of the queues now, by name."""
        queues = list(backend_of("sqs").queues.items())
        return {name: {metric: read(queue) for metric, read in METRICS.items()} for name, queue in queues}

    def look(self, at: float) -> None:
        """Take each queue's values down and evaluate the alarms."""
        for queue, values in self.queues().items():
            for metric, value in values.items():
                self._values.setdefault((queue, metric), deque(maxlen=MOST_VALUES)).append(value)
        for alarm in list(backend_of("cloudwatch").alarms.values()):
            state, reason = self._judge(alarm)
            before = alarm.state_value
            if state != before:
                alarm.update_state(reason, "{}", state)
                self._emit(_event(alarm, before, at))

    def _next(self, now: float) -> None:
        self._clock.at(now + MINUTE_S, self._tick)

    def _tick(self, at: float) -> None:
        self._next(max(at, self._clock.now()))
        self.look(at)

    def _judge(self, alarm: Any) -> tuple[str, str]:
        """An alarm's state and why: so many of the last periods must break the threshold."""
        queue = next(entry.value for entry in alarm.dimensions if entry.name == "QueueName")
        minutes = max(1, int(alarm.period) // int(MINUTE_S))
        wanted = int(alarm.evaluation_periods)
        values = list(self._values.get((queue, alarm.metric_name), ()))[-minutes * wanted :]
        periods = [values[start : start + minutes] for start in range(0, len(values), minutes)]
        if not periods:
            return "INSUFFICIENT_DATA", "nothing is known of the queue yet"
        breaks = COMPARISONS[alarm.comparison_operator]
        found = [STATISTICS[alarm.statistic](period) for period in periods]
        breaking = sum(breaks(value, float(alarm.threshold)) for value in found)
        state = "ALARM" if breaking >= int(alarm.datapoints_to_alarm or wanted) else "OK"
        return state, f"{breaking} of the last {wanted} periods break the threshold {alarm.threshold:g}: {found}"


def _event(alarm: Any, before: str, at: float) -> BusEvent:
    state = {"value": alarm.state_value, "reason": alarm.state_reason, "timestamp": iso(at)}
    detail = {"alarmName": alarm.name, "state": state, "previousState": {"value": before}}
    kind = "CloudWatch Alarm State Change"
    return event_of(kind, source="aws.cloudwatch", resource=alarm.alarm_arn, detail=detail, at=at)


def _refuse_what_has_no_value() -> None:
    """An alarm that would never be evaluated, or that would tell nobody, is not made."""

    @instead_of(CLOUDWATCH_BACKEND, "put_metric_alarm")
    def put_metric_alarm(original: Any, alarms: Any, **given: Any) -> Any:
        dimensions = {entry["Name"] for entry in given["dimensions"]}
        if given["namespace"] != NAMESPACE or given["metric_name"] not in METRICS or dimensions != {"QueueName"}:
            raise NotImplementedError(f"alarms on {given['namespace']}'s {given['metric_name']}")
        if given["statistic"] not in STATISTICS or given["comparison_operator"] not in COMPARISONS:
            raise NotImplementedError(
                f"alarms that compare {given['statistic']} by {given['comparison_operator']}"
            )
        if int(given["period"]) % int(MINUTE_S) or given.get("treat_missing_data") not in (
            None,
            "missing",
            "notBreaching",
        ):
            raise NotImplementedError("alarms with other periods than minutes, or that treat missing data")
        if any(given.get(name) for name in ("alarm_actions", "ok_actions", "insufficient_data_actions")):
            raise NotImplementedError("actions of alarms: their events reach EventBridge's rules")
        return original(alarms, **given)

"""EventBridge Scheduler: moto keeps the schedules, here they fire, on the service's clock, and call functions.

A flexible window's function is called as the window opens. Where the clock jumps, what was due meanwhile fires
once. A schedule that is changed or removed is noticed after the call that did it.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mark.emulator.clock import ServiceClock
from mark.emulator.config import ACCOUNT, REGION
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.events.schedule_times import Due, due_of
from mark.emulator.moto_parts import backend_of

CallFunction = Callable[[str, bytes], None]
REFUSED = ("ActionAfterCompletion", "EndDate", "KmsKeyArn", "StartDate")
"""Settings that moto stores and nobody here follows."""


@dataclass(frozen=True, slots=True)
class _Armed:
    """A schedule as it was when it was last looked at; another value is another schedule."""

    shown: str
    due: Due


class Scheduler:
    """Fires schedules. All calls are made on the event loop's thread."""

    def __init__(self, clock: ServiceClock, call_function: CallFunction) -> None:
        self._clock = clock
        self._call_function = call_function
        self._armed: dict[str, _Armed] = {}

    def check(self, method: str, path: str, body: bytes) -> None:
        """Refuse a schedule that would not do here what it says; ApiError."""
        if method not in {"POST", "PUT"} or not path.startswith("/schedules/"):
            return
        request = json.loads(body)
        target = request.get("Target", {})
        arn = str(target.get("Arn", ""))
        if ":lambda:" not in arn or ":function:" not in arn:
            raise not_emulated(f"schedules that call {arn}: functions only")
        if target.get("DeadLetterConfig"):
            raise not_emulated("dead letters of schedules: an event that a function fails is tried three times")
        if any(request.get(name) not in (None, "NONE") for name in REFUSED):
            raise not_emulated(f"{', '.join(REFUSED)} of schedules")
        now, expression = self._clock.now(), request["ScheduleExpression"]
        due = due_of(expression, timezone=request.get("ScheduleExpressionTimezone") or "UTC", begins_at=now)
        if math.isinf(due(now)):
            raise ApiError("ValidationException", f"Invalid Schedule Expression {expression}: it is never due.")

    def look(self) -> None:
        """Follow what was made, changed or removed."""
        there = {schedule.arn: schedule for schedule in _schedules()}
        for gone in self._armed.keys() - there.keys():
            del self._armed[gone]
        for arn, schedule in there.items():
            schedule.state = schedule.state or "ENABLED"  # as AWS has it after an update that does not say
            shown = json.dumps(schedule.to_dict(), default=str, sort_keys=True)
            if arn not in self._armed or self._armed[arn].shown != shown:
                now, zone = self._clock.now(), schedule.schedule_expression_timezone
                due = due_of(schedule.schedule_expression, timezone=zone, begins_at=now)
                armed = self._armed[arn] = _Armed(shown, due)
                self._arm(schedule, armed, math.nextafter(now, 0.0))

    def _arm(self, schedule: Any, armed: _Armed, after: float) -> None:
        at = armed.due(after)
        if schedule.state == "ENABLED" and not math.isinf(at):
            self._clock.at(at, lambda due_at: self._fire(schedule, armed, due_at))

    def _fire(self, schedule: Any, armed: _Armed, at: float) -> None:
        if self._armed.get(schedule.arn) is not armed:
            return
        self._call_function(schedule.target["Arn"].split(":function:", 1)[1], _payload(schedule, at))
        self._arm(schedule, armed, max(at, self._clock.now()))


def _schedules() -> list[Any]:
    groups = list(backend_of("scheduler").schedule_groups.values())
    return [schedule for group in groups for schedule in list(group.schedules.values())]


def _payload(schedule: Any, at: float) -> bytes:
    """The target's Input with its keywords replaced, or the event that Scheduler sends without one."""
    scheduled_at = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = str(uuid.uuid4())
    text = schedule.target.get("Input")
    if text:
        for keyword, value in {
            "schedule-arn": schedule.arn,
            "scheduled-time": scheduled_at,
            "execution-id": name,
            "attempt-number": "1",
        }.items():
            text = text.replace(f"<aws.scheduler.{keyword}>", value)
        return str(text).encode()
    event = {
        "version": "0",
        "id": name,
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": ACCOUNT,
        "time": scheduled_at,
        "region": REGION,
        "resources": [schedule.arn],
        "detail": "{}",
    }
    return json.dumps(event).encode()

"""EventBridge's events about instances, and the messages of the `events` queue that the controller reads.

EventBridge's form is AWS's (EC2 user guide, "Spot Instance interruption notices", "rebalance recommendations",
"Amazon EC2 instance state change events"). Ours is one flat JSON object:

    {"kind": "spot-warned", "instance": "i-...", "at": 1784505600.0, "terminates_at": 1784505720.0}
    {"kind": "state-changed", "instance": "i-...", "at": 1784505600.0, "state": "running"}
    {"kind": "rebalance", "instance": "i-...", "at": 1784505600.0}

What cannot be read is Misconfigured, in one line that names the field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from mark.domain.billing.costs import Ec2State
from mark.domain.errors import Misconfigured
from mark.domain.fleet.orders import RebalanceAdvised, SpotWarned
from mark.domain.offerings.times import SPOT_NOTICE_S

SOURCE = "aws.ec2"
SPOT = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE = "EC2 Instance State-change Notification"
STATES: tuple[Ec2State, ...] = get_args(Ec2State)
LONGEST = 64 * 1024
"""Longer messages are not ours: ours have some hundred characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """An instance entered an EC2 state."""

    instance: str
    at: float
    state: Ec2State
    kind: Literal["state-changed"] = "state-changed"


InstanceMessage = SpotWarned | StateChanged | RebalanceAdvised


def message_of_event(event: Mapping[str, object], *, notice_s: float = SPOT_NOTICE_S) -> InstanceMessage:
    """Parse an event of EventBridge. Errors: Misconfigured."""
    if event.get("source") != SOURCE:
        raise Misconfigured(f"an event must come from {SOURCE}, not {_shown(event.get('source'))}")
    detail = event.get("detail")
    if not isinstance(detail, Mapping):
        raise Misconfigured(f"an event's detail must be an object, not {_shown(detail)}")
    instance, at = _text(detail, "instance-id"), instant(_text(event, "time"))
    kind = event.get("detail-type")
    if kind == SPOT:
        return SpotWarned(instance=instance, at=at, terminates_at=at + notice_s)
    if kind == REBALANCE:
        return RebalanceAdvised(instance=instance, at=at)
    if kind == STATE:
        return StateChanged(instance=instance, at=at, state=_state(detail))
    raise Misconfigured(f"unknown detail-type {_shown(kind)}; known: {SPOT}, {REBALANCE}, {STATE}")


def compose_message(message: InstanceMessage) -> str:
    """The message of the `events` queue."""
    fields: dict[str, object] = {"kind": message.kind, "instance": message.instance, "at": message.at}
    if message.kind == "spot-warned":
        fields["terminates_at"] = message.terminates_at
    elif message.kind == "state-changed":
        fields["state"] = message.state
    return json.dumps(fields, separators=(",", ":"), allow_nan=False)


def parse_message(text: str) -> InstanceMessage:
    """Parse a message of the `events` queue. Errors: Misconfigured."""
    fields = parse_object(text)
    kind, instance, at = fields.get("kind"), _text(fields, "instance"), _number(fields, "at")
    if kind == "spot-warned":
        return SpotWarned(instance=instance, at=at, terminates_at=_number(fields, "terminates_at"))
    if kind == "state-changed":
        return StateChanged(instance=instance, at=at, state=_state(fields))
    if kind == "rebalance":
        return RebalanceAdvised(instance=instance, at=at)
    raise Misconfigured(f"unknown kind {_shown(kind)}; known: spot-warned, state-changed, rebalance")


def parse_object(text: str) -> Mapping[str, object]:
    """A JSON object; Misconfigured where the text is none."""
    if len(text) > LONGEST:
        raise Misconfigured(f"a message of {len(text)} characters is longer than {LONGEST}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"a message must be JSON: {error}") from error
    if not isinstance(value, dict):
        raise Misconfigured(f"a message must be a JSON object, not {_shown(value)}")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise Misconfigured(f"{name} must be a text, not {_shown(value)}")
    return value


def _number(fields: Mapping[str, object], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Misconfigured(f"{name} must be a number, not {_shown(value)}")
    try:
        number = float(value)
    except OverflowError as error:
        raise Misconfigured(f"{name} is too large") from error
    if not math.isfinite(number):
        raise Misconfigured(f"{name} must be finite, not {number}")
    return number


def _state(fields: Mapping[str, object]) -> Ec2State:
    value = fields.get("state")
    if value not in STATES:
        raise Misconfigured(f"state must be one of {', '.join(STATES)}, not {_shown(value)}")
    return value


def instant(text: str) -> float:
    """Epoch seconds of an event's time; Misconfigured where it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Misconfigured(f"time must be ISO 8601, not {_shown(text)}") from error
    if moment.tzinfo is None:
        raise Misconfigured(f"time must name its zone, as {text[:40]}Z does")
    return moment.timestamp()


def _shown(value: object) -> str:
    return repr(value)[:60]

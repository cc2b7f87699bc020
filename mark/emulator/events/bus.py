"""EventBridge: what happens to instances becomes events; rules send them to queues and functions.

moto keeps rules and matches patterns. Sending is ours: moto knows no Lambda targets, sends to rules that are
disabled, and cuts the time to whole seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from mark.emulator.clock import iso
from mark.emulator.config import ACCOUNT, REGION
from mark.emulator.ec2.machine import Machine
from mark.emulator.moto_parts import EVENT_TEMPLATES, RULE, backend_of, instead_of

LOG = logging.getLogger(__name__)

CallFunction = Callable[[str, bytes], None]
BusEvent = dict[str, Any]
"""An event as rules match it and targets get it."""
RuleTarget = Mapping[str, Any]
"""A target of a rule, as moto keeps it."""


def event_of(kind: str, *, source: str, resource: str, detail: Mapping[str, object], at: float) -> BusEvent:
    """An event of one of AWS's services. resource: the ARN that it is about."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": kind,
        "source": source,
        "account": ACCOUNT,
        # Whole seconds on AWS. Here with milliseconds: at speed 20 a second of service time is a long time.
        "time": iso(at),
        "region": REGION,
        "resources": [resource],
        "detail": detail,
    }


class Events:
    """Delivers events in order, on a thread of its own."""

    def __init__(self, call_function: CallFunction) -> None:
        self._call_function = call_function
        self._loop = asyncio.get_running_loop()
        self._sender = ThreadPoolExecutor(max_workers=1, thread_name_prefix="events")
        self.sent = 0
        _send_ourselves(self._to_target)

    def stop(self) -> None:
        """Send what is under way, no more."""
        self._sender.shutdown(wait=True)

    def state_changed(self, machine: Machine, at: float) -> None:
        """EC2 Instance State-change Notification."""
        detail = {"instance-id": machine.id, "state": machine.state.label}
        self._emit("EC2 Instance State-change Notification", machine, detail, at)

    def spot_warned(self, machine: Machine, at: float) -> None:
        """EC2 Spot Instance Interruption Warning."""
        detail = {"instance-id": machine.id, "instance-action": "terminate"}
        self._emit("EC2 Spot Instance Interruption Warning", machine, detail, at)

    def rebalance_advised(self, machine: Machine, at: float) -> None:
        """EC2 Instance Rebalance Recommendation."""
        self._emit("EC2 Instance Rebalance Recommendation", machine, {"instance-id": machine.id}, at)

    def _emit(self, kind: str, machine: Machine, detail: dict[str, str], at: float) -> None:
        arn = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{machine.id}"
        self.send(event_of(kind, source="aws.ec2", resource=arn, detail=detail, at=at))

    def send(self, event: BusEvent) -> None:
        """Send an event of the account's own services to the rules."""
        self.sent += 1
        self._sender.submit(_to_rules, event).add_done_callback(_say_failure)

    def _to_target(self, rule: Any, target: RuleTarget, event: BusEvent) -> None:
        service = target["Arn"].split(":")[2]
        body = json.dumps(_shaped(target, event)).encode()
        if service == "sqs":
            name = target["Arn"].rsplit(":", 1)[1]
            group = target.get("SqsParameters", {}).get("MessageGroupId")
            backend_of("sqs").send_message(queue_name=name, message_body=body.decode(), group_id=group)
        elif service == "lambda":
            name = target["Arn"].split(":function:", 1)[1]
            self._loop.call_soon_threadsafe(self._call_function, name, body)
        else:
            raise NotImplementedError(f"EventBridge's targets of {service} (rule {rule.name})")


def _say_failure(sending: Future[None]) -> None:
    if (error := sending.exception()) is not None:
        LOG.error("an event was not sent: %r", error)


def _to_rules(event: BusEvent) -> None:
    for rule in list(backend_of("events").describe_event_bus("default").rules.values()):
        rule.send_to_targets(dict(event))


def _shaped(target: RuleTarget, event: BusEvent) -> Any:
    """The event as the target asked for it."""
    if "Input" in target:
        return json.loads(target["Input"])
    if "InputPath" in target:
        raise NotImplementedError("EventBridge's InputPath")
    sent = dict(event)
    if isinstance(sent.get("time"), int | float):  # as moto's PutEvents has it
        sent["time"] = datetime.fromtimestamp(sent["time"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    transformer = target.get("InputTransformer")
    if transformer is None:
        sent.pop("ingestion-time", None)
        return sent
    sent.setdefault("ingestion-time", sent["time"])
    return EVENT_TEMPLATES.parse(
        input_template=transformer["InputTemplate"],
        input_paths_map=transformer.get("InputPathsMap", {}),
        event=sent,
    )


def _send_ourselves(to_target: Callable[[Any, RuleTarget, BusEvent], None]) -> None:
    """Moto's PutEvents goes the same way as our own events."""

    @instead_of(RULE, "send_to_targets")
    def send_to_targets(_: Any, rule: Any, original_event: BusEvent, transform_input: bool = True) -> None:
        if not transform_input:
            raise NotImplementedError("EventBridge's replays")
        if rule.state == "ENABLED" and rule.event_pattern.matches_event(original_event):
            for target in rule.targets:
                to_target(rule, target, original_event)

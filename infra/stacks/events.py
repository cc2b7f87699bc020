"""Events of instances from EC2: rules -> queue `raw` (dead letters apart) -> a function -> queue `events`."""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_events, aws_sqs
from constructs import Construct

from infra.blueprint import Blueprint
from infra.stack import ServiceStack, document, excuse
from mark.aws.names import RULES
from mark.aws.provision import DETAIL_TYPES, HANDLER_TIMEOUT_S, KEEP_S, RAW_ATTEMPTS
from mark.protocols.events import SOURCE

KEEP_DEAD_S = 14 * 24 * 3600
"""Dead letters are kept as long as SQS keeps anything: somebody wants to read them."""
VISIBILITY_S = 6 * HANDLER_TIMEOUT_S
"""Six times the function's limit: AWS Lambda's guide."""


class EventsStack(ServiceStack):
    """Queues, their policies and the rules."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "events", blueprint=blueprint, about="what happens to its instances")
        dead = self._queue("raw-dead", keep_s=KEEP_DEAD_S)
        redrive = {"deadLetterTargetArn": dead.attr_arn, "maxReceiveCount": RAW_ATTEMPTS}
        raw = self._queue("raw", visibility_timeout=VISIBILITY_S, redrive_policy=redrive)
        events = self._queue("events")
        for queue in (dead, raw, events):
            excuse(queue, "SQS's own key encrypts it; one of KMS is billed by the call", checkov=("CKV_AWS_27",))
        for queue in (dead, events):
            why = (
                "is the end of the way"
                if queue is dead
                else "is read by controllers, who know what they cannot read"
            )
            excuse(queue, f"it {why}", nag=("AwsSolutions-SQS3",))
        rules = [self._rule(name, raw) for name in RULES]
        sends = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": raw.attr_arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": [rule.attr_arn for rule in rules]}},
        }
        self._policy("RawPolicy", raw, sends)
        self._policy("RawDeadPolicy", dead)
        self._policy("EventsPolicy", events)
        self.publish("raw-arn", raw.attr_arn)
        self.publish("events-url", events.ref)

    def _queue(self, part: str, *, keep_s: int = KEEP_S, **more: Any) -> aws_sqs.CfnQueue:
        return aws_sqs.CfnQueue(
            self,
            "".join(word.capitalize() for word in part.split("-")),
            queue_name=self.blueprint.name(part),
            message_retention_period=keep_s,
            sqs_managed_sse_enabled=True,
            **more,
        )

    def _rule(self, name: str, raw: aws_sqs.CfnQueue) -> aws_events.CfnRule:
        return aws_events.CfnRule(
            self,
            "".join(word.capitalize() for word in name.split("-")),
            name=self.blueprint.name(name),
            description=f"{DETAIL_TYPES[name]} -> {self.blueprint.name('raw')}",
            event_pattern={"source": [SOURCE], "detail-type": [DETAIL_TYPES[name]]},
            state="ENABLED",
            targets=[{"id": "raw", "arn": raw.attr_arn}],
        )

    def _policy(self, id_: str, queue: aws_sqs.CfnQueue, *statements: dict[str, Any]) -> None:
        encrypted = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": queue.attr_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
        aws_sqs.CfnQueuePolicy(self, id_, queues=[queue.ref], policy_document=document(encrypted, *statements))

"""Events of instances from EC2: rules -> queue `raw` (dead letters apart) -> a function -> queue `events`."""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_events, aws_sqs
from constructs import Construct

from mark.aws.names import RULES
from mark.aws.resources import QueueSpec, RuleSpec, queue_policy
from mark.infra.blueprint import Blueprint
from mark.infra.stack import ServiceStack, excuse, words


class EventsStack(ServiceStack):
    """Queues, their policies and the rules."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "events", blueprint=blueprint, about="what happens to its instances")
        wanted = blueprint.resources
        dead = self._queue("RawDead", wanted.dead_letters)
        redrive = wanted.raw.redrive(dead.attr_arn)
        raw = self._queue("Raw", wanted.raw, redrive_policy=redrive)
        events = self._queue("Events", wanted.events)
        for queue in (dead, raw, events):
            excuse(queue, "SQS's own key encrypts it; one of KMS is billed by the call", checkov=("CKV_AWS_27",))
        for queue in (dead, events):
            why = (
                "is the end of the way"
                if queue is dead
                else "is read by controllers, who know what they cannot read"
            )
            excuse(queue, f"it {why}", nag=("AwsSolutions-SQS3",))
        rules = [self._rule(words(part), rule, raw) for part, rule in zip(RULES, wanted.rules, strict=True)]
        self._policy("RawPolicy", raw, *(rule.attr_arn for rule in rules))
        self._policy("RawDeadPolicy", dead)
        self._policy("EventsPolicy", events)
        self.publish("raw-arn", raw.attr_arn)
        self.publish("events-url", events.ref)

    def _queue(self, id_: str, queue: QueueSpec, **more: Any) -> aws_sqs.CfnQueue:
        return aws_sqs.CfnQueue(
            self,
            id_,
            queue_name=queue.name,
            message_retention_period=queue.keep_s,
            visibility_timeout=queue.visibility_s,
            sqs_managed_sse_enabled=queue.encrypted,
            **more,
        )

    def _rule(self, id_: str, rule: RuleSpec, raw: aws_sqs.CfnQueue) -> aws_events.CfnRule:
        return aws_events.CfnRule(
            self,
            id_,
            name=rule.name,
            description=rule.about,
            event_pattern=rule.pattern,
            state="ENABLED",
            targets=[{"id": rule.target, "arn": raw.attr_arn}],
        )

    def _policy(self, id_: str, queue: aws_sqs.CfnQueue, *senders: str) -> None:
        aws_sqs.CfnQueuePolicy(
            self, id_, queues=[queue.ref], policy_document=queue_policy(queue.attr_arn, senders)
        )

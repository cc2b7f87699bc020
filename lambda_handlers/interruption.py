"""Queue `raw` -> this -> queue `events`: what EventBridge says of instances, in the controller's words.

A message that cannot be read, or not be passed on, fails alone: the queue gives it again, and after some attempts
it is a dead letter. The same message twice does no harm: the controller knows what it knows.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

from mark.protocols.events import compose_word, parse_object, word_of_event

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_sqs import SQSClient


def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    """Pass on a batch of messages; the answer names those that failed."""
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event=event, record_handler=_pass_on, processor=processor, context=context)


def _pass_on(record: SQSRecord) -> None:
    word = word_of_event(parse_object(record.body))
    _queue().send_message(QueueUrl=os.environ["EVENTS_QUEUE_URL"], MessageBody=compose_word(word))


@cache
def _queue() -> SQSClient:
    """Made at the first message: importing boto3 takes longer than all else here."""
    import boto3  # noqa: PLC0415

    return boto3.session.Session().client("sqs")

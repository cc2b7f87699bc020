"""Queue `raw` -> this -> queue `events`: EventBridge's events about instances as the controller's messages.

A message that cannot be read, or not be passed on, fails alone: the queue gives it again, and after some attempts
it is a dead letter. The same message twice does no harm: the controller counts instants, and knows what it knows.
So nothing is remembered here, which would cost more than it saves.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response

from mark.lambda_handlers.environment import required_variable
from mark.lambda_handlers.metrics import count
from mark.protocols.events import compose_message, message_of_event, parse_object

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_sqs import SQSClient

logger = Logger(service="mark-interruption")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    """Pass on a batch of messages; the answer names those that failed."""
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    answer = process_partial_response(event=event, record_handler=_pass_on, processor=processor, context=context)
    if processor.fail_messages:
        count("interruption", Failed=len(processor.fail_messages))
    return answer


def _pass_on(record: SQSRecord) -> None:
    try:
        message = message_of_event(parse_object(record.body))
        url = required_variable("EVENTS_QUEUE_URL")
        _queue().send_message(QueueUrl=url, MessageBody=compose_message(message))
    except Exception as error:  # whatever it is, the queue keeps the message
        logger.warning("message %s fails: %s", record.message_id, error)
        raise


@cache
def _queue() -> SQSClient:
    """Made at the first message: importing boto3 takes longer than all else here."""
    import boto3  # noqa: PLC0415

    return boto3.session.Session().client("sqs")

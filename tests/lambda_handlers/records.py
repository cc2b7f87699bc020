"""What Lambda gives a handler: SQS's records, EventBridge's events, a context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mark.domain.orders import SpotWarned
from mark.protocols.events import InstanceMessage, event_of_message

NOTICE = SpotWarned(instance="i-1", at=1784505600.0, terminates_at=1784505720.0)


@dataclass(frozen=True)
class Context:
    function_name: str = "f"
    memory_limit_in_mb: int = 128
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:1:function:f"
    aws_request_id: str = "r"

    def get_remaining_time_in_millis(self) -> int:
        return 10_000


CONTEXT: Any = Context()


def spot_event(word: InstanceMessage = NOTICE) -> dict[str, object]:
    return event_of_message(word, id="e", region="us-east-1", account="123456789012")


def batch(*bodies: str) -> dict[str, Any]:
    """An SQS event; message ids are m0, m1, ..."""
    return {
        "Records": [
            {
                "messageId": f"m{number}",
                "receiptHandle": "h",
                "body": body,
                "attributes": {},
                "messageAttributes": {},
                "md5OfBody": "",
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:1:raw",
                "awsRegion": "us-east-1",
            }
            for number, body in enumerate(bodies)
        ]
    }

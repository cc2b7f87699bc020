"""What Lambda gives a handler: SQS's records, EventBridge's events, a context."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from mark.domain.fleet.orders import SpotWarned
from mark.protocols.events import REBALANCE, SOURCE, SPOT, STATE, InstanceMessage

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


def event_of_message(message: InstanceMessage, *, id: str, region: str, account: str) -> dict[str, object]:  # noqa: A002
    """The event that EventBridge sends of it. Its time holds microseconds; AWS's holds seconds."""
    detail: dict[str, str] = {"instance-id": message.instance}
    if message.kind == "spot-warned":
        kind = SPOT
        detail["instance-action"] = "terminate"
    elif message.kind == "state-changed":
        kind = STATE
        detail["state"] = message.state
    elif message.kind == "rebalance":
        kind = REBALANCE
    else:
        assert_never(message)
    return {
        "version": "0",
        "id": id,
        "detail-type": kind,
        "source": SOURCE,
        "account": account,
        "time": datetime.fromtimestamp(message.at, UTC).isoformat().replace("+00:00", "Z"),
        "region": region,
        "resources": [f"arn:aws:ec2:{region}:{account}:instance/{message.instance}"],
        "detail": detail,
    }


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

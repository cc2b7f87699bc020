"""Handlers for the Lambda tests."""

from __future__ import annotations

import os
import time
from typing import Any

LOADED_AT = time.time()
SEEN: list[Any] = []


def echo(event: Any, context: Any) -> dict[str, Any]:
    time.sleep(event.get("sleep_s", 0.0) if isinstance(event, dict) else 0.0)
    return {
        "event": event,
        "pid": os.getpid(),
        "loaded_at": LOADED_AT,
        "colour": os.environ.get("COLOUR"),
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
        "request": context.aws_request_id,
        "left_ms": context.get_remaining_time_in_millis(),
    }


def hold(event: dict[str, str], context: Any) -> None:
    """Busy until there is a file of that name."""
    while not os.path.exists(event["until"]):
        time.sleep(0.01)


def fail(event: Any, context: Any) -> None:
    raise ValueError("no such luck")


def leave(event: Any, context: Any) -> None:
    os._exit(4)


def big(event: Any, context: Any) -> str:
    return "x" * (7 * 1024 * 1024)


def batch(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Bodies of "bad" fail, the others are put aside."""
    bad = [one for one in event["Records"] if one["body"] == "bad"]
    SEEN.extend(one["body"] for one in event["Records"] if one["body"] != "bad")
    return {"batchItemFailures": [{"itemIdentifier": one["messageId"]} for one in bad]}


def seen(event: Any, context: Any) -> list[Any]:
    return SEEN


def note(event: Any, context: Any) -> list[Any]:
    """Called with "list" it tells what it was called with before."""
    if event != "list":
        SEEN.append(event)
    return SEEN

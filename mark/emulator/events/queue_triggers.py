"""Event source mappings: queues are polled and their functions called, with partial failures.

Messages that a function did not answer for come back when their visibility is over; a queue with a redrive policy
then hands those that came too often to its dead-letter queue (moto does that when it is asked for messages).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

from mark.emulator.config import REGION
from mark.emulator.errors import ApiError
from mark.emulator.functions.api import LambdaApi
from mark.emulator.moto_parts import backend_of

LOG = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
"""Real seconds between looks at a queue; Lambda's pollers wait on it."""
AT_ONCE = 5
"""Batches of one mapping in flight: Lambda starts with five pollers a queue."""


class EventSources:
    """Polls on behalf of every enabled mapping of a queue."""

    def __init__(self, functions: LambdaApi) -> None:
        self._functions = functions
        self._batches: dict[str, set[asyncio.Task[None]]] = {}

    async def stop(self) -> None:
        """Give up the batches that are under way; their messages come back."""
        tasks = [task for batches in self._batches.values() for task in batches]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            mappings = list(backend_of("lambda")._event_source_mappings.values())  # noqa: SLF001
            for mapping in mappings:
                if mapping.enabled:
                    self._poll(mapping)
            await asyncio.sleep(LOOK_EVERY_S)

    def _poll(self, mapping: Any) -> None:
        """Take what is visible, as many batches as may be in flight."""
        batches = self._batches.setdefault(mapping.uuid, set())
        while len(batches) < AT_ONCE:
            messages = _next_batch(mapping)
            if not messages:
                return
            task = asyncio.create_task(self._hand_over(mapping, messages))
            batches.add(task)
            task.add_done_callback(batches.discard)

    async def _hand_over(self, mapping: Any, messages: Sequence[Any]) -> None:
        records = [_record(message, mapping.event_source_arn) for message in messages]
        event = json.dumps({"Records": records}).encode()
        try:
            invocation = await self._functions.call(mapping.function_arn, event)
        except ApiError as error:
            LOG.warning("a batch for %s comes back: %s", mapping.function_arn, error.message)
            return
        if invocation.outcome.failed:
            return
        failed = _failures(mapping, invocation.outcome.payload, {message.id for message in messages})
        queue = backend_of("sqs").get_queue(mapping.event_source_arn.rsplit(":", 1)[1])
        for record in records:
            if record["messageId"] not in failed:
                queue.delete_message(record["receiptHandle"])


def _next_batch(mapping: Any) -> Sequence[Any]:
    """One batch of moto's messages."""
    backend = backend_of("sqs")
    name = mapping.event_source_arn.rsplit(":", 1)[1]
    queue = backend.queues.get(name)
    if queue is None or not queue.messages:
        return []
    found: Sequence[Any] = backend.receive_message(name, min(mapping.batch_size, 10), 0, queue.visibility_timeout)
    return found


def _record(message: Any, queue_arn: str) -> dict[str, Any]:
    """A message as Lambda's event has it."""
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt_handle,
        "body": message.body,
        "attributes": {
            "ApproximateReceiveCount": str(message.approximate_receive_count),
            "SentTimestamp": str(message.sent_timestamp),
            "ApproximateFirstReceiveTimestamp": str(message.approximate_first_receive_timestamp),
            "SenderId": "emulated",
        },
        "messageAttributes": {},
        "md5OfBody": message.body_md5,
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": REGION,
    }


def _failures(mapping: Any, payload: bytes, everything: set[str]) -> set[str]:
    """Messages that are to come back: those named, or all where the answer names one that was not sent."""
    if "ReportBatchItemFailures" not in (mapping.function_response_types or ()):
        return set()
    answer = json.loads(payload or b"null")
    if not isinstance(answer, dict):
        return set()
    named = {entry.get("itemIdentifier", "") for entry in answer.get("batchItemFailures") or ()}
    return everything if named - everything else named

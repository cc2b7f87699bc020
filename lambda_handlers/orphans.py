"""Instances that no controller owns: EventBridge Scheduler's event in, each hour; what is found is said, and ends.

It needs neither the store nor a gateway: controllers write into the bucket that they act. While there are orphans
it fails: Lambda tells the topic of the alarms why, and so people hear of them. What it needs is imported within
the function, as in the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="mark-orphans")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:  # noqa: ARG001 - Lambda's signature
    """Look, as of the scheduled time; answers how many instances are owned. MarkError while some are not."""
    from mark.lambda_handlers.ending import end_orphans  # noqa: PLC0415

    return {"owned": end_orphans(event)}

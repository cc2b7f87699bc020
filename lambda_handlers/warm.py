"""Warm-up pings from within AWS: {"function": NAME, "concurrency": N, "hold_s": 0.1} -> what became of them."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import PING_S
from mark.lambda_handlers.metrics import count

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_lambda import LambdaClient

AT_MOST = 1000
"""Lambda starts no more than a thousand environments at once."""
HOLD_AT_MOST_S = 10.0
SENT_S = 0.01
"""Time between two calls: their 1.1 ms of CPU take 8 where 256 MiB have a seventh of a processor."""
logger = Logger(service="mark-warm")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, float]:  # noqa: ARG001 - Lambda's signature
    """Ping the function so many times at once; answers `answered`, `cold`, `failed` and `gib_s`."""
    from mark.aws.functions.warmup import warm_up  # noqa: PLC0415 - it brings botocore

    function = event.get("function")
    concurrency, hold_s = event.get("concurrency"), event.get("hold_s", PING_S)
    if not isinstance(function, str) or not function:
        raise Misconfigured("function must name a Lambda function")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 0 <= concurrency <= AT_MOST:
        raise Misconfigured(f"concurrency must be a whole number from 0 to {AT_MOST}, not {concurrency!r}")
    if isinstance(hold_s, bool) or not isinstance(hold_s, int | float) or not 0 <= hold_s <= HOLD_AT_MOST_S:
        raise Misconfigured(f"hold_s must be a number from 0 to {HOLD_AT_MOST_S:g}, not {hold_s!r}")
    done = warm_up(_client(), function, concurrency, float(hold_s), sent_s=SENT_S)
    if done.failed:
        logger.warning("%d of %d pings of %s failed", done.failed, concurrency, function)
        count("warm", dimensions={"function": function}, Failed=done.failed)
    return asdict(done)


@cache
def _client() -> LambdaClient:
    """Made at the first call: importing boto3 takes longer than all else here."""
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    from mark.aws.functions.warmup import AT_ONCE  # noqa: PLC0415

    return boto3.session.Session().client("lambda", config=Config(max_pool_connections=AT_ONCE))

"""Training of a forecaster: {"key": FOLDER} -> what went wrong, empty where nothing did.

The controller wrote the order into that folder of the service's bucket, and looks there for the result. It runs in
an image of its own, which has torch (infra/image/infer.Dockerfile). A training that fails is a result too: Lambda
would only run it again.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from mark.domain.errors import Misconfigured
from mark.lambda_handlers.environment import required_variable
from mark.lambda_handlers.metrics import count

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_s3 import S3Client

logger = Logger(service="mark-train")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:  # noqa: ARG001 - Lambda's signature
    """Carry out one order."""
    from mark.aws.trainings import carry_out  # noqa: PLC0415 - it brings what forecasters are made of

    key = event.get("key")
    if not isinstance(key, str) or not key:
        raise Misconfigured("key must name the folder of a training in the service's bucket")
    error = carry_out(_objects(), required_variable("MARK_TRAINING_BUCKET"), key)
    if error:
        logger.warning("nothing was trained for %s: %s", key, error)
        count("train", Failed=1)
    return {"error": error}


@cache
def _objects() -> S3Client:
    import boto3  # noqa: PLC0415 - importing it takes longer than all else here

    return boto3.session.Session().client("s3")

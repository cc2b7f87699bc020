"""A function URL's event (payload version 2.0) as a request, and a reply as its answer; pure.

The other side, which composes the event and parses the answer, is `mark.aws.functions.function_url`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.data_classes import LambdaFunctionUrlEvent

from mark.ports import InferReply, InferRequest
from mark.protocols.oip.bodies import HEADER_LENGTH, BadRequest


def request_of(event: Mapping[str, Any]) -> InferRequest:
    """The request of an event. Errors: BadRequest."""
    asked = LambdaFunctionUrlEvent(dict(event))
    headers = asked.headers
    body = asked.body or ""
    try:
        raw = base64.b64decode(body, validate=True) if asked.is_base64_encoded else body.encode()
        header_length = int(headers.get(HEADER_LENGTH, "0"))
    except ValueError as error:
        raise BadRequest(f"the body or {HEADER_LENGTH} cannot be read: {error}") from error
    return InferRequest(
        path=event.get("rawPath", ""),
        content_type=headers.get("content-type", ""),
        body=raw,
        header_length=header_length,
        accept=headers.get("accept", ""),
    )


def event_of(reply: InferReply) -> dict[str, Any]:
    """The answer; binary tensors travel in base64."""
    headers = {"content-type": reply.content_type}
    binary = bool(reply.header_length)
    if binary:
        headers[HEADER_LENGTH] = str(reply.header_length)
    body = base64.b64encode(reply.body).decode() if binary else reply.body.decode()
    return {"statusCode": reply.status, "headers": headers, "body": body, "isBase64Encoded": binary}

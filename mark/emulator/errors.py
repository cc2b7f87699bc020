"""Refusals of the emulated AWS, in AWS's words."""

from __future__ import annotations

import json
import secrets
from xml.sax.saxutils import escape


class ApiError(Exception):
    """An error that the caller sees, with AWS's code and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def not_emulated(what: str) -> ApiError:
    """Error for what the emulation lacks: it is refused, never skipped."""
    return ApiError("NotEmulated", f"the emulated AWS does not do {what}", 501)


def error_body(error: ApiError, *, query: bool, service: str = "") -> tuple[str, bytes]:
    """Content type and body of an error: EC2's XML or S3's, the query protocol's, or JSON."""
    if not query and service != "s3":
        document = {"__type": error.code, "Type": "User", "message": error.message, "Message": error.message}
        return "application/json", json.dumps(document).encode()
    detail = f"<Error><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message></Error>"
    request = secrets.token_hex(16)
    if service == "s3":
        text = detail
    elif service == "ec2":
        text = f"<Response><Errors>{detail}</Errors><RequestID>{request}</RequestID></Response>"
    else:
        text = f"<ErrorResponse>{detail}<RequestId>{request}</RequestId></ErrorResponse>"
    return "text/xml;charset=UTF-8", f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()

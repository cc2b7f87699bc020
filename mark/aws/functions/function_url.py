"""Payloads of an infer function: a function URL's format, version 2.0 (pure).

A body that is UTF-8 goes as it is, anything else in base64. OIP's binary extension travels in its header.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass

from mark.ports import InferReply, InferRequest

LENGTH_HEADER = "inference-header-content-length"
VERSION_KEY = "mark-version"
"""Of an event: as which version of the model the function answers."""
BAD_GATEWAY = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """Lambda's REPORT line: seconds billed, memory, and whether the environment was started for it."""

    billed_s: float
    memory_gib: float
    cold: bool

    @property
    def gib_s(self) -> float:
        """The billed memory time, GiB seconds."""
        return self.billed_s * self.memory_gib


def compose_payload(request: InferRequest) -> bytes:
    """The event that the function is called with."""
    headers = {"content-type": request.content_type}
    if request.header_length:
        headers[LENGTH_HEADER] = str(request.header_length)
    if request.accept:
        headers["accept"] = request.accept
    if request.trace is not None:
        headers |= request.trace.headers
    body, encoded = _as_text(request.body)
    event = {
        "version": "2.0",
        "rawPath": request.path,
        "headers": headers,
        "requestContext": {"http": {"method": "POST", "path": request.path}},
        "body": body,
        "isBase64Encoded": encoded,
        **named(request.version),
    }
    return json.dumps(event, ensure_ascii=False).encode()


def compose_ping(version: str = "", hold_s: float = 0.0) -> bytes:
    """The event that has an environment load the model, hold for so long and answer nothing."""
    held = {"hold_s": hold_s} if hold_s else {}
    return json.dumps({"mark-warm": True, **held, **named(version)}).encode()


def named(version: str) -> dict[str, str]:
    """The part of an event that names a version of the model; empty for none."""
    return {VERSION_KEY: version} if version else {}


def parse_reply(payload: bytes) -> InferReply:
    """Parse the function's answer; what cannot be read is a bad gateway's 502."""
    try:
        reply = json.loads(payload)
        status = int(reply["statusCode"])
        headers = {str(name).lower(): str(value) for name, value in (reply.get("headers") or {}).items()}
        text = reply.get("body") or ""
        body = base64.b64decode(text, validate=True) if reply.get("isBase64Encoded") else text.encode()
        length = int(headers.get(LENGTH_HEADER, "0"))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return failed("the function's answer is not a function URL's answer")
    return InferReply(
        status=status,
        content_type=headers.get("content-type", "application/json"),
        body=body,
        header_length=length,
    )


def failed(line: str) -> InferReply:
    """The answer to a request whose function failed."""
    return InferReply(
        status=BAD_GATEWAY, content_type="application/json", body=json.dumps({"error": line}).encode()
    )


PROCESS_ENDED = ("Runtime.ExitError", "Runtime.OutOfMemory")
"""Errors of an environment whose process ended while it worked."""
NOT_FETCHED = "VersionUnavailable"
"""Error of one that could not get the files of the version that it was to answer as."""
HOLDS_ANOTHER = 75
"""Exit status of one that has loaded another version: EX_TEMPFAIL of sysexits.h."""


def loss_of(payload: bytes) -> tuple[bool, bool]:
    """Read a failed call's payload: whether its environment is lost, whether it called no model."""
    try:
        document = json.loads(payload)
    except ValueError:
        document = None
    found = document if isinstance(document, dict) else {}
    kind, message = (str(found.get(key, "")) for key in ("errorType", "errorMessage"))
    ended = kind in PROCESS_ENDED
    holds_another = ended and message.endswith(f"exit status {HOLDS_ANOTHER}")
    return ended and not holds_another, kind == NOT_FETCHED or holds_another


_REPORT = re.compile(r"^REPORT .*", re.MULTILINE)
_BILLED = re.compile(r"Billed Duration: ([0-9.]+) ms")
_MEMORY = re.compile(r"Memory Size: ([0-9.]+) MB")


def parse_report(log_result: str) -> Billed | None:
    """The REPORT line of a log's tail (base64, as Invoke gives it); None where there is none."""
    try:
        text = base64.b64decode(log_result).decode(errors="replace")
    except (ValueError, binascii.Error):
        return None
    lines = _REPORT.findall(text)
    if not lines:
        return None
    billed, memory = _BILLED.search(lines[-1]), _MEMORY.search(lines[-1])
    if billed is None or memory is None:
        return None
    return Billed(
        billed_s=float(billed[1]) / 1000.0,
        memory_gib=float(memory[1]) / 1024.0,
        cold="Init Duration:" in lines[-1],
    )


def _as_text(body: bytes) -> tuple[str, bool]:
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), True

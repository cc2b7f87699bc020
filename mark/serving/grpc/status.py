"""What an HTTP response says, as gRPC says it: status codes, metadata, and the other way round for requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from grpc import StatusCode

from mark.protocols.oip.bodies import BadRequest, error_text

CODES: Mapping[int, StatusCode] = MappingProxyType(
    {
        400: StatusCode.INVALID_ARGUMENT,
        401: StatusCode.UNAUTHENTICATED,
        403: StatusCode.PERMISSION_DENIED,
        404: StatusCode.NOT_FOUND,
        408: StatusCode.DEADLINE_EXCEEDED,
        409: StatusCode.ALREADY_EXISTS,
        413: StatusCode.RESOURCE_EXHAUSTED,
        429: StatusCode.RESOURCE_EXHAUSTED,
        501: StatusCode.UNIMPLEMENTED,
        # the server was lost with the request: who asks decides about another try, and no retry policy does
        502: StatusCode.ABORTED,
        503: StatusCode.UNAVAILABLE,
        504: StatusCode.DEADLINE_EXCEEDED,
        505: StatusCode.UNIMPLEMENTED,
    }
)
"""By HTTP status; of others 4xx is INVALID_ARGUMENT and 5xx INTERNAL."""
ACCEPTED = frozenset(
    {
        "authorization",
        "traceparent",
        "tracestate",
        "x-mark-accuracy-floor",
        "x-mark-deadline-ms",
        "x-mark-request-id",
        "x-mark-size",
        "x-mark-variant",
    }
)
"""Metadata of requests that count, as headers of the same names do."""
DEADLINE = "x-mark-deadline-ms"
MAX_DEADLINE_MS = 999_999_999
_CONTROLS = bytes(sorted({*range(32), 127} - {ord("\t")}))
MAX_DETAILS = 1000
"""Characters of an error's text: it travels among the trailing metadata."""


def code_of(status: int) -> StatusCode:
    """The code for an HTTP status of 400 and more."""
    return CODES.get(status) or (StatusCode.INVALID_ARGUMENT if status < 500 else StatusCode.INTERNAL)


def details_of(body: bytes) -> str:
    """The text of an error document, or the beginning of another body."""
    return error_text(body, MAX_DETAILS)


def headers_of(metadata: Iterable[tuple[str, str | bytes]], remaining_s: float | None) -> dict[str, bytes]:
    """Headers of a request with that metadata and so much time left, if there is a limit. Errors: BadRequest.

    gRPC lets line ends through, which would begin another header, or a request, where a peer is asked by HTTP.
    """
    found: dict[str, bytes] = {}
    for name, value in metadata:
        if name not in ACCEPTED:
            continue
        if name in found:
            raise BadRequest(f"metadata {name} twice")
        found[name] = sent = value if isinstance(value, bytes) else value.encode()
        if len(sent.translate(None, _CONTROLS)) < len(sent):
            raise BadRequest(f"metadata {name} has control characters")
    if remaining_s is not None:
        left_ms = min(max(1, int(remaining_s * 1000)), MAX_DEADLINE_MS)
        asked = found.get(DEADLINE, b"")
        if not asked or (asked.isdigit() and len(asked) <= len(str(MAX_DEADLINE_MS)) and int(asked) > left_ms):
            found[DEADLINE] = b"%d" % left_ms
    return found


def trailing_of(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The metadata that goes with an answer: x-mark-* and retry-after."""
    return tuple(
        (name, value)
        for name, value in headers.items()
        if (name.startswith("x-mark-") or name == "retry-after") and value.isascii() and value.isprintable()
    )


def read_lines(lines: bytes) -> dict[str, str]:
    """Header lines with their line ends, by name in lower case."""
    pairs = (line.partition(": ") for line in lines.decode("latin-1").split("\r\n")[:-1])
    return {name.lower(): value for name, _, value in pairs}

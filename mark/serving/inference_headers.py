"""Headers of an inference request that gateways and agents read alike."""

from __future__ import annotations

from collections.abc import Mapping

from mark.protocols.oip.bodies import BadRequest
from mark.serving.routes import Route

MAX_TYPE_BYTES = 255
Headers = Mapping[str, bytes]


def size_of(headers: Headers, largest: int, *, from_rows: bool = False) -> int:
    """The size in items that a client gives; without one 1, or 0 where the body's rows are to be counted."""
    text = headers.get("x-mark-size")
    if text is None:
        return 0 if from_rows else 1
    if not text.isdigit() or len(text) > 9 or not 1 <= (size := int(text)) <= largest:
        raise BadRequest(f"x-mark-size must be a whole number of items from 1 to {largest}")
    return size


def accept_of(headers: Headers, route: Route) -> bytes:
    """The Accept header, where it decides the response's media type."""
    return headers.get("accept", b"") if route.shape == "sagemaker" else b""


def header_length(headers: Headers, body_bytes: int) -> int:
    """Bytes of the body that are its JSON part; BadRequest where there are fewer."""
    length = headers.get("inference-header-content-length", b"0")
    if not length.isdigit() or len(length) > 10 or int(length) > body_bytes:
        raise BadRequest("inference-header-content-length does not fit the body")
    return int(length)

"""The headers that the server keeps, and their usual spellings."""

from __future__ import annotations

KNOWN_HEADERS = (
    "accept",
    "accept-encoding",
    "authorization",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "inference-header-content-length",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "x-mark-accuracy-floor",
    "x-mark-deadline-ms",
    "x-mark-forwarded",
    "x-mark-request-id",
    "x-mark-size",
    "x-mark-variant",
    "x-amzn-sagemaker-target-variant",
)
"""Headers that handlers read; others are counted and dropped."""
LIST_HEADERS = ("accept", "accept-encoding", "tracestate")
"""Headers that may come in several lines, which are one list (RFC 9110 5.3)."""
CANONICAL_NAMES = {
    spelling.encode(): name
    for name in KNOWN_HEADERS
    for spelling in (name, name.title(), name.title().replace("Ms", "ms").replace("Id", "ID"))
}

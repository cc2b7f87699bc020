"""Spans as they are recorded: values without a library, whose times are the event loop's until they are sent."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

_ids = random.Random(secrets.randbits(128))  # noqa: S311 - to be unlike any other, not to be a secret


class Kind(Enum):
    """Side of a call that a span is; names as OpenTelemetry's SpanKind."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"


Attributes = Mapping[str, str | bool | int | float]


class SpanId(NamedTuple):
    """Identity of a span: 128 bits of its trace, 64 of its own."""

    trace_id: int
    span_id: int


class Span(NamedTuple):
    """One span that has ended. Instants: epoch, in nanoseconds."""

    name: str
    kind: Kind
    id: SpanId
    #: span id of the parent in the same trace; 0 for a root
    parent_id: int
    began_ns: int
    ended_ns: int
    attributes: Attributes
    #: spans of other traces that it belongs to
    links: Sequence[SpanId] = ()
    #: the operation failed
    failed: bool = False
    #: W3C tracestate of the trace
    state: bytes = b""
    #: name and epoch nanoseconds of what happened in between
    events: Sequence[tuple[str, int]] = ()


def new_trace_id() -> int:
    """A trace's id: random, not 0."""
    return _ids.getrandbits(128) or 1


def new_span_id() -> int:
    """A span's id: random, not 0."""
    return _ids.getrandbits(64) or 1


def epoch_ns(monotonic: float) -> int:
    """Epoch nanoseconds of an instant of the monotonic clock, by the system's clock as it goes now."""
    return time.time_ns() - round((time.monotonic() - monotonic) * 1e9)

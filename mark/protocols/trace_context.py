"""W3C Trace Context: a request's place in a distributed trace, as the headers traceparent and tracestate carry it.

    traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01

A traceparent that cannot be read is none: the request begins a trace of its own (Trace Context, 3.2.2.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
MAX_STATE_BYTES = 512
"""Of tracestate that is passed on, by whole members."""
SAMPLED = 1
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_PRINTABLE = bytes(range(32, 127))
_RATIO_BITS = (1 << 64) - 1


class TraceContext(NamedTuple):
    """Identity of a span and whether its trace is recorded. `state`: the tracestate that came with it."""

    trace_id: int
    span_id: int
    sampled: bool
    state: bytes = b""

    @property
    def traceparent(self) -> bytes:
        """The header's value, in version 00."""
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, SAMPLED * self.sampled)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers for whoever is called."""
        found = {TRACEPARENT: self.traceparent.decode()}
        if self.state:
            found[TRACESTATE] = self.state.decode("latin-1")
        return found


def parse_context(traceparent: bytes, tracestate: bytes = b"") -> TraceContext | None:
    """The context that these headers say; None where the first cannot be read."""
    found = _FORM.fullmatch(traceparent)
    if found is None:
        return None
    version, trace, span, flags, rest = found.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == b"ff" or (version == b"00" and rest) or not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & SAMPLED), shortened(tracestate))


def shortened(tracestate: bytes, most: int = MAX_STATE_BYTES) -> bytes:
    """Whole members of a tracestate, from the left, in at most so many bytes; none of one with odd characters."""
    state = tracestate.strip(b" \t")
    if state.translate(None, _PRINTABLE):
        return b""
    return state if len(state) <= most else state[: max(0, most + 1)].rpartition(b",")[0].rstrip(b" \t")


def is_in_ratio(trace_id: int, ratio: float) -> bool:
    """True for that share of the trace ids, the same ones in every process (OpenTelemetry's TraceIdRatioBased)."""
    return trace_id & _RATIO_BITS < round(ratio * (1 << 64))


MOST_CARRIED = 127
"""Bytes that a frame has for both headers."""


def carried(traceparent: bytes, tracestate: bytes) -> bytes:
    """Both headers as a frame carries them: of the second what the place leaves, by whole members."""
    state = shortened(tracestate, MOST_CARRIED - len(traceparent) - 1) if tracestate else b""
    return b"%b %b" % (traceparent, state) if state else traceparent


def parse_carried(field: bytes) -> TraceContext | None:
    """The context that a frame carries."""
    traceparent, _, tracestate = field.partition(b" ")
    return parse_context(traceparent, tracestate)

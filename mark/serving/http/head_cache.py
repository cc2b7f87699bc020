"""Heads that a connection has sent before: the same bytes again need no parsing.

Most clients send one head over and over, in which only the length of the body, an id or a trace differs. A `Head`
is what one request's head looked like, with those values cut out; `match` reads a chunk that is one whole request
with that head. Whatever else comes, is split, or holds an odd byte, goes through the parser: this never decides
what is right, it only recognises what the parser has already taken.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

VARYING = (b"content-length", b"traceparent", b"tracestate", b"x-mark-request-id")
"""Headers whose values may differ from one request to the next."""
MAX_VALUE_BYTES = 127
_LENGTH = "content-length"
_VISIBLE = bytes(range(33, 127))
Parsed = TypeVar("Parsed")


class SentRequest(Protocol):
    """A request as its client sent it."""

    method: bytes
    target: bytes
    headers: dict[str, bytes]
    body: bytes


class Head(Generic[Parsed]):
    """A request's head as a client sent it, and what the handler parsed from it."""

    __slots__ = ("_first", "_raw", "_rest", "_whole", "headers", "method", "parsed", "target")

    #: the handler's own; must not depend on the values of VARYING, which `match` gives for each request
    parsed: Parsed | None

    def __init__(self, raw: bytes, exchange: SentRequest) -> None:
        """raw: the head with the empty line behind it. Errors: ValueError where a varying value is not plain."""
        self._raw, self._whole = raw, len(raw) + len(exchange.body)
        self.method, self.target, self.headers = exchange.method, exchange.target, exchange.headers
        self.parsed = None
        spans = sorted(_spans(raw, exchange.headers))
        ends = [start for start, _, _ in spans[1:]] + [len(raw)]
        self._first = raw[: spans[0][0]] if spans else raw
        self._rest = [(name, raw[stop:end]) for (_, stop, name), end in zip(spans, ends, strict=True)]

    def match(self, data: bytes) -> tuple[dict[str, bytes], bytes] | None:
        """Headers and body of one whole request with this head; None where the chunk is anything else."""
        if data.startswith(self._raw):
            return (self.headers, data[len(self._raw) :]) if len(data) == self._whole else None
        if not data.startswith(self._first):
            return None
        at, length = len(self._first), 0
        headers = self.headers.copy()
        for name, piece in self._rest:
            end = data.find(b"\r", at, at + MAX_VALUE_BYTES + 1)
            if end <= at or not data.startswith(piece, end):
                return None
            headers[name] = value = data[at:end]
            if name == _LENGTH:
                if not value.isdigit():
                    return None
                length = int(value)
            elif value.translate(None, _VISIBLE):
                return None
            at = end + len(piece)
        return (headers, data[at:]) if len(data) - at == length else None


def _spans(raw: bytes, headers: dict[str, bytes]) -> list[tuple[int, int, str]]:
    """Start, end and name of each varying value in the head."""
    lower, spans = raw.lower(), []
    for name in VARYING:
        value = headers.get(name.decode())
        if value is None:
            continue
        line = lower.index(b"\r\n" + name + b":") + len(name) + 3
        start = raw.index(value, line) if value else line
        stop = start + len(value)
        plain = 0 < len(value) <= MAX_VALUE_BYTES and not value.translate(None, _VISIBLE)
        if not plain or raw[line:start].strip(b" \t") or not raw.startswith(b"\r\n", stop):
            raise ValueError(f"{name.decode()} is not plain")
        spans.append((start, stop, name.decode()))
    return spans

"""Frames between gateways and agents: many requests on one connection, answered in any order.

A frame is its length (4 bytes), its kind (1 byte), the request's id (8 bytes) and a body whose fields are packed
with `struct`, little endian. Clocks are not shared: a request carries the microseconds that have passed since it
arrived and those that are left until its deadline. The parser keeps at most one frame that has not come whole,
of a bounded size; whatever is wrong raises FrameError, after which the connection is to be closed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from mark.domain.errors import MarkError

VERSION = 2
MAX_FRAME_BYTES = 64 * 1024 * 1024

_HEAD = struct.Struct("<IBQ")
"""Length of what follows this head; kind; id."""
HEAD_BYTES = _HEAD.size
_HELLO = struct.Struct("<H")
_REQUEST = struct.Struct("<qqIHBBBB")
"""elapsed_us, left_us, header_length, lengths of path, content type, request id, traceparent and accept."""
_REQUEST_HEAD = struct.Struct("<IBQqqIHBBBB")
_RESPONSE = struct.Struct("<HIB")
"""status, header_length, length of the content type."""
_RESPONSE_HEAD = struct.Struct("<IBQHIB")
_BOUNCED = struct.Struct("<q")
_STATE = struct.Struct("<BIIddHd")
"""flags, waiting, in_service, busy_s, gone_in_s, max_batch and how many batch seconds follow, weight."""
_ACCEPTING, _STANDBY = 1, 2
MAX_BATCH_SIZES = 4096
LONGEST_S = 1e9


class Kind(IntEnum):
    """Frame types. HELLO, REQUEST, CANCEL: gateway to agent; the others: agent to gateway."""

    HELLO = 1
    REQUEST = 2
    RESPONSE = 3
    BOUNCED = 4
    STATE = 5
    CANCEL = 6
    GOODBYE = 7


class FrameError(MarkError):
    """Malformed frame: close the connection."""


class Request(NamedTuple):
    """One request on its way to an agent. `forced`: late anyhow, and the Bouncer lets it pass."""

    id: int
    elapsed_us: int
    left_us: int
    path: bytes
    content_type: bytes
    header_length: int
    request_id: bytes
    traceparent: bytes
    body: bytes
    forced: bool = False
    accept: bytes = b""


class Response(NamedTuple):
    """A model's answer; `status` is HTTP's."""

    id: int
    status: int
    content_type: bytes
    header_length: int
    body: bytes


class Bounced(NamedTuple):
    """The Bouncer did not admit it; it would have been answered `finish_in_us` from now."""

    id: int
    finish_in_us: int


class State(NamedTuple):
    """An agent's queue after it took `seen` requests from this gateway; those sent later add to `waiting`."""

    seen: int
    accepting: bool
    standby: bool
    waiting: int
    in_service: int
    #: seconds until the batch in service ends
    busy_s: float
    #: seconds until a spot notice takes the instance away, else infinite
    terminates_in_s: float
    #: capacity, requests/s
    weight: float
    #: seconds that a batch of 1, 2, ... takes now
    batch_s: tuple[float, ...]


class Hello(NamedTuple):
    """The gateway's first frame."""

    version: int


class Cancel(NamedTuple):
    """Withdrawal of a request: its client has gone or has its answer."""

    id: int


class Goodbye(NamedTuple):
    """The agent's last frame; every request was answered."""


Frame = Request | Response | Bounced | State | Hello | Cancel | Goodbye

_FORCED = 1 << 7
_make = tuple.__new__
"""On the hot path a NamedTuple of all its fields, without the call through its own `__new__`."""


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Fields that are too long for their place raise FrameError."""
    try:
        if isinstance(frame, Request):
            return encode_request(*frame)
        if isinstance(frame, Response):
            return encode_response(*frame)
        kind, id_, body = _plain(frame)
        return _HEAD.pack(len(body), kind, id_) + body
    except (struct.error, OverflowError) as error:
        raise FrameError(f"a {type(frame).__name__} does not fit its frame: {error}") from error


def _plain(frame: State | Bounced | Hello | Cancel | Goodbye) -> tuple[Kind, int, bytes]:
    match frame:
        case State():
            return Kind.STATE, frame.seen, _state_body(frame)
        case Bounced():
            return Kind.BOUNCED, frame.id, _BOUNCED.pack(frame.finish_in_us)
        case Hello():
            return Kind.HELLO, 0, _HELLO.pack(frame.version)
        case Cancel():
            return Kind.CANCEL, frame.id, b""
        case Goodbye():
            return Kind.GOODBYE, 0, b""


def encode_request(  # noqa: PLR0913, PLR0917 on the gateway's hot path, where a Request would be made for nothing
    id_: int,
    elapsed_us: int,
    left_us: int,
    path: bytes,
    content_type: bytes,
    header_length: int,
    request_id: bytes,
    traceparent: bytes,
    body: bytes,
    forced: bool,
    accept: bytes,
) -> bytes:
    """The bytes of a Request with these fields."""
    texts = len(path) + len(content_type) + len(request_id) + len(traceparent) + len(accept)
    place = len(traceparent) | _FORCED if forced else len(traceparent)
    head = _REQUEST_HEAD.pack(
        _REQUEST.size + texts + len(body),
        2,
        id_,
        elapsed_us,
        left_us,
        header_length,
        len(path),
        len(content_type),
        len(request_id),
        place,
        len(accept),
    )
    return b"".join((head, path, content_type, request_id, traceparent, accept, body))


def encode_response(id_: int, status: int, kind: bytes, header_length: int, body: bytes) -> bytes:
    """The bytes of a Response with these fields, on the agent's hot path."""
    length = _RESPONSE.size + len(kind) + len(body)
    return b"".join((_RESPONSE_HEAD.pack(length, 3, id_, status, header_length, len(kind)), kind, body))


class FrameParser:
    """Takes bytes as they come and gives the frames that are whole."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._held = bytearray()

    @property
    def held(self) -> int:
        """Bytes of a frame that has not come whole."""
        return len(self._held)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes, in order. Errors: FrameError; the parser is then of no more use."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed():
                return
            data = bytes(self._held)
            self._held.clear()
        at, end = 0, len(data)
        while end - at >= HEAD_BYTES:
            length, kind, id_ = _HEAD.unpack_from(data, at)
            if length > self._max:
                raise FrameError(f"a frame of {length} bytes exceeds {self._max}")
            stop = at + HEAD_BYTES + length
            if stop > end:
                break
            if kind == 3:
                yield _decode_response(id_, data, at + HEAD_BYTES, stop)
            elif kind == 2:
                yield _decode_request(id_, data, at + HEAD_BYTES, stop)
            else:
                yield _decode(kind, id_, data, at + HEAD_BYTES, stop)
            at = stop
        if at < end:
            self._held += data[at:] if at else data

    def _needed(self) -> int:
        """Bytes without which no frame is whole."""
        if len(self._held) < HEAD_BYTES:
            return HEAD_BYTES
        (length,) = struct.unpack_from("<I", self._held)
        if length > self._max:
            raise FrameError(f"a frame of {length} bytes exceeds {self._max}")
        return HEAD_BYTES + int(length)


def _decode(kind: int, id_: int, data: bytes, at: int, stop: int) -> Frame:
    try:
        if kind == Kind.BOUNCED:
            _exactly(_BOUNCED.size, at, stop)
            return Bounced(id_, *_BOUNCED.unpack_from(data, at))
        if kind == Kind.STATE:
            return _decode_state(id_, data, at, stop)
        if kind == Kind.HELLO:
            _exactly(_HELLO.size, at, stop)
            return Hello(*_HELLO.unpack_from(data, at))
        if kind in (Kind.CANCEL, Kind.GOODBYE):
            _exactly(0, at, stop)
            return Cancel(id_) if kind == Kind.CANCEL else Goodbye()
    except struct.error as error:
        raise FrameError(f"a frame of kind {kind} is cut off: {error}") from error
    raise FrameError(f"unknown kind of frame: {kind}")


def _exactly(size: int, at: int, stop: int) -> None:
    if stop - at != size:
        raise FrameError(f"a frame of {stop - at} bytes should have {size}")


def _decode_request(id_: int, data: bytes, at: int, stop: int) -> Request:
    if stop - at < _REQUEST.size:
        raise FrameError("a request is cut off")
    elapsed_us, left_us, header_length, path, kind, name, place, accept = _REQUEST.unpack_from(data, at)
    trace = place & ~_FORCED
    at += _REQUEST.size
    kind_at = at + path
    name_at = kind_at + kind
    trace_at = name_at + name
    accept_at = trace_at + trace
    body_at = accept_at + accept
    if body_at > stop or header_length > stop - body_at:
        raise FrameError("a request's fields exceed its frame")
    fields = (
        id_,
        elapsed_us,
        left_us,
        data[at:kind_at],
        data[kind_at:name_at],
        header_length,
        data[name_at:trace_at],
        data[trace_at:accept_at],
        data[body_at:stop],
        bool(place & _FORCED),
        data[accept_at:body_at],
    )
    return _make(Request, fields)


def _decode_response(id_: int, data: bytes, at: int, stop: int) -> Response:
    if stop - at < _RESPONSE.size:
        raise FrameError("an answer is cut off")
    status, header_length, kind = _RESPONSE.unpack_from(data, at)
    at += _RESPONSE.size
    body_at = at + kind
    if body_at > stop or header_length > stop - body_at or not 200 <= status <= 599:
        raise FrameError("an answer's fields exceed its frame, or its status is none")
    return _make(Response, (id_, status, data[at:body_at], header_length, data[body_at:stop]))


def _state_body(frame: State) -> bytes:
    if len(frame.batch_s) > MAX_BATCH_SIZES:
        raise FrameError(f"{len(frame.batch_s)} batch sizes are more than {MAX_BATCH_SIZES}")
    flags = _ACCEPTING * frame.accepting | _STANDBY * frame.standby
    count = len(frame.batch_s)
    head = _STATE.pack(
        flags, frame.waiting, frame.in_service, frame.busy_s, frame.terminates_in_s, count, frame.weight
    )
    return head + struct.pack(f"<{count}d", *frame.batch_s)


def _decode_state(seen: int, data: bytes, at: int, stop: int) -> State:
    flags, waiting, in_service, busy_s, terminates_in_s, count, weight = _STATE.unpack_from(data, at)
    _exactly(_STATE.size + 8 * count, at, stop)
    batch_s = struct.unpack_from(f"<{count}d", data, at + _STATE.size)
    numbers = (busy_s, weight, *batch_s)
    in_range = all(0 <= number < LONGEST_S for number in numbers) and not math.isnan(terminates_in_s)
    if not in_range or not 1 <= count <= MAX_BATCH_SIZES:
        raise FrameError("a state's numbers are out of range")
    return State(
        seen,
        bool(flags & _ACCEPTING),
        bool(flags & _STANDBY),
        waiting,
        in_service,
        busy_s,
        terminates_in_s,
        weight,
        batch_s,
    )

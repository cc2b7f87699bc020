"""Frames between gateways and agents: many requests on one connection, answered in any order.

A frame is its length (4 bytes), its kind (1 byte), the request's id (8 bytes) and a body whose fields are packed
with `struct`, little endian. Clocks are not shared: a request carries the microseconds that have passed since it
arrived and those that are left until its deadline. The parser keeps at most one frame that has not come whole,
of a bounded size; whatever is wrong raises FrameError, after which the connection is to be closed.

Challenge, Hello and Welcome open a connection (`handshake.py`); the version stands first in the first two, so that
every later version can read it. A request and a response may carry details, in frames of kinds of their own; while
all of them are neutral there are none, and they cost nothing.

An answer that streams is a StreamHead, any number of StreamParts and a StreamEnd in place of a Response. The agent
sends no more bytes of parts than its window allows (`stream_window.py`); a Credit opens it again.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from mark.domain.errors import MarkError

VERSION = 5
MAX_FRAME_BYTES = 64 * 1024 * 1024

_HEAD = struct.Struct("<IBQ")
"""Length of what follows this head; kind; id."""
HEAD_BYTES = _HEAD.size
NONCE_BYTES = PROOF_BYTES = 32
_VERSION = struct.Struct("<H")
_CHALLENGE = struct.Struct(f"<H{NONCE_BYTES}s")
_HELLO = struct.Struct(f"<H{NONCE_BYTES}s{PROOF_BYTES}s")
"""Without the digest that may follow."""
LONGEST_GREETING = 256
"""Bytes of a frame before the other end is known."""
_REQUEST = struct.Struct("<qqIHBBBB")
"""elapsed_us, left_us, header_length, lengths of path, content type, request id, traceparent and accept."""
_REQUEST_HEAD = struct.Struct("<IBQqqIHBBBB")
_RESPONSE = struct.Struct("<HIB")
"""status, header_length, length of the content type."""
_RESPONSE_HEAD = struct.Struct("<IBQHIB")
_DETAILS = struct.Struct("<H")
"""Length of the details, which come next, before a plain request's or response's fields."""
_REQUEST_DETAILS = struct.Struct("<IdQIBBBB")
"""size, accuracy_floor, batch_id, chunk, flags, lengths of variant, model version and client."""
_RESPONSE_DETAILS = struct.Struct("<QIBBB")
"""batch_id, chunk, flags, lengths of variant and model version."""
_LAST = 1
_BOUNCED = struct.Struct("<q")
_STATE = struct.Struct("<BIIddHdH")
"""flags, waiting, in_service, busy_s, gone_in_s, how many batch seconds follow, weight, slots."""
_STREAM_HEAD = struct.Struct("<HB")
"""status, length of the content type, which comes next."""
_CREDIT = struct.Struct("<I")
_ACCEPTING, _STANDBY = 1, 2
MAX_BATCH_SIZES = 4096
LONGEST_S = 1e9


class Kind(IntEnum):
    """Frame types. HELLO, CANCEL, CREDIT, BEGIN, requests: gateway to agent; the others: agent to gateway."""

    HELLO = 1
    REQUEST = 2
    RESPONSE = 3
    BOUNCED = 4
    STATE = 5
    CANCEL = 6
    GOODBYE = 7
    CHALLENGE = 8
    WELCOME = 9
    DETAILED_REQUEST = 10
    DETAILED_RESPONSE = 11
    STREAM_HEAD = 12
    STREAM_PART = 13
    STREAM_END = 14
    CREDIT = 15
    BEGIN = 16


class FrameError(MarkError):
    """Malformed frame: close the connection."""


class RequestDetails(NamedTuple):
    """Further fields of a request. `model_version`, `chunk` and `last` are reserved: nothing fills or reads them.

    The deadline is no detail: each request has it (`left_us`).
    """

    #: items of the request
    size: int = 1
    #: least accuracy of the variant that may answer, 0 for any
    accuracy_floor: float = 0.0
    #: variant that is to answer; the agent chooses where it is empty
    variant: bytes = b""
    model_version: bytes = b""
    #: client or tenant on whose account it runs
    client: bytes = b""
    #: batch that a central queue put it in, which a Begin completes; 0 where the agent forms batches
    batch_id: int = 0
    #: place in a stream of chunks
    chunk: int = 0
    #: no chunk follows
    last: bool = True


class ResponseDetails(NamedTuple):
    """Further fields of a response: what answered, and its place in a stream. All but `variant` are reserved."""

    variant: bytes = b""
    model_version: bytes = b""
    batch_id: int = 0
    chunk: int = 0
    last: bool = True


PLAIN_REQUEST, PLAIN_RESPONSE = RequestDetails(), ResponseDetails()
"""All neutral: no byte on the wire."""


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
    details: RequestDetails = PLAIN_REQUEST


class Response(NamedTuple):
    """A model's answer; `status` is HTTP's."""

    id: int
    status: int
    content_type: bytes
    header_length: int
    body: bytes
    details: ResponseDetails = PLAIN_RESPONSE


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
    #: seconds that a batch of 1, 2, ... takes now; with slots, a stream alone and one among as many as there are
    batch_s: tuple[float, ...]
    #: streams that run at once, of which `in_service` do; 0 where requests are answered in batches
    slots: int = 0


class Challenge(NamedTuple):
    """The agent's first frame. From another version all but the version is empty."""

    version: int
    nonce: bytes = b""


class Hello(NamedTuple):
    """The gateway's first frame: the answer to the challenge, and its own. Of another version as in Challenge.

    `token_digest`: of the token that clients must send, under the agent's key; empty where they need none.
    """

    version: int
    nonce: bytes = b""
    proof: bytes = b""
    token_digest: bytes = b""


class Welcome(NamedTuple):
    """The agent's answer to the gateway's challenge; requests may come from here on."""

    proof: bytes


class Cancel(NamedTuple):
    """Withdrawal of a request: its client has gone or has its answer."""

    id: int


class Begin(NamedTuple):
    """All requests of a batch have come: this variant answers them together."""

    id: int
    variant: bytes


class Goodbye(NamedTuple):
    """The agent's last frame; every request was answered."""


class StreamHead(NamedTuple):
    """Begin of an answer that streams; its first part follows at once."""

    id: int
    status: int
    content_type: bytes


class StreamPart(NamedTuple):
    """The next bytes of a stream's body."""

    id: int
    body: bytes


class StreamEnd(NamedTuple):
    """End of a stream: it is whole, or `error` says why it is not. Also the answer to its Cancel."""

    id: int
    error: bytes = b""


class Credit(NamedTuple):
    """So many bytes of a stream have been passed on: the agent may send as many more."""

    id: int
    size: int


Frame = (
    Request | Response | Bounced | State | Challenge | Hello | Welcome | Cancel | Goodbye
    | StreamHead | StreamPart | StreamEnd | Credit | Begin
)  # fmt: skip
Control = State | Bounced | Challenge | Hello | Welcome | Cancel | Goodbye | Begin

_OF_BYTES = {StreamPart: Kind.STREAM_PART, StreamEnd: Kind.STREAM_END, Begin: Kind.BEGIN}
"""Frames of an id and bytes."""
_FORCED = 1 << 7
_make = tuple.__new__
"""On the hot path a NamedTuple of all its fields, without the call through its own `__new__`."""


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Fields that are too long for their place raise FrameError."""
    try:
        if isinstance(frame, Request):
            plain = encode_request(*frame[:-1])
            return plain if frame.details == PLAIN_REQUEST else _detailed(plain, _request_details(frame.details))
        if isinstance(frame, Response):
            plain = encode_response(*frame[:-1])
            return plain if frame.details == PLAIN_RESPONSE else _detailed(plain, _response_details(frame.details))
        kind, id_, body = _plain(frame)
        return _HEAD.pack(len(body), kind, id_) + body
    except (struct.error, OverflowError) as error:
        raise FrameError(f"a {type(frame).__name__} does not fit its frame: {error}") from error


def _plain(frame: Control | StreamHead | StreamPart | StreamEnd | Credit) -> tuple[Kind, int, bytes]:
    id_, body = 0, b""
    match frame:
        case State():
            kind, id_, body = Kind.STATE, frame.seen, _state_body(frame)
        case Bounced():
            kind, id_, body = Kind.BOUNCED, frame.id, _BOUNCED.pack(frame.finish_in_us)
        case Challenge():
            kind, body = Kind.CHALLENGE, _CHALLENGE.pack(*frame)
        case Hello():
            kind, body = Kind.HELLO, _HELLO.pack(*frame[:-1]) + frame.token_digest
        case Welcome():
            kind, body = Kind.WELCOME, frame.proof
        case Cancel():
            kind, id_ = Kind.CANCEL, frame.id
        case Goodbye():
            kind = Kind.GOODBYE
        case StreamPart(id_, body) | StreamEnd(id_, body) | Begin(id_, body):
            kind = _OF_BYTES[type(frame)]
        case StreamHead(id_, status, content_type):
            kind = Kind.STREAM_HEAD
            body = _STREAM_HEAD.pack(status, len(content_type)) + content_type
        case Credit(id_, size):
            kind, body = Kind.CREDIT, _CREDIT.pack(size)
    return kind, id_, body


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
    details: bytes = b"",
) -> bytes:
    """The bytes of a Request with these fields, and with details as `client_details` gives them, or none."""
    texts = len(path) + len(content_type) + len(request_id) + len(traceparent) + len(accept)
    place = len(traceparent) | _FORCED if forced else len(traceparent)
    head = _REQUEST_HEAD.pack(
        _REQUEST.size + texts + len(body) + len(details),
        10 if details else 2,
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
    if details:
        start, rest = head[:HEAD_BYTES], head[HEAD_BYTES:]
        return b"".join((start, details, rest, path, content_type, request_id, traceparent, accept, body))
    return b"".join((head, path, content_type, request_id, traceparent, accept, body))


def with_details(
    plain: bytes, size: int, accuracy_floor: float, client: bytes = b"", variant: bytes = b"", batch_id: int = 0
) -> bytes:
    """The bytes of a plain request's frame with its size in items, accuracy floor, client, variant and batch."""
    details = RequestDetails(size, accuracy_floor, variant, client=client, batch_id=batch_id)
    if details == PLAIN_REQUEST:
        return plain
    return _detailed(plain, _request_details(details))


def client_details(client: bytes) -> bytes:
    """The details of a request of one item that names its client and nothing else, for `encode_request`."""
    details = _request_details(RequestDetails(client=client))
    return _DETAILS.pack(len(details)) + details


def encode_response(id_: int, status: int, kind: bytes, header_length: int, body: bytes) -> bytes:
    """The bytes of a Response with these fields and no details, on the agent's hot path."""
    length = _RESPONSE.size + len(kind) + len(body)
    return b"".join((_RESPONSE_HEAD.pack(length, 3, id_, status, header_length, len(kind)), kind, body))


def _detailed(plain: bytes, details: bytes) -> bytes:
    """A request's or a response's frame, with details before its fields."""
    length, kind, id_ = _HEAD.unpack_from(plain)
    detailed = Kind.DETAILED_REQUEST if kind == Kind.REQUEST else Kind.DETAILED_RESPONSE
    head = _HEAD.pack(length + _DETAILS.size + len(details), detailed, id_)
    return b"".join((head, _DETAILS.pack(len(details)), details, plain[HEAD_BYTES:]))


def _request_details(details: RequestDetails) -> bytes:
    texts = (details.variant, details.model_version, details.client)
    head = _REQUEST_DETAILS.pack(
        details.size,
        details.accuracy_floor,
        details.batch_id,
        details.chunk,
        _LAST * details.last,
        *map(len, texts),
    )
    return b"".join((head, *texts))


def _response_details(details: ResponseDetails) -> bytes:
    texts = (details.variant, details.model_version)
    head = _RESPONSE_DETAILS.pack(details.batch_id, details.chunk, _LAST * details.last, *map(len, texts))
    return b"".join((head, *texts))


class FrameParser:
    """Takes bytes as they come and gives the frames that are whole.

    `max_frame_bytes` may be changed between two frames. `begun`: frames so far that did not come whole at once;
    while it stays and something is `held`, the same frame is still on its way.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.begun = 0
        self._held = bytearray()

    @property
    def held(self) -> int:
        """Bytes of a frame that has not come whole."""
        return len(self._held)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes, in order. Errors: FrameError; the parser is then of no more use."""
        resumed = bool(self._held)
        if resumed:
            self._held += data
            if len(self._held) < self._needed():
                return
            data = bytes(self._held)
            self._held.clear()
        at, end = 0, len(data)
        while end - at >= HEAD_BYTES:
            length, kind, id_ = _HEAD.unpack_from(data, at)
            if length > self.max_frame_bytes:
                raise FrameError(f"a frame of {length} bytes exceeds {self.max_frame_bytes}")
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
            self.begun += at > 0 or not resumed
            self._held += data[at:] if at else data

    def _needed(self) -> int:
        """Bytes without which no frame is whole."""
        if len(self._held) < HEAD_BYTES:
            return HEAD_BYTES
        (length,) = struct.unpack_from("<I", self._held)
        if length > self.max_frame_bytes:
            raise FrameError(f"a frame of {length} bytes exceeds {self.max_frame_bytes}")
        return HEAD_BYTES + int(length)


def _decode(kind: int, id_: int, data: bytes, at: int, stop: int) -> Frame:
    try:
        if kind == Kind.BOUNCED:
            _exactly(_BOUNCED.size, at, stop)
            return Bounced(id_, *_BOUNCED.unpack_from(data, at))
        if kind == Kind.STATE:
            return _decode_state(id_, data, at, stop)
        if kind in (Kind.CHALLENGE, Kind.HELLO, Kind.WELCOME):
            return _decode_greeting(kind, data, at, stop)
        if kind in (Kind.DETAILED_REQUEST, Kind.DETAILED_RESPONSE):
            return _decode_detailed(kind, id_, data, at, stop)
        if kind >= Kind.STREAM_HEAD:
            return _decode_stream(kind, id_, data, at, stop)
        if kind in (Kind.CANCEL, Kind.GOODBYE):
            _exactly(0, at, stop)
            return Cancel(id_) if kind == Kind.CANCEL else Goodbye()
    except struct.error as error:
        raise FrameError(f"a frame of kind {kind} is cut off: {error}") from error
    raise FrameError(f"unknown kind of frame: {kind}")


def _decode_greeting(kind: int, data: bytes, at: int, stop: int) -> Challenge | Hello | Welcome:
    if kind == Kind.WELCOME:
        _exactly(PROOF_BYTES, at, stop)
        return Welcome(data[at:stop])
    version = _version(data, at, stop)
    if version != VERSION:
        return Challenge(version) if kind == Kind.CHALLENGE else Hello(version)
    if kind == Kind.CHALLENGE:
        _exactly(_CHALLENGE.size, at, stop)
        return Challenge(*_CHALLENGE.unpack_from(data, at))
    digest_at = at + _HELLO.size
    if stop != digest_at:
        _exactly(_HELLO.size + PROOF_BYTES, at, stop)
    _, nonce, proof = _HELLO.unpack_from(data, at)
    return Hello(version, nonce, proof, data[digest_at:stop])


def _version(data: bytes, at: int, stop: int) -> int:
    if stop - at < _VERSION.size:
        raise FrameError("a greeting without a version")
    return int(_VERSION.unpack_from(data, at)[0])


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
        PLAIN_REQUEST,
    )
    return _make(Request, fields)


def _decode_detailed(kind: int, id_: int, data: bytes, at: int, stop: int) -> Request | Response:
    details_at = at + _DETAILS.size
    fields_at = details_at + int(_DETAILS.unpack_from(data, at)[0])
    if fields_at > stop:
        raise FrameError("details exceed their frame")
    if kind == Kind.DETAILED_REQUEST:
        request = _decode_request(id_, data, fields_at, stop)
        return request._replace(details=_decode_request_details(data, details_at, fields_at))
    response = _decode_response(id_, data, fields_at, stop)
    return response._replace(details=_decode_response_details(data, details_at, fields_at))


def _decode_request_details(data: bytes, at: int, stop: int) -> RequestDetails:
    texts_at = at + _REQUEST_DETAILS.size
    if texts_at > stop:
        raise FrameError("a request's details are cut off")
    size, accuracy_floor, batch_id, chunk, flags, *lengths = _REQUEST_DETAILS.unpack_from(data, at)
    variant, model_version, client = _texts(data, texts_at, stop, lengths)
    if size < 1 or not 0 <= accuracy_floor <= 1:
        raise FrameError("a request's size or accuracy floor is out of range")
    last = bool(flags & _LAST)
    return RequestDetails(size, accuracy_floor, variant, model_version, client, batch_id, chunk, last)


def _texts(data: bytes, at: int, stop: int, lengths: list[int]) -> Iterator[bytes]:
    """The texts of these lengths, which end at `stop`."""
    _exactly(sum(lengths), at, stop)
    for length in lengths:
        yield data[at : at + length]
        at += length


def _decode_response(id_: int, data: bytes, at: int, stop: int) -> Response:
    if stop - at < _RESPONSE.size:
        raise FrameError("an answer is cut off")
    status, header_length, kind = _RESPONSE.unpack_from(data, at)
    at += _RESPONSE.size
    body_at = at + kind
    if body_at > stop or header_length > stop - body_at or not 200 <= status <= 599:
        raise FrameError("an answer's fields exceed its frame, or its status is none")
    return _make(Response, (id_, status, data[at:body_at], header_length, data[body_at:stop], PLAIN_RESPONSE))


def _decode_response_details(data: bytes, at: int, stop: int) -> ResponseDetails:
    texts_at = at + _RESPONSE_DETAILS.size
    if texts_at > stop:
        raise FrameError("an answer's details are cut off")
    batch_id, chunk, flags, *lengths = _RESPONSE_DETAILS.unpack_from(data, at)
    variant, model_version = _texts(data, texts_at, stop, lengths)
    return ResponseDetails(variant, model_version, batch_id, chunk, bool(flags & _LAST))


def _decode_stream(kind: int, id_: int, data: bytes, at: int, stop: int) -> Frame:
    if kind == Kind.BEGIN:
        return Begin(id_, data[at:stop])
    if kind == Kind.STREAM_PART:
        return StreamPart(id_, data[at:stop])
    if kind == Kind.STREAM_END:
        return StreamEnd(id_, data[at:stop])
    if kind == Kind.CREDIT:
        _exactly(_CREDIT.size, at, stop)
        return Credit(id_, *_CREDIT.unpack_from(data, at))
    if kind != Kind.STREAM_HEAD:
        raise FrameError(f"unknown kind of frame: {kind}")
    status, length = _STREAM_HEAD.unpack_from(data, at)
    at += _STREAM_HEAD.size
    _exactly(length, at, stop)
    if not 200 <= status < 400:
        raise FrameError(f"a stream begins with status {status}")
    return StreamHead(id_, status, data[at:stop])


def _state_body(frame: State) -> bytes:
    if len(frame.batch_s) > MAX_BATCH_SIZES:
        raise FrameError(f"{len(frame.batch_s)} batch sizes are more than {MAX_BATCH_SIZES}")
    flags = _ACCEPTING * frame.accepting | _STANDBY * frame.standby
    count = len(frame.batch_s)
    head = _STATE.pack(
        flags,
        frame.waiting,
        frame.in_service,
        frame.busy_s,
        frame.terminates_in_s,
        count,
        frame.weight,
        frame.slots,
    )
    return head + struct.pack(f"<{count}d", *frame.batch_s)


def _decode_state(seen: int, data: bytes, at: int, stop: int) -> State:
    flags, waiting, in_service, busy_s, terminates_in_s, count, weight, slots = _STATE.unpack_from(data, at)
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
        slots,
    )

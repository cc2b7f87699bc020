"""What a replica's process sends its agent: JSON and the answers' bytes, for the agent does not believe it.

Pickles would be shorter, and would let the process set what it likes in the agent. Malformed messages are
ValueErrors.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply

HEAD = struct.Struct("!QQ")
"""Bytes of JSON, and those of the answers behind it."""
MOST_BYTES = 2**30
"""Of one message, which its agent holds."""


class Started(NamedTuple):
    """The model is loaded; or it is not, with the reason."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    failure: str = ""


def pack_started(started: Started) -> bytes:
    """The first message."""
    specs = [
        [[str(one.name), str(one.datatype), [int(size) for size in one.shape]] for one in group]
        for group in (started.inputs, started.outputs)
    ]
    text = orjson.dumps([*specs, started.failure])
    return HEAD.pack(len(text), 0) + text


def pack_replies(replies: Sequence[InferReply]) -> bytes:
    """The answers to one part."""
    heads = [[int(one.status), one.content_type, one.header_length, one.variant, len(one.body)] for one in replies]
    text = orjson.dumps(heads)
    bodies = b"".join(one.body for one in replies)
    return HEAD.pack(len(text), len(bodies)) + text + bodies


def read_started(text: bytes, bodies: bytes) -> Started:
    """The first message."""
    inputs, outputs, failure = _listed(orjson.loads(text), 3)
    _check(isinstance(failure, str) and not bodies)
    return Started(_specs(inputs), _specs(outputs), failure)


def read_replies(text: bytes, bodies: bytes, count: int) -> list[InferReply]:
    """So many answers."""
    replies, end = [], 0
    for head in _listed(orjson.loads(text), count):
        status, kind, header_length, variant, length = _listed(head, 5)
        _check(all(type(one) is int and one >= 0 for one in (status, header_length, length)))
        _check(isinstance(kind, str) and isinstance(variant, str))
        begin, end = end, end + length
        replies.append(InferReply(status, kind, bodies[begin:end], header_length, variant))
    _check(end == len(bodies))
    return replies


def _specs(found: object) -> tuple[TensorSpec, ...]:
    specs = []
    for one in _listed(found):
        name, datatype, shape = _listed(one, 3)
        _check(isinstance(name, str) and isinstance(datatype, str))
        _check(all(type(size) is int for size in _listed(shape)))
        specs.append(TensorSpec(name=name, datatype=datatype, shape=tuple(shape)))
    return tuple(specs)


def _listed(found: object, count: int | None = None) -> list[Any]:
    if not isinstance(found, list) or count not in (None, len(found)):
        raise ValueError("a message of another form")
    return found


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError("a message of another form")

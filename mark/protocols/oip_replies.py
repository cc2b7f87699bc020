"""Answers in Open Inference Protocol v2: a batch's outputs are written once and cut into what each request gets.

To write a number costs less than all that is said around it. So the numbers of a whole batch become text in one
go, row by row, what is said around them is kept for requests that are alike, and an answer is put together from
the rows that are its own.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from mark.ports import InferReply
from mark.protocols.byte_tensors import pack_bytes
from mark.protocols.oip import (
    BINARY_TYPE,
    JSON_TYPE,
    BadRequest,
    InferCall,
    Tensors,
    datatype_of,
    dump_json,
    text_of,
)

ALL_ROWS = slice(None)


def compose_infer_reply(model: str, outputs: Tensors, call: InferCall) -> InferReply:
    """The answer to `call`, which was alone. Errors: BadRequest."""
    return ReplyWriter(model, outputs).reply(call)


class ReplyWriter:
    """Writes the answers to the calls that share these outputs; one without dimensions counts as one row."""

    def __init__(self, model: str, outputs: Tensors, version: str = "1") -> None:
        self._outputs = outputs
        self._head = dump_json({"model_name": model, "model_version": version})[:-1]
        self._columns: dict[str, _Column] = {}

    def reply(self, call: InferCall, rows: slice = ALL_ROWS) -> InferReply:
        """The outputs that `call` asked for, as it asked for them; `rows` are its own. Errors: BadRequest."""
        entries, tail = [], []
        for name in call.outputs or self._outputs:
            column = self._columns.get(name) or self._added(name)
            if call.wants_binary(name):
                entry, data = column.binary(rows)
                tail.append(data)
            else:
                entry = column.listed(rows)
            entries.append(entry)
        said = b',"id":' + dump_json(call.id) if call.id else b""
        text = b'%b%b,"outputs":[%b]}' % (self._head, said, b",".join(entries))
        if not tail:
            return InferReply(200, JSON_TYPE, text)
        return InferReply(200, BINARY_TYPE, b"".join((text, *tail)), len(text))

    def _added(self, name: str) -> _Column:
        if name not in self._outputs:
            raise BadRequest(f"unknown output {name!r}; the model gives {', '.join(sorted(self._outputs))}")
        column = self._columns[name] = _Column(name, self._outputs[name])
        return column


class _Column:
    """One output of a batch. `_heads`: what stands before the data of so many rows, and of so many bytes."""

    def __init__(self, name: str, array: NDArray[Any]) -> None:
        self._name, self._datatype = name, datatype_of(array)
        self._array = np.ascontiguousarray(array)
        self._lines: list[bytes] | None = None
        self._heads: dict[tuple[int, int | None], bytes] = {}

    def listed(self, rows: slice) -> bytes:
        """These rows in JSON."""
        if self._lines is None:
            self._lines = _lines(self._array)
        own = self._lines[rows]
        numbers = b",".join(own) if self._array.size else b""
        return b'%b,"data":[%b]}' % (self._head(len(own), None), numbers)

    def binary(self, rows: slice) -> tuple[bytes, bytes]:
        """What JSON says of these rows, and their bytes."""
        own = self._array[rows]
        data = pack_bytes(own) if self._datatype == "BYTES" else own.tobytes()
        return self._head(len(own), len(data)) + b"}", data

    def _head(self, count: int, size: int | None) -> bytes:
        head = self._heads.get((count, size))
        if head is None:
            shape = [count, *self._array.shape[1:]]
            said: dict[str, Any] = {"name": self._name, "datatype": self._datatype, "shape": shape}
            if size is not None:
                said["parameters"] = {"binary_data_size": size}
            head = self._heads[count, size] = dump_json(said)[:-1]
        return head


def _lines(array: NDArray[Any]) -> list[bytes]:
    """What each row holds, flat, as JSON without brackets."""
    if array.size == 0:
        return [b""] * len(array)
    rows = array.reshape(len(array), math.prod(array.shape[1:]))
    if array.dtype.kind in "OSU":
        return [dump_json([text_of(value) for value in row])[1:-1] for row in rows.tolist()]
    text = orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
    lines = text[2:-2].split(b"],[")
    if b"null" in text:  # NaN or infinite: the other writer has words for them
        for place, row in enumerate(rows.tolist()):
            if b"null" in lines[place]:
                lines[place] = json.dumps(row)[1:-1].encode()
    return lines

"""Answers in Open Inference Protocol v2: a batch's outputs are written once and cut into what each request gets.

Writing a number costs less than writing the JSON around it. So the numbers of a whole batch become text at once,
row by row, the JSON around them is cached by row count, and each response is joined from its own rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from mark.ports import InferReply
from mark.protocols.json_values import name_of
from mark.protocols.oip.bodies import (
    BINARY_TYPE,
    JSON_TYPE,
    BadRequest,
    InferCall,
    Tensors,
    datatype_of,
    dump_json,
    text_of,
    unknown_output,
)
from mark.protocols.oip.byte_tensors import pack_bytes

MODEL_VERSION = "1"
"""Version of a model that has no other."""


def compose_infer_reply(model: str, outputs: Tensors, call: InferCall, version: str = MODEL_VERSION) -> InferReply:
    """The answer to `call`, which was alone. Errors: BadRequest."""
    return ReplyWriter(model, outputs, version).reply(call, 0, None)


class ReplyWriter:
    """Writes the answers to the calls that share these outputs; one without dimensions counts as one row."""

    def __init__(self, model: str, outputs: Tensors, version: str = MODEL_VERSION) -> None:
        self._outputs = outputs
        self._head = dump_json({"model_name": model, "model_version": version})[:-1]
        self._columns: dict[str, _Column] = {}

    def reply(self, call: InferCall, start: int, stop: int | None) -> InferReply:
        """The outputs that `call` asked for, as it asked for them; rows [start, stop) are its own, None for all.

        Errors: BadRequest; ValueError where an output cannot be written.
        """
        entries, tail = [], []
        wishes = call.outputs or call.binary_outputs
        for name in call.outputs or self._outputs:
            column = self._columns.get(name) or self._added(name)
            if wishes and call.wants_binary(name):
                entry, data = column.binary(start, stop)
                tail.append(data)
            else:
                entry = column.listed(start, stop)
            entries.append(entry)
        id_ = b',"id":' + dump_json(call.id) if call.id else b""
        text = b"".join((self._head, id_, b',"outputs":[', b",".join(entries), b"]}"))
        if not tail:
            return InferReply(200, JSON_TYPE, text)
        return InferReply(200, BINARY_TYPE, b"".join((text, *tail)), len(text))

    def _added(self, name: str) -> _Column:
        if name not in self._outputs:
            raise unknown_output(name, self._outputs)
        try:
            column = self._columns[name] = _Column(name, self._outputs[name])
        except BadRequest as error:  # a type that the protocol has not: the model's mistake, not the client's
            raise ValueError(f"output {name!r}: {error}") from None
        return column


class _Column:
    """One output of a batch. `_heads`: the JSON before the numbers, by row count."""

    def __init__(self, name: str, array: NDArray[Any]) -> None:
        self._name, self._datatype = name, datatype_of(array)
        self._array = np.ascontiguousarray(array)
        self._lines: list[bytes] | None = None
        self._heads: dict[int, bytes] = {}

    def listed(self, start: int, stop: int | None) -> bytes:
        """These rows in JSON."""
        lines = self._lines
        if lines is None:
            lines = self._lines = _lines(self._array)
        own = lines[start:stop]
        head = self._heads.get(len(own)) or self._listed_head(len(own))
        return b"".join((head, own[0] if len(own) == 1 else b",".join(filter(None, own)), b"]}"))

    def binary(self, start: int, stop: int | None) -> tuple[bytes, bytes]:
        """The JSON entry of these rows, and their bytes."""
        own = self._array[start:stop]
        data = pack_bytes(own) if self._datatype == "BYTES" else own.tobytes()
        return dump_json(self._entry(len(own)) | {"parameters": {"binary_data_size": len(data)}}), data

    def _listed_head(self, count: int) -> bytes:
        head = self._heads[count] = dump_json(self._entry(count))[:-1] + b',"data":['
        return head

    def _entry(self, count: int) -> dict[str, Any]:
        return {"name": self._name, "datatype": self._datatype, "shape": [count, *self._array.shape[1:]]}


def _lines(array: NDArray[Any]) -> list[bytes]:
    """Each row's values, flat, as JSON without brackets."""
    if array.size == 0:
        return [b""] * len(array)
    rows = array.reshape(len(array), math.prod(array.shape[1:]))
    if array.dtype.kind in "OSU":
        return [dump_json([text_of(value) for value in row])[1:-1] for row in rows.tolist()]
    text = orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY)
    lines = text[2:-2].split(b"],[")
    if b"null" in text:  # NaN or infinite: JSON has no number for them
        for place, line in enumerate(lines):
            if b"null" in line:
                lines[place] = b",".join(map(_named, line.split(b","), rows[place].tolist()))
    return lines


def _named(text: bytes, value: float) -> bytes:
    return text if text != b"null" else b'"%b"' % name_of(value).encode()

"""Open Inference Protocol v2 over REST: bodies to arrays and back, and the documents around them.

A body is JSON, or JSON followed by binary tensors; the header Inference-Header-Content-Length then says where the
JSON ends, and each binary tensor states its `binary_data_size`. Nothing is believed before it is checked: a
tensor's shape must agree with the data that is really there before an array is made of it. Whatever is wrong with
a request is a BadRequest, whose text is for the client.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from mark.domain.errors import BadRequest as BadRequest  # noqa: PLC0414 - protocols raise it as their own
from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols.json_values import MAX_DIMENSIONS, MAX_LISTS, from_json, has_too_many_lists, missized
from mark.protocols.oip.byte_tensors import pack_bytes, unpack_bytes

JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"
HEADER_LENGTH = "inference-header-content-length"

DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    "BYTES": np.dtype("O"),
}
"""OIP's names of the element types. BF16 has no numpy type and is refused."""
_INPUTS = re.compile(rb'"inputs"\s*:')
_SHAPE = re.compile(rb'"shape"\s*:\s*\[\s*(\d*)')
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_TENSORS = 256
MOST_ROWS = 10**9
"""Rows that are told apart; no profile covers as many."""

Tensors = Mapping[str, NDArray[Any]]

overflowing = partial(np.errstate, over="ignore")
"""A number that is too large for a float becomes infinite, as in the JSON of others, and numpy need not say so."""


class InferCall(NamedTuple):
    """A request that was understood. `outputs`: those asked for and whether in binary; empty for all of them."""

    inputs: Tensors
    id: str = ""
    outputs: Mapping[str, bool] = MappingProxyType({})
    binary_outputs: bool = False

    def wants_binary(self, output: str) -> bool:
        """True where this output is answered in binary."""
        return self.outputs.get(output, self.binary_outputs)


def parse_infer(body: bytes, header_length: int = 0) -> InferCall:
    """Understand an inference request. Errors: BadRequest."""
    with overflowing():
        return read_infer(body, header_length)


def read_infer(body: bytes, header_length: int) -> InferCall:
    """Parse an inference request within an `overflowing` of the caller, who reads many."""
    document, rest = _split(body, header_length)
    return call_of(document, rest)


def call_of(loaded: object, rest: bytes = b"") -> InferCall:
    """The request that a JSON document and the binary tensors behind it are. Errors: BadRequest."""
    document = _mapping(loaded, "the body")
    tail = _Tail(rest) if rest else _NO_TAIL
    inputs = _tensors(document.get("inputs"), "inputs", tail)
    if rest:
        tail.must_be_used_up()
    if len(document) == 1:  # inputs and nothing else, as most clients send them
        return InferCall(inputs)
    parameters = _mapping(_given(document, "parameters", {}), "parameters")
    name = _given(document, "id", "")
    if not isinstance(name, str):
        raise BadRequest("id must be a string")
    binary = parameters.get("binary_data_output", False) is True
    return InferCall(inputs, name, _requested(document, binary), binary)


def parse_infer_reply(body: bytes, header_length: int = 0) -> dict[str, NDArray[Any]]:
    """The outputs that a server answered. Errors: BadRequest."""
    document, rest = _split(body, header_length)
    with overflowing():
        return _tensors(_mapping(document, "the body").get("outputs"), "outputs", _Tail(rest))


def asked_outputs(outputs: Tensors, call: InferCall) -> Tensors:
    """The outputs that the call asks for, in its order; all where it names none. Errors: BadRequest."""
    for name in call.outputs:
        if name not in outputs:
            raise unknown_output(name, outputs)
    return {name: outputs[name] for name in call.outputs or outputs}


def unknown_output(name: str, outputs: Tensors) -> BadRequest:
    """The error of a call for an output that the model does not give."""
    return BadRequest(f"unknown output {name!r}; the model gives {', '.join(sorted(outputs))}")


def check_inputs(inputs: Tensors, specs: Sequence[TensorSpec]) -> None:
    """Check inputs against the model's specs. Errors: BadRequest."""
    for spec in specs:
        array = inputs.get(spec.name)
        if array is None:
            raise _misnamed(inputs, specs)
        if array.dtype != DTYPES[spec.datatype]:
            raise BadRequest(f"input {spec.name!r} is {datatype_of(array)}, the model takes {spec.datatype}")
        if not fits(array.shape, spec.shape):
            raise BadRequest(
                f"input {spec.name!r} has shape {list(array.shape)}, the model takes {list(spec.shape)}"
            )
    if len(inputs) > len(specs):
        raise _misnamed(inputs, specs)


def _misnamed(inputs: Tensors, specs: Sequence[TensorSpec]) -> BadRequest:
    known = {spec.name for spec in specs}
    if surplus := sorted(set(inputs) - known):
        return BadRequest(f"unknown input {surplus[0]!r}; the model takes {', '.join(sorted(known))}")
    return BadRequest(f"input {min(known - set(inputs))!r} is missing")


def count_rows(body: bytes, header_length: int) -> int:
    """The first dimension of a request's first input, read without parsing the body; 1 where there is none.

    A key is the one place where a quoted word stands before a colon: quotes within texts have a backslash. More
    than `MOST_ROWS` is that many: a number of any length is no work.
    """
    end = header_length or len(body)
    inputs = _INPUTS.search(body, 0, end)
    shape = inputs and _SHAPE.search(body, inputs.end(), end)
    rows = shape[1].lstrip(b"0") if shape else b""
    return int(rows or 1) if len(rows) < len(str(MOST_ROWS)) else MOST_ROWS


def fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True where each size is the wanted one; -1 is any."""
    for size, one in zip(shape, wanted, strict=False):
        if one not in (-1, size):
            return False
    return len(shape) == len(wanted)


def compose_infer(inputs: Tensors, *, path: str, binary: bool = True, name: str = "") -> InferRequest:
    """A request with these inputs; with `binary` its outputs are asked for in binary too."""
    document: dict[str, Any] = {"id": name} if name else {}
    if binary:
        document["parameters"] = {"binary_data_output": True}
    document["inputs"], tail = _described(inputs, dict.fromkeys(inputs, binary))
    body, header_length = _joined(document, tail)
    kind = BINARY_TYPE if header_length else JSON_TYPE
    return InferRequest(path=path, content_type=kind, body=body, header_length=header_length)


def error_reply(status: int, text: str) -> InferReply:
    """An answer that says what is wrong."""
    return InferReply(status=status, content_type=JSON_TYPE, body=error_body(text))


def error_body(text: str) -> bytes:
    """OIP's error document."""
    return json.dumps({"error": text}).encode()


def error_text(body: bytes, most: int) -> str:
    """The text of an error document, or the beginning of another body: `most` characters."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    text = document.get("error") if isinstance(document, dict) else None
    return str(body[: 4 * most].decode(errors="replace") if text is None else text)[:most]


def dump_json(document: object) -> bytes:
    """JSON; arrays as lists, each number in the fewest digits that say it.

    The quick writer says null for NaN and infinities, and refuses half characters; the other one writes both.
    """
    try:
        text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        text = b"null"
    return json.dumps(document, default=_listed).encode() if b"null" in text else text


def text_of(value: object) -> str:
    """An element of type BYTES as JSON text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def server_metadata(
    name: str, version: str, extensions: Sequence[str] = ("binary_tensor_data",)
) -> dict[str, Any]:
    """The response to `GET /v2`."""
    return {"name": name, "version": version, "extensions": list(extensions)}


def model_metadata(
    name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], versions: Sequence[str] = ("1",)
) -> dict[str, Any]:
    """The response to `GET /v2/models/{name}`."""
    return {
        "name": name,
        "versions": list(versions),
        "platform": "mark",
        "inputs": [_spec(spec) for spec in inputs],
        "outputs": [_spec(spec) for spec in outputs],
    }


def example_body(inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """A body that infer accepts: zeros (empty strings for BYTES), one item for every size that is free."""
    return {"inputs": [{**_spec(_one(spec)), "data": _zeros(spec)} for spec in inputs]}


def datatype_of(array: NDArray[Any]) -> str:
    """OIP's name of an array's element type. Errors: BadRequest where it has none."""
    name = "BYTES" if array.dtype.kind in "SU" else _NAMES.get(array.dtype)
    if name is None:
        raise BadRequest(f"no Open Inference datatype for arrays of {array.dtype}")
    return name


class _Tail:
    """The binary tensors behind the JSON, taken off in order."""

    def __init__(self, rest: bytes) -> None:
        self._rest, self._at = rest, 0

    def take(self, size: object) -> bytes:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise BadRequest("binary_data_size must be a whole number of bytes")
        if self._at + size > len(self._rest):
            raise BadRequest(f"binary_data_size {size} exceeds the {len(self._rest) - self._at} bytes left")
        self._at += size
        return self._rest[self._at - size : self._at]

    def must_be_used_up(self) -> None:
        if self._at != len(self._rest):
            raise BadRequest(f"{len(self._rest) - self._at} bytes after the last binary tensor belong to no input")


_NO_TAIL = _Tail(b"")


def _split(body: bytes, header_length: int) -> tuple[object, bytes]:
    """The JSON in front and the bytes behind it."""
    if header_length < 0 or header_length > len(body):
        raise BadRequest(f"{HEADER_LENGTH} {header_length} does not fit a body of {len(body)} bytes")
    text, rest = (body[:header_length], body[header_length:]) if header_length else (body, b"")
    return load_json(text), rest


def load_json(text: bytes) -> object:
    """Parse JSON, with NaN and infinities as others write them. Errors: BadRequest.

    The quick parser knows no NaN, no infinity, little nesting: then the other is asked.
    """
    if has_too_many_lists(text):
        raise BadRequest(f"the body holds more than {MAX_LISTS} lists; send flat or binary data", 413)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body is not JSON: {error}") from None


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be a JSON object")
    return value


def _given(document: dict[str, Any], field: str, default: object) -> object:
    """An optional field's value. Null equals absent: typed clients serialise the fields that they did not set."""
    value = document.get(field)
    return default if value is None else value


def _tensors(entries: object, where: str, tail: _Tail) -> dict[str, NDArray[Any]]:
    if not isinstance(entries, list) or not entries:
        raise BadRequest(f"{where} must be a list with at least one tensor")
    if len(entries) > MAX_TENSORS:
        raise BadRequest(f"{where} holds {len(entries)} tensors, more than {MAX_TENSORS}")
    found: dict[str, NDArray[Any]] = {}
    for entry in entries:
        tensor = _mapping(entry, "each tensor")
        name = tensor.get("name")
        if not isinstance(name, str) or not name:
            raise BadRequest(f"each of {where} needs a name")
        if name in found:
            raise BadRequest(f"{where} name {name!r} twice")
        try:
            found[name] = _tensor(tensor, tail)
        except BadRequest as error:
            raise BadRequest(f"tensor {name!r}: {error}", error.status) from None
    return found


def _tensor(tensor: dict[str, Any], tail: _Tail) -> NDArray[Any]:
    named = tensor.get("datatype")
    dtype = DTYPES.get(named) if isinstance(named, str) else None
    if dtype is None:
        raise BadRequest(f"unknown datatype {reprlib.repr(named)}; known: {', '.join(DTYPES)}")
    shape = _shape(tensor.get("shape"))
    parameters = _mapping(_given(tensor, "parameters", {}), "parameters")
    if parameters.get("shared_memory_region") is not None:
        raise BadRequest("shared memory is not supported; send tensors in the body")
    if (size := parameters.get("binary_data_size")) is not None:
        found = _from_binary(tail.take(size), dtype)
    elif (data := tensor.get("data")) is not None:
        return from_json(data, dtype, shape, datatype=str(named))
    else:
        raise BadRequest("the tensor has neither data nor binary_data_size")
    if found.size != math.prod(shape):
        raise missized(found.size, shape)
    return found.reshape(shape)


def _shape(value: object) -> tuple[int, ...]:
    sizes = value if isinstance(value, list) else [None]
    for size in sizes:
        if type(size) is not int or not 0 <= size < 2**40 or len(sizes) > MAX_DIMENSIONS:
            raise BadRequest(f"shape must be at most {MAX_DIMENSIONS} whole numbers, not {reprlib.repr(value)}")
    return tuple(sizes)


def _from_binary(data: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "O":
        try:
            return unpack_bytes(data)
        except ValueError as error:
            raise BadRequest(str(error)) from None
    if len(data) % dtype.itemsize:
        raise BadRequest(f"{len(data)} bytes are no whole number of elements of {dtype.itemsize} bytes")
    return np.frombuffer(bytearray(data), dtype=dtype)  # of its own: torch warns of what cannot be written to


def _requested(document: dict[str, Any], binary: bool) -> dict[str, bool]:
    entries = _given(document, "outputs", [])
    if not isinstance(entries, list) or len(entries) > MAX_TENSORS:
        raise BadRequest("outputs must be a list of outputs")
    wanted: dict[str, bool] = {}
    for entry in entries:
        output = _mapping(entry, "each of outputs")
        name = output.get("name")
        if not isinstance(name, str) or not name:
            raise BadRequest("each of outputs needs a name")
        parameters = _mapping(_given(output, "parameters", {}), "parameters of an output")
        if parameters.get("classification") is not None:
            raise BadRequest("the classification extension is not supported")
        wanted[name] = _given(parameters, "binary_data", binary) is True
    return wanted


def _described(tensors: Tensors, binary: Mapping[str, bool]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Tensors as JSON entries, and the binary data that goes behind the JSON."""
    entries, tail = [], []
    for name, array in tensors.items():
        datatype = datatype_of(array)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if binary[name]:
            data = pack_bytes(array) if datatype == "BYTES" else np.ascontiguousarray(array).tobytes()
            entry["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        elif datatype == "BYTES":
            entry["data"] = [text_of(value) for value in array.reshape(-1).tolist()]
        else:
            entry["data"] = np.ascontiguousarray(array).reshape(-1)
        entries.append(entry)
    return entries, tail


def _joined(document: dict[str, Any], tail: list[bytes]) -> tuple[bytes, int]:
    text = dump_json(document)
    return (b"".join([text, *tail]), len(text)) if tail else (text, 0)


def _listed(array: NDArray[Any]) -> list[Any]:
    return list(array.tolist())


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _one(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(name=spec.name, datatype=spec.datatype, shape=tuple(1 if n == -1 else n for n in spec.shape))


def _zeros(spec: TensorSpec) -> list[Any]:
    count = math.prod(_one(spec).shape)
    return [""] * count if spec.datatype == "BYTES" else np.zeros(count, dtype=DTYPES[spec.datatype]).tolist()

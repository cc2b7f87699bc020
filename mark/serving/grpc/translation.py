"""Inference over gRPC as the body that HTTP's clients send, and the answer to such a body as a message.

Tensors keep their bytes: Open Inference's binary extension and `raw_input_contents` have the same, BYTES included.
Typed contents become raw; who sent them gets typed contents back. What gateway and model check of an HTTP request
is not checked here: refused is only what could not be written down as one, or would take too much to do so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mark.protocols.json_values import MAX_DIMENSIONS
from mark.protocols.oip import bodies as oip
from mark.protocols.oip.bodies import BadRequest
from mark.protocols.oip.byte_tensors import pack_bytes
from mark.serving.grpc.messages import CLASSES, Message

CONTENTS: Mapping[str, tuple[str, str]] = {
    "BOOL": ("bool_contents", "?"),
    **dict.fromkeys(("INT8", "INT16", "INT32"), ("int_contents", "<i4")),
    "INT64": ("int64_contents", "<i8"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), ("uint_contents", "<u4")),
    "UINT64": ("uint64_contents", "<u8"),
    "FP32": ("fp32_contents", "<f4"),
    "FP64": ("fp64_contents", "<f8"),
    "BYTES": ("bytes_contents", "O"),
}
"""Field of InferTensorContents and its numpy type, by datatype: FP16 has none, and comes raw."""
SMALL_BYTES = 64 * 1024
"""A message up to it is parsed without being looked at before: what it could become is small."""
TYPED_BYTES = 4 * 1024 * 1024
"""Most bytes of typed contents, gRPC's usual limit of a message: each value of them becomes an object."""
DESCRIBED_BYTES = 1024 * 1024
"""Most bytes of names, shapes and parameters."""
MAX_PARTS = 8 * oip.MAX_TENSORS
"""Fields of a larger message and of its tensors: protobuf makes 50 bytes of an empty one that came in two."""
MAX_PARAMETERS = 256
_PLAIN = (bool, int, float, str)
_INPUTS, _RAW, _OF_MESSAGES, _CONTENTS = 5, 7, (4, 5, 6), 5
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}


class Translated(NamedTuple):
    """An inference request as an HTTP client would have sent it. typed: it came with typed contents."""

    target: bytes
    body: bytes
    header_length: int
    typed: bool


def parse(name: str, data: bytes) -> Message:
    """The message of that name. Errors: BadRequest."""
    try:
        if len(data) > SMALL_BYTES:
            _check_parts(data)
        return CLASSES[name].FromString(data)
    except (DecodeError, IndexError) as error:
        raise BadRequest(f"the message is no {name}: {error}") from None


def model_target(name: str, version: str, end: str = "") -> bytes:
    """Path of a model, or of one of its versions, with that end."""
    of_version = f"/versions/{quote(version, safe='')}" if version else ""
    return f"/v2/models/{quote(name, safe='')}{of_version}{end}".encode()


def translate(message: Message) -> Translated:
    """The HTTP request that a ModelInferRequest stands for. Errors: BadRequest."""
    inputs, outputs, raw = message.inputs, message.outputs, message.raw_input_contents
    if max(len(inputs), len(outputs)) > oip.MAX_TENSORS:
        raise BadRequest(f"more than {oip.MAX_TENSORS} inputs or outputs")
    if raw and len(raw) != len(inputs):
        raise BadRequest(f"raw_input_contents has {len(raw)} entries for {len(inputs)} inputs")
    tail: list[bytes] = []
    entries = []
    for place, tensor in enumerate(inputs):
        data = _raw(tensor, raw[place] if raw else None)
        tail.append(data)
        entries.append(_entry(tensor, data))
    document: dict[str, object] = {"id": message.id} if message.id else {}
    document["parameters"] = {**_parameters(message), "binary_data_output": True}
    document["inputs"] = entries
    if outputs:
        document["outputs"] = [{"name": one.name, "parameters": _parameters(one)} for one in outputs]
    text = oip.dump_json(document)
    target = model_target(message.model_name, message.model_version, "/infer")
    return Translated(target, b"".join((text, *tail)), len(text), bool(inputs) and not raw)


def compose_response(body: bytes, header_length: int, *, typed: bool) -> bytes:
    """A ModelInferResponse, serialised, of the body that a model answered. Errors: BadRequest where it is none."""
    try:
        return _composed(body, header_length, typed=typed)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"the response is not Open Inference: {error!r:.200}") from None


def _composed(body: bytes, header_length: int, *, typed: bool) -> bytes:
    tail = memoryview(body)[header_length:]
    document: Any = oip.load_json(body[:header_length] if header_length else body)
    names = ("model_name", "model_version", "id")
    made = CLASSES["ModelInferResponse"](**{name: document[name] for name in names if name in document})
    _put_parameters(made, document.get("parameters"))
    entries: list[dict[str, Any]] = document["outputs"]
    sizes = [(entry.get("parameters") or {}).get("binary_data_size") for entry in entries]
    typed = typed and all(entry["datatype"] in CONTENTS for entry in entries)
    arrays = oip.parse_infer_reply(body, header_length) if typed or None in sizes else {}
    for entry, data in zip(entries, _cut(tail, sizes), strict=True):
        output = made.outputs.add(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])
        _put_parameters(output, entry.get("parameters"))
        if typed:
            _put_contents(output, arrays[output.name])
        else:
            made.raw_output_contents.append(data if data is not None else _bytes_of(arrays[output.name]))
    return bytes(made.SerializeToString())


def _raw(tensor: Message, raw: bytes | None) -> bytes:
    if "shared_memory_region" in tensor.parameters:
        raise BadRequest("shared memory is not supported; send tensors in the message")
    if raw is not None:
        if tensor.HasField("contents"):
            raise BadRequest(f"input {tensor.name!r} has contents beside raw_input_contents; send one of them")
        return raw
    if tensor.datatype not in CONTENTS:
        raise BadRequest(
            f"input {tensor.name!r}: {tensor.datatype[:80]!r} has no typed contents, send raw_input_contents; "
            f"known: {', '.join(CONTENTS)}"
        )
    field, kind = CONTENTS[tensor.datatype]
    if surplus := [other.name for other, _ in tensor.contents.ListFields() if other.name != field]:
        raise BadRequest(f"input {tensor.name!r}: {tensor.datatype} goes into {field}, not {surplus[0]}")
    values = getattr(tensor.contents, field)
    found = np.fromiter(values, dtype=kind, count=len(values))
    if kind == "O":
        return pack_bytes(found)
    cast = found.astype(oip.DTYPES[tensor.datatype])
    if cast.itemsize < found.itemsize and not np.array_equal(cast, found):
        raise BadRequest(f"input {tensor.name!r}: a value does not fit {tensor.datatype}")
    return cast.tobytes()


def _entry(tensor: Message, data: bytes) -> dict[str, object]:
    if len(tensor.shape) > MAX_DIMENSIONS:
        raise BadRequest(f"input {tensor.name!r}: shape must be at most {MAX_DIMENSIONS} whole numbers")
    return {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
        "parameters": {**_parameters(tensor), "binary_data_size": len(data)},
    }


def _parameters(of: Message) -> dict[str, object]:
    found = of.parameters
    if not found:
        return {}
    if len(found) > MAX_PARAMETERS:
        raise BadRequest(f"more than {MAX_PARAMETERS} parameters")
    return {name: getattr(one, one.WhichOneof("choice") or "string_param") for name, one in found.items()}


def _put_parameters(of: Message, parameters: object) -> None:
    """Those that a parameter can hold, without what tells binary tensors apart."""
    if not isinstance(parameters, dict):
        return
    for name, value in parameters.items():
        if name == "binary_data_size" or not isinstance(value, _PLAIN):
            continue
        one = of.parameters[name]
        if isinstance(value, bool):
            one.bool_param = value
        elif isinstance(value, str):
            one.string_param = value
        elif isinstance(value, int) and -(2**63) <= value < 2**63:
            one.int64_param = value
        else:
            one.double_param = value


def _put_contents(output: Message, array: NDArray[Any]) -> None:
    values = array.reshape(-1).tolist()
    if output.datatype == "BYTES":
        values = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    getattr(output.contents, CONTENTS[output.datatype][0]).extend(values)


def _bytes_of(array: NDArray[Any]) -> bytes:
    return pack_bytes(array) if array.dtype.kind in "OSU" else np.ascontiguousarray(array).tobytes()


def _cut(tail: memoryview, sizes: list[Any]) -> Iterator[bytes | None]:
    """The binary tensors behind the JSON; None for one that is in it."""
    at = 0
    for size in sizes:
        if size is None:
            yield None
            continue
        if not 0 <= size <= len(tail) - at:
            raise ValueError(f"binary_data_size {size} exceeds what is there")
        yield bytes(tail[at : at + size])
        at += size


def _check_parts(data: bytes) -> None:
    """Check a ModelInferRequest, not parsed, for what would take many times its size. Errors: BadRequest."""
    parts = described = typed = 0
    for number, start, stop in _fields(data, 0, len(data)):
        parts += 1
        described += stop - start if number != _RAW else 0
        for inner, begin, end in _fields(data, start, stop) if number in _OF_MESSAGES else ():
            parts += 1
            if (number, inner) == (_INPUTS, _CONTENTS):
                typed, described = typed + end - begin, described - (end - begin)
            if parts > MAX_PARTS:
                break
        if parts > MAX_PARTS:
            raise BadRequest(f"the message has more than {MAX_PARTS} fields", 413)
    if typed > TYPED_BYTES:
        raise BadRequest(f"typed contents take at most {TYPED_BYTES} bytes; send raw_input_contents", 413)
    if described > DESCRIBED_BYTES:
        raise BadRequest(f"names, shapes and parameters take at most {DESCRIBED_BYTES} bytes", 413)


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field between two places. Errors: DecodeError, IndexError."""
    while at < end:
        key, at = _varint(data, at)
        start = at
        if key & 7 == _VARINT:
            _, at = _varint(data, at)
        elif key & 7 == _BYTES:
            size, start = _varint(data, at)
            at = start + size
        elif key & 7 in _FIXED:
            at += _FIXED[key & 7]
        else:
            raise DecodeError("groups are not supported")
        if at > end:
            raise DecodeError("a field is cut off")
        yield key >> 3, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in base 128, and the place behind it."""
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise DecodeError("a number is too long")

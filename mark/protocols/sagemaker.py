"""SageMaker's runtime: its paths, its bodies, and its errors.

`{"instances": [...]}` is the JSON that its built-in containers take, one element an item; an Open Inference body
is taken too, and text/csv with one row an item. Both are only for models with one input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols import oip
from mark.protocols.oip_replies import compose_infer_reply

CSV_TYPE = "text/csv"
LONGEST_ERROR_BYTES = 16 * 1024
_ERRORS = {
    400: "ValidationError",
    404: "ValidationError",
    424: "ModelError",
    503: "ServiceUnavailable",
}


def parse_invocation(request: InferRequest, specs: Sequence[TensorSpec]) -> oip.InferCall:
    """Understand an invocation's body. specs: the model's inputs. Errors: oip.BadRequest."""
    kind = request.content_type.partition(";")[0].strip().lower()
    if kind == CSV_TYPE:
        return oip.InferCall(inputs=_alone(_from_csv(request.body), specs))
    if kind not in ("", oip.JSON_TYPE, oip.BINARY_TYPE):
        raise oip.BadRequest(f"content type {kind!r} is not understood; application/json and text/csv are", 415)
    if request.header_length:
        return oip.parse_infer(request.body, request.header_length)
    try:
        document = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise oip.BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or "instances" not in document:
        return oip.parse_infer(request.body)
    return oip.InferCall(inputs=_alone(_from_instances(document["instances"]), specs))


def compose_predictions(
    outputs: oip.Tensors, *, asked: InferRequest, call: oip.InferCall, model: str
) -> InferReply:
    """Answer in the way that was asked: CSV, `{"predictions": [...]}`, or an Open Inference body."""
    kind = asked.content_type.partition(";")[0].strip().lower()
    if kind == CSV_TYPE:
        return InferReply(status=200, content_type=CSV_TYPE, body=_to_csv(next(iter(outputs.values()))))
    if asked.header_length or b'"instances"' not in asked.body:
        return compose_infer_reply(model, outputs, call)
    if len(outputs) == 1:
        predictions: object = _listed(next(iter(outputs.values())))
    else:
        rows = zip(*(_listed(array) for array in outputs.values()), strict=True)
        predictions = [dict(zip(outputs, row, strict=True)) for row in rows]
    return InferReply(
        status=200, content_type=oip.JSON_TYPE, body=json.dumps({"predictions": predictions}).encode()
    )


def error_name(status: int) -> str:
    """SageMaker's name for an error with this status, which boto3 reads as the error's code."""
    return _ERRORS.get(status, "ValidationError" if status < 500 else "InternalFailure")


def error_body(text: str) -> bytes:
    """SageMaker's error document."""
    return json.dumps({"message": text, "Message": text}).encode()


def with_message(body: bytes) -> bytes:
    """A model's error document, told where boto3 looks for it too; what is none of ours stays as it is."""
    if len(body) > LONGEST_ERROR_BYTES:
        return body
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return body
    text = document.get("error") if isinstance(document, dict) else None
    if not isinstance(text, str) or "message" in document or "Message" in document:
        return body
    return json.dumps({**document, "message": text, "Message": text}).encode()


def _from_instances(instances: object) -> NDArray[Any]:
    if not isinstance(instances, list) or not instances:
        raise oip.BadRequest("instances must be a list with at least one item")
    try:
        array = np.array(instances)
    except (ValueError, OverflowError) as error:
        raise oip.BadRequest(f"instances are ragged or out of range: {error}") from error
    if array.dtype.kind not in "biufU":
        raise oip.BadRequest("instances must hold numbers, truth values or texts")
    return array


def _from_csv(body: bytes) -> NDArray[Any]:
    try:
        rows = [[float(cell) for cell in line.split(",")] for line in body.decode().splitlines() if line.strip()]
        array = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise oip.BadRequest(f"the body is no table of numbers: {error}") from error
    if array.size == 0:
        raise oip.BadRequest("the body holds no row")
    return array


def _alone(array: NDArray[Any], specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """The one input that the model takes, made of these items."""
    if len(specs) != 1:
        raise oip.BadRequest(f"the model takes {len(specs)} inputs: send an Open Inference body")
    spec = specs[0]
    dtype = oip.DTYPES[spec.datatype]
    if dtype.kind == "O":
        texts = np.empty(array.shape, dtype=object)
        texts.reshape(-1)[:] = [str(value).encode() for value in array.reshape(-1).tolist()]
        array = texts
    elif array.dtype.kind == "U" or not _keeps_values(array, dtype):
        raise oip.BadRequest(f"the items do not hold values of {spec.datatype}")
    array = array.astype(dtype)
    sizes = tuple(-1 if size == -1 else size for size in spec.shape[1:])
    if array.shape[1:] != spec.shape[1:] and sizes.count(-1) == 0:
        count = array.shape[0]
        if array.size != count * int(np.prod(sizes, dtype=np.int64)):
            raise oip.BadRequest(f"an item has shape {list(array.shape[1:])}, the model takes {list(sizes)}")
        array = array.reshape((count, *sizes))
    return {spec.name: array}


def _keeps_values(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether the values survive: whole floats (as CSV gives them) may become integers within their range."""
    if dtype.kind == "f":
        return array.dtype.kind in "iuf"
    if dtype.kind == "b":
        return array.dtype.kind == "b"
    if array.dtype.kind == "b" or not bool(np.all(np.isfinite(array))):
        return False
    limits = np.iinfo(dtype)
    whole = bool(np.all(array == np.floor(array)))
    return whole and limits.min <= array.min() and array.max() <= limits.max


def _listed(array: NDArray[Any]) -> list[Any]:
    if array.dtype.kind != "O":
        return list(array.tolist())
    texts = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in array.reshape(-1)]
    made = np.empty(array.shape, dtype=object)
    made.reshape(-1)[:] = texts
    return list(made.tolist())


def _to_csv(array: NDArray[Any]) -> bytes:
    rows = array.reshape(array.shape[0], -1) if array.ndim else array.reshape(1, 1)
    return "\n".join(",".join(str(value) for value in row) for row in rows.tolist()).encode()

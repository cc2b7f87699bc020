"""SageMaker's runtime: its paths, its bodies, and its errors.

`{"instances": [...]}` is the JSON that its built-in containers take, one element an item: the value of the model's
only input, or an object with each input's value (TensorFlow Serving's row format). An Open Inference body is taken
too, text/csv with one row an item, and application/jsonlines with one line an item. The Accept header
chooses how the answer is written, else the way of the request does (`sagemaker_media`).
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols.json_values import MAX_EXACT, check_texts, floats, integers, listed, texts_of, truths, unnest
from mark.protocols.oip import bodies as oip
from mark.protocols.oip.replies import MODEL_VERSION, compose_infer_reply
from mark.protocols.sagemaker_media import (
    CSV_TYPE,
    JSON_LINES_TYPE,
    JSON_LINES_TYPES,
    answer_type,
    by_input,
    is_open_inference,
    read_lines,
)

LONGEST_ERROR_BYTES = 16 * 1024
MAX_CELLS = 2**22
"""Cells of CSV that are taken in one request: they are read in about a second, while others wait."""
SLICE_BYTES = 256 * 1024
"""CSV is read in slices of so many bytes: read on a thread, it holds up others no longer than one slice takes."""
_ERRORS = {
    400: "ValidationError",
    403: "AccessDeniedException",
    404: "ValidationError",
    424: "ModelError",
    429: "ThrottlingException",  # which boto3 repeats, later each time
    503: "ServiceUnavailable",
}


def parse_invocation(request: InferRequest, specs: Sequence[TensorSpec]) -> oip.InferCall:
    """Understand an invocation's body. specs: the model's inputs. Errors: oip.BadRequest."""
    answer_type(request)
    kind = request.content_type.partition(";")[0].strip().lower()
    if kind == CSV_TYPE:
        return oip.InferCall({_only(specs).name: _from_csv(request.body, _only(specs))})
    if kind in JSON_LINES_TYPES:
        return oip.InferCall(_from_items(read_lines(request.body), specs))
    if kind not in ("", oip.JSON_TYPE, oip.BINARY_TYPE):
        raise oip.BadRequest(
            f"content type {kind!r} is not supported; use application/json, application/jsonlines or text/csv", 415
        )
    if request.header_length:
        return oip.parse_infer(request.body, request.header_length)
    document = oip.load_json(request.body)
    if isinstance(document, list):
        return oip.InferCall(_from_items(document, specs))
    if isinstance(document, dict) and "instances" in document:
        return oip.InferCall(_from_items(document["instances"], specs))
    with oip.overflowing():
        return oip.call_of(document)


def compose_predictions(
    outputs: oip.Tensors,
    *,
    asked: InferRequest,
    call: oip.InferCall,
    model: str,
    version: str = MODEL_VERSION,
) -> InferReply:
    """Answer in the way that was asked: CSV, JSON lines, `{"predictions": [...]}`, or an Open Inference body."""
    kind, outputs = answer_type(asked), oip.asked_outputs(outputs, call)
    if kind == CSV_TYPE:
        return InferReply(status=200, content_type=CSV_TYPE, body=_to_csv(list(outputs.values())))
    if kind != JSON_LINES_TYPE and is_open_inference(asked):
        return compose_infer_reply(model, outputs, call, version)
    if len(outputs) == 1:
        predictions = _listed(next(iter(outputs.values())))
    else:
        rows = zip(*(_listed(array) for array in outputs.values()), strict=True)
        predictions = [dict(zip(outputs, row, strict=True)) for row in rows]
    if kind == JSON_LINES_TYPE:
        return InferReply(200, JSON_LINES_TYPE, b"".join(json.dumps(row).encode() + b"\n" for row in predictions))
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


def _only(specs: Sequence[TensorSpec]) -> TensorSpec:
    """The one input that the model takes. Errors: BadRequest where it takes several."""
    if len(specs) != 1:
        raise oip.BadRequest(
            f"the model takes {len(specs)} inputs: send instances that are objects, one value a name"
        )
    return specs[0]


def _from_items(items: object, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """The inputs, of items that are each the value of the only input, or an object with each input's value."""
    if not isinstance(items, list) or not items:
        raise oip.BadRequest("instances must be a list with at least one item")
    if not any(isinstance(item, dict) for item in items):
        return {_only(specs).name: _from_values(items, _only(specs))}
    columns = by_input(items, [spec.name for spec in specs])
    return {spec.name: _from_values(columns[spec.name], spec) for spec in specs}


def _from_values(items: list[Any], spec: TensorSpec) -> NDArray[Any]:
    try:
        values, shape = unnest(items)
    except ValueError as error:
        raise oip.BadRequest(f"instances are ragged: {error}") from None
    try:
        return _shaped(_items(values, oip.DTYPES[spec.datatype]).reshape(shape), spec)
    except ValueError:
        raise oip.BadRequest(f"the items are not values of {spec.datatype}") from None


def _items(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements for an input of that type, shape (elements,). Errors: ValueError, BadRequest."""
    if dtype.kind == "O":
        return _as_texts(values)
    if not values:
        return np.empty(0)
    if dtype.kind == "b":
        return truths(values, dtype)
    if dtype.kind == "f":
        return floats(values, dtype)
    try:
        return integers(values, dtype)
    except OverflowError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        return floats(values, np.dtype(np.float64))  # whole ones may become integers


def _as_texts(values: list[Any]) -> NDArray[Any]:
    """Elements of type bytes: what each text, number or truth value reads. Errors: BadRequest."""
    if set(map(type, values)) - {str, int, float, bool}:
        raise oip.BadRequest("instances must hold numbers, booleans or strings")
    return texts_of([str(value) for value in values])


def _from_csv(body: bytes, spec: TensorSpec) -> NDArray[Any]:
    """The rows, read slice by slice so that a first row that does not fit ends it."""
    if body.count(b",") + body.count(b"\n") > MAX_CELLS:
        raise oip.BadRequest(f"the body holds more than {MAX_CELLS} cells; send binary data", 413)
    body = body.removeprefix(codecs.BOM_UTF8)
    if spec.datatype == "BYTES":
        return _shaped(_text_table(body, spec), spec)
    if b"\r" in body:
        body = body.replace(b"\r", b"\n")
    dtype = oip.DTYPES[spec.datatype]
    tables: list[NDArray[Any]] = []
    rows = 0
    try:
        for part in _slices(body, b"\n"):
            table = _table(part, dtype)
            rows += len(table)
            if table.size:
                _check_rows(rows, table.shape[1], spec)
                tables.append(table)
        if not tables:
            raise oip.BadRequest("the body has no rows")
        array = tables[0] if len(tables) == 1 else np.concatenate(tables)
    except ValueError as error:
        raise oip.BadRequest(f"the body is not a table of numbers: {error}") from None
    tables.clear()
    return _shaped(array, spec)


def _text_table(body: bytes, spec: TensorSpec) -> NDArray[Any]:
    """Texts, of which those with commas, quotes or line ends are quoted (RFC 4180). Errors: BadRequest.

    Shape (rows, cells of one row).
    """
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(body.decode(), newline=""), strict=True):  # others run between two rows
            if row:
                rows.append(row)
                if len(row) != len(rows[0]):
                    raise oip.BadRequest("the body's rows have different lengths; quote texts that hold commas")
                _check_rows(len(rows), len(row), spec)
    except (csv.Error, UnicodeDecodeError) as error:
        raise oip.BadRequest(f"the body is not CSV: {error}") from None
    if not rows:
        raise oip.BadRequest("the body has no rows")
    return texts_of([text for row in rows for text in row]).reshape(len(rows), -1)


def _slices(data: bytes, separator: bytes) -> Iterator[bytes]:
    """The data cut at separators into pieces of SLICE_BYTES or less, or longer where there is no separator."""
    start = 0
    while start <= len(data):
        cut = len(data)
        if cut - start > SLICE_BYTES:
            cut = data.rfind(separator, start, start + SLICE_BYTES)
            if cut < 0:
                cut = data.find(separator, start)
            cut = len(data) if cut < 0 else cut
        yield data[start:cut]
        start = cut + 1


def _table(part: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Shape (rows, cells of one row). dtype: the input's. Errors: ValueError."""
    if len(part) > SLICE_BYTES:  # one long row
        return np.concatenate([_cells(piece.decode(), dtype) for piece in _slices(part, b",")]).reshape(1, -1)
    lines = [line for line in part.decode().splitlines() if line.strip()]
    if not lines:
        return np.empty((0, 0))
    if len({line.count(",") for line in lines}) > 1:
        raise ValueError("its rows have different lengths")
    return _cells(",".join(lines), dtype).reshape(len(lines), -1)


def _cells(text: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers, whole ones exactly where the input's type is whole; an empty cell is NaN. Errors: ValueError."""
    if "_" in text:
        raise ValueError("numbers have no underscores")
    cells = text.split(",")
    if dtype.kind in "iu":
        with suppress(ValueError, OverflowError):
            return np.fromiter(map(int, cells), np.uint64 if dtype.kind == "u" else np.int64)
    with suppress(ValueError):
        return np.fromiter(map(float, cells), np.float64)
    return np.fromiter((float(cell) if cell.strip() else math.nan for cell in cells), np.float64)


def _check_rows(rows: int, cells: int, spec: TensorSpec) -> None:
    """Refuse early what `_shaped` or the check of inputs would refuse in the end. Errors: BadRequest."""
    most, *item = spec.shape
    if -1 not in item and math.prod(item) != cells:
        raise _misshaped((cells,), item)
    if most not in (-1, 0) and rows > most:
        raise oip.BadRequest(f"the body holds more than {most} rows, the model takes {most}")
    if spec.datatype == "BYTES":
        check_texts(rows * cells)


def _misshaped(found: Sequence[int], wanted: Sequence[int]) -> oip.BadRequest:
    return oip.BadRequest(f"an item has shape {list(found)}, the model takes {list(wanted)}")


def _shaped(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """An input of the model, made of these items."""
    dtype = oip.DTYPES[spec.datatype]
    if dtype.kind != "O" and not _keeps_values(array, dtype):
        raise oip.BadRequest(f"the items are not values of {spec.datatype}")
    array = array.astype(dtype, copy=False)
    sizes = spec.shape[1:]
    if array.shape[1:] != sizes and -1 not in sizes:
        if array.size != array.shape[0] * math.prod(sizes):
            raise _misshaped(array.shape[1:], sizes)
        array = array.reshape((array.shape[0], *sizes))
    return array


def _keeps_values(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """True where no value changes: floats that are whole and exact may become integers within their range."""
    if dtype.kind == "f":
        return array.dtype.kind in "iuf"
    if dtype.kind == "b":
        return array.dtype.kind == "b"
    if array.dtype.kind not in "iuf" or not bool(np.all(np.isfinite(array))):
        return False
    if array.size == 0:
        return True
    if array.dtype.kind == "f" and not bool(np.all((array == np.floor(array)) & (np.abs(array) <= MAX_EXACT))):
        return False
    limits = np.iinfo(dtype)
    return bool(limits.min <= int(array.min()) and int(array.max()) <= limits.max)


def _listed(array: NDArray[Any]) -> list[Any]:
    if array.dtype.kind != "O":
        return list(listed(array))
    texts = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in array.reshape(-1)]
    made = np.empty(array.shape, dtype=object)
    made.reshape(-1)[:] = texts
    return list(made.tolist())


def _to_csv(outputs: Sequence[NDArray[Any]]) -> bytes:
    """A row an item: the cells of all outputs, one after another."""
    columns = [array.reshape(array.shape[0], -1) if array.ndim else array.reshape(1, 1) for array in outputs]
    rows = [chain.from_iterable(parts) for parts in zip(*map(_cells_of, columns), strict=True)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().removesuffix("\n").encode()


def _cells_of(rows: NDArray[Any]) -> list[list[object]]:
    if rows.dtype.kind not in "OSU":
        return list(listed(rows))
    return [[oip.text_of(value) for value in row] for row in rows.tolist()]

"""An example of a model's input whose types nobody has declared: JSON, or a file of JSON or numpy arrays."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.protocols.oip.bodies import DTYPES, BadRequest, Tensors, datatype_of

SHOULD = 'its first axis is the batch, such as [[1.5, 2.0]] or ["a text"]'


def read_example(text: str, file: Path | None, names: Sequence[str]) -> Tensors:
    """Arrays by input, of the text unless a file is named. Errors: Misconfigured."""
    where = "--data" if file is None else str(file)
    values = _values(text, file, where)
    if not isinstance(values, dict):
        if len(names) != 1:
            raise Misconfigured(f"{where}: there are {len(names)} inputs: give an object of {', '.join(names)}")
        values = {names[0]: values}
    if sorted(values) != sorted(names):
        raise Misconfigured(f"{where}: its inputs are {', '.join(sorted(values))}, not {', '.join(sorted(names))}")
    arrays = {name: _array(name, values[name], where) for name in names}
    if len({len(array) for array in arrays.values()}) != 1:
        raise Misconfigured(f"{where}: all inputs need as many items; {SHOULD}")
    return arrays


def specs_of(tensors: Tensors, what: str) -> tuple[TensorSpec, ...]:
    """Specs by what the arrays hold; the first axis is the batch. Errors: Misconfigured where one is no tensor."""
    found = []
    for name, array in tensors.items():
        elements = array.reshape(-1).tolist() if array.dtype.kind == "O" else []
        wrong = [type(one).__name__ for one in elements if not isinstance(one, str | bytes)]
        try:
            datatype = datatype_of(array)
        except BadRequest as error:
            raise Misconfigured(f"{what} {name!r}: {error}") from error
        if wrong:
            raise Misconfigured(f"{what} {name!r} is a {wrong[0]}, not numbers or texts")
        found.append(TensorSpec(name=name, datatype=datatype, shape=(-1, *array.shape[1:])))
    return tuple(found)


def specs_text(specs: Sequence[TensorSpec]) -> str:
    """Inputs or outputs for people: `x FP64 [-1, 4]`."""
    return ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in specs)


def _values(text: str, file: Path | None, where: str) -> Any:
    try:
        body = text.encode() if file is None else file.read_bytes()
        if file is None or file.suffix.lower() not in {".npy", ".npz"}:
            return json.loads(body)
        loaded = np.load(io.BytesIO(body), allow_pickle=False)
    except OSError as error:
        raise Misconfigured(f"cannot read {where}: {error.strerror}") from error
    except (ValueError, EOFError, RecursionError) as error:
        raise Misconfigured(f"{where} is neither JSON nor a .npy or .npz file: {error}") from error
    return {name: loaded[name] for name in loaded.files} if hasattr(loaded, "files") else loaded


def _array(name: str, value: object, where: str) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise Misconfigured(f"{where}: values of {name} make no array: {error}") from error
    is_text = array.dtype.kind in "SU"
    if not array.ndim or not len(array) or array.dtype.kind not in "biufSU" or (is_text and array.ndim > 1):
        raise Misconfigured(f"{where}: {name} is not a batch of numbers or texts; {SHOULD}")
    if is_text:
        return np.array([one.encode() if isinstance(one, str) else one for one in array.tolist()], dtype=object)
    return array


def in_type(array: NDArray[Any], datatype: str) -> NDArray[Any]:
    """The array in that type."""
    return array if datatype == "BYTES" else array.astype(DTYPES[datatype])


def first_item(tensors: Tensors) -> Tensors:
    """The first item of a batch."""
    return {name: array[:1] for name, array in tensors.items()}

"""Values in JSON's lists, checked before an array is made of them.

numpy makes whatever fits all elements: one long text among a million empty ones becomes an array with room for the
long one a million times. So numbers are taken as numbers alone: `struct` and `sum` refuse everything else, in C,
and `struct` is four times faster than numpy at it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import BadRequest

MAX_DIMENSIONS = 32
LARGE_BYTES = 2**20
"""Lists in smaller bodies are not counted: they cannot take much memory."""
MAX_LISTS = 2**20
"""An empty list takes 64 bytes of memory and three of a body: so many take 64 MiB."""
MAX_TEXTS = 2**20
"""Elements of type BYTES that are taken as text in one request."""
NOT_FINITE: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Floats that JSON has no numbers for, by the texts that stand for them, as in protobuf's JSON mapping."""
MAX_EXACT = 2**53 - 1
"""Largest float that stands for one whole number: beyond it others are rounded to the same."""
NO_NUMBERS, TOO_LARGE = "values other than numbers", "numbers that are too large"
FEW = 32
"""Up to so many values numpy is faster than `struct`."""


def has_too_many_lists(text: bytes) -> bool:
    """True for JSON with more than MAX_LISTS lists and objects: parsed, it would be many times larger."""
    return len(text) > LARGE_BYTES and text.count(b"[") + text.count(b"{") > MAX_LISTS


def unnest(data: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """The elements of nested lists as one flat list, and the lists' shape.

    Errors: ValueError where the lists are ragged, or nested deeper than MAX_DIMENSIONS.
    """
    if data and type(data[0]) is not list:
        return data, (len(data),)
    level, shape = data, [len(data)]
    while level and type(level[0]) is list:
        width = len(level[0])
        if set(map(type, level)) != {list} or set(map(len, level)) != {width}:
            raise ValueError("lists of one level must have the same length")
        shape.append(width)
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"lists are nested deeper than {MAX_DIMENSIONS}")
        level = level[0] if len(level) == 1 else list(chain.from_iterable(level))
    return level, tuple(shape)


def from_json(data: object, dtype: np.dtype[Any], shape: tuple[int, ...], *, datatype: str) -> NDArray[Any]:
    """An array of that shape from flat or nested lists, whose elements are looked at before it is made.

    Values are never bent into the type: 1.5 is no INT32, 300 no INT8. datatype: the type's name, for errors.
    Errors: BadRequest.
    """
    if not isinstance(data, list):
        raise BadRequest("data must be a list")
    values = data
    if data and type(data[0]) is list:
        try:
            values, _ = unnest(data)
        except ValueError as error:
            raise BadRequest(f"data is ragged: {error}") from None
    if len(values) != math.prod(shape):
        raise missized(len(values), shape)
    if not values:
        return np.empty(shape, dtype=dtype)
    try:
        return _FROM_JSON[dtype.kind](values, dtype).reshape(shape)
    except ValueError as error:
        raise BadRequest(f"data does not hold values of its datatype, {datatype}: {error}") from None
    except OverflowError as error:
        raise BadRequest(str(error)) from None


def texts_of(values: list[Any], _: object = None) -> NDArray[Any]:
    """Texts as an array of objects of type bytes. Errors: BadRequest, ValueError where one is no text."""
    check_texts(len(values))
    return texts(values)


def check_texts(number: int) -> None:
    """Refuse more texts than memory is spent on: each takes some 100 bytes. Errors: BadRequest."""
    if number > MAX_TEXTS:
        raise BadRequest(f"the body holds {number} texts, more than {MAX_TEXTS}; send binary data", 413)


def missized(size: int, shape: tuple[int, ...]) -> BadRequest:
    """The error of a tensor that does not hold what its shape asks for."""
    return BadRequest(f"it has {size} elements, its shape {list(shape)} asks for {math.prod(shape)}")


def name_of(value: float) -> str:
    """The text that stands for a float that is not finite."""
    return next((name for name, one in NOT_FINITE.items() if one == value), "NaN")


def listed(array: NDArray[Any]) -> Any:
    """Numbers in lists of the array's shape, as JSON takes them: those that are not finite by their names."""
    odd = ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros((), np.bool_)
    if not odd.any():
        return array.tolist()
    found = array.astype(object)
    found[odd] = [name_of(value) for value in array[odd].tolist()]
    return found.tolist()


def floats(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers of a flat list, which is not empty; those that are not finite may come by their names.

    Errors: ValueError where there are others, or too large ones.
    """
    try:
        return _numbers(values, dtype)
    except ValueError:
        named = [NOT_FINITE.get(value, value) if type(value) is str else value for value in values]
        if named == values:
            raise
        return _numbers(named, dtype)


def _numbers(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if type(values[0]) is bool:
        raise ValueError("booleans are not numbers")
    if len(values) > FEW:
        return _packed(values, "d").astype(dtype, copy=False)
    _sum(values)
    try:
        return np.array(values, dtype)
    except OverflowError:
        raise ValueError(TOO_LARGE) from None


def integers(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Whole numbers of a flat list, which is not empty.

    Errors: ValueError where there are others, OverflowError where one does not fit the type.
    """
    if type(values[0]) is bool:
        raise ValueError("booleans are not numbers")
    if len(values) <= FEW:
        if type(_sum(values)) is not int:
            raise ValueError("not whole numbers")
        try:
            return np.array(values, dtype)
        except OverflowError:
            raise OverflowError(f"data does not fit {dtype.name}") from None
    found = _whole(values)
    limits = np.iinfo(dtype)
    if int(found.min()) < limits.min or int(found.max()) > limits.max:
        raise OverflowError(f"data does not fit {dtype.name}")
    return found.astype(dtype, copy=False)


def truths(values: list[Any], _: np.dtype[Any]) -> NDArray[np.bool_]:
    """Truth values of a flat list. Errors: ValueError where there are others."""
    if set(map(type, values)) - {bool}:
        raise ValueError("values other than true and false")
    return np.array(values, dtype=np.bool_)


def texts(values: list[Any]) -> NDArray[Any]:
    """Texts of a flat list as an array of objects of type bytes. Errors: ValueError where one is no text."""
    if set(map(type, values)) - {str}:
        raise ValueError("values other than strings")
    found = np.empty(len(values), dtype=object)
    try:
        found[:] = [text.encode() for text in values]
    except UnicodeEncodeError as error:
        raise ValueError(f"not valid Unicode: {error.reason}") from None
    return found


def _sum(values: list[Any]) -> object:
    """Errors: ValueError where other values are among them."""
    try:
        return sum(values)
    except TypeError:
        raise ValueError(NO_NUMBERS) from None
    except OverflowError:
        raise ValueError(TOO_LARGE) from None


def _whole(values: list[Any]) -> NDArray[Any]:
    try:
        return _packed(values, "q")
    except ValueError:
        return _packed(values, "Q")


def _packed(values: list[Any], kind: str) -> NDArray[Any]:
    """Numbers as an array of that kind of `struct`, eight bytes each, that may be written to."""
    packed = bytearray(8 * len(values))
    try:
        struct.pack_into(f"{len(values)}{kind}", packed, 0, *values)
    except OverflowError:
        raise ValueError(TOO_LARGE) from None
    except struct.error:
        raise ValueError(NO_NUMBERS if kind == "d" else "values other than whole numbers of 64 bits") from None
    return np.frombuffer(packed, dtype=kind)


_FROM_JSON: Mapping[str, Callable[[list[Any], np.dtype[Any]], NDArray[Any]]] = {
    "b": truths, "i": integers, "u": integers, "f": floats, "O": texts_of
}  # fmt: skip
"""Readers by the kind of the array: integers may fill floats, not the other way round."""

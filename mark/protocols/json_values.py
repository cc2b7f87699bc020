"""Values in JSON's lists, checked before an array is made of them.

numpy makes whatever fits all elements: one long text among a million empty ones becomes an array with room for the
long one a million times. So numbers are taken as numbers alone: `struct` and `sum` refuse everything else, in C,
and `struct` is four times faster than numpy at it.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_DIMENSIONS = 32
LARGE_BYTES = 2**20
"""Lists in smaller bodies are not counted: they cannot take much memory."""
MAX_LISTS = 2**20
"""An empty list takes 64 bytes of memory and three of a body: so many take 64 MiB."""
FEW = 32
"""So many values numpy reads sooner than `struct` does."""


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


def floats(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers of a flat list, which is not empty. Errors: ValueError where there are others, or too large ones."""
    if type(values[0]) is bool:
        raise ValueError("truth values are no numbers")
    if len(values) > FEW:
        return _packed(values, "d").astype(dtype, copy=False)
    _sum(values)
    try:
        return np.array(values, dtype)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def integers(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Whole numbers of a flat list, which is not empty.

    Errors: ValueError where there are others, OverflowError where one does not fit the type.
    """
    if type(values[0]) is bool:
        raise ValueError("truth values are no numbers")
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
        raise ValueError("other values than true and false")
    return np.array(values, dtype=np.bool_)


def texts(values: list[Any]) -> NDArray[Any]:
    """Texts of a flat list as an array of objects of type bytes. Errors: ValueError where one is no text."""
    if set(map(type, values)) - {str}:
        raise ValueError("other values than texts")
    found = np.empty(len(values), dtype=object)
    try:
        found[:] = [text.encode() for text in values]
    except UnicodeEncodeError as error:
        raise ValueError(f"half a character: {error.reason}") from None
    return found


def _sum(values: list[Any]) -> object:
    """Errors: ValueError where other values are among them."""
    try:
        return sum(values)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None


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
    except (struct.error, OverflowError) as error:
        raise ValueError(str(error)) from None
    return np.frombuffer(packed, dtype=kind)

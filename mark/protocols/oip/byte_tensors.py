"""BYTES tensors in binary: each element follows its length (4 bytes, little endian)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LENGTH = struct.Struct("<I")


def pack_bytes(array: NDArray[Any]) -> bytes:
    """array: elements are bytes or str, any shape."""
    parts: list[bytes] = []
    for value in array.reshape(-1).tolist():
        data = value if isinstance(value, bytes) else str(value).encode(errors="replace")
        parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def unpack_bytes(data: bytes) -> NDArray[Any]:
    """One element of type bytes for each length found; shape (elements,). Errors: ValueError."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise ValueError("a length is cut off")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size > len(data):
            raise ValueError(f"an element of {size} bytes is cut off")
        found.append(data[at : at + size])
        at += size
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return array

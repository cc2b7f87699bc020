"""Pydantic's adapters, each made at its first use: a process needs few of them, and each takes milliseconds."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter

Value = TypeVar("Value")
_made: dict[Any, TypeAdapter[Any]] = {}


def adapter_of(kind: type[Value]) -> TypeAdapter[Value]:
    """The adapter that reads and writes values of a type, such as a dataclass or `tuple[Instance, ...]`."""
    if kind not in _made:
        _made[kind] = TypeAdapter(kind)
    return _made[kind]

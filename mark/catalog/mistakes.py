"""All mistakes of a catalogue file in one line, in the file's own words; pure.

    mine.json: the model doubler lacks latency_ms, memory_gib; the model doubler: cpu should be true or false, ...

Entries are named as the file names them (a model by its name, a profile by its model and type), by their place
where they have no name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from mark.domain.errors import unknown

MOST = 8
"""Mistakes that are named at most; a file with more is another kind of file."""
_MESSAGES = {
    "dict_type": "should be an object of keys and values",
    "model_type": "should be an object of keys and values",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "too_short": "should not be empty",
    "string_too_short": "should not be empty",
    "string_type": "should be text",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "finite_number": "should be a finite number",
}
"""Errors that pydantic words for programmers."""


def mistakes_line(errors: Sequence[ErrorDetails], raw: object, schema: type[BaseModel]) -> str:
    """Every mistake, in the order of the file, those of an entry together.

    raw: the document as JSON gave it. schema: the file's; the keys of its entries are what a wrong key is held to.
    """
    lacking: dict[str, list[str]] = {}
    other: list[str] = []
    for error in errors:
        owner, keys, entry = _place(error["loc"], raw, schema)
        if error["type"] == "missing" and len(keys) == 1:
            lacking.setdefault(owner, []).append(keys[0])
        else:
            other.append(_mistake(error, owner, keys, entry))
    mistakes = [f"{owner} lacks {', '.join(keys)}" for owner, keys in lacking.items()] + list(dict.fromkeys(other))
    more = f"; and {len(mistakes) - MOST} more" if len(mistakes) > MOST else ""
    return "; ".join(mistakes[:MOST]) + more


def _mistake(error: ErrorDetails, owner: str, keys: Sequence[str], entry: type[BaseModel]) -> str:
    kind = error["type"]
    where = ".".join(keys)
    of = "" if owner == "the file" else f"{owner}: "
    if kind == "missing":
        return f"{of}{where} is missing"
    if kind == "extra_forbidden":
        return f"{of}{unknown('key', keys[-1], entry.model_fields)}"
    if kind == "value_error":  # words of ours
        return f"{of}{error['msg'].removeprefix('Value error, ')}"
    mistake = _MESSAGES.get(kind) or error["msg"].replace("Input should", "should")
    shown = repr(error["input"])
    return f"{of}{where or 'the whole'} {mistake}, not {shown if len(shown) < 60 else shown[:57] + '...'}"


def _place(
    loc: Sequence[int | str], raw: object, schema: type[BaseModel]
) -> tuple[str, list[str], type[BaseModel]]:
    """The entry that a mistake is in, the keys below it, and the entry's schema."""
    if len(loc) >= 2 and isinstance(loc[1], int) and isinstance(raw, Mapping):
        rows = raw.get(str(loc[0]))
        row = rows[loc[1]] if isinstance(rows, list) and loc[1] < len(rows) else None
        inner = _entry_schema(schema, str(loc[0]))
        return _owner(str(loc[0]), loc[1], row), [str(part) for part in _keys(loc[2:])], inner
    return "the file", [str(part) for part in _keys(loc)], schema


def _keys(loc: Iterable[int | str]) -> list[int | str]:
    """Without pydantic's mark of a mapping's key."""
    return [part for part in loc if part != "[key]"]


def _owner(rows: str, number: int, row: object) -> str:
    """An entry as people call it: `the model doubler`, `the profile of doubler on c5.large`."""
    kind = rows.removesuffix("s")
    entry: Mapping[str, Any] = row if isinstance(row, Mapping) else {}
    on = entry.get("instance_type")
    name = entry.get("name") or entry.get("model")
    if isinstance(name, str) and isinstance(on, str):
        return f"the {kind} of {name} on {on}"
    if isinstance(name, str) or isinstance(on, str):
        return f"the {kind} {name if isinstance(name, str) else on}"
    return f"{kind} number {number + 1}"


def _entry_schema(schema: type[BaseModel], key: str) -> type[BaseModel]:
    field = schema.model_fields.get(key)
    inner = getattr(field.annotation, "__args__", ()) if field else ()
    return next((kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)), schema)

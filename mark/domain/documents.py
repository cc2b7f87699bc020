"""JSON documents: the one way by which a document becomes text, for store, files, pages and the command line.

Figures come from numpy in many places, and a numpy number is no Python number: `json` refuses an `int64` and takes
a `float64`, so what is right in one run fails in the next. Here each number of numpy's becomes Python's, and
whatever else JSON does not know is refused with its place in the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class NotPlain(TypeError):
    """A document holds a value that JSON has no form for; the message names its place and its type."""


def json_text(
    document: object,
    *,
    indent: int | None = None,
    compact: bool = False,
    sort_keys: bool = False,
    allow_nan: bool = False,
) -> str:
    """The document as JSON. `compact` leaves no blanks between values.

    NotPlain where it holds what JSON has no form for, ValueError where a number is infinite or not a number and
    `allow_nan` is not set: no other program reads those.
    """
    separators = (",", ":") if compact else None

    def written(value: object) -> str:
        return json.dumps(value, indent=indent, separators=separators, sort_keys=sort_keys, allow_nan=allow_nan)

    try:
        return written(document)
    except TypeError:
        return written(plain(document))


def plain(value: object, place: str = "the document") -> Any:
    """The value with Python's numbers in place of numpy's. NotPlain, naming the `place`, for what JSON lacks."""
    if isinstance(value, Mapping):
        return {_plain_key(key, place): plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{place}[{number}]") for number, item in enumerate(value)]
    found = plain_number(value)
    if found is None or isinstance(found, (str, int, float)):
        return found
    raise NotPlain(f"{place} is a {type(value).__name__}, which JSON has no form for; convert it where it is made")


def plain_number(value: Any) -> Any:
    """A scalar of numpy's as the Python number that it is; anything else as it came."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _plain_key(key: object, place: str) -> Any:
    found = plain_number(key)
    if found is None or isinstance(found, (str, int, float)):
        return found
    raise NotPlain(f"{place} has a {type(key).__name__} as a key; JSON's keys are text")

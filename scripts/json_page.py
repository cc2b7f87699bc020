"""Tables of docs/json.md that follow from the types of documents: `make docs` writes them anew.

A block of the page begins with `<!-- fields of MODULE:NAME -->` and ends with `<!-- end -->`. Between them is a
row for each key of that type, keys within by their path. A key's words are its `#:` lines.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic.fields import FieldInfo

BLOCK = re.compile(r"(<!-- fields of ([\w.]+):(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIELD = re.compile(r"^    (\w+): ")
CLASS = re.compile(r"^class \w+\((.+)\):$", re.MULTILINE)
NAMES = {float: "number", int: "integer", str: "text", bool: "true or false", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a document by its path: `models[].name`."""

    path: str
    kind: str
    words: str


def with_tables(page: str) -> str:
    """The page with the table of each block made anew."""

    def made(block: re.Match[str]) -> str:
        kind = getattr(import_module(block[2]), block[3])
        rows = [f"| `{key.path}` | {key.kind} | {key.words} |" for key in keys(kind)]
        return block[1] + "\n".join(["", "| key | type | |", "|---|---|---|", *rows, "", block[4]])

    return BLOCK.sub(made, page)


def keys(kind: Any, prefix: str = "") -> Iterator[Key]:
    """Keys of a TypedDict or dataclass, each followed by those within it."""
    words = _words(kind)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        bare, alias = _bare(hint)
        path = prefix + (alias or name)
        yield Key(path, _kind(bare), words.get(name, "").replace("|", "\\|"))
        for inner, steps in _inner(bare):
            yield from keys(inner, f"{path}{steps}.")


def _bare(hint: Any) -> tuple[Any, str | None]:
    """The type without what is said of the key itself, and the key's other name."""
    if get_origin(hint) is NotRequired:
        return _bare(get_args(hint)[0])
    if get_origin(hint) is Annotated:
        said = (item.alias for item in get_args(hint)[1:] if isinstance(item, FieldInfo))
        return get_args(hint)[0], next(said, None)
    return hint, None


def _inner(hint: Any) -> Iterator[tuple[Any, str]]:
    """Documents within a type, and the steps to them: `[]` into a list, `.*` into any key."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint) or is_typeddict(hint):
        yield hint, ""
    elif origin in (list, tuple):
        yield from ((inner, f"[]{steps}") for inner, steps in _inner(arguments[0]))
    elif _is_mapping(origin):
        yield from ((inner, f".*{steps}") for inner, steps in _inner(arguments[1]))
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _inner(argument)


def _kind(hint: Any) -> str:
    """A type in the words of the page."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        words = " or ".join(dict.fromkeys(map(_kind, arguments)))
    elif origin is Literal:
        words = " or ".join(f"`{value}`" for value in arguments)
    elif origin in (list, tuple):
        words = f"list of {_kind(arguments[0])}"
    elif _is_mapping(origin):
        words = f"{_kind(arguments[1])} by key"
    elif is_dataclass(hint) or is_typeddict(hint):
        words = "object"
    elif isinstance(hint, type) and issubclass(hint, Enum):
        words = " or ".join(f"`{member.value}`" for member in hint)
    else:
        words = NAMES.get(hint, "any")
    return words


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _words(kind: Any) -> dict[str, str]:
    """The `#:` lines of each field, those of its bases included; what is None in Python is null in JSON."""
    found: dict[str, str] = {}
    source = inspect.getsource(kind)
    head = CLASS.search(source)
    for base in head[1].split(", ") if head else ():  # a TypedDict does not know its bases
        inherited = getattr(import_module(kind.__module__), base)
        if is_typeddict(inherited) or is_dataclass(inherited):
            found |= _words(inherited)
    told: list[str] = []
    for line in source.splitlines():
        if line.startswith("    #: "):
            told.append(line[7:].strip())
        elif field := FIELD.match(line):
            found[field[1]] = re.sub(r"\bNone\b", "null", " ".join(told))
            told = []
    return found

"""docs/python-reference.md, from signatures and docstrings of what `import mark` offers: `make docs` writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import mark.api

INTRO = """# Python reference

For you if you use [MArk from Python](python.md): everything that `import mark` offers. It stays as it is within a
minor version. `Load` is a path, a DataFrame, a Series or a `Trace`; `Frame` is a DataFrame or a Series. `Report`
is called with what is being done and the share of it that is done, in [0, 1]. A notebook shows a `Drawing`; its
`html` is text.
"""
EXAMPLE = re.compile(r"^>>> (?:.*\n?)(?:.+\n?)*", re.MULTILINE)
ARGUMENTS = re.compile(r"(?:^|(?<=\. ))(\w+(?:, \w+)*): ")
"""Names of arguments in a paragraph that begins with one."""
WIDEST = 100


class _AsWritten(str):
    """An annotation that is printed as its source has it."""

    __slots__ = ()
    __repr__ = str.__str__


def python_page() -> str:
    """The page."""
    names = sorted(mark.api.__all__, key=str.lower)
    return "\n".join(
        [INTRO, *(part for name in names for part in _described(f"mark.{name}", getattr(mark.api, name)))]
    )


def _described(name: str, what: Any) -> Iterator[str]:
    if inspect.isclass(what):
        yield from (f"## {name}", "", *_words(what))
        for inner, member in _members(what):
            is_read = isinstance(member, property)
            call = inspect.unwrap(member.fget if is_read else getattr(what, inner))
            yield from (f"### {name}.{inner}", "")
            yield from _signature(inner, call, is_read=is_read)
            yield from _words(call)
    else:
        yield from (f"## {name}", "", *_signature(name, what, is_read=False), *_words(what))


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with a docstring, those of our own bases first."""
    for base in reversed([one for one in kind.__mro__ if one.__module__.startswith("mark.")]):
        for name, member in vars(base).items():
            ours = isinstance(member, FunctionType | classmethod | property)
            if ours and not name.startswith("_") and (base is kind or name not in vars(kind)):
                yield name, member


def _signature(name: str, call: Any, *, is_read: bool) -> Iterator[str]:
    """The call as one writes it, without `self`."""
    found = inspect.signature(call)
    gives = _AsWritten(found.return_annotation)
    if is_read:
        yield from ("```python", f"{name}: {gives}", "```", "")
        return
    words = []
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(str(one.replace(annotation=_AsWritten(one.annotation))))
    line = f"{name}({', '.join(words)}) -> {gives}"
    whole = "".join(f"    {word},\n" for word in words)
    yield from ("```python", line if len(line) <= WIDEST else f"{name}(\n{whole}) -> {gives}", "```", "")


def _words(what: Any) -> Iterator[str]:
    """The docstring: its examples as blocks of code, its arguments as a list."""
    text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", inspect.getdoc(what) or "")
    for part in re.sub(r"\s+Raises\s+", "\n\nRaises ", text.rstrip()).split("\n\n"):
        _, *told = ARGUMENTS.split(" ".join(part.split())) if ARGUMENTS.match(part) else [part]
        pairs = zip(told[::2], told[1::2], strict=True)
        yield "\n".join(f"- `{names}`: {words.strip()}" for names, words in pairs) or part
        yield ""

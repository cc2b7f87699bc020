"""The Jinja environment of all pages and mails, and markup that is known to be safe."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_WORD = Markup('<span style="white-space:nowrap">{}</span>')
_CODE = Markup('<code style="font:13px ui-monospace,Menlo,Consolas,monospace">{}</code>')


def make_environment(**filters: Callable[..., object]) -> Environment:
    """Templates of `mark.report` with these filters: everything is escaped, a name that is missing is an error."""
    environment = Environment(
        loader=PackageLoader("mark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(commands=_commands, **filters)
    return environment


def trusted(markup: str) -> Markup:
    """Markup of our own, whose texts were escaped when it was written."""
    return Markup(markup)  # noqa: S704


def _commands(sentence: str) -> Markup:
    """Turn text between backticks into code that is never broken, not even before two hyphens."""
    parts = sentence.split("`")
    for place in range(1, len(parts) - 1, 2):
        parts[place] = _CODE.format(Markup(" ").join(_WORD.format(word) for word in parts[place].split()))
    return Markup("").join(parts)

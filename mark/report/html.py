"""The Jinja environment of all pages and mails, and markup that is known to be safe."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def make_environment(**filters: Callable[..., object]) -> Environment:
    """Templates of `mark.report` with these filters: everything is escaped, a name that is missing is an error."""
    environment = Environment(
        loader=PackageLoader("mark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment


def trusted(markup: str) -> Markup:
    """Markup of our own, whose texts were escaped when it was written."""
    return Markup(markup)  # noqa: S704

"""Pages of a listing: tokens are places in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def page_of(
    items: Sequence[Item], token: str | None, size: int | None, *, most: int
) -> tuple[Sequence[Item], str]:
    """The items of one page, and the token of the next one; empty behind the last."""
    start = int(token or 0)
    end = start + min(most, int(size or most))
    return items[start:end], str(end) if end < len(items) else ""

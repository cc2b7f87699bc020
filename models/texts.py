"""BYTES tensors as Python strings."""

from __future__ import annotations

from collections.abc import Iterable


def strings(texts: Iterable[bytes | str]) -> list[str]:
    """Whatever holds the texts, as str; bytes that are no UTF-8 become question marks in boxes."""
    return [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in texts]

"""The error of an invalid request."""

from __future__ import annotations

from mark.domain.errors import MarkError

MAX_TEXT = 500
"""Longest error text in characters; part of it may be copied from the request."""


class BadRequest(MarkError):
    """The client's request is wrong; repeating it as it is will not help. `status` is HTTP's."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}...")
        self.status = status

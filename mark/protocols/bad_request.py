"""The error of a request that is wrong in itself."""

from __future__ import annotations

from mark.domain.errors import MarkError

LONGEST_SAID = 500
"""What is wrong with a request is said in so many characters; part of it may be the request's own words."""


class BadRequest(MarkError):
    """The client's request is wrong; repeating it as it is will not help. `status` is HTTP's."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text if len(text) <= LONGEST_SAID else f"{text[:LONGEST_SAID]}...")
        self.status = status

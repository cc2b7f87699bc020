"""Refusals of the emulated AWS, in AWS's words."""

from __future__ import annotations


class ApiError(Exception):
    """An error that the caller sees, with AWS's code and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def not_emulated(what: str) -> ApiError:
    """What this emulation does not do is said, never skipped."""
    return ApiError("NotEmulated", f"the emulated AWS does not do {what}", 501)

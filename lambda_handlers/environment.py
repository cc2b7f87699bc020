"""Environment variables of the functions: read here and nowhere else in this room."""

from __future__ import annotations

import os

from mark.domain.errors import Misconfigured


def required_variable(name: str) -> str:
    """A variable that must be set. Errors: Misconfigured."""
    value = os.environ.get(name, "")
    if not value:
        raise Misconfigured(f"the function's environment lacks {name}: set it where the function is deployed")
    return value


def variable_or(name: str, default: str) -> str:
    """A variable that need not be set."""
    return os.environ.get(name) or default

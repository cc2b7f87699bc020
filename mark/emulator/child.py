"""First steps of every child process: end with its parent, and find its code by name."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
from typing import Any

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end now if it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def load(module: str, attribute: str) -> Any:
    """The attribute, dots included, of the module."""
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found

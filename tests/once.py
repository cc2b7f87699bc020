"""Values that take seconds to make and never change: made once a run, not once a worker."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def once_a_run(factory: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """Result of `make`; the first worker that asks makes it, the others wait for it and read it.

    name: unique in the run, a file's name. `make`'s result must be one that `pickle` takes.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # workers have folders of their own
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process that holds it
        made = shared / f"{name}.pickle"
        if not made.exists():
            partly = made.with_suffix(".part")
            partly.write_bytes(pickle.dumps(make()))
            partly.rename(made)
        found: T = pickle.loads(made.read_bytes())  # noqa: S301 - written above
        return found

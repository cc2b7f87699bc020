"""Threads that a model's framework computes with, and the processors they have."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""What the usual libraries read when they are loaded."""


def processors() -> int:
    """The processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def pin(numbers: Sequence[int]) -> None:
    """Run on these processors alone, with all threads that begin later, if the kernel allows it."""
    with suppress(OSError):
        os.sched_setaffinity(0, numbers)


def thread_variables(threads: int) -> dict[str, str]:
    """The environment in which libraries that are loaded later take so many threads.

    Several do not spin while they wait for each other: the agent, or another replica, has work for the processor.
    """
    return dict.fromkeys(VARIABLES, str(threads)) | ({"OMP_WAIT_POLICY": "PASSIVE"} if threads > 1 else {})


def limit_loaded(threads: int) -> None:
    """The same for those that are loaded: torch, where it holds for this thread, and what threadpoolctl knows."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    if find_spec("threadpoolctl") is not None:
        import_module("threadpoolctl").threadpool_limits(threads)

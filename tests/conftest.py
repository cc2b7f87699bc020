"""Shared by all tests: the compiled engine, made once and kept on disk between runs, and the rule on names."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from mark.simulator.engine.compiled import Kernel, compiled_kernel
from tests.same_ids import pytest_pycollect_makeitem

__all__ = ["kernel", "pytest_pycollect_makeitem"]

pytest_plugins = ["tests.command_line"]

# A busy machine is no failure. `make test` draws the same examples each time, `make test-all` new ones.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("new", deadline=None)
settings.load_profile("same")


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The engine as machine code, compiled in some 10 s on first use."""
    return compiled_kernel(Path(tempfile.gettempdir()) / "mark-test-engine")

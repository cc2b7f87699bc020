"""What all tests share: the compiled engine, made once and kept on disk between runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from mark.simulator.compiled import Kernel, compiled_kernel


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The engine as machine code, compiled in some 10 s on first use."""
    return compiled_kernel(Path(tempfile.gettempdir()) / "mark-test-engine")

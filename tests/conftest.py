"""Shared by all tests: the compiled engine, made once and kept on disk between runs, and the rule on names."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Threads of numpy that wait for a core that another worker has spin: a training took eight times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import botocore.session
import pytest
from hypothesis import settings

from mark.simulator.engine.compiled import (
    CentralKernel,
    DeviceKernel,
    Kernel,
    compiled_central_kernel,
    compiled_device_kernel,
    compiled_kernel,
)
from mark.store import connect
from mark.store.embedded import EmbeddedRedis
from tests.coroutines import pytest_pyfunc_call
from tests.same_ids import pytest_pycollect_makeitem

__all__ = ["kernel", "pytest_pycollect_makeitem", "pytest_pyfunc_call"]

pytest_plugins = ["tests.command_line"]

# A service has ten processes: without bytecode on disk, each of them compiles all of mark anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test uses one of the 1,300 machine images that moto makes for each of its clouds.
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"

# AWS's own descriptions of its services are read once a process, and not once for each test's clients.
botocore.session.create_loader = cache(botocore.session.create_loader)

# A store on a busy machine answers late.
connect._LIMITS.update(socket_timeout=30.0, socket_connect_timeout=30.0)

# A busy machine is no failure. `make test` draws the same examples each time, `make test-all` new ones.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("new", deadline=None)
settings.load_profile("same")


def pytest_collection_finish() -> None:
    """What was imported stays: garbage is no longer looked for in it."""
    gc.freeze()


ENGINE = Path(tempfile.gettempdir()) / "mark-test-engine"
"""Where machine code and trained weights are kept between runs."""
os.environ.setdefault("MARK_CACHE", str(ENGINE))  # and not in the cache of who runs the tests


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A store of a module's tests."""
    with EmbeddedRedis(tmp_path_factory.mktemp("store")) as server:
        yield server


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real traces and published tables that MARK_DATA names."""
    folder = os.environ.get("MARK_DATA")
    if not folder:
        pytest.skip("MARK_DATA names no folder of real traces and published tables")
    return Path(folder)


@pytest.fixture(scope="session")
def published_dir(data_dir: Path) -> Path:
    """The folder of published tables."""
    return data_dir / "profiles"


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The engine as machine code, compiled in some 10 s on first use."""
    return compiled_kernel(ENGINE)


@pytest.fixture(scope="session")
def device_kernel() -> DeviceKernel:
    """That of shared devices as machine code, compiled likewise."""
    return compiled_device_kernel(ENGINE)


@pytest.fixture(scope="session")
def central_kernel() -> CentralKernel:
    """The central queue's as machine code, compiled likewise."""
    return compiled_central_kernel(ENGINE)

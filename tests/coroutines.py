"""A test that is a coroutine runs in an event loop of its own, which ends when the test has run too long."""

from __future__ import annotations

import asyncio
import inspect

import pytest
import uvloop

from tests.waiting import PATIENCE_S


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run it; None leaves a plain function to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await pyfuncitem.obj(**given)

    uvloop.run(bounded())
    return True

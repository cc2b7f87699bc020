"""Runtimes of emulated functions: none outlives the pools, however they end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from mark.domain.clock import ClockAnchor
from mark.emulator.clock import ServiceClock
from mark.emulator.config import LambdaLimits
from mark.emulator.functions.pool import LambdaPools
from mark.emulator.functions.process import FunctionSpec
from tests.emulator.test_survivors import gone

HANGS = """
import os, time
from pathlib import Path
Path("{told}").write_text(str(os.getpid()))
time.sleep(600)
"""
"""Its import never ends."""
SPEC = FunctionSpec(
    name="hangs", arn="arn:hangs", version="$LATEST", handler="hangs_at_import.handler", code_digest="",
    timeout_s=60.0, memory_mb=128, environment=(),
)  # fmt: skip


def test_a_runtime_that_is_being_started_ends_with_the_pools(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    (tmp_path / "hangs_at_import.py").write_text(HANGS.format(told=told))
    pools = LambdaPools(
        clock=ServiceClock(ClockAnchor(wall_at=0.0, service_at=0.0, speed=1.0)),
        limits=LambdaLimits(cold_start_s=0.0),
        draws=np.random.default_rng(0),
        folder=tmp_path,
        environment=lambda _spec: {},
        python_path=(str(tmp_path),),
    )

    async def scenario() -> None:
        calls = [asyncio.create_task(pools.invoke(SPEC, b"{}", code=lambda: b"", reserved=None)) for _ in range(2)]
        while not (told.exists() and told.read_text()):
            await asyncio.sleep(0.01)
        calls[0].cancel()  # one caller leaves, the other still waits
        with suppress(asyncio.CancelledError):
            await calls[0]
        assert not ended(told)
        await pools.stop()
        await asyncio.wait(calls)

    asyncio.run(scenario())
    assert gone({int(told.read_text())})


def test_what_is_called_in_a_prewarmed_world_was_warm_before(tmp_path: Path) -> None:
    (tmp_path / "answers_at_once.py").write_text("def handler(event, context):\n    return {}\n")
    pools = LambdaPools(
        clock=ServiceClock(ClockAnchor(wall_at=0.0, service_at=0.0, speed=1.0)),
        limits=LambdaLimits(cold_start_s=0.0),
        draws=np.random.default_rng(0),
        folder=tmp_path,
        environment=lambda _spec: {},
        python_path=(str(tmp_path),),
    )
    spec = replace(SPEC, handler="answers_at_once.handler")

    async def call(count: int) -> list[bool]:
        calls = [pools.invoke(spec, b"{}", code=lambda: b"", reserved=None) for _ in range(count)]
        return [one.init_ms is not None for one in await asyncio.gather(*calls)]

    async def scenario() -> None:
        pools.prewarm = True
        assert not any(await call(3))
        pools.prewarm = False
        assert sum(await call(5)) == 2
        assert pools.state()["hangs"]["cold"] == 2
        await pools.stop()

    asyncio.run(scenario())


def ended(told: Path) -> bool:
    return not Path(f"/proc/{told.read_text()}").exists()

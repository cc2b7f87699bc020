"""Lambda's environments: warm ones are used again, the last used first; new ones start cold, and are throttled.

The same rules as the simulator's pool (`mark.simulator.engine.kernel_lambda`): account and reserved concurrency,
so many new environments in a while, idle lives drawn whenever an environment becomes idle.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mark.emulator.clock import ServiceClock
from mark.emulator.config import LambdaLimits
from mark.emulator.errors import ApiError
from mark.emulator.functions.process import FunctionSpec, InitFailed, LambdaProcess, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """An answered invocation; `init_ms` is None where it met a warm environment. Billed: the start and the run."""

    request: str
    outcome: Outcome
    init_ms: float | None

    @property
    def billed_ms(self) -> int:
        """Whole milliseconds, the start included."""
        return math.ceil(self.outcome.duration_ms + (self.init_ms or 0.0))

    def report(self, memory_mb: int) -> str:
        """The log's last lines as Lambda writes them."""
        init = "" if self.init_ms is None else f"Init Duration: {self.init_ms:.2f} ms\t"
        return (
            f"START RequestId: {self.request} Version: $LATEST\nEND RequestId: {self.request}\n"
            f"REPORT RequestId: {self.request}\tDuration: {self.outcome.duration_ms:.2f} ms\t"
            f"Billed Duration: {self.billed_ms} ms\tMemory Size: {memory_mb} MB\t"
            f"Max Memory Used: {self.outcome.peak_mb} MB\t{init}\n"
        )


@dataclass(slots=True)
class _Pool:
    """One function's environments; `idle` holds numbers with the service time at which their idle life is over."""

    idle: deque[tuple[int, float]] = field(default_factory=deque)
    starts: deque[float] = field(default_factory=deque)
    busy: int = 0
    cold: int = 0
    invocations: int = 0
    throttled: int = 0
    process: LambdaProcess | None = None
    starting: asyncio.Task[LambdaProcess] | None = None


class LambdaPools:
    """All functions' environments. While `prewarm`, new ones were warm before: nothing starts cold."""

    def __init__(
        self,
        *,
        clock: ServiceClock,
        limits: LambdaLimits,
        draws: np.random.Generator,
        folder: Path,
        environment: Callable[[FunctionSpec], Mapping[str, str]],
        python_path: tuple[str, ...],
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._draws = draws
        self._folder = folder
        self._environment = environment
        self._python_path = python_path
        self._pools: dict[str, _Pool] = {}
        self._numbers = itertools.count(1)
        self.prewarm = False
        self.metered: Callable[[FunctionSpec, int], None] = lambda *_: None

    async def invoke(
        self, spec: FunctionSpec, payload: bytes, *, code: Callable[[], bytes], reserved: int | None
    ) -> Invocation:
        """Run the function once; ApiError TooManyRequestsException where it throttles."""
        pool = self._pools.setdefault(spec.qualified, _Pool())
        if pool.process is not None and (pool.process.spec != spec or pool.process.ended):
            await self._discard(pool)
        self._admit(pool, reserved)
        warm = self._warm(pool)
        number = next(self._numbers) if warm is None else warm
        is_cold = warm is None and not self.prewarm
        if is_cold:
            self._count_start(pool)
        pool.busy += 1
        pool.invocations += 1
        request = str(uuid.uuid4())
        reusable = False
        try:
            process, init_ms = await self._environment_of(pool, spec, code, is_cold=is_cold)
            outcome = await process.call(request, number, payload)
            reusable = pool.process is process and not outcome.timed_out
            done = Invocation(request=request, outcome=outcome, init_ms=init_ms)
        except InitFailed as error:
            failed = Outcome(payload=error.document, failed=True, duration_ms=0.0)
            done = Invocation(request=request, outcome=failed, init_ms=self._limits.cold_start_s * 1000)
        finally:
            pool.busy -= 1
            if reusable:
                self._make_idle(pool, number)
        self.metered(spec, done.billed_ms)
        return done

    async def stop(self) -> None:
        """End all runtimes."""
        for pool in self._pools.values():
            if pool.starting is not None:
                pool.starting.cancel()
            await self._discard(pool)

    def state(self) -> dict[str, Any]:
        """Counts by function."""
        now = self._clock.now()
        return {
            name: {
                "busy": pool.busy,
                "idle": sum(until > now for _, until in pool.idle),
                "cold": pool.cold,
                "invocations": pool.invocations,
                "throttled": pool.throttled,
                "pid": pool.process.pid if pool.process is not None else 0,
            }
            for name, pool in self._pools.items()
        }

    def _admit(self, pool: _Pool, reserved: int | None) -> None:
        busy = sum(other.busy for other in self._pools.values())
        if busy >= self._limits.concurrency or (reserved is not None and pool.busy >= reserved):
            pool.throttled += 1
            raise ApiError("TooManyRequestsException", "Rate Exceeded.", 429)

    def _warm(self, pool: _Pool) -> int | None:
        """The environment that was used last, if its idle life is not over."""
        now = self._clock.now()
        while pool.idle:
            number, until = pool.idle.pop()
            if until > now:
                return number
            self._drop(pool, number)
        return None

    def _count_start(self, pool: _Pool) -> None:
        now = time.monotonic()
        while pool.starts and now - pool.starts[0] >= self._limits.burst_window_s:
            pool.starts.popleft()
        if len(pool.starts) >= self._limits.burst:
            pool.throttled += 1
            raise ApiError("TooManyRequestsException", "Rate Exceeded.", 429)
        pool.starts.append(now)
        pool.cold += 1

    async def _environment_of(
        self, pool: _Pool, spec: FunctionSpec, code: Callable[[], bytes], *, is_cold: bool
    ) -> tuple[LambdaProcess, float | None]:
        """The function's process, and what a cold start took: an emulated delay, then the real one."""
        began = time.perf_counter()
        if is_cold and self._limits.cold_start_s:
            await asyncio.sleep(self._limits.cold_start_s)
        process = pool.process
        if process is None:
            if pool.starting is None:
                pool.starting = asyncio.create_task(self._start(spec, code()))
            process = await self._started(pool, pool.starting)
        return process, (time.perf_counter() - began) * 1000 if is_cold else None

    async def _started(self, pool: _Pool, starting: asyncio.Task[LambdaProcess]) -> LambdaProcess:
        """The process that is being started, the pool's from then on unless it was discarded meanwhile."""
        try:
            process = await asyncio.shield(starting)  # others may wait for it
            if pool.starting is starting:
                pool.process = process
            return process
        finally:
            if pool.starting is starting and starting.done():
                pool.starting = None

    async def _start(self, spec: FunctionSpec, code: bytes) -> LambdaProcess:
        process = LambdaProcess(
            spec,
            log=self._folder / f"lambda-{spec.qualified}.log",
            environment=self._environment(spec),
            path=self._python_path,
        )
        try:
            await process.start(code)
        except BaseException:  # also where the emulated AWS ends meanwhile
            await process.stop()
            raise
        return process

    def _make_idle(self, pool: _Pool, number: int) -> None:
        now = self._clock.now()
        pool.idle.append(
            (number, now + float(self._draws.uniform(self._limits.idle_min_s, self._limits.idle_max_s)))
        )
        while pool.idle and pool.idle[0][1] <= now:
            self._drop(pool, pool.idle.popleft()[0])

    def _drop(self, pool: _Pool, number: int) -> None:
        if pool.process is not None:
            pool.process.drop(number)

    async def _discard(self, pool: _Pool) -> None:
        """Code or configuration changed, or the process died: all environments start anew."""
        process, pool.process = pool.process, None
        starting, pool.starting = pool.starting, None
        pool.idle.clear()
        if process is not None:
            await process.stop()
        if starting is not None:
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().stop()

"""Replicas of a Python model: each batch is divided among processes that answer their parts at the same time.

To the agent this is one server with one batch at a time, whose time is that of the slowest part; a profile is
measured the same way, so plans and replays need not know how many replicas there are.

A replica is a new process that loads the model for itself, and not a fork of one that has: threads of BLAS, OpenMP
and onnxruntime, and whatever is on a GPU, do not survive a fork. Memory is shared where the model maps its weights
from files. A replica that ends or hangs is started again while the others go on with smaller shares; its requests
get the answer of a failed batch, and nobody else's.

The processes of a model that shares an instance are kept apart (`isolation.py`). Where the last of them ends, the
backend is gone, and its agent makes another after a while (`agent/tenancies.py`): a batch that waited for it would
hold the device.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import orjson

import mark
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Parallelism
from mark.domain.tensor import TensorSpec
from mark.ports import BackendGone, InferReply, InferRequest, PythonModel
from mark.protocols.oip.bodies import error_reply
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.isolation import (
    MEMORY_LOOK_S,
    Isolation,
    Sessions,
    end_first,
    held_gib,
    held_together_gib,
    memory_limit_gib,
    scrubbed,
)
from mark.serving.backends.replica import Part, Setup, packed
from mark.serving.backends.replica_messages import HEAD, MOST_BYTES, Started, read_replies, read_started
from mark.serving.backends.threads import thread_variables
from mark.serving.passed_on_trace import model_call, trace_of

log = logging.getLogger(__name__)
RUN = """import sys
_, _, packages, mark, numpy, orjson, *processors = sys.argv
def bring(name, file):
    spec = spec_from_file_location(name, file)
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
if packages:
    import site
    from importlib.util import find_spec, module_from_spec, spec_from_file_location
    site.addsitedir(packages)
    bring("mark", mark)
from mark.serving.backends.threads import pin
pin([int(number) for number in processors])
if packages:
    for name, file in (("numpy", numpy), ("orjson", orjson)):
        if find_spec(name) is None:
            bring(name, file)
from mark.serving.backends.replica import main
main()"""
"""Threads that libraries begin when they are loaded are pinned too. Not by -m: pickles name the module.

With packages of the model's own nothing else that is installed beside MArk is found (`plugins/packages.py`).
"""
OURS = (mark.__file__, np.__file__, orjson.__file__)
PAUSE_S = 5.0
"""Between two attempts to start a replica."""
_SESSIONS = Sessions()
"""One look counts for all models of this agent."""
Item = TypeVar("Item")


def divided(items: Sequence[Item], parts: int) -> list[Sequence[Item]]:
    """The items in their order in at most so many parts, none empty, whose lengths differ by 1 at most."""
    parts = min(parts, len(items))
    return [items[i * len(items) // parts : (i + 1) * len(items) // parts] for i in range(parts)]


class ReplicatedBackend:
    """Calls `predict` in several processes. `inputs` and `outputs` are the model's own, known once it started."""

    platform = "python"

    def __init__(
        self,
        make_model: Callable[[], PythonModel],
        parallelism: Parallelism,
        *,
        name: str,
        version: str = MODEL_VERSION,
        isolation: Isolation | None = None,
        packages: Path | None = None,
        log_level: int = logging.INFO,
    ) -> None:
        """make_model: can be pickled. parallelism: for the processors that are here.

        isolation: of a model that shares its instance; None where it has it alone. packages: what it imports from
        in place of what is installed here. A replica without a number of
        threads is not pinned, and its libraries take as many as they like.
        """
        self._name = name
        self._isolation = isolation
        self._has_started = False
        here, threads = sorted(os.sched_getaffinity(0)), parallelism.threads
        self._changed = asyncio.Event()
        self._replicas = [
            _Replica(
                Setup(
                    make_model,
                    name,
                    version,
                    threads,
                    _part_of(here, i, threads),
                    log_level,
                    None if isolation is None else isolation.user,
                ),
                self._changed.set,
                isolation,
                packages,
            )
            for i in range(parallelism.replicas)
        ]
        self._has_answered = True
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()

    async def start(self) -> None:
        """Start all replicas at once. Errors: Misconfigured."""
        started = await asyncio.gather(*(replica.start() for replica in self._replicas), return_exceptions=True)
        for found in started:
            if isinstance(found, BaseException):
                raise found
            self.inputs, self.outputs = found.inputs, found.outputs
        self._has_started = True

    @property
    def is_gone(self) -> bool:
        """True once no process of a model that shares its instance is left."""
        is_left = any(replica.is_ready for replica in self._replicas)
        return self._isolation is not None and self._has_started and not is_left

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """Have the replicas that are there answer a part each. RuntimeError where all of them ended meanwhile."""
        return await self._answer(batch, None)

    async def infer_variant(self, batch: Sequence[InferRequest], variant: str) -> Sequence[InferReply]:
        """The same with that variant, to which each replica switches in place."""
        return await self._answer(batch, variant)

    def replace_hung(self) -> bool:
        """End the replicas that have not answered their parts: these get 504, and the batch ends.

        False where no part was answered since the last time: then more is broken than a replica.
        """
        hung = [replica for replica in self._replicas if replica.is_busy]
        if not hung or not self._has_answered:
            return False
        self._has_answered = False
        for replica in hung:
            replica.end_hung()
        return True

    async def close(self) -> None:
        """End all replicas, whatever they do."""
        await asyncio.gather(*(replica.close() for replica in self._replicas))

    async def _answer(self, batch: Sequence[InferRequest], variant: str | None) -> list[InferReply]:
        while not (ready := [replica for replica in self._replicas if replica.is_ready]):
            if self.is_gone:
                raise BackendGone(f"no process of {self._name} is there")
            self._changed.clear()
            await self._changed.wait()
        parts = divided(batch, len(ready))
        answers = await asyncio.gather(
            *(replica.answer(part, variant) for replica, part in zip(ready, parts, strict=False)),
            return_exceptions=True,
        )
        replies: list[InferReply] = []
        for part, found in zip(parts, answers, strict=True):
            if isinstance(found, _Lost):
                replies += [found.reply] * len(part)
            elif isinstance(found, BaseException):
                raise found
            else:
                replies += found
                self._has_answered = True
        if all(type(found) is _Lost for found in answers):
            raise RuntimeError(f"the processes of {self._name} ended while they answered")
        return replies


class _Lost(Exception):
    """The process ended before it answered."""

    reply = error_reply(500, "the model failed")


class _Hung(_Lost):
    """It was ended, for it hung."""

    reply = error_reply(504, "the model did not answer in time")


class _Replica:
    """One place among the replicas: its process, and the next where that ends. `changed`: called at its start."""

    def __init__(
        self, setup: Setup, changed: Callable[[], None], isolation: Isolation | None, packages: Path | None
    ) -> None:
        self._setup, self._changed, self._isolation, self._packages = setup, changed, isolation, packages
        self._ending: asyncio.Task[int] | None = None
        self._scratch = ""
        self._process: Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.is_ready = self.is_busy = self._is_hung = False

    async def start(self) -> Started:
        """Start the process, and from then on keep one running. Errors: Misconfigured."""
        started = await self._launch()
        self._keeping = asyncio.create_task(self._keep())
        return started

    async def answer(self, requests: Sequence[InferRequest], variant: str | None) -> Sequence[InferReply]:
        """Answers in the order of the requests. Errors: _Lost."""
        plain = [request._replace(trace=None) if request.trace else request for request in requests]
        self.is_busy, self._is_hung = True, False
        try:
            with model_call(trace_of(requests)):
                await self._send(Part(plain, variant))
                replies = read_replies(*await self._receive(), len(requests))
        except _UNFIT:
            self.is_ready = False
            self._kill()
            raise _Hung if self._is_hung else _Lost from None
        finally:
            self.is_busy = False
        return replies

    def end_hung(self) -> None:
        """End the process with the part that it works on."""
        self._is_hung = True
        self._kill()

    async def close(self) -> None:
        """End the process and start no other."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._end()
        if self._scratch:
            await asyncio.to_thread(_remove_scratch, self._scratch, self._setup.user)

    async def _keep(self) -> None:
        while True:
            assert self._ending is not None, "start comes first"
            status = await asyncio.shield(self._ending)
            self.is_ready = False
            log.error("a process of %s ended with status %s; another starts", self._setup.name, status)
            if self._isolation is not None:  # neighbours have the processors meanwhile
                await asyncio.sleep(PAUSE_S)
            while not self.is_ready:
                await self._end()
                try:
                    await self._launch()
                except (Misconfigured, OSError) as error:
                    log.error("%s; trying again in %.0f s", error, PAUSE_S)  # noqa: TRY400 - the model's error, not ours
                    await asyncio.sleep(PAUSE_S)
            self._changed()

    async def _ended(self, process: Process) -> int:
        """Wait for the process's end, and bring it about where it holds more memory than it may: its status."""
        if self._isolation is None or self._isolation.memory_gib is None:
            return await process.wait()
        ending = asyncio.ensure_future(process.wait())
        limit_gib = memory_limit_gib(self._isolation.memory_gib)
        try:
            while not (await asyncio.wait({ending}, timeout=MEMORY_LOOK_S))[0]:
                held = _SESSIONS.of(process.pid, time.monotonic())
                if held_gib(held) > limit_gib and (found_gib := held_together_gib(held)) > limit_gib:
                    log.error(
                        "%s holds %.2f GiB of memory and may hold %.2f: its process is ended; raise memory_gib if "
                        "it needs as much",
                        *(self._setup.name, found_gib, limit_gib),
                    )
                    self._kill()
            return ending.result()
        finally:
            ending.cancel()

    async def _launch(self) -> Started:
        setup = self._setup
        environment = {**os.environ, **_variables(setup.threads), "PYTHONPATH": _search_path()}
        if self._packages is not None:
            del environment["PYTHONPATH"]
        if self._isolation is not None:
            self._scratch = self._scratch or _scratch_folder(setup.user)
            environment = scrubbed(environment) | {"TMPDIR": self._scratch}
            if setup.user is not None:
                environment["HOME"] = self._scratch
        ours, theirs = socket.socketpair()
        with theirs:
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", *(() if self._packages is None else ("-S",)), "-c", RUN),
                *(str(theirs.fileno()), str(self._packages or ""), *OURS, *map(str, setup.processors)),
                stdin=DEVNULL,
                stdout=_stdout(),
                env=environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._ending = asyncio.create_task(self._ended(self._process))
        if self._isolation is not None:
            end_first(self._process.pid)
        try:
            await self._send(setup)
            started = read_started(*await self._receive())
        except _UNFIT:
            self._kill()
            status = await self._process.wait()
            raise Misconfigured(
                f"model {setup.name!r} does not start: its process ended with status {status}"
            ) from None
        if started.failure:
            raise Misconfigured(started.failure)
        self.is_ready = True
        return started

    async def _send(self, message: object) -> None:
        self._writer.write(packed(message))
        await self._writer.drain()

    async def _receive(self) -> tuple[bytes, bytes]:
        """JSON and bodies of the next message. Errors: those of _UNFIT."""
        lengths = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        if sum(lengths) > MOST_BYTES:
            raise ValueError(f"a message of {sum(lengths)} bytes")
        text, bodies = [await self._reader.readexactly(length) for length in lengths]
        return text, bodies

    def _kill(self) -> None:
        """End the process, and what it started, if it has not ended."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _end(self) -> None:
        if self._process is not None:
            self._kill()
            await self._process.wait()
            self._writer.close()
        if self._ending is not None:
            await self._ending


_UNFIT = (asyncio.IncompleteReadError, ConnectionError, ValueError)
"""A process that is gone, or sends what is no message: it is ended then."""


def _scratch_folder(user: int | None) -> str:
    """A folder that only this process reads.

    Only root lists the one around it: an agent that was killed leaves it behind, and its next start may give
    another model this user.
    """
    around = tempfile.mkdtemp(prefix="mark-model-")
    folder = tempfile.mkdtemp(dir=around)
    if user is not None:
        os.chmod(around, 0o711)  # noqa: S103 - entered, and not listed
        os.chown(folder, user, user)
    return folder


def _remove_scratch(folder: str, user: int | None) -> None:
    """Remove it as its user: root that may not read whatever it likes finds no way in."""
    if user is not None:
        subprocess.run(  # noqa: S603
            ["rm", "-rf", "--", folder],  # noqa: S607
            user=user,
            group=user,
            extra_groups=(),
            stderr=subprocess.DEVNULL,
            check=False,
        )
        with suppress(OSError):
            os.rmdir(folder)
    shutil.rmtree(os.path.dirname(folder), ignore_errors=True)


def _part_of(processors: Sequence[int], place: int, threads: int | None) -> tuple[int, ...]:
    """The processors of the replica at this place; none where it is not pinned."""
    return () if threads is None else tuple(processors[place * threads : (place + 1) * threads])


def _variables(threads: int | None) -> dict[str, str]:
    return {} if threads is None else thread_variables(threads)


def _stdout() -> int:
    """Where this process prints, a model's replicas print too."""
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError):
        return DEVNULL


def _search_path() -> str:
    return os.pathsep.join(dict.fromkeys(path or os.getcwd() for path in sys.path))

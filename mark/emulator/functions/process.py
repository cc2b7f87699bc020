"""The emulated AWS's side of a function's runtime process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from mark.emulator.functions.runtime import LENGTHS, FunctionCall

INIT_WITHIN_S = 60.0


LATEST = "$LATEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A function as its runtime needs it; another value needs another runtime."""

    name: str
    arn: str
    version: str
    handler: str
    code_digest: str
    timeout_s: float
    memory_mb: int
    environment: tuple[tuple[str, str], ...]

    @property
    def qualified(self) -> str:
        """Its name, with its number where it is a published version: each has environments of its own."""
        return self.name if self.version == LATEST else f"{self.name}:{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of an invocation: the handler's reply or its error. `timed_out`: its environment is lost."""

    payload: bytes
    failed: bool
    duration_ms: float
    peak_mb: int = 0
    timed_out: bool = False


class InitFailed(Exception):
    """The handler could not be imported."""

    def __init__(self, document: bytes) -> None:
        super().__init__(document.decode())
        self.document = document


class LambdaProcess:
    """One function's runtime process."""

    def __init__(
        self, spec: FunctionSpec, *, log: Path, environment: Mapping[str, str], path: tuple[str, ...]
    ) -> None:
        self.spec = spec
        self._log = log
        self._environment = dict(environment)
        self._path = path
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._waiting: dict[str, asyncio.Future[Outcome]] = {}

    @property
    def pid(self) -> int:
        """The process's number, 0 before it is started."""
        return self._process.pid if self._process is not None else 0

    @property
    def ended(self) -> bool:
        """True once it was started and has exited."""
        return self._listening is not None and self._listening.done()

    async def start(self, code: bytes) -> None:
        """Unpack the code and import the handler; InitFailed where that fails.

        The zip comes last on the module path: a stub is enough where the handler is importable without it.
        """
        self._folder = tempfile.TemporaryDirectory(prefix=f"lambda-{self.spec.name}-")
        if code:
            with zipfile.ZipFile(BytesIO(code)) as packed:
                packed.extractall(self._folder.name)
        ours, theirs = socket.socketpair()
        with theirs, self._log.open("ab") as out:
            self._process = subprocess.Popen(  # noqa: S603
                [
                    *(sys.executable, "-P", "-m", "mark.emulator.functions.runtime"),
                    *(str(theirs.fileno()), str(os.getpid()), self.spec.handler, *self._path, self._folder.name),
                ],
                pass_fds=[theirs.fileno()],
                env={**self._environment, "TMPDIR": self._folder.name, **dict(self.spec.environment)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            head, payload = await asyncio.wait_for(_frame(reader), INIT_WITHIN_S)
        except (asyncio.IncompleteReadError, TimeoutError) as error:
            raise InitFailed(b'{"errorType": "Runtime.ExitError", "errorMessage": "init failed"}') from error
        if head["is"] == "failed":
            raise InitFailed(payload)
        self._listening = asyncio.create_task(self._listen(reader))

    async def call(self, request: str, environment: int, payload: bytes) -> Outcome:
        """Run the handler in this environment; a time-out or a dead process is the function's failure."""
        assert self._writer is not None
        spec = self.spec
        call = FunctionCall(
            id=request,
            env=environment,
            name=spec.name,
            arn=spec.arn,
            version=spec.version,
            memory_mb=str(spec.memory_mb),
            deadline_at=time.time() + spec.timeout_s,
        )
        answer = self._waiting[request] = asyncio.get_running_loop().create_future()
        if self.ended:
            answer.set_result(self._exited(request))
        self._write(asdict(call), payload)
        try:
            return await asyncio.wait_for(answer, spec.timeout_s)
        except TimeoutError:
            self.drop(environment)
            message = f"{request} Task timed out after {spec.timeout_s:.2f} seconds"
            document = {"errorType": "Sandbox.Timedout", "errorMessage": message}
            return Outcome(
                payload=json.dumps(document).encode(),
                failed=True,
                duration_ms=spec.timeout_s * 1000,
                timed_out=True,
            )
        finally:
            self._waiting.pop(request, None)

    def drop(self, environment: int) -> None:
        """Forget an environment; a handler that still runs in it ends by itself."""
        self._write({"drop": environment})

    async def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        if self._listening is not None:
            await self._listening
        if self._writer is not None:
            self._writer.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _write(self, head: Mapping[str, Any], payload: bytes = b"") -> None:
        assert self._writer is not None
        if not self._writer.is_closing():
            text = json.dumps(head).encode()
            self._writer.write(LENGTHS.pack(len(text), len(payload)) + text + payload)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head, payload = await _frame(reader)
                waiting = self._waiting.get(head["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(
                        Outcome(
                            payload=payload,
                            failed=head["error"],
                            duration_ms=head["ms"],
                            peak_mb=head["peak_mb"],
                        )
                    )
        except (asyncio.IncompleteReadError, ConnectionResetError):
            for request, waiting in self._waiting.items():
                if not waiting.done():
                    waiting.set_result(self._exited(request))

    def _exited(self, request: str) -> Outcome:
        """The failure of a call whose process has exited, in Lambda's words."""
        assert self._process is not None
        status = self._process.wait()
        how = f"signal: {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        document = {
            "errorType": "Runtime.ExitError",
            "errorMessage": f"RequestId: {request} Error: Runtime exited with error: {how}",
        }
        return Outcome(payload=json.dumps(document).encode(), failed=True, duration_ms=0.0)


async def _frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    head_size, size = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    data = await reader.readexactly(head_size + size)
    return json.loads(data[:head_size]), data[head_size:]

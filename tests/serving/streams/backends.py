"""Streaming backends and a client for tests of streams: every step waits for an event, none for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from mark.domain.errors import RetryLater
from mark.domain.models.objective import Slo
from mark.ports import InferReply, InferRequest, StreamedReply
from mark.service_spec import BackendSpec, ServedModel
from tests.serving.harness import Client, served

STREAM = "/v2/models/echo/generate_stream"
SSE = "text/event-stream"


class Script:
    """One stream: what is put here are its parts; None ends it, an exception breaks it."""

    def __init__(self, request: InferRequest) -> None:
        self.request = request
        self.parts: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.asked = 0
        self.closed = asyncio.Event()

    def __aiter__(self) -> Script:
        return self

    async def __anext__(self) -> bytes:
        self.asked += 1
        part = await self.parts.get()
        if isinstance(part, Exception):
            raise part
        if part is None:
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        self.closed.set()

    def say(self, *parts: bytes | Exception | None) -> None:
        for part in parts:
            self.parts.put_nowait(part)


class ScriptedBackend:
    """Each request is a `Script`, which the test fills. `first`: parts that each begins with."""

    def __init__(self, *first: bytes | None, content_type: str = SSE) -> None:
        self.first, self.content_type, self.status = first, content_type, 200
        self.scripts: list[Script] = []
        self.make = Script
        self.refusal: InferReply | None = None
        self.came: asyncio.Event = asyncio.Event()
        self.free = asyncio.Event()

    async def start(self) -> None:
        """Nothing to load."""

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        raise AssertionError("a model that streams is never asked for a batch")

    async def stream(self, request: InferRequest) -> StreamedReply:
        script = self.make(request)
        self.scripts.append(script)
        self.came.set()
        if self.refusal is not None:
            script.say(self.refusal.body, None)
            return StreamedReply(self.refusal.status, self.refusal.content_type, script)
        script.say(*self.first)
        return StreamedReply(self.status, self.content_type, script)

    async def close(self) -> None:
        """Nothing to end."""

    async def script(self, number: int = 0) -> Script:
        """That stream, as soon as it was asked for."""
        while len(self.scripts) <= number:
            self.came.clear()
            await self.came.wait()
        return self.scripts[number]


class EndlessBackend(ScriptedBackend):
    """Every stream goes on for ever, as fast as it is taken."""

    def __init__(self, part: bytes, *, but: str = "") -> None:
        super().__init__()
        self.part, self._but = part, but

    async def stream(self, request: InferRequest) -> StreamedReply:
        reply = await super().stream(request)
        if self._but and request.path.endswith(self._but):
            return reply
        return StreamedReply(200, "application/octet-stream", _Endless(self.part, self.scripts[-1]))


class _Endless:
    def __init__(self, part: bytes, script: Script) -> None:
        self._part, self._script = part, script

    def __aiter__(self) -> _Endless:
        return self

    async def __anext__(self) -> bytes:
        self._script.asked += 1
        await asyncio.sleep(0)
        return self._part

    async def aclose(self) -> None:
        self._script.closed.set()


def streaming(
    *, slots: int = 8, takes_s: float = 0.5, slo: Slo | None = None, redispatch: bool = True
) -> ServedModel:
    """A model that streams, with so many slots; `takes_s` is what its profile says."""
    model = served(latency_s=30.0, batch_s=(takes_s,) * slots, redispatch=redispatch)
    slo = slo or model.slo
    return replace(
        model, slo=slo, model=replace(model.model, slo=slo), backend=BackendSpec(kind="oip", streams=True)
    )


async def read_head(client: Client) -> tuple[int, dict[str, str]]:
    text = await client.reader.readuntil(b"\r\n\r\n")
    first, *lines = text.decode().split("\r\n")[:-2]
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers


async def read_chunk(client: Client) -> bytes | None:
    """The next chunk; None at the end of the body. Errors: IncompleteReadError where the body is cut off."""
    size = int(await client.reader.readuntil(b"\r\n"), 16)
    body = await client.reader.readexactly(size + 2)
    return body[:-2] if size else None


async def read_body(client: Client) -> tuple[bytes, bool]:
    """What comes until the end, and whether it was whole."""
    found = b""
    try:
        while (chunk := await read_chunk(client)) is not None:
            found += chunk
    except (asyncio.IncompleteReadError, ConnectionResetError, RetryLater):
        return found, False
    return found, True

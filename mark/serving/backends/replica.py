"""A replica: the Python backend in a process of its own, which answers its parts of batches over a socket.

The parent starts it with the socket's number as its argument, on its processors and with its thread counts in
the environment: both count when numpy is loaded, which is before the first line of this module's own code.
Messages are pickles behind their length: both ends are one user's code on one machine.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mark.domain.errors import MarkError
from mark.domain.tensor import TensorSpec
from mark.ports import InferRequest, PythonModel
from mark.serving.backends.python import PythonBackend
from mark.telemetry.structured_logs import PrintedLog, log_json

LENGTH = struct.Struct("!Q")


class Setup(NamedTuple):
    """What a replica is, as its parent tells it first. `make_model` is pickled: a function by its name."""

    make_model: Callable[[], PythonModel]
    name: str
    version: str
    #: None where nobody chose.
    threads: int | None
    #: Which it is pinned to; none for all.
    processors: tuple[int, ...]
    log_level: int


class Started(NamedTuple):
    """The model is loaded; or it is not, with the reason."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    failure: str = ""


class Part(NamedTuple):
    """Requests to answer, by that variant where one is named."""

    requests: Sequence[InferRequest]
    variant: str | None


async def send(writer: asyncio.StreamWriter, message: object) -> None:
    """Write a message whole."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    writer.write(LENGTH.pack(len(body)))
    writer.write(body)
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message. Errors: IncompleteReadError or ConnectionError where the other end is gone."""
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - from the same user's process


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    setup: Setup = await receive(reader)
    where = f" on {','.join(map(str, setup.processors))}" if setup.processors else ""
    logged = log_json(setup.name + where, setup.log_level, model=setup.name)
    sys.stdout, sys.stderr = PrintedLog(sys.stdout, logged), PrintedLog(sys.stderr, logged)
    backend = PythonBackend(setup.make_model, name=setup.name, version=setup.version, threads=setup.threads)
    try:
        await backend.start()
    except MarkError as error:
        await send(writer, Started(failure=str(error)))
        return
    await send(writer, Started(backend.inputs, backend.outputs))
    coming = asyncio.create_task(receive(reader))
    while True:
        part: Part = await coming
        coming = asyncio.create_task(receive(reader))
        answering = asyncio.ensure_future(
            backend.infer(part.requests)
            if part.variant is None
            else backend.infer_variant(part.requests, part.variant)
        )
        await asyncio.wait([answering, coming], return_when=asyncio.FIRST_COMPLETED)
        if coming.done():  # nothing is sent before the answer: the parent has gone
            coming.result()
        await send(writer, await answering)


async def _connected(number: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=number))
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        await _serve(reader, writer)
    os._exit(0)  # without a parent nobody waits for a batch in work


def main() -> None:
    """Serve the parent whose socket's number is the argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the parent ends, and this process with it
    asyncio.run(_connected(int(sys.argv[1])))

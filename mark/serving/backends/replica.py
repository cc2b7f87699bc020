"""A replica: a Python model in a process of its own, which answers its parts of batches over a socket.

The parent starts it with the socket's number as its argument, on its processors and with its thread counts in
the environment: both count when numpy is loaded, which is before the first line of this module's own code.
What the parent sends are pickles behind their length; what it is sent is no more than data
(`replica_messages.py`). One thread reads, so that the process ends with its
parent also while the model computes; where nothing of it runs, as under a lock that a library never releases, the
kernel ends it. There is no event loop here: what a model's process holds beside the model is paid once a model.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple

from mark.domain.errors import MarkError
from mark.plugins.memory import share_one_heap
from mark.ports import InferRequest, PythonModel
from mark.serving.backends.isolation import become
from mark.serving.backends.model_runner import ModelRunner
from mark.serving.backends.replica_messages import Started, pack_replies, pack_started
from mark.telemetry.structured_logs import PrintedLog, log_json

LENGTH = struct.Struct("!Q")
PR_SET_PDEATHSIG = 1


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
    #: The user that it runs as; None for its parent's.
    user: int | None = None


class Part(NamedTuple):
    """Requests to answer, by that variant where one is named."""

    requests: Sequence[InferRequest]
    variant: str | None


def packed(message: object) -> bytes:
    """What the parent sends, behind its length."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def _read_all(stream: BinaryIO, messages: SimpleQueue[Any]) -> None:
    """Read until the parent is gone; then nobody waits for a batch in work."""
    with suppress(OSError):
        while len(head := stream.read(LENGTH.size)) == LENGTH.size:
            (length,) = LENGTH.unpack(head)
            if len(body := stream.read(length)) < length:
                break
            messages.put(pickle.loads(body))  # noqa: S301 - from the parent
            del body
    os._exit(0)


def _serve(connection: socket.socket, messages: SimpleQueue[Any]) -> None:
    setup: Setup = messages.get()
    where = f" on {','.join(map(str, setup.processors))}" if setup.processors else ""
    logged = log_json(setup.name + where, setup.log_level, model=setup.name)
    sys.stdout, sys.stderr = PrintedLog(sys.stdout, logged), PrintedLog(sys.stderr, logged)
    runner = ModelRunner(setup.make_model, name=setup.name, version=setup.version, threads=setup.threads)
    try:
        if setup.user is not None:
            become(setup.user)
        _end_with_parent()
        runner.load()
    except MarkError as error:
        connection.sendall(pack_started(Started(failure=str(error))))
        return
    connection.sendall(pack_started(Started(tuple(runner.inputs), tuple(runner.outputs))))
    while True:
        part: Part = messages.get()
        connection.sendall(pack_replies(runner.answer(part.requests, part.variant)))


def _end_with_parent() -> None:
    """Have the kernel end this process with its parent, where it can; a change of users takes that back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve the parent whose socket's number is the argument."""
    share_one_heap()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the parent ends, and this process with it
    connection, messages = socket.socket(fileno=int(sys.argv[1])), SimpleQueue[Any]()
    stream = connection.makefile("rb")
    threading.Thread(target=_read_all, args=(stream, messages), name="parent", daemon=True).start()
    with suppress(OSError):
        _serve(connection, messages)
    os._exit(0)

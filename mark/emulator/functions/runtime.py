"""A function's runtime: one process, which imports the real handler and runs each environment as a thread.

    python -m mark.emulator.functions.runtime CONTROL_FD PARENT_PID MODULE.HANDLER [PATH ...]

Frames on the control socket, either way: a big-endian pair of lengths, a JSON head, a payload. In: the fields of a
`FunctionCall` with the event, or {"drop": env}. Out: {"is": "ready"} or {"is": "failed"} once, then
{"id", "ms", "error", "peak_mb"} with the reply. Environments share what the handler's module holds.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mark.emulator.child import die_with_parent, load

LENGTHS = struct.Struct(">II")

Handler = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Context:
    """Lambda's context object for Python."""

    function_name: str
    function_version: str
    memory_limit_in_mb: str
    invoked_function_arn: str
    aws_request_id: str
    log_group_name: str
    log_stream_name: str
    deadline_at: float

    def get_remaining_time_in_millis(self) -> int:
        """Until the time-out, at least 0."""
        return max(0, int((self.deadline_at - time.time()) * 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """An invocation: the head of the frame that carries its event."""

    id: str
    #: Number of the environment that runs it.
    env: int
    name: str
    arn: str
    version: str
    memory_mb: str
    #: When it times out, epoch seconds.
    deadline_at: float


Inbox = queue.SimpleQueue[tuple[FunctionCall, bytes] | None]


class Runtime:
    """Hands invocations to environments and their replies back."""

    def __init__(self, control: socket.socket, handler: Handler) -> None:
        self._control = control
        self._handler = handler
        self._writing = threading.Lock()
        self._environments: dict[int, Inbox] = {}

    def serve(self) -> None:
        """Until the other end closes."""
        incoming = self._control.makefile("rb")
        while lengths := incoming.read(LENGTHS.size):
            head_size, size = LENGTHS.unpack(lengths)
            head, payload = json.loads(incoming.read(head_size)), incoming.read(size)
            if "drop" in head:
                if head["drop"] in self._environments:
                    self._environments.pop(head["drop"]).put(None)
            else:
                call = FunctionCall(**head)
                self._inbox(call.env).put((call, payload))

    def send(self, head: Mapping[str, Any], payload: bytes = b"") -> None:
        """Send one frame."""
        text = json.dumps(head).encode()
        with self._writing:
            self._control.sendall(LENGTHS.pack(len(text), len(payload)) + text + payload)

    def _inbox(self, number: int) -> Inbox:
        inbox = self._environments.get(number)
        if inbox is None:
            inbox = self._environments[number] = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(inbox,), daemon=True).start()
        return inbox

    def _run(self, inbox: Inbox) -> None:
        while (work := inbox.get()) is not None:
            call, payload = work
            started = time.perf_counter()
            error, reply = self._invoke(call, payload)
            elapsed_ms = (time.perf_counter() - started) * 1000
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            self.send({"id": call.id, "ms": elapsed_ms, "error": error, "peak_mb": peak_mb}, reply)

    def _invoke(self, call: FunctionCall, payload: bytes) -> tuple[bool, bytes]:
        """Call the handler: true where it failed, and its reply or error as JSON."""
        context = Context(
            function_name=call.name,
            function_version=call.version,
            memory_limit_in_mb=call.memory_mb,
            invoked_function_arn=call.arn,
            aws_request_id=call.id,
            log_group_name=f"/aws/lambda/{call.name}",
            log_stream_name=f"environment/{call.env}",
            deadline_at=call.deadline_at,
        )
        try:
            event = json.loads(payload) if payload else {}
            return False, json.dumps(self._handler(event, context)).encode()
        except Exception as error:  # noqa: BLE001 a handler may raise what it likes: it is the function's error
            traceback.print_exc()
            return True, json.dumps(error_document(error)).encode()


def error_document(error: BaseException) -> dict[str, str | list[str]]:
    """A failure as Lambda's runtime reports it."""
    return {
        "errorMessage": str(error),
        "errorType": type(error).__name__,
        "stackTrace": traceback.format_tb(error.__traceback__),
    }


def main(arguments: list[str]) -> None:
    """Import the handler, then serve."""
    control_fd, parent, handler, *paths = arguments
    die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.extend(paths)
    sys.setswitchinterval(0.001)  # many environments take turns in one process
    with socket.socket(fileno=int(control_fd)) as control:
        module, _, attribute = handler.rpartition(".")
        runtime = Runtime(control, lambda _event, _context: None)
        try:
            runtime = Runtime(control, load(module, attribute))
        except Exception as error:  # noqa: BLE001 an import may raise what it likes: it is the function's error
            runtime.send({"is": "failed"}, json.dumps(error_document(error)).encode())
            return
        runtime.send({"is": "ready"})
        runtime.serve()
    os._exit(0)  # whatever an environment is still doing


if __name__ == "__main__":
    main(sys.argv[1:])

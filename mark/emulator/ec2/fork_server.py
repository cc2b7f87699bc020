"""The fork server: imports the agent once and forks it for each instance, in milliseconds.

    python -m mark.emulator.ec2.fork_server CONTROL_FD PARENT_PID MODULE:FUNCTION [PATH ...]

The control socket carries lines of JSON: a `ProcessOrder` each comes in, a `ProcessReport` each goes out, first
that the server is ready. Nothing survives the parent: the kernel kills this process when its parent is gone, and
its children when it is.
"""

from __future__ import annotations

import gc
import io
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Literal, NotRequired, TypedDict

from mark.emulator.child import die_with_parent, load

Agent = Callable[[Mapping[str, str]], int | None]


class ProcessOrder(TypedDict):
    """What the hypervisor wants of the process of instance `name`."""

    order: Literal["spawn", "signal"]
    name: str
    #: Of a new process.
    environment: NotRequired[dict[str, str]]
    log: NotRequired[str]
    #: The signal's number.
    signal: NotRequired[int]


class ProcessReport(TypedDict):
    """What became of the process of instance `name`, or that the server is ready."""

    event: Literal["ready", "started", "exited"]
    pid: int
    name: NotRequired[str]
    #: Exit status; a negative one is a signal's number.
    code: NotRequired[int]


class ForkServer:
    """Forks, signals and reaps instances' processes."""

    def __init__(self, control: socket.socket, agent: Agent) -> None:
        self._control = control
        self._agent = agent
        self._pids: dict[str, int] = {}
        self._unread = b""
        self._wake, wake = socket.socketpair()
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake_end = wake

    def serve(self) -> None:
        """Do what is asked until the other end closes."""
        self._send({"event": "ready", "pid": os.getpid()})
        while True:
            readable, _, _ = select.select([self._control, self._wake], [], [])
            if self._wake in readable:
                self._wake.recv(4096)
                self._reap()
            if self._control in readable and not self._receive():
                self._end()
                return

    def _receive(self) -> bool:
        data = self._control.recv(65536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._execute(json.loads(line))
        return bool(data)

    def _execute(self, order: ProcessOrder) -> None:
        if order["order"] == "spawn":
            self._spawn(order["name"], order["environment"], order["log"])
        elif order["name"] in self._pids:
            # Not reaped yet, so the number is still this process's. A group may not exist in its first moment.
            pid = self._pids[order["name"]]
            try:
                os.killpg(pid, order["signal"])
            except ProcessLookupError:
                os.kill(pid, order["signal"])

    def _spawn(self, name: str, environment: dict[str, str], log: str) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._become(environment, log, parent)
                code = self._agent(environment) or 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:  # noqa: BLE001 the process ends here, and its log says why
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        self._pids[name] = pid
        self._send({"event": "started", "name": name, "pid": pid})

    def _become(self, environment: dict[str, str], log: str, parent: int) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        die_with_parent(parent)
        for end in (self._control, self._wake, self._wake_end):
            end.close()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.close(out)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # what a model printed before it crashed is in the log
        os.environ.update(environment)

    def _reap(self) -> None:
        for name, pid in list(self._pids.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._pids[name]
                code = os.waitstatus_to_exitcode(status)
                self._send({"event": "exited", "name": name, "pid": pid, "code": code})

    def _end(self) -> None:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)

    def _send(self, line: ProcessReport) -> None:
        try:
            self._control.sendall(json.dumps(line).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            self._end()
            os._exit(0)


def main(arguments: list[str]) -> None:
    """Import the agent, then serve."""
    control_fd, parent, agent, *paths = arguments
    die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.path.extend(paths)
    module, _, attribute = agent.partition(":")
    loaded: Agent = load(module, attribute)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(control_fd)) as control:
        ForkServer(control, loaded).serve()


if __name__ == "__main__":
    main(sys.argv[1:])

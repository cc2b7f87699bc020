"""Instances as processes: forked, watched, restarted, and gone when the emulated AWS is gone."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mark.emulator.ec2.fork_server import ProcessOrder, ProcessReport

LOG = logging.getLogger(__name__)

START_WITHIN_S = 120.0
"""The agent's imports (torch, say) on a busy machine."""


@dataclass(slots=True)
class _Process:
    """State of one instance's process; `going`: it was told to end. `pid` 0 until it is forked.

    `forking`: the fork server was asked for it and has not answered yet.
    """

    environment: Mapping[str, str]
    pid: int = 0
    forking: bool = False
    going: bool = False
    starts: int = 1


class Hypervisor:
    """Runs the agent's function in a process for each instance, through a fork server.

    `powered_off(name)` is called when a process ends by itself with code 0 or ends after `power_off`; a process
    that ends otherwise is started again after `restart_after_s` (real seconds), as systemd would.
    """

    def __init__(
        self,
        *,
        agent: str,
        folder: Path,
        python_path: tuple[str, ...],
        environment: Mapping[str, str],
        kill_after_s: float,
        restart_after_s: float,
        powered_off: Callable[[str], None],
    ) -> None:
        self._agent = agent
        self._folder = folder
        self._python_path = python_path
        self._environment = dict(environment)
        self._kill_after_s = kill_after_s
        self._restart_after_s = restart_after_s
        self._powered_off = powered_off
        self._processes: dict[str, _Process] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._rebuilding: asyncio.Task[None] | None = None
        self._stopping = False
        self.crashes = 0

    async def start(self) -> None:
        """Start the fork server; it has imported the agent when this returns."""
        ours, theirs = socket.socketpair()
        with theirs:
            # On the loop's own thread: the kernel kills the fork server when the thread that made it ends.
            self._server = subprocess.Popen(  # noqa: S603
                [
                    *(sys.executable, "-P", "-m", "mark.emulator.ec2.fork_server"),
                    *(str(theirs.fileno()), str(os.getpid()), self._agent, *self._python_path),
                ],
                pass_fds=[theirs.fileno()],
                env=self._environment,
                stdin=subprocess.DEVNULL,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        line = await asyncio.wait_for(reader.readline(), START_WITHIN_S)
        if not line:
            raise RuntimeError(f"the fork server ended before it was ready: is {self._agent} importable?")
        self._listening = asyncio.create_task(self._listen(reader))

    async def stop(self) -> None:
        """End every process, and the fork server with them."""
        self._stopping = True
        if self._rebuilding is not None:
            await asyncio.gather(self._rebuilding, return_exceptions=True)
        self._processes.clear()
        if self._writer is not None:
            self._writer.close()
        if self._listening is not None:
            await self._listening
        if self._server is not None:
            await asyncio.to_thread(self._server.wait, 10.0)

    def pids(self) -> dict[str, int]:
        """Processes by instance."""
        return {name: process.pid for name, process in self._processes.items() if process.pid}

    def starts(self) -> dict[str, int]:
        """Starts of the process of each instance since its power came on."""
        return {name: process.starts for name, process in self._processes.items()}

    def runs(self, name: str) -> bool:
        """True where the instance has a process, or is about to."""
        return name in self._processes

    def power_on(self, name: str, environment: Mapping[str, str]) -> None:
        """Start the instance's process."""
        self._processes[name] = _Process(environment)
        self._spawn(name)

    def power_off(self, name: str) -> None:
        """Ask the process to end, and end it after a moment if it has not."""
        process = self._processes[name]
        process.going = True
        if process.pid:
            self._signal(name, signal.SIGTERM)
            asyncio.get_running_loop().call_later(self._kill_after_s, self._kill, name, process)
        elif not process.forking:  # between a crash and the restart: nothing to wait for
            asyncio.get_running_loop().call_soon(self._gone, name, process)

    def _kill(self, name: str, process: _Process) -> None:
        if self._processes.get(name) is process:
            self._signal(name, signal.SIGKILL)

    def _spawn(self, name: str) -> None:
        log = str(self._folder / f"{name}.log")
        process = self._processes[name]
        process.forking = True
        environment = dict(process.environment)
        self._send({"order": "spawn", "name": name, "environment": environment, "log": log})

    def _signal(self, name: str, number: signal.Signals) -> None:
        self._send({"order": "signal", "name": name, "signal": int(number)})

    def _send(self, order: ProcessOrder) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(order).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._on_message(json.loads(line))
        if not self._stopping:
            LOG.error("the fork server ended; every instance's process with it")
            self._rebuilding = asyncio.create_task(self._rebuild())

    async def _rebuild(self) -> None:
        """A new fork server: instances that were running crash with the old one and are started again."""
        self.crashes += len(self._processes)
        for process in self._processes.values():
            process.pid = 0
        if self._writer is not None:
            self._writer.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.wait)
        await self.start()
        for name, process in list(self._processes.items()):
            if process.going:
                self._gone(name, process)
            else:
                self._spawn(name)

    def _on_message(self, line: ProcessReport) -> None:
        process = self._processes.get(line["name"])
        if process is None:
            return
        if line["event"] == "started":
            process.pid, process.forking = line["pid"], False
            if process.going:
                self._signal(line["name"], signal.SIGTERM)
                asyncio.get_running_loop().call_later(self._kill_after_s, self._kill, line["name"], process)
        elif process.going or line["code"] == 0:
            self._gone(line["name"], process)
        else:
            self._crashed(line["name"], process, line["code"])

    def _gone(self, name: str, process: _Process) -> None:
        if self._processes.get(name) is process:
            del self._processes[name]
            self._powered_off(name)

    def _crashed(self, name: str, process: _Process, code: int) -> None:
        LOG.warning("instance %s: its process ended with %d and is started again", name, code)
        self.crashes += 1
        process.pid = 0
        asyncio.get_running_loop().call_later(self._restart_after_s, self._restart, name, process)

    def _restart(self, name: str, process: _Process) -> None:
        if self._processes.get(name) is process and not process.going:
            process.starts += 1
            self._spawn(name)

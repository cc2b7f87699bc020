"""`mark down`; it imports little, so that it is quick."""

from __future__ import annotations

import os
import signal
import time

from mark.domain.errors import Misconfigured
from mark.live.local.run_dir import RunFolder, is_alive, not_up
from mark.report.terminal import show

POLL_S = 0.05
DOWN_S = 40.0
"""Longer than the supervisor gives its children."""


def bring_down(service: str) -> None:
    """End the service; Misconfigured where none runs."""
    folder = RunFolder.of(service)
    running = folder.running()
    if running is None:
        _end_start(service, folder.starting())
        return
    end(running.pid)
    left = {name: pid for name, pid in running.processes.items() if is_alive(pid)}
    if left:
        raise Misconfigured(f"still running: {', '.join(f'{name} ({pid})' for name, pid in left.items())}")
    show(f"the service {service} is down; nothing of it runs any more")
    if running.stores:  # its own, which went with it
        show("events of `mark event add` are gone with its store; its clients stay")


def _end_start(service: str, pid: int | None) -> None:
    """End a `mark up` that has started nothing yet. Misconfigured where there is none."""
    if not pid:
        raise not_up(service)
    end(pid)
    show(f"the start of the service {service} (process {pid}) is ended; nothing of it runs")


def end(pid: int) -> None:
    """Ask the supervisor to end the service, and wait until it has."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    until = time.monotonic() + DOWN_S
    while is_alive(pid):
        if time.monotonic() > until:
            raise Misconfigured(f"process {pid} does not end; its log says why")
        time.sleep(POLL_S)

"""`mark status`, once or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live

from mark.domain.errors import MarkError, Misconfigured
from mark.live.local.emulator_client import EmulatedControls
from mark.live.local.run_dir import find_known, is_alive
from mark.live.local.running import Running
from mark.live.local.startup import look_at_start, start_lines
from mark.live.status.view import LiveView
from mark.report.live.service_status import SERVICE, STARTING, StartingStatus, StartStep
from mark.report.live.status_table import status_table
from mark.report.terminal import note, show, show_json
from mark.store.connect import connect
from mark.store.service import ServiceStore

EACH_S = 1.0


@contextmanager
def live_table(running: Running, *, model: str | None = None) -> Iterator[Callable[[], None]]:
    """The state as a table on stderr that calls of what it gives bring up to date; silent where nobody looks."""
    view, console = view_of(running), Console(file=sys.stderr)
    if not console.is_terminal:
        yield lambda: None
        return

    def shown() -> Group:
        return Group(*status_table(view.status(), model=model))

    with Live(shown(), console=console) as live:
        yield lambda: live.update(shown())


def show_status(service: str, *, model: str | None = None, watch: bool, as_json: bool) -> None:
    """Print the service's state; with `watch` each second until Ctrl-C. model: the one that is told in full."""
    running = find_known(service)
    if not running.ready:
        show_start(running, as_json=as_json)
        return
    status = view_of(running).status()
    if model is not None and model not in (names := [one.name for one in status.models]):
        raise Misconfigured(f"the service {running.name} serves no model {model!r}: {', '.join(names)}")
    if watch and not as_json:
        watch_service(running, model=model)
        return
    if as_json:
        show_json(SERVICE.dump(status))
    else:
        show(*status_table(status, model=model))


def show_start(running: Running, *, as_json: bool) -> None:
    """Print how far a service has come that starts."""
    for_s = max(0.0, time.time() - running.began_at)
    lines = start_progress(running)
    if as_json:
        step = StartStep(step=running.step, for_s=for_s, said=tuple(lines))
        show_json(STARTING.dump(StartingStatus(service=running.name, starting=step)))
        return
    show(f"The service {running.name} has been starting for {for_s:.0f} s: {running.step}.", *lines)


def start_progress(running: Running) -> list[str]:
    """A line or two for each model, as far as store and emulated AWS can be asked."""
    if not (running.store and running.aws_endpoint):
        return []
    store = ServiceStore(connect(running.store), running.name)
    try:
        spec = store.spec()
        overflows = {served.name: served.overflow is not None for served in spec.models}
        controls = EmulatedControls.of(running)
        models = look_at_start(store, controls, overflows, store.clock().service_at)
    except MarkError:  # so early that there is nothing to ask yet
        return []
    return [line for model in models for line in start_lines(model)]


def view_of(running: Running) -> LiveView:
    """The view of a running service."""
    return LiveView(ServiceStore(connect(running.store), running.name), running.name)


def watch_service(running: Running, *, model: str | None = None) -> None:
    """Show the state anew each second until Ctrl-C, or until it is down."""
    with live_table(running, model=model) as refresh:
        while is_alive(running.pid):
            time.sleep(EACH_S)
            refresh()
    note(f"the service {running.name} is down")

"""The terminal: documents and tables on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

WIDTH = 100
"""What tables are drawn for where nobody's terminal says how wide it is."""

WIDEST = 200
"""What the widest table is drawn for."""

Report = Callable[[str, float], None]
"""Told what is being done and the share of it that is done, in [0, 1]."""


class _Out(Console):
    """A console that leaves a closed pipe (`mark models | head`) to the command line and does not exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(*parts: RenderableType) -> None:
    """Print on stdout; tables get their full width when it is no terminal."""
    console = _Out(file=sys.stdout)
    if not console.is_terminal:
        console = _Out(file=sys.stdout, width=WIDTH)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), highlight=False)


def show_wide(table: Table) -> None:
    """Print a table that is all figures on stdout: as wide as it needs, because a figure cut short is none."""
    console = _Out(file=sys.stdout)
    needed = Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum
    _Out(file=sys.stdout, width=max(WIDTH, needed)).print(table, highlight=False)


def show_json(document: Mapping[str, Any]) -> None:
    """Print the one document of a `--json` command on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A remark, one line on stderr."""
    sys.stderr.write(f"note: {' '.join(text.split())}\n")
    sys.stderr.flush()


def fail(text: str) -> None:
    """What is wrong, one line on stderr."""
    sys.stderr.write(f"mark: {' '.join(text.split())}\n")
    sys.stderr.flush()


@contextmanager
def progress() -> Iterator[Report]:
    """A progress bar on stderr, one line a task, gone when all is done; silent where stderr is no terminal."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield lambda _label, _share: None
        return
    # rich's progress takes 50 ms to import, and only a terminal needs it
    from rich import progress as bars  # noqa: PLC0415

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
    )
    tasks: dict[str, bars.TaskID] = {}
    with bars.Progress(*columns, console=console, transient=True) as bar:

        def report(label: str, share: float) -> None:
            for other, task in tasks.items():
                if other != label:
                    bar.update(task, visible=False)
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=1.0)
            # a share of 0 has no end in sight yet: the bar pulses
            bar.update(tasks[label], completed=share, total=1.0 if share > 0 else None, visible=True)

        yield report

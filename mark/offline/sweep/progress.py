"""Progress of a sweep on stderr: a bar with the time that is left, or a line a job where it is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from mark.offline.sweep.job import Finished
from mark.report.formatting import MISSING, percent, usd

Seen = Callable[[Finished], None]
SPEED_PERIOD_S = 3600.0
"""The time left is judged by so much of the past: a single replay may take minutes."""


@contextmanager
def sweep_progress(done: int, total: int) -> Iterator[Seen]:
    """A function to tell of every job that ends. `done` of `total` were finished before."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        count = done

        def line(finished: Finished) -> None:
            nonlocal count
            count += 1
            sys.stderr.write(f"[{count}/{total}] {format_finished(finished)}\n")
            sys.stderr.flush()

        yield line
        return
    from rich import progress as bars  # noqa: PLC0415 - takes 50 ms to import, and only a terminal needs it

    columns = (
        bars.MofNCompleteColumn(),
        bars.TextColumn("replays and yardsticks"),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.description}"),
    )
    with bars.Progress(*columns, console=console, transient=True, speed_estimate_period=SPEED_PERIOD_S) as bar:
        task = bar.add_task("", total=total, completed=done)

        def advance(finished: Finished) -> None:
            if finished.failure is not None:
                bar.console.print(Text(format_finished(finished)))
            bar.update(task, advance=1, description=finished.job.label)

        yield advance


def format_finished(finished: Finished) -> str:
    """A job and what came of it, in a line."""
    return f"{finished.job.label}: {_outcome(finished)} ({finished.wall_s:.1f} s)"


def _outcome(finished: Finished) -> str:
    document = finished.document
    if document is None:
        return f"failed: {finished.failure}"
    if finished.job.policy is None:
        known = [(name, document[f"{name}_usd"]) for name in ("reference", "floor")]
        return ", ".join(f"{name} {usd(value)} USD" for name, value in known if value is not None) or MISSING
    attained = document["slo"]["attained"]
    kept = MISSING if attained is None else percent(attained, digits=2)
    return f"{usd(document['cost_usd']['total'])} USD, {kept} in time"

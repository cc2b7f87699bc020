"""The terminal: documents and tables on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.domain.figures import share_words
from mark.report.table_layout import fit_table

WIDTH = 100
"""Columns of output that goes to no terminal."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, by the shells' convention."""

LINE_EACH_S = 20.0
"""Between two lines of progress where stderr is a file or a pipe: a job whose log is watched."""

_document_shown: ContextVar[bool] = ContextVar("document_shown", default=False)

Report = Callable[[str, float], None]
"""Told what is being done and the share of it that is done, in [0, 1]."""


class _Out(Console):
    """A console that leaves a closed pipe (`mark models | head`) to the command line and does not exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(*parts: RenderableType) -> None:
    """Print on stdout, as wide as the terminal; a file or pipe gets $COLUMNS, else WIDTH."""
    console = _Out(file=sys.stdout)
    if console.is_terminal:
        _print_parts(console, parts)
        return
    if "COLUMNS" not in os.environ:
        console = _Out(file=sys.stdout, width=WIDTH)
    with console.capture() as printed:
        _print_parts(console, parts)
    # rich fills its lines with blanks to the full width
    _write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))


def show_prose(*sentences: str) -> None:
    """Print sentences for people, each wrapped at words to the width that `show` has."""
    show(*(Text(sentence) for sentence in sentences))


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # typer exits with 1 on an error whose number says that the pipe is closed
        raise BrokenPipeError from None


def _print_parts(console: Console, parts: Sequence[RenderableType]) -> None:
    for part in parts:
        if isinstance(part, Table):
            _print_table(console, part)
        else:
            console.print(part, soft_wrap=isinstance(part, str), markup=False, emoji=False, highlight=False)


def _print_table(console: Console, table: Table) -> None:
    if table.title:
        console.print(table.title, style="italic", highlight=False)
    for place, part in enumerate(fit_table(console, table)):
        if place:
            console.print()
        console.print(part, highlight=False)
    if table.caption:
        console.print(table.caption, style="dim italic", highlight=False)


def show_json(document: Mapping[str, Any]) -> None:
    """Print the one document of a `--json` command on stdout."""
    _write(json_text(document, indent=2) + "\n")
    _document_shown.set(True)


def show_json_error(text: str, exit_code: int) -> None:
    """Print the document of a `--json` command that failed, unless it printed its own before."""
    if not _document_shown.get():
        show_json({"error": {"message": one_line(text), "exit_code": exit_code}})


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def note(text: str) -> None:
    """Print a remark, one line on stderr."""
    sys.stderr.write(f"note: {one_line(text)}\n")
    sys.stderr.flush()


def agreed(question: str) -> bool:
    """Ask a person for a yes. Misconfigured where nobody answers: a job must not seem to have done it."""
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        sys.stderr.write("\n")
        raise Misconfigured("nobody answered, so nothing was changed; --yes goes on without a question")
    return answer.strip().lower() in ("y", "yes")


def fail(text: str) -> None:
    """Print an error, one line on stderr."""
    sys.stderr.write(f"mark: {one_line(text)}\n")
    sys.stderr.flush()


@contextmanager
def progress() -> Iterator[Report]:
    """A progress bar on stderr, one line a task, gone when all is done; elsewhere a line at times."""
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        with _progress_lines() as report:
            yield report
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


@contextmanager
def _progress_lines() -> Iterator[Report]:
    """Every LINE_EACH_S a line on stderr about what is being done; nothing of what is quick."""
    doing, share = "at work", 0.0
    over = threading.Event()
    began = time.monotonic()

    def report(label: str, done: float) -> None:
        nonlocal doing, share
        doing, share = label, done

    def tell() -> None:
        while not over.wait(LINE_EACH_S):
            part = f", {share_words(share)}" if share > 0 else ""
            note(f"{doing}{part}; {time.monotonic() - began:.0f} s so far")

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield report
    finally:
        over.set()
        teller.join()


@contextmanager
def unheard() -> Iterator[None]:
    """Silence a model, which prints at each of many calls: once was enough."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        yield

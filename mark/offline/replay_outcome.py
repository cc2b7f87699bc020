"""Replays that may end early: what is finished is drawn and printed before the command says what ended them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import typer
from rich.console import RenderableType

from mark.domain.errors import MarkError
from mark.report.terminal import INTERRUPTED, Report, note, progress, show, show_json
from mark.report.verdict import Verdict

Run = TypeVar("Run")


@dataclass(slots=True)
class ReplayOutcome(Generic[Run]):
    """Finished runs, and what ended them early."""

    runs: list[Run] = field(default_factory=list)
    failure: MarkError | None = None
    interrupted: bool = False


def finish_replays(
    outcome: ReplayOutcome[Run],
    policies: int,
    *,
    replay: Callable[[Report], None],
    draw: Callable[[], Path | None],
    tell: Callable[[Path | None], None],
) -> None:
    """Fill the outcome by `replay`, draw its page and tell it.

    draw: the page of what is finished, None without one. Raises the MarkError that ended the runs, and typer.Exit
    after Ctrl-C, both at the end.
    """
    try:
        with progress() as report:
            replay(report)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except MarkError as error:
        outcome.failure = error
    finally:  # a defect, too, leaves what is finished: it is drawn and printed, then the defect is shown
        page = None
        try:
            page = _drawn(outcome, draw)
        finally:
            tell(page)
    if outcome.interrupted:
        note(f"interrupted: {len(outcome.runs)} of {policies} policies finished")
        raise typer.Exit(INTERRUPTED)
    if outcome.failure is not None:
        raise outcome.failure


def _drawn(outcome: ReplayOutcome[Run], draw: Callable[[], Path | None]) -> Path | None:
    if not outcome.runs:
        return None
    try:
        return draw()
    except KeyboardInterrupt:
        outcome.interrupted = True
    except MarkError as error:
        outcome.failure = outcome.failure or error
    return None


def tell_runs(
    outcome: ReplayOutcome[Run],
    page: Path | None,
    *,
    as_json: bool,
    document: Callable[[], Mapping[str, Any]],
    tables: Callable[[], tuple[RenderableType, ...]],
    verdict: Callable[[], Verdict],
) -> None:
    """Print the runs' document, or else their tables, the page and the verdict."""
    if as_json:
        if outcome.runs or outcome.interrupted:
            show_json(document())
        return
    if not outcome.runs:
        return
    show(*tables(), "")
    if page is not None:
        show(f"report: {page}", "")
    found = verdict()
    show(*filter(None, [found.changes_at, found.sentence, found.how]))

"""The command `mark`: its commands, and how their errors reach the user.

Whatever the user can do something about is one line on stderr and exit status 2; Ctrl-C is 130.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from mark import __version__
from mark.app.commands import simulate
from mark.app.terminal import fail, note
from mark.domain.errors import MarkError

WRONG_USE = 2
INTERRUPTED = 130
_CLICK_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Root of typer's usage errors; where it is defined differs between typer's versions."""

app = typer.Typer(
    name="mark",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"mark {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serve machine-learning models within a latency objective at the least cost."""


def _add(group: typer.Typer, command: Callable[..., None], examples: Sequence[str]) -> None:
    """Add a command whose help ends with its examples, each on a line of its own (which is what \\b asks for)."""
    group.command(epilog="\n".join(("\b", "Examples:", *(f"  {line}" for line in examples))))(command)


_add(app, simulate.simulate, simulate.EXAMPLES)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    warnings.showwarning = lambda message, *_args, **_kwargs: note(str(message))
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    try:
        status = app(args=arguments, prog_name="mark", standalone_mode=False)
    except _CLICK_ERROR as error:
        fail(error.format_message())
        return WRONG_USE
    except MarkError as error:
        fail(str(error))
        return WRONG_USE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return status if isinstance(status, int) else 0

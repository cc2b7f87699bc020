"""The command `mark`: its commands, and how their errors reach the user.

An error that the user can do something about is one line on stderr and exit status 2; with --json stdout holds the
error as a document. Ctrl-C is 130.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextvars import copy_context
from functools import partial
from typing import Annotated, Any

import typer

from mark import __version__
from mark.cli.commands import Panels
from mark.domain.errors import MarkError
from mark.extras import missing_extra
from mark.report.terminal import INTERRUPTED, fail, note, show_json_error

WRONG_USE = 2
_CLICK_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Root of typer's usage errors; where it is defined differs between typer's versions."""

START = (
    "Start with `mark demo`. The pages of docs/ explain the rest; README.md lists them. An installation has them "
    "in share/doc/mark-serving/docs."
)
_HELP_FLAGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="mark",
    cls=Panels,
    no_args_is_help=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, **_HELP_FLAGS},
    epilog=START,
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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    warnings.showwarning = lambda message, *_args, **_kwargs: note(str(message))
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    return copy_context().run(_run, arguments)


def _run(arguments: list[str]) -> int:
    failed = partial(_fail, as_json="--json" in arguments)
    try:
        status = app(args=arguments or ["--help"], prog_name="mark", standalone_mode=False)
        sys.stdout.flush()
    except _CLICK_ERROR as error:
        return failed(_usage(error))
    except (MarkError, ModuleNotFoundError) as error:
        return failed(_explained(error, f"mark {' '.join(arguments[:1])}"))
    except BrokenPipeError:
        # whoever read our output has seen enough, as in `mark models | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the interpreter has flushed it
        return 0
    except OSError as error:
        # every file that a command opens has its own message; what is left is stdout, on a full disk, say
        fail(f"cannot write the output: {error.strerror or error}")
        return WRONG_USE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _usage(error: Any) -> str:
    """A usage error's line, and where to go on from it."""
    context = getattr(error, "ctx", None)
    said = error.format_message().rstrip(".")
    if taker := _taker(context, getattr(error, "option_name", "")):
        return f"{said}; it comes after a command, as in `{taker}`"
    where = context.command_path if context else "mark"
    return f"{said}{'' if said.endswith('?') else ';'} see `{where} --help`"


def _taker(context: Any, option: str) -> str:
    """The first command of a group with the option that was given to the group itself; empty where none has it."""
    if not option or context is None or context.parent is None:
        return ""
    commands = getattr(context.command, "commands", {})
    takers = (name for name, one in commands.items() if any(option in given.opts for given in one.params))
    return next((f"{context.command_path} {name} {option}" for name in takers), "")


def _explained(error: MarkError | ModuleNotFoundError, command: str) -> str:
    """The error's line; a module that no extra installs is a fault of ours."""
    known = missing_extra(command, error) if isinstance(error, ModuleNotFoundError) else error
    if known is None:
        raise error
    return str(known)


def _fail(text: str, *, as_json: bool) -> int:
    """Report an error: a line on stderr, and for --json the error document on stdout."""
    fail(text)
    if as_json:
        show_json_error(text, WRONG_USE)
    return WRONG_USE

"""The command `mark`: its commands, and how their errors reach the user.

Whatever the user can do something about is one line on stderr and exit status 2; Ctrl-C is 130.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from mark import __version__
from mark.cli import (
    bound,
    demo,
    doctor,
    explain,
    forecast,
    lists,
    live,
    own_model,
    pause,
    plan,
    report,
    reproduce,
    rollout,
    simulate,
    sweep,
    trace,
)
from mark.domain.errors import MarkError
from mark.report.terminal import INTERRUPTED, fail, note

WRONG_USE = 2
_CLICK_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Root of typer's usage errors; where it is defined differs between typer's versions."""

app = typer.Typer(
    name="mark",
    no_args_is_help=False,
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


def _add(group: typer.Typer, name: str, command: Callable[..., None], examples: Sequence[str]) -> None:
    """Add a command whose help ends with its examples; the backspace keeps each on a line of its own."""
    group.command(name, epilog="\n".join(("\b", "Examples:", *(f"  {line}" for line in examples))))(command)


_add(app, "demo", demo.demo, demo.EXAMPLES)
_add(app, "up", live.up, live.UP_EXAMPLES)
_add(app, "load", live.load, live.LOAD_EXAMPLES)
_add(app, "status", live.status, live.STATUS_EXAMPLES)
_add(app, "interrupt", live.interrupt, live.INTERRUPT_EXAMPLES)
_add(app, "chaos", live.chaos, live.CHAOS_EXAMPLES)
_add(app, "pause", pause.pause, pause.EXAMPLES)
_add(app, "down", live.down, live.DOWN_EXAMPLES)
_add(app, "init", own_model.init, own_model.INIT_EXAMPLES)
_add(app, "predict", own_model.predict, own_model.PREDICT_EXAMPLES)
_add(app, "profile", live.profile, live.PROFILE_EXAMPLES)
_add(app, "doctor", doctor.doctor, doctor.EXAMPLES)
_add(app, "report", report.report, report.EXAMPLES)
_add(app, "feed", report.feed, report.FEED_EXAMPLES)
_add(app, "synth", rollout.synth, rollout.SYNTH_EXAMPLES)
_add(app, "diff", rollout.diff, rollout.DIFF_EXAMPLES)
_add(app, "deploy", rollout.deploy, rollout.DEPLOY_EXAMPLES)
_add(app, "destroy", rollout.destroy, rollout.DESTROY_EXAMPLES)
_add(app, "simulate", simulate.simulate, simulate.EXAMPLES)
_add(app, "sweep", sweep.sweep, sweep.EXAMPLES)
_add(app, "plan", plan.plan, plan.EXAMPLES)
_add(app, "bound", bound.bound, bound.EXAMPLES)
_add(app, "explain", explain.explain, explain.EXAMPLES)
_add(app, "reproduce", reproduce.reproduce, reproduce.EXAMPLES)
_add(app, "policies", lists.policies, lists.POLICY_EXAMPLES)
_add(app, "models", lists.models, lists.MODEL_EXAMPLES)
traces = typer.Typer(
    name="trace", help="Traces: import, describe, generate.", no_args_is_help=False, rich_markup_mode=None
)
_add(traces, "import", trace.import_trace, trace.IMPORT_EXAMPLES)
_add(traces, "describe", trace.describe_trace, trace.DESCRIBE_EXAMPLES)
_add(traces, "generate", trace.generate_trace, trace.GENERATE_EXAMPLES)
app.add_typer(traces)
forecasts = typer.Typer(
    name="forecast", help="Forecasters: train, backtest, show.", no_args_is_help=False, rich_markup_mode=None
)
_add(forecasts, "train", forecast.train, forecast.TRAIN_EXAMPLES)
_add(forecasts, "backtest", forecast.backtest, forecast.BACKTEST_EXAMPLES)
_add(forecasts, "show", forecast.show, forecast.SHOW_EXAMPLES)
app.add_typer(forecasts)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    warnings.showwarning = lambda message, *_args, **_kwargs: note(str(message))
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    try:
        status = app(args=arguments or ["--help"], prog_name="mark", standalone_mode=False)
        sys.stdout.flush()
    except _CLICK_ERROR as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "mark"
        said = error.format_message().rstrip(".")
        fail(f"{said}{'' if said.endswith('?') else ';'} see `{where} --help`")
        return WRONG_USE
    except MarkError as error:
        fail(str(error))
        return WRONG_USE
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

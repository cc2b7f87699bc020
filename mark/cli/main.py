"""The command `mark`: its commands, and how their errors reach the user.

An error that the user can do something about is one line on stderr and exit status 2; with --json stdout holds the
error as a document. Ctrl-C is 130.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Annotated, Any

import typer

from mark import __version__
from mark.cli import client, demo, doctor, event, explain, lists, live, own_model, report, rollout, versions
from mark.cli.layout import COMMANDS, FORECAST, INSPECT, MODEL, REPLAY, ROLL_OUT, SERVE, Panels, examples_epilog
from mark.cli.offline import (
    advise,
    bound,
    forecast,
    plan,
    pool_choose,
    pool_evaluate,
    qos,
    reproduce,
    simulate,
    supernet,
    sweep,
    trace,
)
from mark.domain.errors import MarkError
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


def _add(group: typer.Typer, panel: str, name: str, command: Callable[..., None], examples: Sequence[str]) -> None:
    group.command(name, rich_help_panel=panel, epilog=examples_epilog(examples))(command)


def _group(panel: str, name: str, summary: str) -> typer.Typer:
    group = typer.Typer(name=name, no_args_is_help=False, rich_markup_mode=None)
    app.add_typer(group, name=name, help=summary, rich_help_panel=panel)
    return group


_add(app, SERVE, "demo", demo.demo, demo.EXAMPLES)
_add(app, SERVE, "up", live.up, live.UP_EXAMPLES)
_add(app, SERVE, "load", live.load, live.LOAD_EXAMPLES)
_add(app, SERVE, "try", live.try_, live.TRY_EXAMPLES)
alerts = _group(SERVE, "alerts", "Try the webhook that alarms are posted to.")
_add(alerts, COMMANDS, "test", live.alerts_test, live.ALERTS_TEST_EXAMPLES)
_add(app, SERVE, "interrupt", live.interrupt, live.INTERRUPT_EXAMPLES)
_add(app, SERVE, "chaos", live.chaos, live.CHAOS_EXAMPLES)
_add(app, SERVE, "feed", report.feed, report.FEED_EXAMPLES)
clients = _group(SERVE, "client", "Create, list, rotate, revoke and delete clients.")
_add(clients, COMMANDS, "create", client.create, client.CREATE_EXAMPLES)
_add(clients, COMMANDS, "list", client.list_, client.LIST_EXAMPLES)
_add(clients, COMMANDS, "rotate", client.rotate, client.ROTATE_EXAMPLES)
_add(clients, COMMANDS, "revoke", client.revoke, client.REVOKE_EXAMPLES)
_add(clients, COMMANDS, "delete", client.delete, client.DELETE_EXAMPLES)
_add(app, SERVE, "pause", live.pause, live.PAUSE_EXAMPLES)
events = _group(SERVE, "event", "Announce load that is known before it comes.")
_add(events, COMMANDS, "add", event.add, event.ADD_EXAMPLES)
_add(events, COMMANDS, "list", event.list_, event.LIST_EXAMPLES)
_add(events, COMMANDS, "remove", event.remove, event.REMOVE_EXAMPLES)
rollouts = _group(SERVE, "rollout", "Replace a served model's version in steps.")
_add(rollouts, COMMANDS, "start", versions.start, versions.START_EXAMPLES)
_add(rollouts, COMMANDS, "status", versions.status, versions.STATUS_EXAMPLES)
_add(rollouts, COMMANDS, "promote", versions.promote, versions.PROMOTE_EXAMPLES)
_add(rollouts, COMMANDS, "abort", versions.abort, versions.ABORT_EXAMPLES)
_add(app, SERVE, "down", live.down, live.DOWN_EXAMPLES)
_add(app, MODEL, "init", own_model.init, own_model.INIT_EXAMPLES)
_add(app, MODEL, "predict", own_model.predict, own_model.PREDICT_EXAMPLES)
_add(app, MODEL, "profile", live.profile, live.PROFILE_EXAMPLES)
supernets = _group(MODEL, "supernet", "Train and show networks that switch in place.")
_add(supernets, COMMANDS, "train", supernet.train, supernet.TRAIN_EXAMPLES)
_add(supernets, COMMANDS, "profile", supernet.profile, supernet.PROFILE_EXAMPLES)
_add(supernets, COMMANDS, "show", supernet.show, supernet.SHOW_EXAMPLES)
_add(app, REPLAY, "simulate", simulate.simulate, simulate.EXAMPLES)
_add(app, REPLAY, "sweep", sweep.sweep, sweep.EXAMPLES)
_add(app, REPLAY, "plan", plan.plan, plan.EXAMPLES)
_add(app, REPLAY, "bound", bound.bound, bound.EXAMPLES)
pools = _group(REPLAY, "pool", "Choose and evaluate pools of unlike instances.")
_add(pools, COMMANDS, "choose", pool_choose.choose, pool_choose.EXAMPLES)
_add(pools, COMMANDS, "evaluate", pool_evaluate.evaluate, pool_evaluate.EXAMPLES)
schedulers = _group(REPLAY, "qos", "Train and judge quality-aware schedulers.")
_add(schedulers, COMMANDS, "train", qos.train, qos.TRAIN_EXAMPLES)
_add(schedulers, COMMANDS, "evaluate", qos.evaluate, qos.EVALUATE_EXAMPLES)
_add(app, REPLAY, "reproduce", reproduce.reproduce, reproduce.EXAMPLES)
traces = _group(REPLAY, "trace", "Import, describe and generate traces.")
_add(traces, COMMANDS, "import", trace.import_trace, trace.IMPORT_EXAMPLES)
_add(traces, COMMANDS, "describe", trace.describe_trace, trace.DESCRIBE_EXAMPLES)
_add(traces, COMMANDS, "generate", trace.generate_trace, trace.GENERATE_EXAMPLES)
forecasts = _group(FORECAST, "forecast", "Train, score and show forecasters.")
_add(forecasts, COMMANDS, "train", forecast.train, forecast.TRAIN_EXAMPLES)
_add(forecasts, COMMANDS, "backtest", forecast.backtest, forecast.BACKTEST_EXAMPLES)
_add(forecasts, COMMANDS, "show", forecast.show, forecast.SHOW_EXAMPLES)
_add(app, ROLL_OUT, "doctor", doctor.doctor, doctor.EXAMPLES)
_add(app, ROLL_OUT, "synth", rollout.synth, rollout.SYNTH_EXAMPLES)
_add(app, ROLL_OUT, "diff", rollout.diff, rollout.DIFF_EXAMPLES)
_add(app, ROLL_OUT, "deploy", rollout.deploy, rollout.DEPLOY_EXAMPLES)
_add(app, ROLL_OUT, "rotate", rollout.rotate, rollout.ROTATE_EXAMPLES)
_add(app, ROLL_OUT, "destroy", rollout.destroy, rollout.DESTROY_EXAMPLES)
_add(app, INSPECT, "status", live.status, live.STATUS_EXAMPLES)
_add(app, INSPECT, "explain", explain.explain, explain.EXAMPLES)
_add(app, INSPECT, "report", report.report, report.EXAMPLES)
_add(app, INSPECT, "advise", advise.advise, advise.EXAMPLES)
_add(app, INSPECT, "policies", lists.policies, lists.POLICY_EXAMPLES)
_add(app, INSPECT, "models", lists.models, lists.MODEL_EXAMPLES)


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
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "mark"
        said = error.format_message().rstrip(".")
        return failed(f"{said}{'' if said.endswith('?') else ';'} see `{where} --help`")
    except MarkError as error:
        return failed(str(error))
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


def _fail(text: str, *, as_json: bool) -> int:
    """Report an error: a line on stderr, and for --json the error document on stdout."""
    fail(text)
    if as_json:
        show_json_error(text, WRONG_USE)
    return WRONG_USE

"""The table of commands, and how one is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from mark.cli.layout import (
    COMMANDS,
    DEPLOYMENT,
    FORECAST,
    INSPECT,
    MODEL,
    PANELS,
    REPLAY,
    RESEARCH,
    SERVE,
    examples_epilog,
)
from mark.extras import pip_install, require_extra


@dataclass(frozen=True, slots=True)
class Row:
    """One command. summary: the first line of its docstring."""

    panel: str
    name: str
    summary: str
    #: "module" or "module:function", within mark.cli; a function is named like its command otherwise.
    target: str
    #: What it needs of mark.extras, if anything.
    extra: str = ""

    def load(self) -> Any:
        """The command, its module imported."""
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        _add(alone, self.panel, self.name, self.target, self.extra, self.name)
        return typer.main.get_command(alone)


@dataclass(frozen=True, slots=True)
class Group:
    """A command with commands of its own: `targets` by name, as in a row."""

    panel: str
    name: str
    summary: str
    targets: Mapping[str, str]
    extra: str = ""

    def load(self) -> Any:
        """The group, its commands imported."""
        group = typer.Typer(
            name=self.name, help=self.summary, no_args_is_help=False, rich_markup_mode=None, add_completion=False
        )
        group.callback()(_nothing)
        for name, target in self.targets.items():
            _add(group, COMMANDS, name, target, self.extra, f"{self.name} {name}")
        return typer.main.get_command(group)


class LoadedWhenUsed(Mapping[str, Any]):
    """Commands by name, each loaded when it is first taken."""

    def __init__(self, rows: Mapping[str, Row | Group]) -> None:
        self._rows = dict(rows)
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._rows[name].load()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Panels(TyperGroup):
    """All commands, shown by panel in the help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        commands: Any = LoadedWhenUsed({row.name: row for row in ROWS})  # a mapping is all that groups ask for
        self.commands = commands

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature of typer
        """Write one section a panel; all share one column of names."""
        widest = max(len(row.name) for row in ROWS)
        panels: dict[str, list[tuple[str, str]]] = {}
        for row in ROWS:
            panels.setdefault(row.panel, []).append((row.name.ljust(widest), row.summary))
        for panel in sorted(panels, key=PANELS.index):
            with formatter.section(panel):
                formatter.write_dl(panels[panel])


def _add(group: typer.Typer, panel: str, name: str, target: str, extra: str, path: str) -> None:
    """Add a command. Its examples are those of its name in the module, `LIST_EXAMPLES`, or the only ones there.

    path: the command in full, such as `client list`.
    """
    module, _, function = target.partition(":")
    room, function = import_module(f"mark.cli.{module}"), function or name
    examples = getattr(room, f"{function.rstrip('_').upper()}_EXAMPLES", None) or room.EXAMPLES
    needs = f"\n\nNeeds the extra {extra}: {pip_install(extra)}." if extra else ""
    command = _needing(extra, f"mark {path}", getattr(room, function)) if extra else getattr(room, function)
    group.command(name, rich_help_panel=panel, epilog=f"{examples_epilog(examples)}{needs}")(command)


def _needing(extra: str, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which says what is not installed before it begins."""

    @wraps(function)
    def run(*args: Any, **flags: Any) -> Any:
        require_extra(extra, what)
        return function(*args, **flags)

    return run


def _nothing() -> None:
    pass


ROWS = (
    Row(
        SERVE, "demo", "Serve five models through a surge on this machine, beside replays.", "demo", extra="local"
    ),
    Row(SERVE, "up", "Start the service on this machine, with an emulated AWS.", "live", extra="local"),
    Row(SERVE, "load", "Send requests to the service, at a rate or after a trace.", "live"),
    Row(SERVE, "try", "Send one request, and say who answered it and how fast.", "live:try_"),
    Group(SERVE, "alerts", "Try the webhook that alarms are posted to.", {"test": "live:alerts_test"}),
    Row(SERVE, "interrupt", "Interrupt spot instances of the emulated AWS, with notice.", "live"),
    Row(SERVE, "chaos", "Kill a process of the service, or inject a fault of AWS.", "live"),
    Row(SERVE, "feed", "Count requests of an observed fleet, from stdin or Prometheus.", "report"),
    Row(SERVE, "scaler", "Plan the pods of a Kubernetes cluster, and tell KEDA.", "scaler", extra="replay"),
    Group(
        SERVE,
        "client",
        "Create, list, rotate, revoke and delete clients.",
        {"create": "client", "list": "client:list_", "rotate": "client", "revoke": "client", "delete": "client"},
    ),
    Row(SERVE, "pause", "Stop spending, and keep the service's state.", "live"),
    Group(
        SERVE,
        "event",
        "Announce load that is known before it comes.",
        {"add": "event", "list": "event:list_", "remove": "event"},
    ),
    Group(
        SERVE,
        "rollout",
        "Replace a served model's version in steps.",
        {"start": "versions", "status": "versions", "promote": "versions", "abort": "versions"},
    ),
    Row(SERVE, "down", "End the service; logs and clients stay, announced events go.", "live"),
    Row(MODEL, "init", "Write a mark.yaml, or with TARGET a model's whole folder.", "own_model"),
    Row(MODEL, "predict", "Call a model once, without a service.", "own_model"),
    Row(MODEL, "profile", "Measure a model's latency by batch size, here or on AWS.", "live"),
    Row(
        REPLAY,
        "simulate",
        "Replay a trace under each policy: its cost and latency.",
        "offline.simulate",
        extra="replay",
    ),
    Row(
        REPLAY,
        "sweep",
        "Replay a grid of settings in parallel; find the Pareto front.",
        "offline.sweep",
        extra="replay",
    ),
    Row(REPLAY, "plan", "Plan a fleet once for a rate, and explain the choice.", "offline.plan", extra="replay"),
    Row(
        REPLAY,
        "bound",
        "Compute the least cost that perfect knowledge could reach.",
        "offline.bound",
        extra="replay",
    ),
    Group(
        REPLAY,
        "trace",
        "Import, fetch, describe and generate traces.",
        {
            "import": "offline.trace:import_",
            "prometheus": "offline.trace",
            "cloudwatch": "offline.trace",
            "describe": "offline.trace",
            "generate": "offline.trace",
        },
    ),
    Group(
        FORECAST,
        "forecast",
        "Train, score and show forecasters.",
        {"train": "offline.forecast", "backtest": "offline.forecast", "show": "offline.forecast"},
        extra="replay",
    ),
    Row(DEPLOYMENT, "doctor", "Check the account: credentials, quotas, images, prices.", "doctor"),
    Row(DEPLOYMENT, "synth", "Write the service as plain CloudFormation.", "deployment", extra="infra"),
    Row(DEPLOYMENT, "diff", "Show what a deploy would change; change nothing.", "deployment", extra="infra"),
    Row(DEPLOYMENT, "deploy", "Deploy the service to an AWS account, or update it.", "deployment", extra="infra"),
    Row(DEPLOYMENT, "rotate", "Rotate a deployed service's secrets; lose no request.", "deployment"),
    Row(DEPLOYMENT, "destroy", "Remove the service from the account.", "deployment"),
    Row(INSPECT, "status", "Show the service: a table of its models, and one model in full.", "live"),
    Row(INSPECT, "logs", "Show what the service's processes logged, or one model's.", "live"),
    Row(
        INSPECT,
        "explain",
        "Explain what the controller did and why, in a replay or live.",
        "explain",
        extra="replay",
    ),
    Row(
        INSPECT,
        "report",
        "Report the service's cost and objective, and other policies'.",
        "report",
        extra="replay",
    ),
    Row(
        INSPECT,
        "advise",
        "Say what each change of the settings would have saved.",
        "offline.advise",
        extra="replay",
    ),
    Row(INSPECT, "policies", "List policies, forecasters and dispatch rules.", "lists"),
    Row(INSPECT, "models", "List models, their objectives and profiles.", "lists"),
    Group(
        RESEARCH,
        "supernet",
        "Train and show networks that switch in place.",
        {"train": "offline.supernet", "profile": "offline.supernet", "show": "offline.supernet"},
    ),
    Group(
        RESEARCH,
        "pool",
        "Choose and evaluate pools of unlike instances.",
        {"choose": "offline.pool_choose", "evaluate": "offline.pool_evaluate"},
        extra="replay",
    ),
    Group(
        RESEARCH,
        "qos",
        "Train and judge quality-aware schedulers.",
        {"train": "offline.qos", "evaluate": "offline.qos"},
        extra="replay",
    ),
    Row(RESEARCH, "reproduce", "Repeat an experiment of a published paper.", "offline.reproduce", extra="replay"),
)
"""The commands, in the order of the help, which loads none of their modules."""

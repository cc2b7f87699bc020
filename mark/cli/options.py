"""Flags that several commands share, and how they become settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mark.cli import complete
from mark.config.settings import Settings, load_settings
from mark.config.short_names import SETTINGS, split_list, value_of
from mark.domain.errors import Misconfigured


def choice(names: str, text: str) -> Any:
    """A flag that takes one of these names, with `|` between them; shells complete it."""
    return typer.Option(metavar=names, help=text, autocompletion=complete.choices(*names.split("|")))


# A flag without a value leaves the settings file's in place; [default: ...] is what holds where neither says any.
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings file (docs/settings.md); flags override it.  [default: none]"),
]
AskAbove = Annotated[
    float | None,
    typer.Option(metavar="USD", help="Ask where the first plan costs more an hour.  [default: 1 in an account]"),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Name = Annotated[
    str | None, typer.Option("--name", metavar="SERVICE", help="Name of the service.  [default: mark]")
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Model to serve; `mark models` lists them.  [default: model of the settings]",
        autocompletion=complete.models,
    ),
]
ServedModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Model of the service.  [default: the service's first]",
        autocompletion=complete.models,
    ),
]
ModelFrom = Annotated[
    str | None,
    typer.Option(
        metavar="path|file|KEY[=REGEX]",
        help="Of a service: --trace holds the requests of all models, and this says where a model's name "
        "stands: in the path (/v2/models/NAME/infer, /models/NAME:predict, /endpoints/NAME/invocations), in "
        "the names of a folder's files, in a key of --where, or in the group of an expression.  "
        "[default: a trace for each model]",
    ),
]
Market = Annotated[
    str | None,
    choice("on-demand|spot", "Market in which instances are rented.  [default: on-demand]"),
]
SeriesWhere = Annotated[
    list[str] | None,
    typer.Option(metavar="LABEL=PATTERN", help="Take only such series; may repeat.  [default: all]"),
]
SeriesRows = Annotated[
    str | None, choice("counts|rates", "Meaning of the values.  [default: by the query and the series]")
]
Trace = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Recorded traffic: a file, folder, pattern or s3:// prefix (docs/traces.md).  "
        "[default: trace.file of the settings]",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=PATTERN",
        help="Take only such requests or series: path=/v2/*, status!=5*, target-group=api; may repeat.  "
        "[default: all]",
    ),
]
Rows = Annotated[
    str | None,
    choice(
        "counts|rates|requests",
        "Meaning of a CSV's rows where its header does not say.  [default: inferred from the numbers]",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column or JSON key of the time: data.time.  [default: by its name]"),
]
Value = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column or JSON key of the load.  [default: by its name]")
]
Tz = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="Zone of times that name none, such as Europe/Berlin.  [default: UTC]"),
]
Dates = Annotated[
    str | None, choice("dmy|mdy", "Order of dates with slashes.  [default: where the file tells it]")
]
Bursts = Annotated[
    str | None,
    choice("none|typical|strong", "Bursts to draw within bins of more than a minute.  [default: typical]"),
]
SloMs = Annotated[
    float | None,
    typer.Option(metavar="MS", help="Latency objective of a request.  [default: the model's]"),
]
SloTarget = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Share of requests that must be in time.  [default: the model's]"),
]
AccuracyFloor = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of answers that must be right, for a model with variants: plans count on the first variant "
        "that is so accurate.  [default: plans count on the most accurate, all may answer]",
    ),
]
MeanRps = Annotated[
    float | None, typer.Option(metavar="RPS", help="Scale the replayed part to this mean.  [default: as recorded]")
]
StartS = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Start on the trace's clock; what lies before is the history.  [default: 0]"
    ),
]
DurationS = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Length of the replay.  [default: to the end]")
]
Sizes = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="Sizes of requests in items: lognormal:MU,SIGMA,MIN,MAX, normal:MU,SIGMA,MIN,MAX, constant:N, "
        "kairos, or a CSV size,probability (docs/papers.md).  [default: the model's, or one each]",
    ),
]
Seed = Annotated[int | None, typer.Option(metavar="NUMBER", help="Seed of all random draws.  [default: 0]")]
Types = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE,...",
        help="Instance types to choose from, or the set current, cpu or paper.  [default: current]",
    ),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(metavar="SET", help="Further profiles: a file or a shipped set; may repeat.  [default: none]"),
]
Models = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Models of your own, beside the shipped ones (docs/own-model.md).  [default: none]"
    ),
]
World = Annotated[
    str | None,
    choice(
        "ideal|typical|rough",
        "How far service times, wakes, capacity and spot prices depart from their averages.  [default: typical]",
    ),
]
Commitments = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Savings Plans, Reserved Instances, capacity that the account has (docs/saving.md).  [default: none]",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SETTING=VALUE",
        help="A setting of docs/settings.md by its dotted name; may repeat.  [default: none]",
    ),
]
Trial = Annotated[
    bool,
    typer.Option(
        "--trial", help="With the settings of a first deploy, and say which differ (docs/deploy.md#a-trial)."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with a client's key to send.  [default: the service's token]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?)([smhd]?)")
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def settings_of(flags: Mapping[str, Any], *names: str) -> Settings:
    """Settings of the file `config` under a command's flags: `settings_of(locals())`.

    names: the flags that change settings, where the command has others that are called like one. --set and --trial
    count where the command has them.
    """
    chosen = [name for name in SETTINGS if name in (names or flags)]
    known = {SETTINGS[name]: (flag_of(name), value_of(name, flags[name])) for name in chosen}
    _change(known, flags.get("setting") or ())
    settings = load_settings(flags["config"], known)
    if not flags.get("trial"):
        return settings
    from mark.deployment.trial import tried  # noqa: PLC0415 - it takes long to import

    return tried(settings)


def _change(known: dict[str, tuple[str, Any]], changes: Sequence[str]) -> None:
    """Add settings by their dotted names, each with one value."""
    from mark.offline.sweep.grid import parse_axis  # noqa: PLC0415 - it takes long to import

    for text in changes:
        axis = parse_axis(text)
        if len(axis.values) != 1:
            raise Misconfigured(f"{axis.flag} takes one value here; a list of them reads [A,B]")
        if known.get(axis.key, ("", None))[1] not in (None, []):
            raise Misconfigured(f"{axis.key} is given twice: by {known[axis.key][0]}, too")
        known[axis.key] = (axis.flag, axis.values[0])


def flag_of(name: str) -> str:
    """The flag of a command's parameter."""
    return f"--{name.replace('_', '-')}"


def number_list(flag: str, text: str) -> tuple[float, ...]:
    """Numbers of a comma list."""
    try:
        return tuple(float(item) for item in split_list(text))
    except ValueError as error:
        raise Misconfigured(f"{flag} {text!r} must be numbers with commas between them") from error


def duration_s(flag: str, text: str) -> float:
    """Seconds of a duration such as `30m`; without a unit they are seconds. Misconfigured for anything else."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise Misconfigured(f"{flag} takes a duration such as 90s, 30m, 1h or 7d, not {text!r}")
    return float(found[1]) * _UNITS_S[found[2]]

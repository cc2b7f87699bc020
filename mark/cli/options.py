"""Flags that several commands share, and how they become settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mark.config.settings import Settings, load_settings
from mark.domain.errors import Misconfigured

Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings file (docs/settings.md); flags override it.")
]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="Model to serve; `mark models` lists them.")]
Market = Annotated[str | None, typer.Option(metavar="MARKET", help="How instances are bought: on-demand or spot.")]
Trace = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE", help="What was recorded: a file, folder, pattern or s3:// prefix (docs/traces.md)."
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=PATTERN",
        help="Take only such requests or series: path=/v2/*, status!=5*, target-group=api; may repeat.",
    ),
]
Rows = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="What a row of a CSV without a telling header holds: counts, rates or requests."
    ),
]
Bursts = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="Bursts within bins of more than a minute: none, typical (when left out) or strong."
    ),
]
SloMs = Annotated[float | None, typer.Option(metavar="MS", help="A request is in time when answered within this.")]
SloTarget = Annotated[
    float | None, typer.Option(metavar="SHARE", help="Share of the requests that must be in time.")
]
MeanRps = Annotated[
    float | None, typer.Option(metavar="RPS", help="Scale the trace to this mean over the replayed part.")
]
StartS = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Where the replay starts; what lies before is the history.")
]
DurationS = Annotated[float | None, typer.Option(metavar="SECONDS", help="How long the replay lasts.")]
Seed = Annotated[int | None, typer.Option(metavar="NUMBER", help="Seed of all that is drawn.")]
Types = Annotated[str | None, typer.Option(metavar="TYPE,...", help="Instance types to choose from, comma list.")]
Profiles = Annotated[
    list[str] | None, typer.Option(metavar="SET", help="Further profiles: a file or a shipped set; may repeat.")
]
Models = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Models of your own, beside the shipped ones (docs/own-model.md)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]


def settings_from(config: Path | None, **flags: Any) -> Settings:
    """Settings of the file under the flags given; each flag is named by its key, with `__` for a dot."""
    known = {key.replace("__", "."): (flag_name(key), _plain(value)) for key, value in flags.items()}
    return load_settings(config, known)


def flag_name(key: str) -> str:
    """`objective__latency_ms` is the flag --slo-ms."""
    return _FLAGS.get(key) or "--" + key.rpartition("__")[2].replace("_", "-")


def split_list(values: Sequence[str] | str | None) -> list[str]:
    """Names of a comma list that may repeat."""
    given = [values] if isinstance(values, str) else list(values or ())
    return [name.strip() for value in given for name in value.split(",") if name.strip()]


def number_list(flag: str, text: str) -> tuple[float, ...]:
    """Numbers of a comma list."""
    try:
        return tuple(float(item) for item in split_list(text))
    except ValueError as error:
        raise Misconfigured(f"{flag} {text!r} must be numbers with commas between them") from error


def parse_interrupts(values: Sequence[str] | None) -> list[dict[str, float]]:
    """`7:0.4` loses 40 % of the spot instances at minute 7."""
    found = []
    for value in values or ():
        minute, _, share = value.partition(":")
        try:
            found.append({"at_min": float(minute), "share": float(share)})
        except ValueError as error:
            raise Misconfigured(f"--interrupt {value!r} must read MINUTE:SHARE, such as 7:0.4") from error
    return found


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


_FLAGS = {
    "objective__latency_ms": "--slo-ms",
    "objective__target": "--slo-target",
    "trace__file": "--trace",
    "policies": "--policy",
    "faults__interrupts": "--interrupt",
}

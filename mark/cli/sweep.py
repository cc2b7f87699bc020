"""`mark sweep`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = (
    "mark sweep --trace load.csv.gz --model inception-v3 --policy mark,reactive --seed 1,2 --out grid",
    "mark sweep --trace load.csv.gz --model inception-v3 --set policy.lead_min=3,5 --out grid --json",
)


def sweep(
    *,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE,...",
            help="Files, folders, patterns or s3:// prefixes (docs/traces.md), comma list; may repeat.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Models to serve; `mark models` lists them.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,...", help="Policies, comma list, or all; may repeat."),
    ] = None,
    market: Annotated[str | None, typer.Option(metavar="MARKET,...", help="on-demand, spot, or both.")] = None,
    seed: Annotated[str | None, typer.Option(metavar="NUMBER,...", help="Seeds of each choice's replays.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SETTING=VALUE,...",
            help="Any setting of docs/settings.md by its dotted name, and the values it takes; may repeat.",
        ),
    ] = None,
    mean_rps: given.MeanRps = None,
    start_s: given.StartS = None,
    duration_s: given.DurationS = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for what is finished, sweep.html and sweep.json."),
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="ENGINE", help="Where replays run: local (processes of this machine) or ray.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Local processes; one a core when left out.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The Ray cluster, as ray.init takes it.")
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Replay a grid of settings in parallel, and find those that nothing beats in cost and share in time.

    Every combination of the values is replayed with every policy and seed. What is finished is kept in the folder:
    the same command goes on where it stopped. The exit status is 1 where a replay failed (docs/sweep.md).
    """
    from mark.offline.sweep.engines import make_engine
    from mark.offline.sweep.grid import parse_axis, plain_axis
    from mark.offline.sweep.run import sweep_grid

    single = {"trace.mean_rps": mean_rps, "trace.start_s": start_s, "trace.duration_s": duration_s}
    policies = given.split_list(policy)
    axes = [
        plain_axis("trace.file", "--trace", given.split_list(trace)),
        plain_axis("model", "--model", given.split_list(model)),
        *(plain_axis(key, given.flag_name(key.replace(".", "__")), _one(value)) for key, value in single.items()),
        plain_axis("market", "--market", given.split_list(market)),
        plain_axis("policies", "--policy", [policies] if policies else []),
        *(parse_axis(text) for text in setting or ()),
        plain_axis("seed", "--seed", given.split_list(seed)),
        plain_axis("out", "--out", _one(None if out is None else str(out))),
    ]
    sweep_grid(
        config,
        [axis for axis in axes if axis is not None],
        engine=make_engine(engine, workers=workers, address=address),
        as_json=json,
    )


def _one(value: object) -> list[object]:
    return [] if value is None else [value]

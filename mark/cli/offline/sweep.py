"""`mark sweep`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.config.short_names import SETTINGS, split_list

EXAMPLES = (
    "mark sweep --trace load.csv.gz --model inception-v3 --policy mark,reactive --seed 1,2 --out grid",
    "mark sweep --trace load.csv.gz --model inception-v3 --set policy.lead_min=3,5 --out grid --json",
    "mark sweep --config service.yaml --policy hedged,fleet-per-model --seed 1,2 --out grid",
)


def sweep(
    *,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE,...",
            help="Files, folders, patterns or s3:// prefixes (docs/traces.md); may repeat.  "
            "[default: trace.file of the "
            "settings]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Models to serve, one a replay; `mark models` lists them.  [default: model of the settings, or "
            "all that they serve]",
            autocompletion=complete.models,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="Policies, or all; may repeat.  [default: hedged]",
            autocompletion=complete.policies,
        ),
    ] = None,
    market: Annotated[
        str | None,
        typer.Option(
            metavar="MARKET,...",
            help="Markets: on-demand, spot or both.  [default: on-demand]",
            autocompletion=complete.choices("on-demand", "spot"),
        ),
    ] = None,
    seed: Annotated[
        str | None, typer.Option(metavar="NUMBER,...", help="Seeds of the replays.  [default: 0]")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SETTING=VALUE,...",
            help="A setting of docs/settings.md by its dotted name, and its values; may repeat.  [default: none]",
        ),
    ] = None,
    world: given.World = None,
    mean_rps: given.MeanRps = None,
    start_s: given.StartS = None,
    duration_s: given.DurationS = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for finished replays, sweep.html and sweep.json.  [default: out of the settings]",
        ),
    ] = None,
    engine: Annotated[
        str,
        given.choice("local|ray", "Run replays in processes of this machine, or on Ray."),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Local processes.  [default: one a core]")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Ray cluster, as ray.init takes it.  [default: this machine]"),
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Replay a grid of settings in parallel; find the Pareto front.

    Where --config serves several models and no --model is named, each replay is of the whole service.
    The front holds what nothing beats in both cost and share in time. Every combination of values is replayed
    with every policy and seed. Finished replays are kept in the folder: the same command resumes where it
    stopped. The exit status is 1 when a replay failed (docs/sweep.md).
    """
    from mark.offline.sweep.engines import make_engine
    from mark.offline.sweep.grid import Axis, parse_axis, plain_axis
    from mark.offline.sweep.run import sweep_grid

    def axis(name: str, values: Sequence[object]) -> Axis | None:
        return plain_axis(SETTINGS[name], given.flag_of(name), values)

    single = {"world": world, "mean_rps": mean_rps, "start_s": start_s, "duration_s": duration_s}
    policies = split_list(policy)
    axes = [
        axis("trace", split_list(trace)),
        axis("model", split_list(model)),
        *(axis(name, _one(value)) for name, value in single.items()),
        axis("market", split_list(market)),
        axis("policy", [policies] if policies else []),
        *(parse_axis(text) for text in setting or ()),
        axis("seed", split_list(seed)),
        axis("out", _one(None if out is None else str(out))),
    ]
    sweep_grid(
        config,
        [one for one in axes if one is not None],
        engine=make_engine(engine, workers=workers, address=address),
        as_json=json,
    )


def _one(value: object) -> list[object]:
    return [] if value is None else [value]

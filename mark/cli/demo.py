"""`mark demo`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = ("mark demo --out demo", "mark demo --replay-only --out demo")


def demo(
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the report.  [default: out/demo]")
    ] = None,
    replay_only: Annotated[
        bool, typer.Option("--replay-only", help="Replay a whole day under every policy; start no service.")
    ] = False,
    world: given.World = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Serve five models through a surge on this machine, beside replays.

    Copies five models in Python to the folder, measures them, and serves them on shared instances: 24 minutes of
    generated traffic with a surge and an interruption of spot instances, 10 times as fast. Then replays say what
    a fleet for each model and the strongest rivals would have cost. Everything runs on this machine and ends
    afterwards; mark.yaml and the models stay in the folder, for every other command.
    """
    from mark.live.commands.demo import demonstrate, replay_all

    settings = given.settings_of(locals(), "out", "world")
    if replay_only:
        replay_all(settings, as_json=json)
    else:
        demonstrate(settings, as_json=json)

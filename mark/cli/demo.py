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
    """Serve a surge on this machine, beside what its replay predicts.

    Drives 36 minutes of generated traffic through the live service, 20 times as fast. 40 % of the spot instances
    are interrupted during the surge. Then replays say what else could have served it, and what costs least.
    Everything runs on this machine and ends afterwards.
    """
    from mark.live.commands.demo import demonstrate, replay_all

    settings = given.settings_of(locals(), "out", "world")
    if replay_only:
        replay_all(settings, as_json=json)
    else:
        demonstrate(settings, as_json=json)

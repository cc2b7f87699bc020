"""`mark doctor`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = (
    "mark doctor",
    "mark doctor --config mark.yaml --json",
    "mark doctor --trial --config mark.yaml",
    "mark doctor --deep --config mark.yaml",
    "mark doctor --prices prices.json",
)


def doctor(
    *,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write AWS's prices of today to this file.  [default: not written]"
        ),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="After a deploy: also check that the controllers' role may make each of its calls."
        ),
    ] = False,
    trial: given.Trial = False,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Check the account: credentials, quotas, images, prices.

    Each finding says what to do. Where the service runs on this machine, its emulated AWS is checked. The exit
    status is 1 when something must be fixed.
    """
    settings = given.settings_of(locals(), "name")
    from mark.deployment.checks.doctor import DoctorOptions, examine

    status = examine(settings, DoctorOptions(prices=prices, deep=deep), as_json=json)
    if status:
        raise typer.Exit(status)

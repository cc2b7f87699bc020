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
    "mark doctor --prices prices.json",
)


def doctor(
    *,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write AWS's prices of today into this price file, too."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="SERVICE", help="The service; `service.name` of the settings.")
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Check that the account lets the service stand: credentials, quotas, Lambda, images, mail, prices.

    Each finding comes with what to do. Where the service is up on this machine, its emulated AWS is asked. The
    exit status is 1 when something must be mended.
    """
    settings = given.settings_from(config, service__name=name)
    from mark.rollout.doctor import DoctorOptions, examine

    status = examine(settings, DoctorOptions(prices=prices), as_json=json)
    if status:
        raise typer.Exit(status)

"""`mark demo`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.app.commands import options as given

EXAMPLES = ("mark demo --out demo",)


def demo(
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the report; out/demo when left out.")
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Replay a day of the shipped workload under every policy."""
    from mark.app.demonstrating import demonstrate

    settings = given.settings_from(config, out=out)
    demonstrate(settings, as_json=json)

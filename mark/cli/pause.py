"""`mark pause`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = ("mark pause", "mark pause --off")


def pause(
    *,
    off: Annotated[bool, typer.Option("--off", help="Resume: rent again what is needed.")] = False,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Stop spending, and keep the service's state.

    Instances drain and terminate, and Lambda is not called. Requests get 503 until `mark pause --off`.
    Controllers, gateways and the store stay. The exit status is 1 when no controller confirms, or instances do
    not end in time.
    """
    settings = given.settings_from(config, service__name=name)
    from mark.live.commands.pause import pause as pause_service

    pause_service(settings, on=not off, as_json=json)

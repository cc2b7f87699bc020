"""`mark pause`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = ("mark pause", "mark pause --off")


def pause(
    *,
    off: Annotated[bool, typer.Option("--off", help="Go on: rent again what is needed.")] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="SERVICE", help="The service; `service.name` of the settings.")
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Stop spending and keep state: instances end once they have answered, Lambda is not called.

    Requests are refused with 503 until `mark pause --off`. Controllers, gateways and the store stay. The exit
    status is 1 where no controller heard of it, or instances have not ended in time.
    """
    settings = given.settings_from(config, service__name=name)
    from mark.live.commands.pause import pause as pause_service

    pause_service(settings, on=not off, as_json=json)

"""`mark event add`, `list`, `remove`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given

ADD_EXAMPLES = (
    "mark event add --at 2026-12-01T18:00 --for 2h --expect 3x",
    "mark event add sale --at 2026-12-01T18:00+01:00 --for 90m --expect 500rps --model inception-v3",
)
LIST_EXAMPLES = ("mark event list", "mark event list --json")
REMOVE_EXAMPLES = ("mark event remove sale",)


def add(
    event: Annotated[
        str | None, typer.Argument(metavar="EVENT", help="Name of the event.  [default: its time]")
    ] = None,
    *,
    at: Annotated[
        str,
        typer.Option(metavar="TIME", help="When it begins, such as 2026-12-01T18:00; UTC without a zone."),
    ],
    length: Annotated[str, typer.Option("--for", metavar="LENGTH", help="How long, such as 2h or 90m.")],
    expect: Annotated[
        str,
        typer.Option(metavar="LOAD", help="What comes: 3x the usual load, or 500rps at least."),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model of the service that it is about.  [default: each]",
            autocompletion=complete.models,
        ),
    ] = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Announce load that is known before it comes.

    Forecasts expect it in its time, and plans have the capacity ready when it begins. What came of it is taken
    out of what forecasters learn from, so that they do not expect it again. The event is kept in the service's
    store; a service elsewhere is found by service.store of --config.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.event import EventOptions, add_event

    options = EventOptions(name=event, at=at, duration=length, expect=expect, model=model)
    add_event(settings, options, as_json=json)


def list_(*, name: given.Name = None, json: given.Json = False, config: given.Config = None) -> None:
    """List the events that were announced to a service."""
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.event import list_events

    list_events(settings, as_json=json)


def remove(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Name of the event.")],
    *,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Withdraw an announced event.

    One that is over is then taken for usual load by forecasters.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.event import remove_event

    remove_event(settings, event, as_json=json)

"""`mark client create`, `list`, `rotate`, `revoke` and `delete`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.config.short_names import split_list

CREATE_EXAMPLES = (
    "mark client create shop",
    "mark client create shop --models digits --rate 20 --burst 40 --concurrency 8",
    "mark client create nightly --priority async --deadline 2h --json",
)
LIST_EXAMPLES = ("mark client list", "mark client list --json")
ROTATE_EXAMPLES = ("mark client rotate shop", "mark client rotate shop --keep-old 0")
REVOKE_EXAMPLES = ("mark client revoke shop",)
DELETE_EXAMPLES = ("mark client delete shop",)

ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help="The client's name.")]


def create(
    *,
    client: ClientName,
    models: Annotated[
        str | None, typer.Option(metavar="MODEL,...", help="Models that it may use.  [default: all]")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="RPS", help="Requests/s in the long run, over all gateways.  [default: no limit]"),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(metavar="N", help="Requests at once after a pause.  [default: a second's worth]"),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most requests in flight, over all gateways.  [default: no limit]"),
    ] = None,
    priority: Annotated[
        str,
        typer.Option(
            metavar="CLASS",
            help="high, normal or low: where a model is overloaded, the lowest is refused first; "
            "async: waits for idle capacity.",
            autocompletion=complete.choices("high", "normal", "low", "async"),
        ),
    ] = "normal",
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Of the async class: by when each request is to be answered, 10s to 24h.  [default: 1h]",
        ),
    ] = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Create a client, and print its key this once.

    From the first client on, requests need a client's key or the service's token. Gateways follow within a few
    seconds, without a restart.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.client import NewClient, create_client

    new = NewClient(
        name=client,
        models=None if models is None else tuple(split_list(models)),
        rate_rps=rate,
        burst=burst,
        concurrency=concurrency,
        priority=priority,
        deadline_s=None if deadline is None else given.duration_s("--deadline", deadline),
    )
    create_client(settings, new, as_json=json)


def list_(*, name: given.Name = None, json: given.Json = False, config: given.Config = None) -> None:
    """List the clients of the service with their limits and keys' states."""
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.client import list_clients

    list_clients(settings, as_json=json)


def rotate(
    *,
    client: ClientName,
    keep_old: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long the old key still counts, such as 30m, 1h or 7d, at most 30d; 0: not at all.",
        ),
    ] = "1h",
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Give a client another key, and print it this once.

    Of the keys before, the last one counts for a while, so that the client can change over without a refusal.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.client import rotate_client

    rotate_client(settings, client, keep_old_s=given.duration_s("--keep-old", keep_old), as_json=json)


def revoke(
    *, client: ClientName, name: given.Name = None, json: given.Json = False, config: given.Config = None
) -> None:
    """Revoke a client: none of its keys counts any more.

    Its figures stay under its name. `mark client create` with that name gives it a new key.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.client import revoke_client

    revoke_client(settings, client, as_json=json)


def delete(
    *, client: ClientName, name: given.Name = None, json: given.Json = False, config: given.Config = None
) -> None:
    """Delete a client: none of its keys counts any more, and it is listed no more.

    After the last client, revoked ones counted, requests need no key, as before the first: the service's token
    alone, where it has one. What was counted stays in the figures.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.client import delete_client

    delete_client(settings, client, as_json=json)

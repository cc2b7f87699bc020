"""`mark rollout start`, `status`, `promote`, `abort`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given

START_EXAMPLES = (
    "mark rollout start --model doubler",
    "mark rollout start --model doubler --canary 1,10,50,100 --dwell 600 --config mark.yaml",
)
STATUS_EXAMPLES = ("mark rollout status --model doubler", "mark rollout status --model doubler --json")
PROMOTE_EXAMPLES = ("mark rollout promote --model doubler",)
ABORT_EXAMPLES = ("mark rollout abort --model doubler",)

Model = Annotated[
    str,
    typer.Option(metavar="NAME", help="Model of the service.", autocompletion=complete.models),
]


def start(
    *,
    model: Model,
    canary: Annotated[
        str, typer.Option(metavar="LIST", help="Shares of the requests in percent, step by step.")
    ] = "5,25,100",
    dwell: Annotated[
        float,
        typer.Option(metavar="S", min=0.0, help="Seconds of service time for which each share is held at least."),
    ] = 300.0,
    ready_within: Annotated[
        float,
        typer.Option(
            metavar="S", min=1.0, help="Seconds of service time in which a step's instances must be ready."
        ),
    ] = 900.0,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Roll out a model's files as they are now, in steps.

    Instances of the new version become ready first, then it answers the first share of the requests, the next one
    after a dwell, and at last all. It is aborted by itself where it never becomes ready, burns the error budget,
    fails more than the stable version or is much slower. The version that serves keeps its instances until then.
    """
    settings = given.settings_from(config, service__name=name)
    from mark.live.commands.rollout import StartOptions, start_rollout

    options = StartOptions(
        model=model, canary=given.split_list(canary), dwell_s=dwell, ready_within_s=ready_within
    )
    start_rollout(settings, options, given=config is not None, as_json=json)


def status(
    *, model: Model, name: given.Name = None, json: given.Json = False, config: given.Config = None
) -> None:
    """Show a model's versions, their shares and what they answered."""
    settings = given.settings_from(config, service__name=name)
    from mark.live.commands.rollout import show_rollout

    show_rollout(settings, model, as_json=json)


def promote(
    *, model: Model, name: given.Name = None, json: given.Json = False, config: given.Config = None
) -> None:
    """Have the new version take over without further dwells.

    It gets all requests as soon as its instances carry them.
    """
    settings = given.settings_from(config, service__name=name)
    from mark.live.commands.rollout import promote_rollout

    promote_rollout(settings, model, as_json=json)


def abort(*, model: Model, name: given.Name = None, json: given.Json = False, config: given.Config = None) -> None:
    """Give all requests back to the stable version at once.

    Returns when no instance of the new version takes requests any more.
    """
    settings = given.settings_from(config, service__name=name)
    from mark.live.commands.rollout import abort_rollout

    abort_rollout(settings, model, as_json=json)

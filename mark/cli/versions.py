"""`mark rollout start`, `status`, `promote`, `abort`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.config.short_names import split_list

START_EXAMPLES = (
    "mark rollout start",
    "mark rollout start --model doubler --canary 1,10,50,100 --dwell 600 --config mark.yaml",
    "mark rollout start --model doubler --shadow 10 --shadow-dwell 600 --most-differing 1",
    "mark rollout start --model doubler --shadow 100 --canary none",
    "mark rollout start --least-answers 500",
)
USUAL = " [default: as in service.rollouts]"
STATUS_EXAMPLES = ("mark rollout status", "mark rollout status --model doubler --json")
PROMOTE_EXAMPLES = ("mark rollout promote --model doubler",)
ABORT_EXAMPLES = ("mark rollout abort --model doubler",)

Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Model of the service.  [default: its only one]",
        autocompletion=complete.models,
    ),
]


def start(
    *,
    model: Model = None,
    canary: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Shares of the requests in percent, step by step; none: no step. " + USUAL,
        ),
    ] = None,
    dwell: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0.0,
            help="Seconds of service time for which each share is held at least. " + USUAL,
        ),
    ] = None,
    least_answers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Hold each share until the new version has given N answers, for a week at most. " + USUAL,
        ),
    ] = None,
    ready_within: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=1.0,
            help="Seconds of service time in which a step's instances must be ready. " + USUAL,
        ),
    ] = None,
    shadow: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0.0,
            max=100.0,
            help="Share of the requests that is also sent to the new version before its first step. " + USUAL,
        ),
    ] = None,
    shadow_dwell: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=0.0, help="Seconds of service time for which answers are compared at least. " + USUAL
        ),
    ] = None,
    most_differing: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0.0,
            max=100.0,
            help="Abort where more than this share of the compared answers differs. " + USUAL,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0.0,
            help="Floats that differ by no more than this times (1 + the stable version's) are the same. " + USUAL,
        ),
    ] = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Roll out a model's files as they are now, in steps.

    Instances of the new version become ready first, then it answers the first share of the requests, the next one
    after a dwell, and at last all. With a shadow, copies of requests are sent to it before that; its answers are
    compared with the stable version's and dropped. It is aborted by itself where it never becomes ready, burns the
    error budget, fails more than the stable version or is much slower. The version that serves keeps its instances
    until then.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.rollout import StartOptions, start_rollout

    options = StartOptions(
        model=model,
        canary=split_list(canary),
        flags={
            "dwell_s": dwell,
            "least_answers": least_answers,
            "ready_within_s": ready_within,
            "shadow": shadow,
            "shadow_dwell_s": shadow_dwell,
            "most_differing": most_differing,
            "tolerance": tolerance,
        },
    )
    start_rollout(settings, options, given=config is not None, as_json=json)


def status(
    *, model: Model = None, name: given.Name = None, json: given.Json = False, config: given.Config = None
) -> None:
    """Show a model's versions, their shares and what they answered."""
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.rollout import show_rollout

    show_rollout(settings, model, as_json=json)


def promote(
    *, model: Model = None, name: given.Name = None, json: given.Json = False, config: given.Config = None
) -> None:
    """Have the new version take over without further dwells.

    It gets all requests as soon as its instances carry them.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.rollout import promote_rollout

    promote_rollout(settings, model, as_json=json)


def abort(
    *, model: Model = None, name: given.Name = None, json: given.Json = False, config: given.Config = None
) -> None:
    """Give all requests back to the stable version at once.

    Returns when no instance of the new version takes requests any more.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.commands.rollout import abort_rollout

    abort_rollout(settings, model, as_json=json)

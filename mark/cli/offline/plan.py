"""`mark plan`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import options as given
from mark.config.short_names import split_list
from mark.domain.errors import Misconfigured

EXAMPLES = (
    "mark plan --model inception-v3 --rate 120",
    "mark plan --model inception-v3 --rate 120 --running c5.large=3,c5.xlarge=1 --market spot --json",
)


def plan(
    *,
    model: given.Model = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Of a service: the traffic before the plan, with --model-from of all models (docs/traces.md).  "
            "[default: service.serve[].trace]",
        ),
    ] = None,
    model_from: given.ModelFrom = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="RPS", help="Expected requests/s of the next hour.  [default: give --forecast]"),
    ] = None,
    forecast: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Expected rates instead: a CSV of minute,rate, or a trace (docs/traces.md).  "
            "[default: give --rate]",
        ),
    ] = None,
    running: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE=N,...", help="Instances that run already, such as c5.large=3.  [default: none]"
        ),
    ] = None,
    market: given.Market = None,
    slo_ms: given.SloMs = None,
    slo_target: given.SloTarget = None,
    accuracy_floor: given.AccuracyFloor = None,
    sizes: given.Sizes = None,
    types: given.Types = None,
    profiles: given.Profiles = None,
    models: given.Models = None,
    commitments: given.Commitments = None,
    start_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Of a service: the moment on its traces' clock.  [default: trace.start_s of the settings, or the "
            "traces' end]",
        ),
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Plan a fleet once for a rate, and explain the choice.

    Prints what the policy `mark` (the paper's Algorithm 1) would rent now, the score of each offering, and why
    the others were not taken. The fleet is planned for the minute that lies one lead (5 minutes) ahead. Below
    stand what a service costs around its fleet, and the shape and size of a rollout for the highest of the rates.

    Where --config serves several models and no --model is named, all are planned together, for the loads of their
    traces or their `expected_rps`: which share an instance, which rent their own, what is left to Lambda, and what
    each costs an hour. It is what `mark simulate --config` would decide first at that moment.
    """
    settings = given.settings_of(locals())
    from mark.config.served import is_service

    if model_from is not None or is_service(settings):
        from mark.offline.model_loads import chosen_loads
        from mark.offline.plan_service import plan_service

        if start_s == 0:  # in the settings it stands for none, and the plan is of the traces' end
            raise Misconfigured(
                "--start-s 0: a plan looks at the load before it; leave it out for the traces' end"
            )
        names = split_list(running)
        plan_service(
            settings,
            rate_rps=rate,
            forecast=forecast,
            running=names,
            as_json=json,
            load_of=chosen_loads(settings, model_from),
        )
        return
    if trace is not None:
        raise Misconfigured(
            "--trace is of a service: a plan of one model takes its rates from --forecast or --rate"
        )
    from mark.config.served import settings_alone
    from mark.offline.plan import plan_settings

    settings = settings_alone(settings)
    plan_settings(settings, rate_rps=rate, forecast=forecast, running=split_list(running), as_json=json)

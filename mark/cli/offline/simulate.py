"""`mark simulate`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.domain.errors import Misconfigured

EXAMPLES = (
    "mark simulate --trace load.csv.gz --model inception-v3",
    "mark simulate --trace load.csv.gz --model inception-v3 --start-s 300 --policy all --out run",
    "mark simulate --trace load.csv.gz --model inception-v3 --market spot --interrupt 5:0.4 --json",
    "mark simulate --journal run --policy reactive",
)


def simulate(
    *,
    trace: given.Trace = None,
    where: given.Where = None,
    rows: given.Rows = None,
    time: given.Time = None,
    value: given.Value = None,
    tz: given.Tz = None,
    dates: given.Dates = None,
    bursts: given.Bursts = None,
    model_from: given.ModelFrom = None,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="SERVICE|PATH",
            help="R"
            "eplay the arrivals of a running service, of a replay's folder, or of archived journals (a folder or "
            "one file) instead of a trace.  [default: the trace]",
        ),
    ] = None,
    model: given.Model = None,
    market: given.Market = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="Policies, or all; may repeat. `mark policies` lists them; your own is path/file.py:Name or "
            "module:Name, and `mark init policy` writes one.  [default: hedged and what the verdict compares it "
            "with]",
            autocompletion=complete.policies,
        ),
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|USD",
            help="What you run now: sagemaker, hpa, lambda, static:N for N instances around the clock, or your "
            "bill in USD a month.  [default: sagemaker]",
        ),
    ] = None,
    pool_usd_per_hour: Annotated[
        float | None,
        typer.Option(
            metavar="USD", help="Budget of the policy kairos: what its pool may cost an hour.  [default: none]"
        ),
    ] = None,
    slo_ms: given.SloMs = None,
    slo_target: given.SloTarget = None,
    accuracy_floor: given.AccuracyFloor = None,
    mean_rps: given.MeanRps = None,
    scale: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Multiply the whole load, its history too.  [default: 1]"),
    ] = None,
    start_s: given.StartS = None,
    duration_s: given.DurationS = None,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Move through the trace X times as fast, as a rehearsal does: 1/X of the requests.  [default: 1]",
        ),
    ] = None,
    sizes: given.Sizes = None,
    seed: given.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for report.html, runs.json and the journals.  [default: printed only]"
        ),
    ] = None,
    forecaster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Forecaster of all policies: a name, module:attribute or file.py:Name.  "
            "[default: the policy's own]",
            autocompletion=complete.forecasters,
        ),
    ] = None,
    dispatch: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="Dispatch rule of all policies: least-finish, weighted or least-outstanding routes requests; "
            "for a model with variants slackfit, slackfit-published, maxbatch, maxacc, qos-fixed, qos-heuristic, "
            "qos-rl or fixed:VARIANT chooses who answers, with central: before it from one queue for all; "
            "for the policy kairos a central queue by kairos, fcfs, clockwork, drs:SIZE or your own rule, "
            "path/file.py:Name, which `mark init dispatch` writes.  [default: the policy's own, and slackfit]",
            autocompletion=complete.rules,
        ),
    ] = None,
    qos_policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What `mark qos train --model` wrote, for qos-rl.  [default: qos-policy.npz]"
        ),
    ] = None,
    stress: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Multiply the hazard of spot interruptions.  [default: 1]"),
    ] = None,
    interrupt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MIN:SHARE",
            help="Interrupt this share of the spot instances at a minute; may repeat.  [default: none]",
        ),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME;LENGTH;EXPECT",
            help="Announce an event to forecasters, such as 2026-12-01T18:00;2h;3x; may repeat.  [default: none]",
        ),
    ] = None,
    world: given.World = None,
    commitments: given.Commitments = None,
    profiles: given.Profiles = None,
    types: given.Types = None,
    models: given.Models = None,
    setting: given.Set = None,
    no_reference: Annotated[
        bool,
        typer.Option(
            "--no-reference", help="Leave out reference and floor: on a month they take longer than a replay."
        ),
    ] = False,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Replay a trace under each policy: its cost and latency.

    Where --config serves several models and no --model is named, all of them are replayed, each on its own trace
    (`service.serve[].trace`), with one bill; --model replays one of them, by its own settings.
    Forecasters train on the trace before --start-s. With --journal the model, market, objective and types are
    the service's own unless a flag overrides them. The first policy's journal is OUT/journal.jsonl, that of each
    other policy OUT/POLICY/journal.jsonl; `mark explain OUT` reads them. Of a service they are placements.jsonl,
    who shared which instance, and models/MODEL/journal.jsonl, about 5 MB a model and day.
    """
    settings = given.settings_of(locals())
    from mark.config.served import is_service
    from mark.offline.simulate import simulate_settings
    from mark.offline.simulate_service import simulate_service

    compare = policy is None
    if model_from is not None:
        if journal is not None:
            raise Misconfigured("--model-from is of a log: leave --journal out")
        from mark.offline.model_loads import loads_from

        load_of = loads_from(settings, model_from)
        simulate_service(settings, as_json=json, compare=compare, reference=not no_reference, load_of=load_of)
        return
    if journal is None and is_service(settings):
        simulate_service(settings, as_json=json, compare=compare, reference=not no_reference)
        return
    workload, owned = None, None
    if journal is None:
        from mark.config.served import settings_alone

        settings = settings_alone(settings)
    else:
        from mark.live.replay_from_journal import journalled_run, owned_by

        owned = owned_by(settings, journal)
        settings, workload = journalled_run(settings, journal)
    simulate_settings(
        settings,
        as_json=json,
        workload=workload,
        owned=owned,
        reference=not no_reference,
        compare=compare,
    )

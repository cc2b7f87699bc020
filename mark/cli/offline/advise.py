"""`mark advise`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = (
    "mark advise --journal mark",
    "mark advise --journal kept --days 7 --savings-plan 0.27",
    "mark advise --trace load.csv.gz --model inception-v3 --days 2 --json",
)


def advise(
    *,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="SERVICE|PATH",
            help="Load of a running service, of a replay's folder, or of archived journals (a folder or a file).  "
            "[default: the trace]",
        ),
    ] = None,
    trace: given.Trace = None,
    where: given.Where = None,
    model: given.Model = None,
    mean_rps: given.MeanRps = None,
    days: Annotated[
        float, typer.Option(metavar="N", help="Days of the load that are replayed: the last ones there are.")
    ] = 30.0,
    savings_plan: Annotated[
        float | None,
        typer.Option(
            metavar="DISCOUNT",
            help="Size a Savings Plan that is so much cheaper than on demand, such as 0.27; AWS's Billing console "
            "shows what your account is offered.  [default: 0.27, an assumption]",
        ),
    ] = None,
    seed: given.Seed = None,
    world: given.World = None,
    commitments: given.Commitments = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Say what each change of the settings would have saved.

    Replays the service's own load with the market, the types, the policy, the shape and the objective changed, one
    at a time, and lists what saves and keeps its objective, most first, with the setting that does it and the
    command of its replay. A month of load takes minutes (docs/saving.md); Ctrl-C prints what is finished.
    """
    settings = given.settings_of(locals())
    from mark.offline.advice.advise import AdviceOptions, advise_on

    words = {
        "--journal": journal,
        "--trace": trace,
        "--model": model,
        "--mean-rps": mean_rps,
        "--seed": seed,
        "--world": world,
        "--commitments": commitments,
        "--config": config,
    }
    said = [*(("--where", item) for item in where or ()), *((flag, value) for flag, value in words.items())]
    again = tuple(str(word) for flag, value in said if value is not None for word in (flag, value))
    options = AdviceOptions(days=days, savings_plan=savings_plan, given=again, file=str(config or "mark.yaml"))
    workload, owned = None, None
    if journal is not None:
        from mark.live.replay_from_journal import journalled_run, owned_by

        owned = owned_by(settings, journal)
        settings, workload = journalled_run(settings, journal)
    else:
        from mark.config.served import settings_of_one

        settings = settings_of_one(settings)
    advise_on(settings, options, as_json=json, workload=workload, owned=owned)

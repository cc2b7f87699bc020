"""`mark explain`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given

EXAMPLES = ("mark explain run", "mark explain run --at 7", "mark explain run --policy reactive --at 2 --json")


def explain(
    run_dir: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN_DIR", help="Folder that `mark simulate --out` wrote.  [default: the running service]"
        ),
    ] = None,
    *,
    at: Annotated[
        float | None,
        typer.Option(metavar="MINUTE", help="Minute of the run.  [default: a summary of the whole run]"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Policy whose journal is read.  [default: the run's first]",
            autocompletion=complete.policies,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model to explain.  [default: the running service's first; where models share instances, who "
            "sits on which]",
            autocompletion=complete.models,
        ),
    ] = None,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Explain what the controller did and why, in a replay or live.

    It replays the journal and reports whether today's controller would give the same orders from the same
    observations. --at shows that minute and its neighbours.

    Of a replay of several models, and of a service that shares any, it shows who sat on which shared
    instance, what moved and why, by what the decision knew: the expected load, each model's part of the rent and
    its cost without sharing. --model explains one model's own fleet, and where it sat.
    """
    service = given.settings_of(locals(), "name").service.name
    if run_dir is None:
        from mark.live.commands.explain_live import explain_live

        explain_live(service, model=model, minute=at, as_json=json)
        return
    from mark.offline.explanation.explain import explain_run

    explain_run(run_dir, minute=at, policy=policy, model=model, as_json=json)

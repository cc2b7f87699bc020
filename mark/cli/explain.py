"""`mark explain`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = ("mark explain run", "mark explain run --at 7", "mark explain run --policy reactive --at 2 --json")


def explain(
    run_dir: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN_DIR]", help="Folder that `mark simulate --out` wrote; left out, the service that runs."
        ),
    ] = None,
    *,
    at: Annotated[
        float | None, typer.Option(metavar="MINUTE", help="Minute of the run; left out, the whole run in short.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose journal; left out, the first policy's.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A model of the service that runs; left out, its first.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="SERVICE", help="The service; `service.name` of the settings.")
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Why the controller did what it did, in a run or in the service that runs.

    The journal is folded again: if today's controller would have ordered anything else from the same observations,
    this says so. --at shows that minute and the ones beside it.
    """
    service = given.settings_from(config, service__name=name).service.name
    if run_dir is None:
        from mark.live.commands.explain import explain_live

        explain_live(service, model=model, minute=at, as_json=json)
        return
    from mark.offline.explain import explain_run

    explain_run(run_dir, minute=at, policy=policy, as_json=json)

"""`mark synth`, `diff`, `deploy`, `destroy`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

SYNTH_EXAMPLES = ("mark synth --config mark.yaml --out stacks",)
DIFF_EXAMPLES = ("mark diff --config mark.yaml", "mark diff --config mark.yaml --json")
DEPLOY_EXAMPLES = (
    "mark deploy --config mark.yaml",
    "mark deploy --trial --config mark.yaml",
    "mark deploy --config mark.yaml --yes",
)
DESTROY_EXAMPLES = ("mark destroy --config mark.yaml",)


def synth(
    *,
    to: Annotated[Path, typer.Option("--out", "--to", metavar="FOLDER", help="Folder to write to.")] = Path(
        "stacks"
    ),
    trial: given.Trial = False,
    config: given.Config = None,
) -> None:
    """Write the service as plain CloudFormation.

    Writes templates, bundles and a script for the AWS CLI. It makes no AWS call, so the settings must name
    rollout.network.zones. It needs the extra `infra` and Node.js, which CDK runs on.
    """
    settings = given.rollout_settings(config, trial=trial)
    from mark.rollout.templates import write_templates

    write_templates(settings, to)


def diff(*, trial: given.Trial = False, json: given.Json = False, config: given.Config = None) -> None:
    """Show what a deploy would change; change nothing.

    The exit status is 1 when there is a difference.
    """
    settings = given.rollout_settings(config, trial=trial)
    from mark.rollout.deploy import show_difference

    raise typer.Exit(show_difference(settings, as_json=json))


def deploy(*, trial: given.Trial = False, yes: Yes = False, config: given.Config = None) -> None:
    """Deploy the service to an AWS account, or update it.

    Shows the change, and what the service costs an hour now and at most, and asks first. The account is that of
    the credentials that boto3 finds. A stack that fails is rolled back and the first failure is named; deploy
    again to go on from there. With --trial it is the same deploy with settings for a first day: one model and one
    node, no domain, no certificate, no mail, at most 1 USD an hour for instances.
    """
    settings = given.rollout_settings(config, trial=trial)
    from mark.rollout.deploy import deploy as roll_out

    roll_out(settings, yes=yes)


def destroy(*, yes: Yes = False, config: given.Config = None) -> None:
    """Remove the service from the account.

    Removes controllers, then instances, then the rest. The bucket and the logs stay.
    """
    settings = given.settings_from(config)
    from mark.rollout.destroy import destroy as remove

    remove(settings, yes=yes)

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
DEPLOY_EXAMPLES = ("mark deploy --config mark.yaml", "mark deploy --config mark.yaml --yes")
DESTROY_EXAMPLES = ("mark destroy --config mark.yaml",)


def synth(
    *,
    to: Annotated[Path, typer.Option("--out", "--to", metavar="FOLDER", help="Where to write them.")] = Path(
        "stacks"
    ),
    config: given.Config = None,
) -> None:
    """Write the service as plain CloudFormation: templates, bundles and a script for the AWS CLI.

    Nothing is asked of AWS. It needs the extra `infra` and Node.js, which CDK runs on.
    """
    settings = given.settings_from(config)
    from mark.rollout.templates import write_templates

    write_templates(settings, to)


def diff(*, json: given.Json = False, config: given.Config = None) -> None:
    """Show what a deploy would change, and change nothing; exit status 1 where it is anything."""
    settings = given.settings_from(config)
    from mark.rollout.deploy import show_difference

    raise typer.Exit(show_difference(settings, as_json=json))


def deploy(*, yes: Yes = False, config: given.Config = None) -> None:
    """Make the service in an AWS account, or bring it up to date: the change is shown and asked about first.

    The account is that of the credentials that boto3 finds. A stack that fails is taken back and the first
    failure is named; deploying again goes on from there.
    """
    settings = given.settings_from(config)
    from mark.rollout.deploy import deploy as roll_out

    roll_out(settings, yes=yes)


def destroy(*, yes: Yes = False, config: given.Config = None) -> None:
    """Remove the service from the account: controllers, instances, then the rest. Bucket and logs stay."""
    settings = given.settings_from(config)
    from mark.rollout.destroy import destroy as remove

    remove(settings, yes=yes)

"""`mark synth`, `diff`, `deploy`, `rotate`, `destroy`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

MOST_KEPT_S = 2_592_000.0
"""30 days: a rotation waits in the command that runs it."""

SYNTH_EXAMPLES = ("mark synth --config mark.yaml --out stacks",)
DIFF_EXAMPLES = ("mark diff --config mark.yaml", "mark diff --config mark.yaml --json")
DEPLOY_EXAMPLES = (
    "mark deploy --config mark.yaml",
    "mark deploy --trial --config mark.yaml",
    "mark deploy --config mark.yaml --yes",
)
ROTATE_EXAMPLES = ("mark rotate --plan --config mark.yaml", "mark rotate token --keep-old 3600 --config mark.yaml")
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
    settings = given.settings_of(locals())
    from mark.deployment.templates import write_templates

    write_templates(settings, to)


def diff(*, trial: given.Trial = False, json: given.Json = False, config: given.Config = None) -> None:
    """Show what a deploy would change; change nothing.

    The exit status is 1 when there is a difference.
    """
    settings = given.settings_of(locals())
    from mark.deployment.deploy import show_difference

    raise typer.Exit(show_difference(settings, as_json=json))


def deploy(
    *,
    trial: given.Trial = False,
    ask_above: given.AskAbove = None,
    new_images: Annotated[
        bool, typer.Option("--new-images", help="Take AWS's newest machine images: patches, drivers.")
    ] = False,
    yes: given.Yes = False,
    config: given.Config = None,
) -> None:
    """Deploy the service to an AWS account, or update it.

    Shows the change, and what the service costs an hour now and at most, and asks first; the question says where
    the first plan costs more than --ask-above. The account is that of
    the credentials that boto3 finds. A stack that fails is rolled back and the first failure is named; deploy
    again to go on from there. With --trial it is the same deploy with settings for a first day: one model and one
    node, no domain, no certificate, no mail, at most 1 USD an hour for instances.
    """
    settings = given.settings_of(locals())
    from mark.deployment.deploy import deploy as roll_out

    roll_out(settings, yes=yes, new_images=new_images)


def rotate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Secrets to rotate.  [default: all that can be]"),
    ] = None,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Print the steps; change nothing.")] = False,
    keep_old: Annotated[
        float,
        typer.Option(
            "--keep-old",
            metavar="S",
            min=0.0,
            max=MOST_KEPT_S,
            help="Seconds for which the old value counts, too.",
        ),
    ] = 3600.0,
    config: given.Config = None,
) -> None:
    """Rotate a deployed service's secrets; lose no request.

    A new token of the clients is made, gateways accept it beside the old one, clients read it, and the old one
    goes after the time that --keep-old says; with the shape lean the agents' password at the store goes the same
    way. No process starts anew. A rotation that was interrupted goes on when you run this again. Secrets that
    cannot be rotated so are named, with the reason.
    """
    settings = given.settings_of(locals())
    from mark.deployment.rotate import rotate as rotate_secrets

    rotate_secrets(settings, tuple(names or ()), keep_old_s=keep_old, plan_only=plan)


def destroy(
    *,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Reports, journals, logs and loose disks, too, for good."),
    ] = False,
    yes: given.Yes = False,
    config: given.Config = None,
) -> None:
    """Remove the service from the account.

    Removes controllers, then instances, then the rest. The bucket and the logs stay, unless --all is given.
    """
    settings = given.settings_of(locals())
    from mark.deployment.destroy import destroy as remove

    remove(settings, yes=yes, everything=everything)

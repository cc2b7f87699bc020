"""`mark report` and `mark feed`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import options as given

EXAMPLES = (
    "mark report",
    "mark report --since 24h --out report.html",
    "mark report --since 30d --policy none --json",
    "mark report --archive kept --since 30d",
)
FEED_EXAMPLES = ("mark feed", "mark feed --model inception-v3")
Name = Annotated[
    str | None, typer.Option("--name", metavar="SERVICE", help="The service; `service.name` of the settings.")
]


def report(
    *,
    since: Annotated[
        str, typer.Option(metavar="PERIOD", help="How far back: a number with m, h, d or w behind it.")
    ] = "7d",
    to: Annotated[
        Path | None,
        typer.Option(
            "--out", "--to", metavar="FILE", help="Write the report as one HTML file that needs nothing else."
        ),
    ] = None,
    email: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Mail it through SES, from rollout.report.sender; may repeat."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Policies to replay on the service's own arrivals, comma list; none for those that are kept; "
            "left out, service.report.policies.",
        ),
    ] = None,
    reconcile: Annotated[
        bool,
        typer.Option(
            "--reconcile",
            help="Ask Cost Explorer too (0.01 USD a request) and print the difference to the ledger.",
        ),
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Read what was downloaded of the service's bucket (journal/) in place of its store; --config "
            "says what it served.",
        ),
    ] = None,
    name: Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """What the service cost, whether its objective held, and what others would have cost on the same arrivals.

    Days are days of UTC. Each whole day is replayed once and kept beside the service's state, so that the command
    can run from any cron.
    """
    settings = given.settings_from(config, service__name=name)
    from mark.live.cost_report.report import ReportOptions, chosen_policies, parse_period, report_service

    options = ReportOptions(
        period_s=parse_period(since),
        policies=chosen_policies(None if policy is None else given.split_list(policy)),
        email=tuple(email or ()),
        to=to,
        reconcile=reconcile,
        archive=archive,
    )
    report_service(settings, options, as_json=json)


def feed(
    *,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose requests they are; left out, the service's first model."),
    ] = None,
    name: Name = None,
    config: given.Config = None,
) -> None:
    """Count the lines on stdin as requests that came just now: the load of a fleet that `mode: observe` looks at.

    It goes on until its input ends, and takes whatever writes a line a request, as in
    `tail -n 0 -F access.log | mark feed`.
    """
    service = given.settings_from(config, service__name=name).service.name
    from mark.live.commands.feed import feed_service

    feed_service(service, model)

"""`mark report` and `mark feed`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given
from mark.config.short_names import split_list
from mark.domain.errors import Misconfigured

EXAMPLES = (
    "mark report",
    "mark report --since 24h --out report.html",
    "mark report --since 30d --policy none --json",
    "mark report --archive kept --since 30d",
)
FEED_EXAMPLES = (
    "mark feed",
    "mark feed --model inception-v3",
    "mark feed --prometheus http://prometheus:9090 --query 'sum(rate(http_requests_total[1m]))'",
)


def report(
    *,
    since: Annotated[
        str, typer.Option(metavar="PERIOD", help="Period to report: a number and m, h, d or w.")
    ] = "7d",
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--to",
            metavar="FILE",
            help="Write the report as one self-contained HTML file.  [default: printed only]",
        ),
    ] = None,
    email: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Mail it through SES, from rollout.report.sender; may repeat.  [default: not mailed]",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Policies to replay on the service's own arrivals; none: only what is kept.  "
            "[default: service.report.policies of the settings]",
            autocompletion=complete.policies,
        ),
    ] = None,
    reconcile: Annotated[
        bool,
        typer.Option(
            "--reconcile",
            help="Also query Cost Explorer (0.01 USD a request) and print the difference to the ledger.",
        ),
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Read a download of the service's bucket (journal/) instead of its store.  [default: the store]",
        ),
    ] = None,
    trial: given.Trial = False,
    name: given.Name = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Report the service's cost and objective, and other policies'.

    Other policies are replayed on the same arrivals. Days are days of UTC. Each whole day is replayed once and
    kept beside the service's state, so that you can run the command from cron.
    """
    settings = given.settings_of(locals(), "name")
    from mark.live.cost_report.report import ReportOptions, chosen_policies, parse_period, report_service

    options = ReportOptions(
        period_s=parse_period(since),
        policies=chosen_policies(None if policy is None else split_list(policy)),
        email=tuple(email or ()),
        to=to,
        reconcile=reconcile,
        archive=archive,
    )
    report_service(settings, options, as_json=json)


def feed(
    *,
    model: given.ServedModel = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus to read instead of stdin.  [default: lines on stdin]"),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="PROMQL",
            help="With --prometheus: a rate of requests, such as sum(rate(http_requests_total[1m])).  "
            "[default: none]",
        ),
    ] = None,
    where: given.SeriesWhere = None,
    rows: given.SeriesRows = None,
    name: given.Name = None,
    config: given.Config = None,
) -> None:
    """Count requests of an observed fleet, from stdin or Prometheus.

    For `mode: observe`: each line is one request that came just now, as in `tail -n 0 -F access.log | mark
    feed`. It ends with its input. With --prometheus, what a query gives for each minute is counted in the next
    one, until Ctrl-C. Credentials come from the environment: PROMETHEUS_TOKEN, or PROMETHEUS_USER and
    PROMETHEUS_PASSWORD.
    """
    settings = given.settings_of(locals(), "name", "where", "rows")
    service = settings.service.name
    if (prometheus is None) != (query is None):
        raise Misconfigured("--prometheus and --query go together")
    if prometheus is None or query is None:
        from mark.live.commands.feed import feed_service

        feed_service(service, model)
        return
    from mark.config.settings import process_environment
    from mark.live.commands.feed_prometheus import HISTORY_DAYS, feed_from_prometheus
    from mark.offline.metrics.minute_rates import MinuteRates
    from mark.offline.metrics.prometheus import Prometheus
    from mark.offline.trace_source import TraceReading

    source = Prometheus.at(prometheus, process_environment())
    rates = MinuteRates(source, query, TraceReading.of(settings).options, HISTORY_DAYS)
    feed_from_prometheus(service, model, rates)

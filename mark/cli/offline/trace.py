"""`mark trace`: flags and help of its commands."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from time import time as time_now
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files, a folder, a pattern or s3://bucket/prefix; formats: docs/traces.md.",
    ),
]
Out = Annotated[
    Path, typer.Option(metavar="FILE", help="File to write: timestamp_s,rate_rps; gzip where it ends in .gz.")
]
Days = Annotated[float, typer.Option(metavar="NUMBER", help="Days to ask for, up to now.")]

IMPORT_EXAMPLES = (
    "mark trace import load.csv.gz copy.csv.gz --mean-rps 30",
    "mark trace import load.csv.gz first.csv --duration-s 600",
)
DESCRIBE_EXAMPLES = ("mark trace describe load.csv.gz", "mark trace describe load.csv.gz --json")
PROMETHEUS_EXAMPLES = (
    "mark trace prometheus http://prometheus:9090 --query 'sum(rate(http_requests_total[1m]))' --out load.csv.gz",
    "mark trace prometheus https://thanos.example.com --query http_requests_total --days 60 --out load.csv",
)
CLOUDWATCH_EXAMPLES = (
    "mark trace cloudwatch AWS/ApplicationELB/RequestCount --dimension LoadBalancer=app/api/50dc6c495 --out l.csv",
    "mark trace cloudwatch AWS/ApiGateway/Count --dimension ApiName=shop --days 60 --out load.csv.gz",
)
GENERATE_EXAMPLES = (
    "mark trace generate constant --rps 60 --duration-s 900 --out load.csv.gz",
    "mark trace generate surge --rps 60 --plus 0.75 --at-s 420 --out surge.csv.gz",
    "mark trace generate mmpp --rates 20,80 --sojourns-s 600,120 --duration-s 7200 --out mmpp.csv.gz",
    "mark trace generate diurnal-floods --days 2 --out two-days.csv.gz",
)


def import_(
    sources: Sources,
    target: Annotated[
        Path,
        typer.Argument(metavar="TARGET", help="File to write: timestamp_s,rate_rps; gzip where it ends in .gz."),
    ],
    *,
    where: given.Where = None,
    rows: given.Rows = None,
    time: given.Time = None,
    value: given.Value = None,
    tz: given.Tz = None,
    dates: given.Dates = None,
    mean_rps: Annotated[
        float | None, typer.Option(metavar="RPS", help="Scale to this mean.  [default: as recorded]")
    ] = None,
    start_s: Annotated[float, typer.Option(metavar="SECONDS", help="Leave out what lies before.")] = 0.0,
    duration_s: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length to keep.  [default: to the end]")
    ] = None,
    config: given.Config = None,
) -> None:
    """Turn logs, metrics or arrivals into rates in equal bins.

    CloudWatch, Prometheus, CSVs, and access logs of an ALB, nginx or Apache are recognised by their content.
    """
    settings = given.settings_of(locals(), "where", "rows", "time", "value", "tz", "dates")
    from mark.offline.trace_source import TraceReading
    from mark.offline.traces import ImportOptions, import_places

    options = ImportOptions(mean_rps=mean_rps, start_s=start_s, duration_s=duration_s)
    import_places(sources, target, options, TraceReading.of(settings))


def describe(
    sources: Sources,
    *,
    where: given.Where = None,
    rows: given.Rows = None,
    time: given.Time = None,
    value: given.Value = None,
    tz: given.Tz = None,
    dates: given.Dates = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Describe a trace: level, peaks, daily rhythm, burstiness."""
    settings = given.settings_of(locals(), "where", "rows", "time", "value", "tz", "dates")
    from mark.offline.trace_source import TraceReading
    from mark.offline.traces import describe_places

    describe_places(sources, TraceReading.of(settings), as_json=json)


def prometheus(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address of Prometheus, such as http://localhost:9090.")
    ],
    *,
    query: Annotated[
        str,
        typer.Option(metavar="PROMQL", help="Rate of requests, such as sum(rate(http_requests_total[1m]))."),
    ],
    out: Out,
    days: Days = 14,
    step_s: Annotated[int, typer.Option(metavar="SECONDS", help="Length of a bin.")] = 60,
    where: given.SeriesWhere = None,
    rows: given.SeriesRows = None,
    config: given.Config = None,
) -> None:
    """Fetch a query of Prometheus as a trace.

    Several series are summed. A counter without rate() becomes the rate at which it rises. Credentials come from
    the environment: PROMETHEUS_TOKEN, or PROMETHEUS_USER and PROMETHEUS_PASSWORD.
    """
    settings = given.settings_of(locals(), "where", "rows")
    from mark.config.settings import process_environment
    from mark.offline.metrics.prometheus import Prometheus, import_prometheus
    from mark.offline.metrics.span import Span
    from mark.offline.trace_source import TraceReading

    source = Prometheus.at(url, process_environment())
    span = Span.until(time_now(), days, step_s)
    import_prometheus(source, query, span, out, TraceReading.of(settings).options)


def cloudwatch(
    metric: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/METRIC",
            help="Metric that counts requests, such as AWS/SageMaker/Invocations.",
            autocompletion=complete.choices(
                "AWS/ApplicationELB/RequestCount", "AWS/ApiGateway/Count", "AWS/SageMaker/Invocations"
            ),
        ),
    ],
    *,
    dimension: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A dimension of the metric; may repeat.  [default: none]"),
    ] = None,
    out: Out,
    days: Days = 14,
    step_s: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="Length of a bin.  [default: 60; from 15 days on 300, from 63 on 3600, as CloudWatch keeps them]",
        ),
    ] = None,
    region: Annotated[
        str | None, typer.Option(metavar="REGION", help="Region of the metric.  [default: service.aws.region]")
    ] = None,
    config: given.Config = None,
) -> None:
    """Fetch a metric of CloudWatch that counts requests as a trace.

    It reads the sums of a load balancer, an API or an endpoint. It needs cloudwatch:GetMetricData, and
    cloudwatch:ListMetrics to name the dimensions that exist where yours has no data.
    """
    settings = given.settings_of(locals(), "region")
    from mark.offline.metrics.cloudwatch import SETTLED_S, import_cloudwatch, parse_metric, shortest_period_s
    from mark.offline.metrics.span import Span

    wanted = parse_metric(metric, dimension or ())
    span = Span.until(time_now() - SETTLED_S, days, shortest_period_s(days) if step_s is None else step_s)
    import_cloudwatch(wanted, span, out, settings.service.aws.region)


def generate(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="Kind of load: constant, surge, mmpp or diurnal-floods.",
            autocompletion=complete.choices("constant", "surge", "mmpp", "diurnal-floods"),
        ),
    ],
    *,
    out: Out,
    rps: Annotated[
        float | None,
        typer.Option(metavar="RPS", help="constant, surge: rate before the surge.  [default: 60]"),
    ] = None,
    plus: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="surge: rise by this share; 0.5 is +50 %.  [default: 0.5]"),
    ] = None,
    at_s: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="surge: when it begins.  [default: 420]")
    ] = None,
    rise_s: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="surge: how long it rises.  [default: 120]")
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(metavar="RPS,...", help="mmpp: rates of the states.  [default: 20,80]"),
    ] = None,
    sojourns_s: Annotated[
        str | None,
        typer.Option(metavar="SECONDS,...", help="mmpp: mean stay in each state.  [default: 600,120]"),
    ] = None,
    days: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="diurnal-floods: number of days.  [default: 8]")
    ] = None,
    duration_s: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="constant, surge, mmpp: length.  [default: 3600, 1800, 86400]"),
    ] = None,
    seed: given.Seed = None,
    config: given.Config = None,
) -> None:
    """Generate a trace: constant, surge, Markov-modulated, floods."""
    settings = given.settings_of(locals(), "seed")
    from mark.offline.traces import Generator, generate_file

    flags = {
        "rps": rps,
        "plus": plus,
        "at_s": at_s,
        "rise_s": rise_s,
        "rates": None if rates is None else given.number_list("--rates", rates),
        "sojourns_s": None if sojourns_s is None else given.number_list("--sojourns-s", sojourns_s),
        "days": days,
        "duration_s": duration_s,
    }
    named = {flag: value for flag, value in flags.items() if value is not None}
    generate_file(Generator(kind=kind, parameters=named, seed=settings.seed), out)

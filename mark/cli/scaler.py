"""`mark scaler`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given

PROMETHEUS = "--prometheus http://prometheus:9090 --query 'sum(rate(http_requests_total[1m]))'"
EXAMPLES = (
    f"mark scaler --model inception-v3 --types c5.large,c5.xlarge {PROMETHEUS}",
    f"mark scaler --config mark.yaml {PROMETHEUS} --host 0.0.0.0 --state /var/lib/mark/scaler.json",
)


def scaler(
    *,
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Address of Prometheus, such as http://localhost:9090.")
    ],
    query: Annotated[
        str,
        typer.Option(metavar="PROMQL", help="Rate of requests, such as sum(rate(http_requests_total[1m]))."),
    ],
    model: given.Model = None,
    types: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE,...",
            help="Instance types that your deployments run on.  [default: offerings.types of the settings]",
        ),
    ] = None,
    market: given.Market = None,
    forecaster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Forecaster: a name, module:attribute or file.py:Name.  [default: the policy's own]",
            autocompletion=complete.forecasters,
        ),
    ] = None,
    days: Annotated[float, typer.Option(metavar="NUMBER", help="Days of load to learn from, at most 14.")] = 14,
    where: given.SeriesWhere = None,
    rows: given.SeriesRows = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on.")] = 6000,
    state: Annotated[
        Path, typer.Option(metavar="FILE", help="File that keeps the last answers over a restart.")
    ] = Path("mark-scaler.json"),
    slo_ms: given.SloMs = None,
    slo_target: given.SloTarget = None,
    accuracy_floor: given.AccuracyFloor = None,
    sizes: given.Sizes = None,
    profiles: given.Profiles = None,
    models: given.Models = None,
    commitments: given.Commitments = None,
    seed: given.Seed = None,
    setting: given.Set = None,
    config: given.Config = None,
) -> None:
    """Plan the pods of a Kubernetes cluster, and tell KEDA.

    Reads demand from Prometheus, and serves KEDA's external scaler protocol: for each instance type a metric, the
    pods that the policy `hedged` plans, without Lambda and standbys (docs/kubernetes.md). Without a forecast the
    plan is for the last minute's need, and without new demand the last answer stays. Credentials come from the
    environment: PROMETHEUS_TOKEN, or PROMETHEUS_USER and PROMETHEUS_PASSWORD. It needs the extra grpc, too.
    """
    settings = given.settings_of(locals())
    from mark.config.settings import process_environment
    from mark.live.scaler import ScalerOptions, scale

    options = ScalerOptions(prometheus=prometheus, query=query, days=days, host=host, port=port, state=state)
    scale(settings, options, process_environment())

"""A metric of CloudWatch that counts requests, as a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mark.aws.metrics import Metric, known_dimensions, metric_sums
from mark.aws.session import Aws, AwsSettings
from mark.domain.errors import Misconfigured
from mark.offline.metrics.span import Span
from mark.offline.traces import write_told
from mark.report.terminal import progress
from mark.simulator.traces.formats.cloudwatch import DATA
from mark.simulator.traces.formats.rows import RowKind, Rows
from mark.simulator.traces.trace import AS_IT_IS

SETTLED_S = 300
"""The sums of younger periods may still grow."""
KEPT = ((15, 60), (63, 300))
"""Days for which CloudWatch keeps periods of so many seconds; longer it keeps hours."""
HOUR_S = 3600
MOST_SHOWN = 3
"""Metrics that an error names at most."""


def shortest_period_s(days: float) -> int:
    """The shortest period that CloudWatch still has for the last `days`."""
    return next((period_s for kept, period_s in KEPT if days < kept), HOUR_S)


def parse_metric(name: str, dimensions: Sequence[str]) -> Metric:
    """The metric of `AWS/ApplicationELB/RequestCount` and `NAME=VALUE`s. Misconfigured for anything else."""
    namespace, _, metric = name.rpartition("/")
    if not (namespace and metric):
        raise Misconfigured(f"{name} must read NAMESPACE/METRIC, such as AWS/ApplicationELB/RequestCount")
    pairs = [text.partition("=") for text in dimensions]
    wrong = next((text for text, pair in zip(dimensions, pairs, strict=True) if not (pair[0] and pair[2])), None)
    if wrong is not None:
        raise Misconfigured(
            f"--dimension {wrong!r} must read NAME=VALUE, such as LoadBalancer=app/api/50dc6c495c0c9188"
        )
    return Metric(namespace=namespace, name=metric, dimensions={name: value for name, _, value in pairs})


def import_cloudwatch(metric: Metric, span: Span, target: Path, region: str) -> None:
    """Write what the metric counted within the span as rates in equal bins."""
    name = f"{metric.namespace}/{metric.name}"
    aws = Aws(AwsSettings(region=region))
    try:
        with progress() as report:
            report(f"asking CloudWatch in {region}", 0.0)
            sums = list(metric_sums(aws, metric, span.start_at, span.end_at, span.step_s))
        if not sums:
            raise _nothing(name, metric, region, known_dimensions(aws, metric.namespace, metric.name))
    finally:
        aws.close()
    times, values = np.array(sums).T
    rows = Rows(
        name=name, format=DATA, kind=RowKind.COUNT, times=times, values=values, bin_s=span.step_s, exact=True
    )
    write_told(span.trace(name, rows, AS_IT_IS), target)


def _nothing(name: str, metric: Metric, region: str, known: Sequence[Mapping[str, str]]) -> Misconfigured:
    if not known:
        return Misconfigured(f"CloudWatch has no metric {name} in {region}; check its name and --region")
    if metric.dimensions in known:
        return Misconfigured(f"{name} in {region} has no datapoint in these days; try more --days, or --step-s 60")
    shown = ", or ".join(_flags(one) for one in known[:MOST_SHOWN])
    more = f", and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    given = _flags(metric.dimensions)
    return Misconfigured(f"{name} in {region} has no datapoint with {given} in these days; there is {shown}{more}")


def _flags(dimensions: Mapping[str, str]) -> str:
    return " ".join(f"--dimension {name}={value}" for name, value in dimensions.items()) or "no --dimension"

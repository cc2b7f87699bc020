"""CloudWatch's metrics: the sums of one that counts requests, in a user's own account."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.domain.errors import RetryLater


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric. dimensions: by name, all that it is published with."""

    namespace: str
    name: str
    dimensions: dict[str, str]


def metric_sums(
    aws: Aws, metric: Metric, start_at: int, end_at: int, period_s: int
) -> Iterator[tuple[float, float]]:
    """Start, epoch seconds, and sum of each period that has a datapoint, page by page. Errors: MarkError."""
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions.items()]
    asked = {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}
    query = {"Id": "requests", "MetricStat": {"Metric": asked, "Period": period_s, "Stat": "Sum"}}
    with translated():
        pages = aws.metrics.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[query], StartTime=start_at, EndTime=end_at, ScanBy="TimestampAscending"
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                if result.get("StatusCode") == "InternalError":
                    raise RetryLater(
                        f"CloudWatch could not read all of {metric.namespace}/{metric.name}; ask again"
                    )
                for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                    yield at.timestamp(), value


def known_dimensions(aws: Aws, namespace: str, name: str) -> list[dict[str, str]]:
    """Dimensions of the metrics of that name, of up to 500. Errors: MarkError."""
    with translated():
        found = aws.metrics.list_metrics(Namespace=namespace, MetricName=name)["Metrics"]
    return [{one["Name"]: one["Value"] for one in metric["Dimensions"]} for metric in found]

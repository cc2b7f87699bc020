"""Costs by day as AWS's Cost Explorer has them. It knows a day about 24 h after its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_ce.type_defs import MetricValueTypeDef, ResultByTimeTypeDef

METRIC = "AmortizedCost"
"""Cost of each day's use. What Savings Plans and Reserved Instances cover stands there at what it takes of them.

Unblended costs have their fees instead, which bear no tag, and what they cover at nothing or on demand.
"""
BY_USAGE = ({"Type": "DIMENSION", "Key": "SERVICE"}, {"Type": "DIMENSION", "Key": "USAGE_TYPE"})


def daily_usd(aws: Aws, since: date, until: date, tags: Mapping[str, str]) -> dict[date, float]:
    """Cost of each day of `[since, until)` of what bears all these tags, USD; errors as AWS has them.

    Tags count only once they are activated as cost allocation tags, and from then on: until then days are 0.
    """
    found: dict[date, float] = {}
    for result in _results(aws, since, until, tags):
        day = date.fromisoformat(result["TimePeriod"]["Start"])
        found[day] = found.get(day, 0.0) + _usd(result.get("Total", {}))
    return found


def usd_by_usage(
    aws: Aws, since: date, until: date, tags: Mapping[str, str]
) -> tuple[dict[tuple[str, str], float], bool]:
    """The same of all these days by service and usage type, and whether any of it may still change."""
    found: dict[tuple[str, str], float] = {}
    estimated = False
    for result in _results(aws, since, until, tags, GroupBy=BY_USAGE):
        estimated = estimated or result.get("Estimated", True)
        for group in result.get("Groups", []):
            service, usage_type = group["Keys"]
            found[service, usage_type] = found.get((service, usage_type), 0.0) + _usd(group["Metrics"])
    return found, estimated


def _results(
    aws: Aws, since: date, until: date, tags: Mapping[str, str], **more: Any
) -> Iterator[ResultByTimeTypeDef]:
    """All pages; none where no day is asked for."""
    if until <= since:
        return
    asked: dict[str, Any] = {
        "TimePeriod": {"Start": since.isoformat(), "End": until.isoformat()},
        "Granularity": "DAILY",
        "Metrics": [METRIC],
        **more,
    }
    filters = [{"Tags": {"Key": key, "Values": [value]}} for key, value in sorted(tags.items())]
    if filters:
        asked["Filter"] = filters[0] if len(filters) == 1 else {"And": filters}
    while True:
        with translated():
            page = aws.costs.get_cost_and_usage(**asked)
        yield from page["ResultsByTime"]
        if not page.get("NextPageToken"):
            return
        asked["NextPageToken"] = page["NextPageToken"]


def _usd(metrics: Mapping[str, MetricValueTypeDef]) -> float:
    cost = metrics.get(METRIC, {"Amount": "0", "Unit": "USD"})
    if cost["Unit"] != "USD":
        raise Misconfigured(f"Cost Explorer counts in {cost['Unit']}, the service in USD: they cannot be compared")
    return float(cost["Amount"])

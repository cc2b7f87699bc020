"""Costs by day as AWS's Cost Explorer has them. It knows a day about 24 h after its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_ce.type_defs import ResultByTimeTypeDef

METRIC = "AmortizedCost"
"""Cost of each day's use. What Savings Plans and Reserved Instances cover stands there at what it takes of them.

Unblended costs have their fees instead, which bear no tag, and what they cover at nothing or on demand.
"""


def daily_usd(aws: Aws, since: date, until: date, tags: Mapping[str, str]) -> dict[date, float]:
    """Cost of each day of `[since, until)` of what bears all these tags, USD; errors as AWS has them.

    Tags count only once they are activated as cost allocation tags, and from then on: until then days are 0.
    """
    if until <= since:
        return {}
    asked: dict[str, Any] = {
        "TimePeriod": {"Start": since.isoformat(), "End": until.isoformat()},
        "Granularity": "DAILY",
        "Metrics": [METRIC],
    }
    filters = [{"Tags": {"Key": key, "Values": [value]}} for key, value in sorted(tags.items())]
    if filters:
        asked["Filter"] = filters[0] if len(filters) == 1 else {"And": filters}
    found: dict[date, float] = {}
    while True:
        with translated():
            page = aws.costs.get_cost_and_usage(**asked)
        for result in page["ResultsByTime"]:
            day, usd = _day(result)
            found[day] = found.get(day, 0.0) + usd
        if not page.get("NextPageToken"):
            return found
        asked["NextPageToken"] = page["NextPageToken"]


def _day(result: ResultByTimeTypeDef) -> tuple[date, float]:
    cost = result.get("Total", {}).get(METRIC, {"Amount": "0", "Unit": "USD"})
    if cost["Unit"] != "USD":
        raise Misconfigured(f"Cost Explorer counts in {cost['Unit']}, the service in USD: they cannot be compared")
    return date.fromisoformat(result["TimePeriod"]["Start"]), float(cost["Amount"])

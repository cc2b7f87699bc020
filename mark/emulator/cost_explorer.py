"""Cost Explorer: what the account's meter counted, by day, a day after its end, by tags once they are activated.

"Cost Explorer refreshes your cost data at least once every 24 hours" (its guide): here a day stands at nothing
until 24 h after its end. A month stays `Estimated` until its bill is final. An account in which no day has come so
far has no data at all. A tag can be activated a day after its first use, and filters what is used from then on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from mark.emulator.clock import ServiceClock
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.metering import Use, day_of

LAG_S = 24 * 3600.0
"""After the end of a day until it is known, and after a tag's first use until it can be activated."""
FINAL_ON_DAY = 7
"""Day of the next month on which a bill is final: "between the third and the seventh" (Billing's guide)."""
METRICS = ("AmortizedCost", "UnblendedCost", "UsageQuantity")
MOST_GROUPS, LEAST_OF_AND = 2, 2
Uses = Callable[[float, Iterable[float]], Iterable[Use]]


class CostExplorer:
    """GetCostAndUsage by day, and the cost allocation tags. `uses`: the meter's, see `Meter.uses`."""

    def __init__(self, clock: ServiceClock, uses: Uses) -> None:
        self._clock = clock
        self._uses = uses
        #: Tag -> since when it is active, service time.
        self._active: dict[str, float] = {}

    def answer(self, action: str, body: bytes) -> dict[str, Any]:
        """The reply to one call."""
        request, now = json.loads(body), self._clock.now()
        if action == "GetCostAndUsage":
            return self._cost_and_usage(request, now)
        if action == "UpdateCostAllocationTagsStatus":
            return {"Errors": self._set_tags(request["CostAllocationTagsStatus"], now)}
        if action == "ListCostAllocationTags":
            listed = [
                {"TagKey": key, "Type": "UserDefined", "Status": "Active" if key in self._active else "Inactive"}
                for key in self._known_tags(now)
                if key in request.get("TagKeys", [key])
            ]
            return {"CostAllocationTags": listed}
        raise not_emulated(f"ce:{action}")

    def _cost_and_usage(self, request: Mapping[str, Any], now: float) -> dict[str, Any]:
        days, groups, metrics = _days(request), _groups(request), request["Metrics"]
        if unknown := set(metrics) - set(METRICS):
            raise _invalid(f"Metrics {sorted(unknown)} are not supported")
        counted = [one for one in self._uses(now, self._active.values()) if one.since < now]
        if not any(_is_known(day_of(one.since), now) for one in counted):
            raise ApiError(
                "DataUnavailableException", "Data is not available. Please try to adjust the time period."
            )
        wanted = [one for one in counted if self._matches(request.get("Filter"), one)]
        results = []
        for day in days:
            text = day.isoformat()
            used = [one for one in wanted if day_of(one.since) == text and _is_known(text, now)]
            totals: dict[tuple[str, ...], list[Use]] = defaultdict(list)
            for one in used:
                totals[tuple(getattr(one, field) for field in groups)].append(one)
            of_groups = [
                {"Keys": [*keys], "Metrics": _sums(some, metrics)} for keys, some in sorted(totals.items())
            ]
            results.append(
                {
                    "TimePeriod": {"Start": text, "End": (day + timedelta(days=1)).isoformat()},
                    "Total": {} if groups else _sums(used, metrics),
                    "Groups": of_groups if groups else [],
                    "Estimated": now < _final_at(day),
                }
            )
        return {
            "ResultsByTime": results,
            "GroupDefinitions": request.get("GroupBy", []),
            "DimensionValueAttributes": [],
        }

    def _matches(self, asked: Mapping[str, Any] | None, use: Use) -> bool:
        if asked is None:
            return True
        if len(asked) != 1:
            raise _invalid("Only one of And, Or, Not, Dimensions, Tags and CostCategories may be in an expression")
        [(kind, told)] = asked.items()
        if kind == "And":
            if len(told) < LEAST_OF_AND:
                raise _invalid("And needs at least 2 expressions")
            return all(self._matches(one, use) for one in told)
        if kind == "Tags" and "MatchOptions" not in told:
            active_at = self._active.get(told["Key"])
            return active_at is not None and use.since >= active_at and use.tags.get(told["Key"]) in told["Values"]
        raise not_emulated(f"Cost Explorer's filter {asked}")

    def _known_tags(self, now: float) -> list[str]:
        return sorted({key for one in self._uses(now, ()) if one.since + LAG_S <= now for key in one.tags})

    def _set_tags(self, asked: Iterable[Mapping[str, str]], now: float) -> list[dict[str, str]]:
        """Those that cannot be set."""
        known, errors = self._known_tags(now), []
        for one in asked:
            key = one["TagKey"]
            if key not in known:
                words = f"Tag keys not found: {key}"
                errors.append({"TagKey": key, "Code": "TagKeysNotFoundException", "Message": words})
            elif one["Status"] == "Active":
                self._active.setdefault(key, now)
            else:
                self._active.pop(key, None)
        return errors


def _days(request: Mapping[str, Any]) -> list[date]:
    """The days that are asked for."""
    if request["Granularity"] != "DAILY":
        raise not_emulated(f"Cost Explorer's granularity {request['Granularity']}")
    if request.get("NextPageToken"):
        raise ApiError("InvalidNextTokenException", "The pagination token is invalid.")
    try:
        first, end = (date.fromisoformat(request["TimePeriod"][name]) for name in ("Start", "End"))
    except ValueError as error:
        raise _invalid(f"Dates of days are yyyy-MM-dd: {error}") from error
    if first >= end:
        raise _invalid("Start date (and hour) should be before end date (and hour)")
    return [first + timedelta(days=count) for count in range((end - first).days)]


def _groups(request: Mapping[str, Any]) -> list[str]:
    """Fields of a use by which its costs are grouped."""
    asked = request.get("GroupBy", [])
    if len(asked) > MOST_GROUPS:
        raise _invalid(f"At most {MOST_GROUPS} groups are allowed")
    fields = {"SERVICE": "service", "USAGE_TYPE": "usage_type"}
    if any(one["Type"] != "DIMENSION" or one["Key"] not in fields for one in asked):
        raise not_emulated(f"Cost Explorer's groups {asked}")
    return [fields[one["Key"]] for one in asked]


def _sums(uses: Iterable[Use], metrics: Iterable[str]) -> dict[str, dict[str, str]]:
    some = list(uses)
    usd = {"Amount": f"{sum(one.usd for one in some):.10f}", "Unit": "USD"}
    quantity = {"Amount": f"{sum(one.quantity for one in some):.10f}", "Unit": "N/A"}
    return {name: quantity if name == "UsageQuantity" else usd for name in metrics}


def _is_known(day: str, now: float) -> bool:
    return now >= _instant(date.fromisoformat(day) + timedelta(days=1)) + LAG_S


def _final_at(day: date) -> float:
    return _instant((day.replace(day=1) + timedelta(days=31)).replace(day=FINAL_ON_DAY))


def _instant(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)

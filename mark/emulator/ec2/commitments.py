"""Commitments of the emulated account."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from mark.domain.commitments.eligible import Compute, Usage
from mark.domain.commitments.owned import Commitments, PlanKind, ReservedInstances, SavingsPlan
from mark.domain.offerings.offering import InstanceType
from mark.emulator.config import ACCOUNT, REGION
from mark.emulator.ec2.capacity_reservations import ReservedCapacity
from mark.emulator.ec2.machine import Machine
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.paging import page_of

MOST_A_PAGE = 50
YEAR_S = 31_536_000
OPEN_START, OPEN_END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Of a term that has none: AWS's all have."""


class AccountCommitments:
    """The account's commitments, paged as AWS pages them. types: those that exist."""

    def __init__(self, owned: Commitments, types: Sequence[InstanceType]) -> None:
        self._owned = owned
        self._types = types

    def answer(self, action: str, body: bytes) -> dict[str, Any]:
        """The reply to a call of Savings Plans."""
        request = json.loads(body or b"{}")
        if action == "POST /DescribeSavingsPlans":
            plans = [_plan(one) for one in self._owned.plans]
            states = request.get("states") or ["active"]
            return _page("savingsPlans", [one for one in plans if one["state"] in states], request)
        if action == "POST /DescribeSavingsPlanRates":
            name = request["savingsPlanId"]
            found = [plan for plan in self._owned.plans if plan.name == name]
            if not found:
                raise ApiError("ResourceNotFoundException", f"no Savings Plan {name}", 404)
            return {"savingsPlanId": name, **_page("searchResults", self._rates(found[0], request), request)}
        raise not_emulated(f"savingsplans:{action}")

    def reservations(self) -> list[dict[str, Any]]:
        """The reply to EC2's DescribeReservedInstances."""
        return [_reserved(item) for item in self._owned.reservations]

    def reserved_capacity(self, machines: Iterable[Machine]) -> ReservedCapacity:
        """Its capacity reservations, over its instances."""
        return ReservedCapacity(self._owned.capacity_reservations, machines)

    def _rates(self, plan: SavingsPlan, request: dict[str, Any]) -> list[dict[str, Any]]:
        asked = {one["name"]: one["values"] for one in request.get("filters", ())}
        wanted = asked.get("instanceType")
        return [
            {
                "rate": f"{usd:.7f}",
                "currency": "USD",
                "unit": "Hrs",
                "productType": "EC2",
                "usageType": f"BoxUsage:{item.name}",
                "properties": [
                    {"name": "region", "value": REGION},
                    {"name": "instanceType", "value": item.name},
                ],
            }
            for item in self._types
            if (wanted is None or item.name in wanted) and REGION in asked.get("region", [REGION])
            for usage in (
                Usage(
                    compute=Compute.EC2,
                    on_demand_usd=item.on_demand_usd_per_hour,
                    hours=1.0,
                    instance_type=item.name,
                ),
            )
            if plan.covers(usage)
            for usd in (plan.usd_for(usage),)
        ]


def _plan(plan: SavingsPlan) -> dict[str, Any]:
    one_family = plan.kind is PlanKind.EC2_INSTANCE
    return {
        "savingsPlanId": plan.name,
        "savingsPlanArn": f"arn:aws:savingsplans::{ACCOUNT}:savingsplan/{plan.name}",
        "start": _instant(plan.starts_at, OPEN_START).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "end": _instant(plan.ends_at, OPEN_END).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "state": "active",
        "savingsPlanType": "EC2Instance" if one_family else "Compute",
        "paymentOption": plan.payment.value.replace("-", " ").title(),
        "commitment": f"{plan.usd_per_hour:g}",
        "termDurationInSeconds": plan.years * YEAR_S,
        **({"ec2InstanceFamily": plan.family, "region": plan.region or REGION} if one_family else {}),
    }


def _reserved(item: ReservedInstances) -> dict[str, Any]:
    return {
        "ReservedInstancesId": item.name,
        "InstanceType": item.instance_type,
        "InstanceCount": int(item.count),
        "ProductDescription": "Linux/UNIX",
        "InstanceTenancy": "default",
        "State": "active",
        "Scope": "Availability Zone" if item.zone else "Region",
        **({"AvailabilityZone": item.zone} if item.zone else {}),
        "OfferingClass": item.offering_class.value,
        "OfferingType": item.payment.value.replace("-", " ").title(),
        "FixedPrice": 0.0,
        "UsagePrice": 0.0,
        "RecurringCharges": [{"Amount": item.usd_per_hour, "Frequency": "Hourly"}],
        "Duration": item.years * YEAR_S,
        "Start": _instant(item.starts_at, OPEN_START),
        "End": _instant(item.ends_at, OPEN_END),
    }


def _instant(at: float | None, otherwise: datetime) -> datetime:
    return otherwise if at is None else datetime.fromtimestamp(at, UTC)


def _page(key: str, items: list[dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
    shown, following = page_of(items, request.get("nextToken"), request.get("maxResults"), most=MOST_A_PAGE)
    return {key: shown, **({"nextToken": following} if following else {})}

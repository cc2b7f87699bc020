"""Commitments that the account has, as AWS tells them: Savings Plans, Reserved Instances, capacity.

Retired ones are read, too: an hour of last week was covered by what held then. Only what covers Linux on shared
hardware counts. AWS tells rates of instances; what a plan takes off Fargate and Lambda stays assumed.

Of capacity reservations those count that are open, the account's own, and no others' to take back. Of their places
the service may use the free ones, and those that its own instances are in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from mark.aws.ec2.tags import SERVICE
from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.domain.commitments.owned import (
    CapacityReservation,
    Commitments,
    OfferingClass,
    Payment,
    PlanKind,
    ReservedInstances,
    SavingsPlan,
)
from mark.domain.errors import Misconfigured, RetryLater

KINDS = {"Compute": PlanKind.COMPUTE, "EC2Instance": PlanKind.EC2_INSTANCE}
"""Types of Savings Plans that cover what a service uses."""
STATES = ["active", "retired"]
LINUX, SHARED = "Linux/UNIX", ("default", "shared")
PAGE = 100
YEAR_S = 31_536_000.0
HOUR_S = 3600.0
TYPES_A_CALL = 50
"""Instance types in one filter of rates."""


def read_commitments(aws: Aws, *, service: str, region: str, types: Collection[str]) -> Commitments:
    """All commitments of the account that may cover usage in the region. Errors as AWS has them.

    types: the instance types whose rates and reserved capacity are asked for. RetryLater for an answer that cannot
    be read.
    """
    try:
        with translated():
            plans = tuple(_plan(aws, one, region, sorted(types)) for one in _plans(aws, region))
            reservations = tuple(_reserved(one) for one in _reservations(aws))
            kept = tuple(_capacity(aws, service, sorted(types)))
    except (KeyError, TypeError, ValueError) as error:  # of what nobody foresaw no controller ends
        raise RetryLater(f"AWS tells of a commitment what cannot be read: {error!r}") from error
    return Commitments(
        plans=tuple(sorted(plans, key=lambda plan: plan.name)),
        reservations=tuple(sorted(reservations, key=lambda item: item.name)),
        capacity_reservations=tuple(sorted(kept, key=lambda item: item.name)),
    )


def _plans(aws: Aws, region: str) -> Iterator[Mapping[str, Any]]:
    for page in _pages(aws.savings_plans.describe_savings_plans, states=STATES, maxResults=PAGE):
        for one in page.get("savingsPlans", ()):
            if one.get("savingsPlanType") in KINDS and one.get("region") in (None, "", region):
                yield one


def _plan(aws: Aws, told: Mapping[str, Any], region: str, types: Sequence[str]) -> SavingsPlan:
    name, kind = told["savingsPlanId"], KINDS[told["savingsPlanType"]]
    family = told.get("ec2InstanceFamily", "") if kind is PlanKind.EC2_INSTANCE else ""
    asked = [one for one in types if not family or one.startswith(f"{family}.")]
    active = told.get("state") == "active"
    _check_usd(f"the Savings Plan {name}", told.get("currency"))
    return SavingsPlan(
        name=name,
        kind=kind,
        usd_per_hour=float(told["commitment"]),
        family=family,
        region=told.get("region", "") if kind is PlanKind.EC2_INSTANCE else "",
        rates=tuple(sorted(_rates(aws, name, region, asked).items())) if active and asked else (),
        years=max(1, round(float(told.get("termDurationInSeconds", YEAR_S)) / YEAR_S)),
        payment=_payment(told.get("paymentOption", "")),
        starts_at=_instant(told.get("start")),
        ends_at=_instant(told.get("end")),
    )


def _rates(aws: Aws, plan: str, region: str, types: Sequence[str]) -> dict[str, float]:
    """USD an hour of each type under a plan."""
    found: dict[str, float] = {}
    for first in range(0, len(types), TYPES_A_CALL):
        filters = [
            {"name": "region", "values": [region]},
            {"name": "instanceType", "values": list(types[first : first + TYPES_A_CALL])},
            {"name": "productDescription", "values": [LINUX]},
            {"name": "tenancy", "values": ["shared"]},
        ]
        call = aws.savings_plans.describe_savings_plan_rates
        for page in _pages(call, savingsPlanId=plan, filters=filters, maxResults=PAGE):
            for one in page.get("searchResults", ()):
                said = {item["name"]: item.get("value", "") for item in one.get("properties", ())}
                if one.get("unit") == "Hrs" and said.get("instanceType"):
                    found[said["instanceType"]] = float(one["rate"])
    return found


def _reservations(aws: Aws) -> Iterator[Mapping[str, Any]]:
    page = aws.ec2.describe_reserved_instances(Filters=[{"Name": "state", "Values": STATES}])
    for one in page.get("ReservedInstances", ()):
        told: Mapping[str, Any] = one
        if LINUX in told.get("ProductDescription", LINUX) and told.get("InstanceTenancy", "default") in SHARED:
            yield told


def _reserved(told: Mapping[str, Any]) -> ReservedInstances:
    _check_usd(f"the reservation {told['ReservedInstancesId']}", told.get("CurrencyCode"))
    duration_s = float(told.get("Duration", YEAR_S))
    hourly = sum(one["Amount"] for one in told.get("RecurringCharges", ()) if one.get("Frequency") == "Hourly")
    upfront = float(told.get("FixedPrice", 0.0)) / duration_s * HOUR_S
    return ReservedInstances(
        name=told["ReservedInstancesId"],
        instance_type=told["InstanceType"],
        count=float(told["InstanceCount"]),
        usd_per_hour=upfront + float(hourly) + float(told.get("UsagePrice", 0.0)),
        zone=told.get("AvailabilityZone", "") if told.get("Scope") == "Availability Zone" else "",
        offering_class=OfferingClass(told.get("OfferingClass", "standard")),
        years=max(1, round(duration_s / YEAR_S)),
        payment=_payment(told.get("OfferingType", "")),
        starts_at=_instant(told.get("Start")),
        ends_at=_instant(told.get("End")),
    )


def _capacity(aws: Aws, service: str, types: Sequence[str]) -> Iterator[CapacityReservation]:
    """Open reservations of these types with the places that the service may use."""
    asked = {
        "state": ["active"],
        "instance-match-criteria": ["open"],
        "instance-platform": [LINUX],
        "instance-type": list(types),
        "tenancy": ["default"],
    }
    pages = aws.ec2.get_paginator("describe_capacity_reservations").paginate(
        Filters=[{"Name": name, "Values": values} for name, values in asked.items()]
    )
    found = [one for page in pages for one in page["CapacityReservations"] if _is_kept(one)]
    if not found:
        return
    owners, own = _inside(aws, service)
    for one in found:
        name = one["CapacityReservationId"]
        if one["OwnerId"] in owners:  # what others share is paid where it is used
            yield CapacityReservation(
                name=name,
                instance_type=one["InstanceType"],
                zone=one["AvailabilityZone"],
                count=float(one["AvailableInstanceCount"] + own[name]),
                ends_at=_instant(one.get("EndDate")),
            )


def _is_kept(told: Mapping[str, Any]) -> bool:
    """True for capacity that nobody takes back, and that is no block for a time."""
    return not told.get("Interruptible") and told.get("ReservationType", "default") == "default"


def _inside(aws: Aws, service: str) -> tuple[set[str], Counter[str]]:
    """The account, as the service's instances tell it, and how many of them are in each capacity reservation."""
    pages = aws.ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": f"tag:{SERVICE}", "Values": [service]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    )
    groups = [group for page in pages for group in page["Reservations"]]
    inside = (one.get("CapacityReservationId", "") for group in groups for one in group.get("Instances", ()))
    return {group.get("OwnerId", "") for group in groups}, Counter(inside)


def _pages(call: Any, **asked: Any) -> Iterator[Mapping[str, Any]]:
    """The pages of a call that names the next one by `nextToken`."""
    token: dict[str, str] = {}
    while True:
        page: Mapping[str, Any] = call(**asked, **token)
        yield page
        if not page.get("nextToken"):
            return
        token = {"nextToken": page["nextToken"]}


def _check_usd(what: str, currency: str | None) -> None:
    if currency not in (None, "USD"):
        raise Misconfigured(f"{what} is in {currency}, and all that is counted here in USD: name a file instead")


def _payment(words: str) -> Payment:
    """`No Upfront` and the like."""
    name = words.lower().replace(" ", "-")
    return Payment(name) if name in set(Payment) else Payment.NO_UPFRONT


def _instant(told: str | datetime | None) -> float | None:
    """Epoch seconds of an instant, which one of the services tells as text."""
    if not told:
        return None
    return (datetime.fromisoformat(told) if isinstance(told, str) else told).timestamp()

"""The account's commitments, read of the emulated AWS: all pages, by who may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from mark.aws.account.commitments import read_commitments
from mark.aws.archive import bucket_name
from mark.aws.permissions.policies import Names
from mark.aws.session import Aws
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import (
    CapacityReservation,
    Commitments,
    PlanKind,
    ReservedInstances,
    SavingsPlan,
)
from mark.domain.errors import Misconfigured, RetryLater
from mark.emulator.config import ACCOUNT, REGION
from tests.aws.builders import aws
from tests.emulator.conftest import World, config_for

PLANS = tuple(
    SavingsPlan(
        name=f"plan-{number:03}",
        kind=PlanKind.COMPUTE,
        usd_per_hour=0.25 + number,
        discounts=((Compute.EC2, 0.2),),
        starts_at=1_700_000_000.0,
        ends_at=1_731_536_000.0,
    )
    for number in range(60)
)
FAMILY = SavingsPlan(
    name="plan-c5",
    kind=PlanKind.EC2_INSTANCE,
    family="c5",
    usd_per_hour=1.5,
    discounts=((Compute.EC2, 0.4),),
    years=3,
)
HELD = (
    ReservedInstances(name="r-1", instance_type="c5.xlarge", count=2.0, usd_per_hour=0.107),
    ReservedInstances(name="r-2", instance_type="c5.large", count=1.0, usd_per_hour=0.054, zone=f"{REGION}a"),
)


KEPT = (
    CapacityReservation(name="cr-1", instance_type="c5.large", zone=f"{REGION}b", count=5.0),
    CapacityReservation(name="cr-2", instance_type="m5.large", zone=f"{REGION}b", count=1.0),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("owned")
    names = Names(service="shop", region=REGION, account=ACCOUNT, bucket=bucket_name("shop", ACCOUNT))
    owned = Commitments(plans=(*PLANS, FAMILY), reservations=HELD, capacity_reservations=KEPT)
    made = World(config_for(folder / "logs", names=names, commitments=owned))
    yield made
    made.stop()


def test_all_commitments_are_read_with_their_rates(world: World) -> None:
    there = aws(endpoint_url=world.url, role="controller")
    try:
        found = read_commitments(there, service="shop", region=REGION, types={"c5.large", "m5.large"})
    finally:
        there.close()
    assert [plan.name for plan in found.plans] == sorted([*(plan.name for plan in PLANS), "plan-c5"])
    first, family = found.plans[0], found.plans[-1]
    assert dict(first.rates) == pytest.approx({"c5.large": 0.068, "m5.large": 0.0768})
    assert (first.starts_at, first.ends_at) == (PLANS[0].starts_at, PLANS[0].ends_at)
    assert (family.kind, family.family, family.years) == (PlanKind.EC2_INSTANCE, "c5", 3)
    assert dict(family.rates) == pytest.approx({"c5.large": 0.051})
    told = [(item.name, item.count, item.usd_per_hour, item.zone) for item in found.reservations]
    assert told == [(item.name, item.count, item.usd_per_hour, item.zone) for item in HELD]


def test_of_reserved_capacity_the_free_places_count_and_those_of_own_instances(world: World) -> None:
    there, ec2 = aws(endpoint_url=world.url, role="controller"), world.client("ec2")

    def run(kind: str, zone: str, service: str, count: int = 1) -> None:
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "mark:service", "Value": service}]}]
        ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType=kind,
            MinCount=count,
            MaxCount=count,
            Placement={"AvailabilityZone": zone},
            TagSpecifications=tags,
        )

    run("c5.large", f"{REGION}b", "others", 2)
    run("c5.large", f"{REGION}b", "shop")
    run("c5.large", f"{REGION}a", "shop", 3)
    try:
        found = read_commitments(there, service="shop", region=REGION, types={"c5.large"})
    finally:
        there.close()
    assert [(item.name, item.zone, item.count) for item in found.capacity_reservations] == [
        ("cr-1", f"{REGION}b", 3.0)
    ]
    (told,) = ec2.describe_capacity_reservations(CapacityReservationIds=["cr-1"])["CapacityReservations"]
    assert (told["TotalInstanceCount"], told["AvailableInstanceCount"]) == (5, 2)


def test_who_may_not_ask_is_refused(world: World) -> None:
    there = aws(endpoint_url=world.url, role="gateway")
    try:
        with pytest.raises(Misconfigured):
            read_commitments(there, service="shop", region=REGION, types={"c5.large"})
    finally:
        there.close()


PLAN_TOLD = {
    "savingsPlanId": "sp-1",
    "savingsPlanType": "Compute",
    "commitment": "0.5",
    "state": "active",
    "currency": "USD",
}
RESERVED_TOLD = {
    "ReservedInstancesId": "ri-1",
    "InstanceType": "c5.large",
    "InstanceCount": 2,
    "OfferingClass": "standard",
    "CurrencyCode": "USD",
    "Duration": 31_536_000,
    "FixedPrice": 262.8,
    "RecurringCharges": [{"Amount": 0.025, "Frequency": "Hourly"}],
}


class Told:
    """AWS that tells so much of a plan and of a reservation."""

    def __init__(self, plan: dict[str, Any], reserved: dict[str, Any]) -> None:
        self.savings_plans = self.ec2 = self
        self.kept: list[dict[str, Any]] = []
        self._plan, self._reserved = plan, reserved

    def describe_savings_plans(self, **_: object) -> dict[str, Any]:
        return {"savingsPlans": [self._plan]}

    def describe_savings_plan_rates(self, **_: object) -> dict[str, Any]:
        return {"searchResults": []}

    def describe_reserved_instances(self, **_: object) -> dict[str, Any]:
        return {"ReservedInstances": [self._reserved]}

    def get_paginator(self, _: str) -> Told:
        return self

    def paginate(self, **_: object) -> list[dict[str, Any]]:
        return [{"CapacityReservations": self.kept, "Reservations": [{"OwnerId": ACCOUNT, "Instances": []}]}]


def told(plan: dict[str, Any] | None = None, reserved: dict[str, Any] | None = None) -> Commitments:
    aws = cast("Aws", Told(PLAN_TOLD | (plan or {}), RESERVED_TOLD | (reserved or {})))
    return read_commitments(aws, service="shop", region=REGION, types={"c5.large"})


KEPT_TOLD = {
    "CapacityReservationId": "cr-9",
    "OwnerId": ACCOUNT,
    "InstanceType": "c5.large",
    "AvailabilityZone": f"{REGION}a",
    "AvailableInstanceCount": 2,
    "EndDate": "2026-12-01T00:00:00+00:00",
}


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, [2.0]),
        ({"OwnerId": "999999999999"}, []),
        ({"Interruptible": True}, []),
        ({"ReservationType": "capacity-block"}, []),
    ],
)
def test_capacity_of_others_blocks_and_what_is_taken_back_do_not_count(changes, counts) -> None:
    there = Told(PLAN_TOLD, RESERVED_TOLD)
    there.kept = [KEPT_TOLD | changes]
    found = read_commitments(cast("Aws", there), service="shop", region=REGION, types={"c5.large"})
    assert [item.count for item in found.capacity_reservations] == counts
    assert [item.ends_at for item in found.capacity_reservations] == [1_796_083_200.0] * len(counts)


def test_what_was_paid_upfront_is_spread_over_the_term() -> None:
    (item,) = told().reservations
    assert item.usd_per_hour == pytest.approx(262.8 / 8760 + 0.025)


@pytest.mark.parametrize(
    ("plan", "reserved"),
    [({"start": "soon"}, {}), ({"commitment": None}, {}), ({}, {"OfferingClass": "flexible"})],
)
def test_an_answer_that_cannot_be_read_ends_nobody(plan, reserved) -> None:
    with pytest.raises(RetryLater, match="what cannot be read"):
        told(plan, reserved)


@pytest.mark.parametrize(("plan", "reserved"), [({"currency": "CNY"}, {}), ({}, {"CurrencyCode": "CNY"})])
def test_another_currency_is_not_counted_as_dollars(plan, reserved) -> None:
    with pytest.raises(Misconfigured, match="is in CNY"):
        told(plan, reserved)

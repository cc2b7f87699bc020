"""Spot prices as a controller reads them: by zone, once an hour, and none is missed where AWS is silent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mark.aws.ec2.launch import FleetSetup, launched_rows
from mark.aws.ec2.observed import Ec2Row
from mark.aws.ec2.spot_prices import READ_EVERY_S, ObservedSpotPrices
from mark.aws.session import Aws
from mark.cloudmodel.world import TYPICAL
from mark.domain.fleet.instances import Role
from tests.aws.builders import OFFERINGS, ON_DEMAND, SPOT, aws, launch
from tests.emulator.conftest import World, config_for

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(config_for(tmp_path, world=TYPICAL))
    yield made
    made.stop()


@pytest.fixture
def there(world: World) -> Iterator[Aws]:
    made = aws(endpoint_url=world.url)
    yield made
    made.close()


def row(zone: str, offering: str = SPOT.name) -> Ec2Row:
    return Ec2Row(
        id="i",
        model="m",
        offering=offering,
        role=Role.SERVING,
        token="",
        state="running",
        launched_at=0,
        zone=zone,
    )


def test_a_spot_instance_costs_what_its_zone_does_and_the_lowest_is_planned_with(world: World, there: Aws) -> None:
    prices = ObservedSpotPrices(there, OFFERINGS)
    assert [prices.usd_per_hour(row(zone)) for zone in ZONES] == [SPOT.usd_per_hour] * 3
    assert prices.lowest() == ()
    prices.read(0.0)
    found = [prices.usd_per_hour(row(zone)) for zone in ZONES]
    assert len(set(found)) == 3
    lowest = dict(prices.lowest())
    assert lowest.pop(SPOT.name) == min(price for price in found if price)
    assert lowest == {f"{SPOT.name}:{zone}": price for zone, price in zip(ZONES, found, strict=True)}
    assert prices.usd_per_hour(row("")) == SPOT.usd_per_hour
    assert prices.usd_per_hour(row(ZONES[0], ON_DEMAND.name)) == ON_DEMAND.usd_per_hour
    assert prices.usd_per_hour(row(ZONES[0], "gone:spot")) is None


def test_an_account_pays_its_own_share_of_the_spot_price(there: Aws) -> None:
    cheap = replace(SPOT, instance_type=replace(SPOT.instance_type, spot_price_factor=0.9))
    listed, own = ObservedSpotPrices(there, OFFERINGS), ObservedSpotPrices(there, {**OFFERINGS, SPOT.name: cheap})
    for prices in (listed, own):
        prices.read(0.0)
    assert own.usd_per_hour(row(ZONES[0])) == pytest.approx(0.9 * (listed.usd_per_hour(row(ZONES[0])) or 0.0))
    assert dict(own.lowest())[SPOT.name] == pytest.approx(0.9 * dict(listed.lowest())[SPOT.name])


def test_what_is_reserved_counts_at_the_dearest_zone_that_it_may_stand_in(there: Aws) -> None:
    everywhere, only = ObservedSpotPrices(there, OFFERINGS), ObservedSpotPrices(there, OFFERINGS, ZONES[1:2])
    assert everywhere.known() == {}
    everywhere.read(0.0)
    only.read(0.0)
    found = {zone: everywhere.usd_per_hour(row(zone)) for zone in ZONES}
    price = everywhere.known()[SPOT.name]
    assert {zone: price.by_zone[zone] for zone in ZONES} == found
    assert price.dearest == max(price.by_zone.values())
    assert only.known()[SPOT.name].dearest == found[ZONES[1]]


def test_only_zones_that_the_service_may_use_count_as_the_lowest(there: Aws) -> None:
    prices = ObservedSpotPrices(there, OFFERINGS, ZONES[1:2])
    prices.read(0.0)
    price = prices.usd_per_hour(row(ZONES[1]))
    assert prices.lowest() == ((SPOT.name, price), (f"{SPOT.name}:{ZONES[1]}", price))


def test_prices_are_read_once_an_hour_and_kept_where_aws_is_throttled(world: World, there: Aws) -> None:
    prices, calls = ObservedSpotPrices(there, OFFERINGS), "ec2:DescribeSpotPriceHistory"
    for now in (0.0, 60.0, READ_EVERY_S - 1.0):
        prices.read(now)
    assert world.state()["calls"][calls] == 1
    known = prices.lowest()
    world.mark("POST", "faults", {"kind": "throttle", "action": "DescribeSpotPriceHistory"})
    prices.read(READ_EVERY_S)
    assert prices.lowest() == known
    assert world.state()["calls"][calls] > 1


def test_nobody_is_asked_where_nothing_is_rented_on_spot(world: World, there: Aws) -> None:
    ObservedSpotPrices(there, {ON_DEMAND.name: ON_DEMAND}).read(0.0)
    assert "ec2:DescribeSpotPriceHistory" not in world.state()["calls"]


def test_a_new_instance_is_in_the_zone_of_the_subnet_that_the_answer_names() -> None:
    setup = FleetSetup(
        service="shop",
        model="m",
        run="r",
        offerings=OFFERINGS,
        templates={},
        subnets=(("us-east-1b", "subnet-2"),),
    )
    told = {"Overrides": {"SubnetId": "subnet-2"}}
    reply = {"Instances": [{"InstanceIds": ["i-1"], "LaunchTemplateAndOverrides": told}]}
    (made,) = launched_rows(setup, launch(kind=SPOT.name), reply, 1.0).values()  # type: ignore[arg-type]
    assert made.zone == "us-east-1b"
    reply["Instances"][0]["LaunchTemplateAndOverrides"] = {}
    (made,) = launched_rows(setup, launch(kind=SPOT.name), reply, 1.0).values()  # type: ignore[arg-type]
    assert made == replace(made, zone="")

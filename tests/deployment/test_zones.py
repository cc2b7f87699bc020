"""Zones of a service: AWS's, not guessed ones, and kept while it stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.stacks.cloudformation import StackState
from mark.config.settings import Settings
from mark.deployment.zones import (
    check_types_by_zone,
    check_way_out,
    check_zones,
    chosen_zones,
    in_zones,
    require_zones,
)
from mark.domain.errors import Misconfigured

TOKYO = ("ap-northeast-1a", "ap-northeast-1c", "ap-northeast-1d")
"""Zones of an account there, as DescribeAvailabilityZones has them: most accounts see no ap-northeast-1b."""


def account(zones: tuple[str, ...], **subnets: str) -> Any:
    """EC2 as far as zones go; local zones and such that nobody opted in to are listed, too."""
    listed = [{"ZoneName": zone, "OptInStatus": "opt-in-not-required"} for zone in zones]
    listed.append({"ZoneName": "a-zone-of-no-use", "OptInStatus": "not-opted-in"})
    ec2 = SimpleNamespace(
        describe_availability_zones=lambda **_: {"AvailabilityZones": listed},
        describe_subnets=lambda SubnetIds: {  # noqa: N803 - boto3's name
            "Subnets": [{"SubnetId": one, "AvailabilityZone": subnets[one]} for one in reversed(SubnetIds)]
        },
    )
    return SimpleNamespace(ec2=ec2)


def stacks(*standing: str, status: str = "CREATE_COMPLETE") -> Any:
    """The stacks of a service whose network stands there; of no service where nothing is given."""
    name = "mark-shop-network"
    found = StackState(name=name, id=name, status=status, tags={}) if standing else None
    resources = {
        f"Subnet{number}": {"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": zone}}
        for number, zone in reversed(list(enumerate(standing)))
    }
    made = {"Resources": {"Vpc": {"Type": "AWS::EC2::VPC"}, **resources}}
    return SimpleNamespace(state=lambda _: found, template=lambda _: made)


def shop(**network: Any) -> Settings:
    return Settings.model_validate({"service": {"name": "shop"}, "rollout": {"network": network}})


def test_a_new_service_stands_where_the_account_may() -> None:
    found = in_zones(shop(), stacks(), account(TOKYO))
    assert found.rollout.network.zones == ("ap-northeast-1a", "ap-northeast-1c")


@given(
    standing=st.lists(st.sampled_from(TOKYO), min_size=2, unique=True),
    available=st.lists(st.sampled_from(TOKYO), min_size=2, unique=True),
)
def test_a_service_that_stands_keeps_its_zones_whatever_aws_lists_later(
    standing: list[str], available: list[str]
) -> None:
    found = in_zones(shop(), stacks(*standing), account(tuple(available)))
    assert found.rollout.network.zones == tuple(standing)


def test_what_was_never_made_binds_nobody() -> None:
    there = stacks("ap-northeast-1a", "ap-northeast-1b", status="ROLLBACK_COMPLETE")
    assert in_zones(shop(), there, account(TOKYO)).rollout.network.zones == TOKYO[:2]


def test_named_zones_stay_and_may_grow_but_never_move() -> None:
    there, aws = stacks(*TOKYO[:2]), account(TOKYO)
    assert in_zones(shop(zones=TOKYO), there, aws).rollout.network.zones == TOKYO
    for moved in (TOKYO[1:], (TOKYO[1], TOKYO[0])):
        with pytest.raises(Misconfigured, match="cannot change while the service stands in ap-northeast-1a, ap-n"):
            in_zones(shop(zones=moved), there, aws)


def test_a_network_that_is_there_says_its_zones() -> None:
    aws = account(TOKYO, **{"subnet-1": TOKYO[2], "subnet-2": TOKYO[0]})
    found = in_zones(shop(vpc="vpc-1", subnets=["subnet-1", "subnet-2"]), stacks(), aws)
    assert found.rollout.network.zones == (TOKYO[2], TOKYO[0])


def test_without_credentials_zones_have_to_be_named() -> None:
    with pytest.raises(Misconfigured, match=r"rollout\.network\.zones is missing: `aws ec2 describe-avail"):
        require_zones(shop())
    require_zones(shop(zones=TOKYO))
    with pytest.raises(Misconfigured, match="stands in 2 availability zones"):
        chosen_zones(TOKYO[:1])


def test_the_doctor_names_the_zone_that_the_account_lacks() -> None:
    (found,) = check_zones(shop(zones=["ap-northeast-1a", "ap-northeast-1b"]), account(TOKYO))
    assert found.state == "error"
    assert found.message.startswith("the account has no ap-northeast-1b")
    assert "[ap-northeast-1a, ap-northeast-1c]" in found.remedy
    (found,) = check_zones(shop(), account(TOKYO))
    assert (found.state, found.message) == ("ok", ", ".join(TOKYO))


def test_a_subnet_of_ones_own_without_ipv6_takes_the_dearer_way_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = {"vpc": "vpc-1", "subnets": ["subnet-a", "subnet-b"], "egress": "ipv6"}
    blocks = {"subnet-a": [{"Ipv6CidrBlockState": {"State": "associated"}}], "subnet-b": []}

    def there(lacking: bool) -> Any:
        listed = [
            {
                "SubnetId": one,
                "AvailabilityZone": zone,
                "Ipv6CidrBlockAssociationSet": blocks[one] if lacking else blocks["subnet-a"],
            }
            for one, zone in zip(blocks, TOKYO, strict=False)
        ]
        return SimpleNamespace(ec2=SimpleNamespace(describe_subnets=lambda **_: {"Subnets": listed}))

    assert in_zones(shop(**own), stacks(), there(lacking=False)).rollout.network.egress == "ipv6"
    assert capsys.readouterr().err == ""
    assert in_zones(shop(**own), stacks(), there(lacking=True)).rollout.network.egress == "public"
    assert "subnet-b has no IPv6 addresses, so instances get public ones" in capsys.readouterr().err
    (fine,), (lacking,) = (check_way_out(shop(**own), there(lacking=lacks)) for lacks in (False, True))
    assert (fine.state, fine.message) == ("ok", "ipv6")
    assert lacking.state == "warning"
    assert lacking.message.startswith("subnet-b has no IPv6 addresses")


def test_the_doctor_says_which_zone_lacks_a_type() -> None:
    sold = {"c5.large": TOKYO, "g4dn.xlarge": TOKYO[1:], "gone": ()}

    def offered(LocationType: str, Filters: Any) -> Any:  # noqa: N803 - boto3's names
        assert LocationType == "availability-zone"
        listed = [(name, zone) for name in Filters[0]["Values"] for zone in sold[name]]
        return [{"InstanceTypeOfferings": [{"InstanceType": name, "Location": zone} for name, zone in listed]}]

    aws = account(TOKYO)
    aws.ec2.get_paginator = lambda _: SimpleNamespace(paginate=offered)
    (found,) = check_types_by_zone(shop(), sold, aws)
    assert (found.state, found.message) == ("warning", "ap-northeast-1a has no g4dn.xlarge")
    (found,) = check_types_by_zone(shop(zones=TOKYO[1:]), sold, aws)
    assert (found.state, found.message) == ("ok", "all in ap-northeast-1c, ap-northeast-1d")

"""One instance for a while: where it stands, what it starts, and that it ends."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from moto import mock_aws

from mark.aws import renting
from mark.aws.renting import Rent, rent
from mark.aws.session import Aws
from mark.catalog.load import load_prices
from mark.domain.errors import NoCapacity, RetryLater
from tests.aws.builders import aws


def rented_by(run_: str) -> Rent:
    return Rent(
        service="onshop",
        owner="mark",
        model="tiny",
        run=run_,
        instance_type=load_prices().instance_type("c5.large"),
        expires_at=time.time() + 1.0,
    )


def test_it_stands_where_the_service_stands_and_starts_what_was_deployed_last() -> None:
    """A rollout's groups belong to a network of its own; CloudFormation never moves a template's default."""
    with mock_aws():
        there = aws()
        ec2 = there.ec2
        vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24")["Subnet"]["SubnetId"]
        group = ec2.create_security_group(GroupName="agents", Description="-", VpcId=vpc)["GroupId"]
        for script in ("#!/bin/bash\nold\n", "#!/bin/bash\nnew\n"):
            data = {
                "ImageId": "ami-12c6146b",
                "SecurityGroupIds": [group],
                "UserData": base64.b64encode(script.encode()).decode(),
            }
            given: Any = {"LaunchTemplateName": "mark-onshop-serving", "LaunchTemplateData": data}
            (ec2.create_launch_template_version if "new" in script else ec2.create_launch_template)(**given)
        tags: Any = [{"ResourceType": "instance", "Tags": [{"Key": "mark:service", "Value": "onshop"}]}]
        ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=subnet, TagSpecifications=tags)
        made = rent(there, rented_by("here"), time.time())
        [found] = ec2.describe_instances(InstanceIds=[made])["Reservations"][0]["Instances"]
        assert (found["SubnetId"], [one["GroupId"] for one in found["SecurityGroups"]]) == (subnet, [group])
        told = ec2.describe_instance_attribute(InstanceId=made, Attribute="userData")["UserData"]["Value"]
        assert base64.b64decode(told).decode().endswith("new\n")
        there.close()


def test_a_zone_that_lacks_the_type_is_no_reason_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run_in(_aws: Aws, _asked: Rent, subnet: str, _asks: object) -> str:
        asked.append(subnet)
        if subnet == "subnet-1":
            raise NoCapacity("Unsupported")
        return "i-1"

    monkeypatch.setattr(renting, "_template", lambda *_: ({}, ""))
    monkeypatch.setattr(renting, "_subnets", lambda *_: ("subnet-1", "subnet-2", "subnet-3"))
    monkeypatch.setattr(renting, "_run", run_in)
    anywhere: Any = None
    assert rent(anywhere, rented_by("here"), time.time()) == "i-1"
    assert asked == ["subnet-1", "subnet-2"]


def test_what_is_known_ends_even_where_the_listing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> tuple[renting.Rented, ...]:
        raise RetryLater("throttled")

    with mock_aws():
        there = aws()
        made = there.ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"][0]
        monkeypatch.setattr(renting, "look_at", away)
        with pytest.raises(RetryLater):
            renting.end_all(there, "run", [made["InstanceId"]])
        [found] = there.ec2.describe_instances()["Reservations"][0]["Instances"]
        assert found["State"]["Name"] in {"shutting-down", "terminated"}
        there.close()

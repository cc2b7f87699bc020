"""One instance for a while: where it stands, what it starts, and that it ends."""

from __future__ import annotations

import base64
import time
from dataclasses import replace
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.ec2 import rent_instance
from mark.aws.ec2.rent_instance import Rent, rent
from mark.aws.session import Aws
from mark.catalog.load import load_prices
from mark.domain.errors import RetryLater
from tests.aws.builders import aws, fail


def rented_by(run_: str) -> Rent:
    return Rent(
        service="onshop",
        owner="mark",
        model="tiny",
        run=run_,
        instance_type=load_prices().instance_type("c5.large"),
        template="mark-onshop-serving",
        expires_at=time.time() + 1.0,
    )


IMAGE = "ami-12c6146b"


def template(there: Aws, script: str, *, group: str | None = None, again: bool = False) -> None:
    """What the service's instances start; `again` is its next version."""
    data: dict[str, Any] = {"ImageId": IMAGE, "UserData": base64.b64encode(script.encode()).decode()}
    data |= {"SecurityGroupIds": [group]} if group else {}
    given: Any = {"LaunchTemplateName": "mark-onshop-serving", "LaunchTemplateData": data}
    (there.ec2.create_launch_template_version if again else there.ec2.create_launch_template)(**given)


def serves_in(there: Aws, vpc: str, block: str) -> str:
    """A subnet in which an instance of the service stands."""
    subnet = there.ec2.create_subnet(VpcId=vpc, CidrBlock=block)["Subnet"]["SubnetId"]
    tags: Any = [{"ResourceType": "instance", "Tags": [{"Key": "mark:service", "Value": "onshop"}]}]
    there.ec2.run_instances(ImageId=IMAGE, MinCount=1, MaxCount=1, SubnetId=subnet, TagSpecifications=tags)
    return subnet


def test_it_stands_where_the_service_stands_and_starts_what_was_deployed_last() -> None:
    """A rollout's groups belong to a network of its own; CloudFormation never moves a template's default."""
    with mock_aws():
        there = aws()
        ec2 = there.ec2
        vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
        group = ec2.create_security_group(GroupName="agents", Description="-", VpcId=vpc)["GroupId"]
        template(there, "#!/bin/bash\nold\n", group=group)
        template(there, "#!/bin/bash\nnew\n", group=group, again=True)
        subnet = serves_in(there, vpc, "10.1.0.0/24")
        made = rent(there, rented_by("here"), time.time())
        [found] = ec2.describe_instances(InstanceIds=[made])["Reservations"][0]["Instances"]
        assert (found["SubnetId"], [one["GroupId"] for one in found["SecurityGroups"]]) == (subnet, [group])
        told = ec2.describe_instance_attribute(InstanceId=made, Attribute="userData")["UserData"]["Value"]
        assert base64.b64decode(told).decode().endswith("new\n")
        there.close()


def test_a_zone_that_lacks_the_type_is_no_reason_to_give_up() -> None:
    with mock_aws():
        there = aws()
        vpc = there.ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
        template(there, "#!/bin/bash\n")
        first, second, _ = sorted(serves_in(there, vpc, f"10.1.{part}.0/24") for part in range(3))
        asked: list[str] = []
        there.ec2.meta.events.register(
            "provide-client-params.ec2.RunInstances", lambda params, **_: asked.append(params["SubnetId"])
        )
        fail(there, "RunInstances", "Unsupported", status=400)
        made = rent(there, rented_by("here"), time.time())
        [found] = there.ec2.describe_instances(InstanceIds=[made])["Reservations"][0]["Instances"]
        assert (asked, found["SubnetId"]) == ([first, second], second)
        there.close()


def test_what_is_known_ends_even_where_the_listing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> tuple[rent_instance.Rented, ...]:
        raise RetryLater("throttled")

    with mock_aws():
        there = aws()
        made = there.ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"][0]
        monkeypatch.setattr(rent_instance, "look_at", away)
        with pytest.raises(RetryLater):
            rent_instance.end_all(there, "run", [made["InstanceId"]])
        [found] = there.ec2.describe_instances()["Reservations"][0]["Instances"]
        assert found["State"]["Name"] in {"shutting-down", "terminated"}
        there.close()


def test_own_tags_stand_beside_the_service_s() -> None:
    rented = replace(rented_by("r1"), own_tags={"cost-centre": "research"})
    assert rented.tags == {**rented_by("r1").tags, "cost-centre": "research"}

"""Refusals that no fault has to inject: quotas, duplicate pools, protected instances, a new account's limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.aws.account.preflight import available_zones
from mark.aws.errors import remedy
from mark.aws.session import Aws, AwsSettings
from mark.config.settings import Settings
from mark.domain.clock import ClockAnchor
from mark.emulator.config import LambdaLimits
from mark.emulator.ec2.account_limits import NEW, NEW_MEMORY_MB
from mark.live.processes.emulator import emulated_aws
from tests.aws.builders import KEYS
from tests.emulator.conftest import TYPES, World, fleet, ids_of, stub_zip, template

STANDARD, STANDARD_SPOT = "L-1216C47A", "L-34B43A08"


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


def test_a_fleet_gets_what_the_quota_leaves_and_hears_of_the_rest(start: Callable[..., World]) -> None:
    """Types of two vCPUs; both markets have quotas of their own."""
    world = start(quotas={STANDARD: 5.0, STANDARD_SPOT: 2.0})
    made = template(world)
    first = fleet(world, made, count=3)
    assert len(ids_of(first)) == 2
    assert [error["ErrorCode"] for error in first["Errors"]] == ["VcpuLimitExceeded"]
    assert [error["ErrorCode"] for error in fleet(world, made)["Errors"]] == ["VcpuLimitExceeded"]
    spot = fleet(world, made, count=2, market="spot")
    assert len(ids_of(spot)) == 1
    assert [error["ErrorCode"] for error in spot["Errors"]] == ["MaxSpotInstanceCountExceeded"]


def test_machines_before_the_fleet_take_of_the_quota_on_demand(start: Callable[..., World]) -> None:
    """Nodes are processes here, and instances that count on AWS."""
    world = start(quotas={STANDARD: 5.0, STANDARD_SPOT: 5.0}, front=(TYPES["m5.large"], 1))
    made = template(world)
    got = fleet(world, made, count=2)
    assert len(ids_of(got)) == 1
    assert [error["ErrorCode"] for error in got["Errors"]] == ["VcpuLimitExceeded"]
    assert len(ids_of(fleet(world, made, count=2, market="spot"))) == 2


def test_the_zones_of_a_fleet_share_a_quota(start: Callable[..., World]) -> None:
    world = start(quotas={STANDARD: 5.0})
    zones = [{"AvailabilityZone": f"us-east-1{zone}"} for zone in "ab"]
    made = template(world)
    answer = world.client("ec2").create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": made, "Version": "$Latest"},
                "Overrides": [{"InstanceType": "c5.large", **zone} for zone in zones],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 4, "DefaultTargetCapacityType": "on-demand"},
    )
    assert len(ids_of(answer)) == 2


def test_what_sleeps_does_not_count_until_it_is_woken(start: Callable[..., World]) -> None:
    world = start(quotas={STANDARD: 2.0})
    ec2, made = world.client("ec2", attempts=1), template(world, behavior="stop")
    [asleep] = ids_of(fleet(world, made))
    world.wait(asleep, "running")
    ec2.stop_instances(InstanceIds=[asleep])
    world.wait(asleep, "stopped")
    [other] = ids_of(fleet(world, made))
    assert code_of(lambda: ec2.start_instances(InstanceIds=[asleep])) == "VcpuLimitExceeded"
    ec2.terminate_instances(InstanceIds=[other])
    assert ec2.start_instances(InstanceIds=[asleep])["StartingInstances"]


def test_run_instances_is_refused_beyond_the_quota(start: Callable[..., World]) -> None:
    ec2 = start(quotas=NEW).client("ec2", attempts=1)
    asked = {"ImageId": "ami-12c6146b", "InstanceType": "c5.xlarge"}
    assert len(ec2.run_instances(**asked, MinCount=1, MaxCount=9)["Instances"]) == 2
    assert code_of(lambda: ec2.run_instances(**asked, MinCount=1, MaxCount=1)) == "VcpuLimitExceeded"


def test_an_account_on_the_free_plan_launches_the_types_that_aws_lists_for_it(start: Callable[..., World]) -> None:
    types = TYPES | {"t3.small": replace(TYPES["c5.large"], name="t3.small")}
    world = start(free_plan=True, types=types)
    ec2, made = world.client("ec2", attempts=1), template(world)
    asked = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1}
    assert code_of(lambda: ec2.run_instances(**asked, InstanceType="c5.large")) == "InvalidParameterCombination"
    assert ec2.run_instances(**asked, InstanceType="t3.small")["Instances"]
    got = fleet(world, made, types=["t3.small", "c5.large"])
    assert len(ids_of(got)) == 1
    [error] = fleet(world, made)["Errors"]
    assert error["ErrorCode"] == "InvalidParameterCombination"
    assert "upgrade-account-plan" in remedy(error["ErrorCode"], error["ErrorMessage"])
    assert world.client("freetier").get_account_plan_state()["accountPlanType"] == "FREE"


def test_a_pool_stands_in_a_fleet_once(world: World) -> None:
    """The same type in the same zone, by its name or by a subnet in it."""
    made, ec2 = template(world), world.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    here, too, there = (
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=f"us-east-1{zone}")[
            "Subnet"
        ]
        for number, zone in enumerate("aab")
    )

    def launch(*overrides: dict[str, str]) -> dict[str, Any]:
        reference = {"LaunchTemplateId": made, "Version": "$Latest"}
        configs = [{"LaunchTemplateSpecification": reference, "Overrides": list(overrides)}]
        return fleet(world, made, LaunchTemplateConfigs=configs)

    def of(kind: str, subnet: dict[str, Any]) -> dict[str, str]:
        return {"InstanceType": kind, "SubnetId": subnet["SubnetId"]}

    assert code_of(lambda: launch(of("c5.large", here), of("c5.large", too))) == "InvalidFleetConfig"
    by_name = {"InstanceType": "c5.large", "AvailabilityZone": "us-east-1a"}
    assert code_of(lambda: launch(by_name, by_name)) == "InvalidFleetConfig"
    assert ids_of(launch(of("c5.large", here), of("c5.large", there), of("m5.large", here)))


def test_a_protected_instance_is_ended_by_nobody_and_neither_are_those_asked_with_it(world: World) -> None:
    ec2 = world.client("ec2", attempts=1)
    protected, other = ids_of(fleet(world, template(world), count=2))
    ec2.modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": True})
    both = [protected, other]
    assert code_of(lambda: ec2.terminate_instances(InstanceIds=both)) == "OperationNotPermitted"
    assert {found["state"] for found in world.instances().values()} <= {"pending", "running"}
    ec2.modify_instance_attribute(InstanceId=protected, DisableApiTermination={"Value": False})
    assert len(ec2.terminate_instances(InstanceIds=both)["TerminatingInstances"]) == 2


def test_a_function_has_no_more_memory_than_the_account_allows(start: Callable[..., World]) -> None:
    world = start(lambdas=LambdaLimits(memory_mb=NEW_MEMORY_MB))
    iam, functions = world.client("iam"), world.client("lambda", attempts=1)
    role = iam.create_role(RoleName="r", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    asked = {"Runtime": "python3.12", "Role": role, "Handler": "h.h", "Code": {"ZipFile": stub_zip()}}
    refused = code_of(lambda: functions.create_function(FunctionName="f", MemorySize=3072, **asked))
    assert refused == "InvalidParameterValueException"
    functions.create_function(FunctionName="f", MemorySize=3008, **asked)
    change = code_of(lambda: functions.update_function_configuration(FunctionName="f", MemorySize=3009))
    assert change == "InvalidParameterValueException"


def test_a_new_account_is_a_setting(tmp_path: Path) -> None:
    settings = Settings.model_validate({"service": {"name": "shop", "aws": {"account": "new"}}})
    made = emulated_aws(settings, logs=tmp_path, port=0, began_at=time.time())
    assert made.quotas[STANDARD] == made.quotas[STANDARD_SPOT] == 5.0
    assert made.quotas["L-417A185B"] == made.quotas["L-DB2E81BA"] == 0.0
    assert (made.lambdas.concurrency, made.lambdas.memory_mb) == (10, 3008)
    assert made.listing_lag_s > 0
    assert made.sells_by_zone


BEGAN_AT = 1_700_000_000.0


def test_a_listing_lacks_what_was_just_launched_and_shows_what_just_ended_as_running(
    start: Callable[..., World],
) -> None:
    world = start(anchor=ClockAnchor(service_at=BEGAN_AT, speed=1e-12), listing_lag_s=5.0)
    world.mark("POST", "prewarm", {"on": True})
    ec2 = world.client("ec2", attempts=1)
    made = template(world)
    answered = fleet(world, made, count=2, ClientToken="order-1")
    assert len(ids_of(answered)) == 2
    assert listed(ec2) == []
    assert code_of(lambda: listed(ec2, InstanceIds=ids_of(answered))) == "InvalidInstanceID.NotFound"
    again = fleet(world, made, count=2, ClientToken="order-1")
    assert (ids_of(again), again.get("Errors", [])) == ([], [])

    to(world, BEGAN_AT + 5.0)
    assert listed(ec2) == ["running", "running"]
    ec2.terminate_instances(InstanceIds=ids_of(answered)[:1])
    assert listed(ec2) == ["running", "running"]
    to(world, BEGAN_AT + 10.0)
    assert "running" in (states := listed(ec2))
    assert {"shutting-down", "terminated"} & set(states)


def test_a_listing_does_not_lag_on_a_clock_that_stands_still(start: Callable[..., World]) -> None:
    """So a service starts: one that needs an instance before its clock goes would never be ready."""
    world = start(anchor=ClockAnchor(service_at=BEGAN_AT, speed=0.0), listing_lag_s=5.0)
    world.mark("POST", "prewarm", {"on": True})
    fleet(world, template(world), count=2)
    assert listed(world.client("ec2")) == ["running", "running"]


def test_a_type_is_had_only_in_the_zones_that_sell_it(start: Callable[..., World]) -> None:
    types = {**TYPES, "m7g.large": replace(TYPES["m5.large"], name="m7g.large")}
    world = start(types=types, sells_by_zone=True)
    made = template(world)
    there = world.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["m7g.large"]}]
    )
    assert "us-east-1e" not in {one["Location"] for one in there["InstanceTypeOfferings"]}
    refused = fleet(world, made, overrides=[in_zone("us-east-1e")])
    [error] = refused["Errors"]
    assert error["ErrorCode"] == "InvalidFleetConfiguration"
    assert "us-east-1e" in error["ErrorMessage"]
    assert len(ids_of(fleet(world, made, overrides=[in_zone("us-east-1a")]))) == 1


def test_each_region_has_the_zones_that_an_account_sees_there(world: World) -> None:
    for region, letters in (("ap-northeast-1", "acd"), ("us-west-1", "ab"), ("us-east-1", "abcdef")):
        there = Aws(AwsSettings(region=region, endpoint_url=world.url, credentials=KEYS))
        assert available_zones(there) == tuple(f"{region}{letter}" for letter in letters)
        there.close()


def in_zone(zone: str) -> dict[str, str]:
    return {"InstanceType": "m7g.large", "AvailabilityZone": zone}


def listed(ec2: Any, **asked: Any) -> list[str]:
    reply = ec2.describe_instances(**asked)
    return [one["State"]["Name"] for group in reply["Reservations"] for one in group["Instances"]]


def to(world: World, at: float) -> None:
    world.mark("POST", "clock", {"wall_at": 0.0, "service_at": at, "speed": 1e-12})

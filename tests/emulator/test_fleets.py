"""What CreateFleet and RunInstances answer: tokens, overrides, refusals; what DescribeInstances finds."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from mark.cloudmodel.world import TYPICAL
from tests.emulator.conftest import World, config_for, fleet, ids_of, template


@pytest.fixture
def described(world: World) -> Any:
    """Two on demand, three on spot."""
    made = template(world)
    fleet(world, made, count=2, tags={"mark:model": "a", "mark:role": "serving"})
    fleet(world, made, count=3, market="spot", types=["m5.large"], tags={"mark:model": "b"})
    return world.client("ec2")


def found(ec2: Any, *filters: tuple[str, list[str]], **options: Any) -> list[dict[str, Any]]:
    request = {"Filters": [{"Name": name, "Values": values} for name, values in filters], **options}
    pages = ec2.get_paginator("describe_instances").paginate(**request)
    return [one for page in pages for group in page["Reservations"] for one in group["Instances"]]


def test_the_same_token_gets_the_same_instances(world: World) -> None:
    made = template(world)
    first = fleet(world, made, count=2, ClientToken="order-1")
    again = fleet(world, made, count=2, ClientToken="order-1")

    assert ids_of(first) == ids_of(again)
    assert first["FleetId"] == again["FleetId"]
    assert len(world.instances()) == 2
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        fleet(world, made, count=3, ClientToken="order-1")
    assert len(ids_of(fleet(world, made, count=2, ClientToken="order-2"))) == 2


def test_run_instances_honours_tokens_markets_and_templates(world: World) -> None:
    ec2 = world.client("ec2")
    request = {
        "LaunchTemplate": {"LaunchTemplateId": template(world)},
        "InstanceType": "m5.large",
        "InstanceMarketOptions": {"MarketType": "spot"},
        "MinCount": 2,
        "MaxCount": 2,
        "ClientToken": "run-1",
    }
    first = ec2.run_instances(**request)
    assert [one["InstanceId"] for one in first["Instances"]] == [
        one["InstanceId"] for one in ec2.run_instances(**request)["Instances"]
    ]
    assert {one["InstanceLifecycle"] for one in first["Instances"]} == {"spot"}
    assert {"Key": "mark:service", "Value": "demo"} in first["Instances"][0]["Tags"]
    with pytest.raises(ClientError, match=r"Invalid value 'x9\.huge'"):
        ec2.run_instances(**{**request, "InstanceType": "x9.huge", "ClientToken": "run-2"})


def test_filters_and_tags(described: Any) -> None:
    everything = found(described)
    assert len(everything) == 5
    assert len(found(described, ("tag:mark:model", ["b"]))) == 3
    assert len(found(described, ("tag:mark:model", ["*"]), ("instance-lifecycle", ["spot"]))) == 3
    assert len(found(described, ("instance-state-name", ["pending", "running"]))) == 5
    assert found(described, ("instance-state-name", ["terminated"])) == []
    assert len(found(described, ("instance-type", ["c5.*"]))) == 2
    assert {one["PrivateIpAddress"].rsplit(".", 2)[0] for one in everything} == {"127.77"}
    with pytest.raises(ClientError, match="instance-colour"):
        found(described, ("instance-colour", ["red"]))

    name = everything[0]["InstanceId"]
    described.create_tags(Resources=[name], Tags=[{"Key": "mark:order", "Value": "7"}])
    assert [one["InstanceId"] for one in found(described, ("tag:mark:order", ["7"]))] == [name]
    described.delete_tags(Resources=[name], Tags=[{"Key": "mark:order"}])
    assert found(described, ("tag-key", ["mark:order"])) == []


def test_pages_hold_everything_once(world: World) -> None:
    made = template(world)
    for _ in range(12):
        fleet(world, made)
    ec2 = world.client("ec2")
    page = ec2.describe_instances(MaxResults=5)
    assert len(page["Reservations"]) == 5
    names = [one["InstanceId"] for one in found(ec2, PaginationConfig={"PageSize": 5})]
    assert len(names) == len(set(names)) == 12


def test_the_cheapest_override_is_tried_first_and_the_next_where_it_is_refused(world: World) -> None:
    made = template(world)
    types = ["c5.xlarge", "c5.large", "m5.large"]
    assert fleet(world, made, types=types)["Instances"][0]["InstanceType"] == "c5.large"

    world.mark("POST", "faults", {"kind": "capacity", "action": "CreateFleet", "match": "c5.large:on-demand"})
    reply = fleet(world, made, types=types)
    assert reply["Instances"][0]["InstanceType"] == "m5.large"
    assert [error["ErrorCode"] for error in reply["Errors"]] == ["InsufficientInstanceCapacity"]
    refused = reply["Errors"][0]
    assert refused["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] == "c5.large"
    assert refused["Lifecycle"] == "on-demand"


def test_a_refused_fleet_answers_with_errors_and_no_instances(world: World) -> None:
    made = template(world)
    world.mark("POST", "faults", {"kind": "capacity", "action": "CreateFleet", "count": 1})
    refused = fleet(world, made, count=3, ClientToken="t")
    assert (refused["Instances"], len(refused["Errors"])) == ([], 1)
    assert fleet(world, made, count=3, ClientToken="t")["Instances"] == []
    assert len(ids_of(fleet(world, made, count=3))) == 3


def test_a_partial_fleet(world: World) -> None:
    made = template(world)
    world.mark("POST", "faults", {"kind": "partial", "action": "CreateFleet", "share": 0.5, "count": 1})
    reply = fleet(world, made, count=5)
    assert len(ids_of(reply)) == 2
    assert [error["ErrorCode"] for error in reply["Errors"]] == ["InsufficientInstanceCapacity"]


def test_both_markets_in_one_fleet(world: World) -> None:
    capacity = {"TotalTargetCapacity": 5, "OnDemandTargetCapacity": 2, "DefaultTargetCapacityType": "spot"}
    reply = fleet(world, template(world), TargetCapacitySpecification=capacity)
    by_market = {group["Lifecycle"]: len(group["InstanceIds"]) for group in reply["Instances"]}
    assert by_market == {"on-demand": 2, "spot": 3}


def test_what_cannot_be_had_is_said(world: World) -> None:
    reply = fleet(world, template(world), types=["x9.huge"])
    assert reply["Instances"] == []
    assert [error["ErrorCode"] for error in reply["Errors"]] == ["InvalidFleetConfiguration"]


def test_what_is_not_emulated_is_refused_by_name(world: World) -> None:
    ec2, made = world.client("ec2"), template(world)
    with pytest.raises(ClientError, match="ec2:RequestSpotFleet"):
        ec2.request_spot_fleet(SpotFleetRequestConfig={"IamFleetRole": "r", "TargetCapacity": 1})
    with pytest.raises(ClientError, match="CreateFleet of type maintain"):
        fleet(world, made, Type="maintain")
    with pytest.raises(ClientError, match="fleet option MaxTotalPrice"):
        fleet(world, made, market="spot", SpotOptions={"MaxTotalPrice": "1"})
    with pytest.raises(ClientError, match="allocation strategy diversified"):
        fleet(world, made, market="spot", SpotOptions={"AllocationStrategy": "diversified"})
    with pytest.raises(ClientError, match="DryRunOperation"):
        fleet(world, made, DryRun=True)
    with pytest.raises(ClientError, match="NotFound"):
        fleet(world, "lt-00000000000000000")
    assert world.instances() == {}


def test_what_would_be_accepted_and_forgotten_is_refused(world: World) -> None:
    target = {"Id": "t", "Arn": "arn:aws:sns:us-east-1:123456789012:t"}
    body = '{"Resources": {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": {}}}}'
    events, functions = (world.client(service, attempts=1) for service in ("events", "lambda"))
    with pytest.raises(ClientError, match="service autoscaling"):
        world.client("autoscaling", attempts=1).describe_auto_scaling_groups()
    with pytest.raises(ClientError, match="ScheduleExpression"):
        events.put_rule(Name="r", ScheduleExpression="rate(1 minute)")
    with pytest.raises(ClientError, match="event-invoke-config"):
        functions.put_function_event_invoke_config(FunctionName="f", MaximumRetryAttempts=0)
    with pytest.raises(ClientError, match="targets of sns"):
        events.put_targets(Rule="r", Targets=[target])
    with pytest.raises(ClientError, match="AWS::CloudWatch::Alarm"):
        world.client("cloudformation").create_stack(StackName="s", TemplateBody=body)


def test_a_stack_of_a_template_and_a_group_comes_up(world: World) -> None:
    body = """{"Resources": {
        "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "agents"}},
        "Agents": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": {
            "ImageId": "ami-1", "SecurityGroupIds": [{"Fn::GetAtt": ["Group", "GroupId"]}]}}}},
      "Outputs": {"Template": {"Value": {"Ref": "Agents"}}}}"""
    cloudformation = world.client("cloudformation")
    cloudformation.create_stack(StackName="agents", TemplateBody=body)
    (stack,) = cloudformation.describe_stacks(StackName="agents")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    (name,) = ids_of(fleet(world, stack["Outputs"][0]["OutputValue"]))
    (one,) = found(world.client("ec2"))
    assert one["InstanceId"] == name
    assert one["SecurityGroups"][0]["GroupId"].startswith("sg-")


def test_prices(world: World) -> None:
    history = world.client("ec2").describe_spot_price_history(InstanceTypes=["c5.large"])["SpotPriceHistory"]
    assert [float(entry["SpotPrice"]) for entry in history] == [pytest.approx(0.085 / 3, abs=1e-6)]
    filters = [{"Type": "TERM_MATCH", "Field": "instanceType", "Value": "m5.large"}]
    (product,) = world.client("pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    assert '"USD": "0.0960000000"' in product


def test_spot_prices_differ_by_zone_and_a_fleet_goes_to_the_cheapest_that_it_may(tmp_path: Path) -> None:
    world = World(config_for(tmp_path, world=replace(TYPICAL, spot_refused=0.0)))
    try:
        ec2, made = world.client("ec2"), template(world)
        answer = ec2.describe_spot_price_history(InstanceTypes=["c5.large"])["SpotPriceHistory"]
        prices = {entry["AvailabilityZone"]: float(entry["SpotPrice"]) for entry in answer}
        assert sorted(prices) == ["us-east-1a", "us-east-1b", "us-east-1c"]
        assert len(set(prices.values())) == 3
        fleet(world, made, count=2, market="spot")
        assert {one["Placement"]["AvailabilityZone"] for one in found(ec2)} == {
            min(prices, key=prices.__getitem__)
        }
        dearest = max(prices, key=prices.__getitem__)
        asked = {"InstanceType": "c5.large", "AvailabilityZone": dearest}
        (one,) = ids_of(fleet(world, made, market="spot", overrides=[asked]))
        assert [i["Placement"]["AvailabilityZone"] for i in found(ec2) if i["InstanceId"] == one] == [dearest]
        only = ec2.describe_spot_price_history(InstanceTypes=["c5.large"], AvailabilityZone=dearest)
        assert [entry["AvailabilityZone"] for entry in only["SpotPriceHistory"]] == [dearest]
    finally:
        world.stop()


def test_a_large_fleet_is_made_and_described_at_once(world: World) -> None:
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": 1.8e9, "speed": 0.0})
    fleet(world, template(world), count=100)
    ec2 = world.client("ec2")
    assert len(found(ec2)) == 100

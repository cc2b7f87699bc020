"""Interruptions end to end: notice in IMDS and queue, then gone; drawn as the simulator draws them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from mark.domain.clock import ClockAnchor
from mark.domain.offerings.times import CloudTimes
from mark.simulator.rng import stream
from tests.emulator.conftest import TYPES, World, fleet, ids_of, template
from tests.waiting import until

STAND = 1_800_000_000.0


def queue_of(world: World, pattern: dict[str, Any], name: str = "raw") -> str:
    """A queue that a rule sends matching events to."""
    sqs, events = world.client("sqs"), world.client("events")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    return url


def receive(world: World, url: str, count: int) -> list[dict[str, Any]]:
    sqs, got = world.client("sqs"), []
    for _ in range(5):
        reply = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        for message in reply.get("Messages", []):
            got.append(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        if len(got) >= count:
            break
    return got


def test_a_notice_reaches_queue_and_instance_and_takes_it_away(world: World) -> None:
    kinds = ["EC2 Instance Rebalance Recommendation", "EC2 Spot Instance Interruption Warning"]
    url = queue_of(world, {"source": ["aws.ec2"], "detail-type": kinds})
    (name,) = ids_of(fleet(world, template(world), market="spot"))
    world.wait(name, "running", pid=True)
    world.ask(name)
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": STAND, "speed": 0.0})
    for later in ({"advised_s": 900.0}, {}):
        assert world.mark("POST", "interrupt", {"instances": [name], **later}) == {"instances": [name]}

    advised, event = receive(world, url, 2)
    assert [advised["detail-type"], event["detail-type"]] == kinds
    assert advised["detail"] == {"instance-id": name}
    assert event["detail"] == {"instance-id": name, "instance-action": "terminate"}
    assert event["time"] == "2027-01-15T08:00:00.000Z"
    assert event["resources"][0].endswith(f"instance/{name}")
    action = json.loads(world.ask(name, "/imds/latest/meta-data/spot/instance-action"))
    assert action == {"action": "terminate", "time": "2027-01-15T08:02:00.000Z"}
    assert world.instances()[name]["terminates_at"] == STAND + 120
    assert world.mark("POST", "interrupt", {"instances": [name]}) == {"instances": []}

    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": STAND, "speed": 1000.0})
    found = world.wait(name, "terminated", pid=False)
    assert (found["reason"], found["ended_at"]) == ("Server.SpotInstanceTermination", STAND + 120)


def test_every_state_is_an_event_in_order(world: World) -> None:
    url = queue_of(world, {"source": ["aws.ec2"], "detail": {"state": [{"exists": True}]}})
    (name,) = ids_of(fleet(world, template(world)))
    world.wait(name, "running", pid=True)
    world.client("ec2").terminate_instances(InstanceIds=[name])
    states = [event["detail"]["state"] for event in receive(world, url, 4)]
    assert states == ["pending", "running", "shutting-down", "terminated"]


def test_a_share_takes_the_simulators_victims(start: Callable[..., World]) -> None:
    anchor = ClockAnchor(wall_at=time.time(), service_at=STAND, speed=0.0)
    world = start(anchor=anchor)
    made = template(world)
    world.mark("POST", "prewarm", {"on": True})
    names = ids_of(fleet(world, made, count=10, market="spot"))
    fleet(world, made, count=2)
    ids_of(fleet(world, made, count=2, market="spot", types=["m5.large"]))

    warned = world.mark("POST", "interrupt", {"share": 0.4, "offering": "c5.large:spot"})["instances"]
    chosen = stream(7, "victims").choice(10, size=4, replace=False)
    assert warned == [names[place] for place in sorted(chosen)]
    assert len(world.mark("POST", "interrupt", {"share": 1.0})["instances"]) == 8


def test_launches_draw_what_the_simulated_cloud_draws(start: Callable[..., World]) -> None:
    anchor = ClockAnchor(wall_at=time.time(), service_at=STAND, speed=0.0)
    world = start(anchor=anchor, stress=200.0)
    fleet(world, template(world), count=3, market="spot")

    boots, times = stream(7, "boots"), CloudTimes()
    expected = []
    for _ in range(3):
        pending_s = boots.uniform(times.pending_min_s, times.pending_max_s)
        expected.append((pending_s, times.launch.at(boots.standard_normal())))
    booted = [one["ready_at"] - STAND for one in world.instances().values()]
    assert booted == pytest.approx([boot_s for _, boot_s in expected], abs=1e-5)

    spot, hazard = stream(7, "spot c5.large:spot"), TYPES["c5.large"].spot_hazard_per_hour * 200.0 / 3600.0
    lives = [spot.exponential() / hazard for _ in range(3)]
    jump = {"wall_at": time.time(), "service_at": STAND + max(lives) + 60.0, "speed": 0.0}
    world.mark("POST", "clock", jump)
    until(lambda: [one["terminates_at"] for one in world.instances().values() if one["terminates_at"]][2:])
    warned_at = [one["terminates_at"] - 120.0 - STAND for one in world.instances().values()]
    assert warned_at == pytest.approx(lives, abs=1e-5)


def test_the_users_own_events_reach_queues_but_not_by_disabled_rules(world: World) -> None:
    url = queue_of(world, {"source": ["demo"]})
    entry = {"Source": "demo", "DetailType": "t", "Detail": '{"n": 1}'}
    events = world.client("events")
    events.put_events(Entries=[entry])
    assert [event["detail"] for event in receive(world, url, 1)] == [{"n": 1}]
    events.disable_rule(Name="raw")
    events.put_events(Entries=[entry])
    attributes = world.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["ApproximateNumberOfMessages"] == "0"

"""The function `orphans` on the emulated EC2: what no controller owns is said, then ended, running or stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mark.aws.names import acted_key
from mark.domain.clock import ClockAnchor
from mark.domain.fleet.orphan import ORPHAN_AFTER_S
from mark.emulator.config import LambdaLimits
from tests.emulator.conftest import World, config_for, stub_zip

BEGAN_AT, HOUR_S = 1_800_000_000.0, 3600.0
BUCKET = "shop-archive"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    anchor = ClockAnchor(wall_at=time.time(), service_at=BEGAN_AT, speed=0.0)
    made = World(config_for(tmp_path / "logs", anchor=anchor, lambdas=LambdaLimits(cold_start_s=0.0)))
    made.client("s3").create_bucket(Bucket=BUCKET)
    yield made
    made.stop()


def deploy(world: World, **variables: str) -> None:
    world.client("iam").create_role(RoleName="functions", AssumeRolePolicyDocument="{}")
    world.client("lambda").create_function(
        FunctionName="orphans",
        Runtime="python3.12",
        Role="arn:aws:iam::123456789012:role/functions",
        Handler="mark.lambda_handlers.orphans.handler",
        Code={"ZipFile": stub_zip()},
        Timeout=60,
        Environment={"Variables": {"MARK_SERVICE": "shop", "MARK_BUCKET": BUCKET, **variables}},
    )


def launch(world: World, role: str, service: str = "shop") -> str:
    tags = {"mark:service": service, **({"mark:role": role} if role else {})}
    made = world.client("ec2").run_instances(
        ImageId="ami-12c6146b",
        InstanceType="c5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )
    return str(made["Instances"][0]["InstanceId"])


def acted(world: World, at: float) -> None:
    world.client("s3").put_object(Bucket=BUCKET, Key=acted_key("shop"), Body=repr(at).encode())


def look(world: World, at: float) -> Any:
    """The clock stands there, and the function is called."""
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": at, "speed": 0.0})
    event = {"time": datetime.fromtimestamp(at, UTC).isoformat()}
    reply = world.client("lambda").invoke(FunctionName="orphans", Payload=json.dumps(event).encode())
    return json.loads(reply["Payload"].read())


def there(world: World) -> set[str]:
    return {name for name, one in world.instances().items() if one["state"] not in ("shutting-down", "terminated")}


def test_what_no_controller_owns_is_said_then_ended_and_nothing_else(world: World) -> None:
    deploy(world)
    serving, standby = launch(world, "serving"), launch(world, "standby")
    others = {launch(world, ""), launch(world, "serving", "elsewhere")}
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": BEGAN_AT + 600.0, "speed": 0.0})
    world.wait(standby, "running")
    world.client("ec2").stop_instances(InstanceIds=[standby])
    acted(world, BEGAN_AT + 600.0)

    assert look(world, BEGAN_AT + ORPHAN_AFTER_S) == {"owned": 2}
    assert look(world, BEGAN_AT + ORPHAN_AFTER_S + HOUR_S)["errorType"] == "OrphansFound"
    back_at = BEGAN_AT + 2 * ORPHAN_AFTER_S  # a controller is back, and gone again: what was said is void
    acted(world, back_at)
    assert "ended: 0" in look(world, back_at + ORPHAN_AFTER_S)["errorMessage"]
    assert there(world) == {serving, standby} | others
    assert "ended: 2" in look(world, back_at + 2 * ORPHAN_AFTER_S)["errorMessage"]
    assert there(world) == others


def test_a_service_that_has_an_end_ends_then_whoever_acts(world: World) -> None:
    deploy(world, MARK_ENDS_AT=repr(BEGAN_AT + HOUR_S))
    name = launch(world, "serving")
    acted(world, BEGAN_AT + HOUR_S)
    assert look(world, BEGAN_AT + HOUR_S - 1.0) == {"owned": 1}
    assert "ended: 1" in look(world, BEGAN_AT + HOUR_S)["errorMessage"]
    assert name not in there(world)


def test_where_the_bucket_cannot_be_read_nothing_ends(world: World) -> None:
    deploy(world, MARK_BUCKET="not-there")
    name = launch(world, "serving")
    assert "NoSuchBucket" in look(world, BEGAN_AT + 100 * HOUR_S)["errorMessage"]
    assert name in there(world)

"""`mark pause --aws` on the emulated AWS: what it ends, what it leaves, what it says, and what it may call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer import Exit

from mark.aws.archive import bucket_name
from mark.aws.ec2.fleet import Ec2Cloud
from mark.aws.ec2.guard import Guard, Guardrails
from mark.aws.ec2.launch import FleetSetup
from mark.aws.ec2.tags import SERVICE
from mark.aws.inbox import EventInbox
from mark.aws.outside_pause import read_pause, remove_pause
from mark.aws.permissions.policies import Names
from mark.aws.provision import set_up
from mark.aws.session import Aws
from mark.config.settings import Settings
from mark.domain.billing.spending import OutsidePause
from mark.domain.fleet.instances import Role
from mark.emulator.config import ACCOUNT, REGION
from mark.live.commands import outside_pause
from tests.aws.builders import OFFERINGS, SPOT, FakeAgents, FakeLedger, HandClock, aws, launch, service
from tests.aws.iam import NAMES
from tests.aws.recording import Recorder
from tests.emulator.conftest import World, config_for

SETTINGS = Settings.model_validate({"service": {"name": "shop"}})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The service's account; commands call it, and nobody waits long."""
    names = Names(service="shop", region=REGION, account=ACCOUNT, bucket=bucket_name("shop", ACCOUNT))
    made = World(config_for(tmp_path / "logs", names=names))
    for limit in ("OBEY_S", "POLL_S"):
        monkeypatch.setattr(outside_pause, limit, 0.01)
    monkeypatch.setattr(
        outside_pause, "service_aws", lambda _settings, role: aws(endpoint_url=made.url, role=role)
    )
    yield made
    made.stop()


def with_a_fleet(world: World) -> dict[str, str]:
    """Two instances of the fleet and one that is a gateway's: role -> an id."""
    setup_aws, there = (aws(endpoint_url=world.url, role=role) for role in ("setup", "controller"))
    resources = set_up(setup_aws, service())
    cloud = Ec2Cloud(
        FleetSetup(service="shop", model="m", run="r1", offerings=OFFERINGS, templates=resources.templates),
        aws=there,
        clock=HandClock(60.0),
        membership=FakeAgents(),
        ledger=FakeLedger(),
        inbox=EventInbox(there.sqs, resources.events_url, poll_s=1),
        guard=Guard(Guardrails(max_instances=9, max_usd_per_hour=9.0), OFFERINGS),
    )
    cloud.submit(launch(1, kind=SPOT.name))
    cloud.submit(launch(1, token="t2-1", kind=SPOT.name, role=Role.STANDBY))
    cloud.close()
    tags = [{"ResourceType": "instance", "Tags": [{"Key": SERVICE, "Value": "shop"}]}]
    template = resources.templates[Role.SERVING, "amd64"]
    made = world.client("ec2").run_instances(
        LaunchTemplate={"LaunchTemplateName": template},
        InstanceType="c5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=tags,
    )
    setup_aws.close()
    there.close()
    return {"gateway": made["Instances"][0]["InstanceId"]}


@pytest.fixture
def pauser(world: World) -> Iterator[Aws]:
    made = aws(endpoint_url=world.url)
    yield made
    made.close()


def test_a_fleet_that_no_controller_ends_is_ended_by_its_tags_and_the_gateways_stay(
    world: World, pauser: Aws, called: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = with_a_fleet(world)
    with called.acting("pauser"):
        outside_pause.pause_outside(SETTINGS, on=True, within_s=None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["service"], told["paused"], told["instances_left"]) == ("shop", True, 0)
    assert (told["ended_by_controllers"], len(told["ended_here"])) == (0, 2)
    assert [row["id"] for row in told["running"]] == [ids["gateway"]]
    assert told["usd_per_hour"] > 0.08
    stands = read_pause(pauser, "shop")
    assert stands is not None
    assert (stands.by, stands.at > 1e9) == (told["by"], True)
    with called.acting("pauser"):
        outside_pause.pause_outside(SETTINGS, on=False, within_s=None, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"service": "shop", "paused": False, "stood": True}
    assert read_pause(pauser, "shop") is None
    assert not remove_pause(pauser, "shop")
    ends = frozenset({("OwnInstances", "ec2:TerminateInstances")})  # by tags, which the account's own judge knows
    called.assert_permitted("pauser", NAMES, unseen=ends)
    permissions = world.state()["permissions"]
    assert permissions["refused"] == {}
    assert permissions["used"]["pauser"]["OwnInstances ec2:TerminateInstances"] == 2


def test_it_says_what_ended_what_runs_and_what_still_costs(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with_a_fleet(world)
    outside_pause.pause_outside(SETTINGS, on=True, within_s=0.0, as_json=False)
    said = capsys.readouterr()
    assert "0 instances ended by its controllers, 2 by this command" in said.out
    assert "`mark pause --aws --off --name shop`" in said.out
    assert "still runs: 1 instance (gateway or node), 0.0" in said.out
    assert "USD/h for all that stands around the fleet" in said.out
    assert "Gateways that run may call Lambda" in said.err


def test_an_instance_that_aws_does_not_end_is_named_and_keeps_no_other_alive(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_a_fleet(world)
    raw = world.client("ec2")
    [first, *_] = [
        one["Instances"][0]["InstanceId"]
        for one in raw.describe_instances(Filters=[{"Name": "tag:mark:role", "Values": ["serving"]}])[
            "Reservations"
        ]
    ]
    raw.modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": True})
    with pytest.raises(Exit):
        outside_pause.pause_outside(SETTINGS, on=True, within_s=0.0, as_json=True)
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["instances_left"], list(told["refused"])) == (1, [first])
    assert len(told["ended_here"]) == 1
    assert f"1 instance of the fleet run on: {first}" in said.err


@pytest.mark.parametrize("value", ["stop", "[]", '{"by": "x"}', '{"by": 1, "at": "never"}'])
def test_a_parameter_that_somebody_wrote_by_hand_is_a_pause(world: World, pauser: Aws, value: str) -> None:
    pauser.parameters.put_parameter(Name="/mark/shop/pause", Value=value, Type="String")
    assert read_pause(pauser, "shop") == OutsidePause()
    assert OutsidePause().reason == "paused from outside, until `mark pause --aws --off`"

"""A service in three zones: requests stay in theirs, and the loss of a zone loses none."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from mark.domain.fleet.instances import InstanceState
from mark.live.aws_clients import aws_of
from mark.live.local.run_dir import RunFolder
from mark.store.published_status import MODEL as STATUS
from mark.store.published_status import RESOURCES
from tests.end_to_end.rig import Rig, assert_in_time, eventually, fetch, rig
from tests.end_to_end.test_nothing_lost import MODEL, RATE, SPEED, loaded

SERVICE = """
service:
  name: {name}
  port: 0
  status_port: 0
  gateways: 3
  serve:
    - {{model: inception-v3, market: spot, expected_rps: 60, offerings: {{types: [c5.large]}}}}
"""
REGION = "us-east-1"


def ready_by_zone(live: Rig) -> Counter[str]:
    told = STATUS.read(live.store, MODEL)
    assert told is not None
    return Counter(one.zone for one in told.observed if one.state is InstanceState.READY)


def lose(live: Rig, zone: str) -> int:
    """End all instances of a zone at once, which gives none from now on; how many there were."""
    subnets = dict((RESOURCES.read(live.store) or pytest.fail("no resources")).subnets)
    controls = live.controls
    fault = {"kind": "error", "service": "ec2", "action": "CreateFleet", "match": subnets[zone], "count": 1000}
    controls.fault({**fault, "code": "InsufficientInstanceCapacity", "status": 400})  # type: ignore[typeddict-item]
    aws = aws_of(REGION, RunFolder(live.folder).expected(), "setup")
    there = {one.instance for one in live.store.members() if one.zone == zone}
    for row in live.instances("running"):
        if row["id"] in there:
            os.kill(row["pid"], signal.SIGKILL)
    aws.ec2.terminate_instances(InstanceIds=sorted(there))
    aws.close()
    return len(there)


@pytest.mark.slow
def test_requests_stay_in_their_zone_and_the_loss_of_one_loses_none(tmp_path: Path) -> None:
    with rig(tmp_path, "zones") as live:
        live.up(SERVICE.format(name=live.name), "--world", "typical")
        zones = {peer.zone for peer in live.store.gateways()}
        assert len(zones) == 3
        with loaded(live, wall_s=8):
            pass
        live.run_at(SPEED)  # instances boot in seconds
        eventually(lambda: set(ready_by_zone(live)) == zones)
        before = live.store.traffic(MODEL)
        assert before.crossed <= 0.08 * before.answered
        assert {zone for zone, _ in before.entered} == zones

        gone = min(zones)
        with loaded(live, wall_s=16, speed=SPEED) as load:
            assert lose(live, gone)
            eventually(lambda: sum(ready_by_zone(live).values()) > 0 and gone not in ready_by_zone(live))
        assert {name: count for name, count in load["errors"].items() if name != "retried"} == {}
        assert load["in_flight"] == 0
        assert_in_time(load, 0.97, rate=RATE)
        assert set(ready_by_zone(live)) <= zones - {gone}

        eventually(lambda: live.store.traffic(MODEL).crossed > before.crossed)
        [told] = live.ask("status")["models"]
        assert told["crossed"] == live.store.traffic(MODEL).crossed
        _, metrics, _ = fetch(f"{live.running['gateway']}/metrics")
        counted = [line for line in metrics.decode().splitlines() if line.startswith("mark_gateway_crossed_total")]
        assert sum(float(line.rpartition(" ")[2]) for line in counted) == told["crossed"]
        live.down()

"""Two nodes of the lean shape as processes, on the emulated AWS: one is lost, with its store."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mark.aws.archive import get_object
from mark.aws.names import acted_key
from mark.aws.session import Aws
from mark.config.settings import Settings
from mark.controller.journal import read_journal
from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError
from mark.live.models import make_live_models
from mark.protocols.oip.bodies import example_body
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.emulator.conftest import World
from tests.end_to_end.lean import SPEED, TOKEN, Node, lean_nodes
from tests.end_to_end.rig import launched_by_token
from tests.waiting import until

pytestmark = pytest.mark.slow
MODEL = "inception-v3"
SETTINGS = {
    "service": {
        "name": "shop",
        "gateways": 2,
        "controllers": 2,
        "serve": [
            {
                "model": MODEL,
                "offerings": {"types": ["c5.large", "c5.xlarge"], "overflow": False},
                "expected_rps": 10,
            }
        ],
    },
    "simulate": {"world": "ideal"},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[World, Aws, Node, Node]]:
    addresses = {"left": "127.0.0.1", "right": "127.0.0.2"}
    with lean_nodes(tmp_path, Settings.model_validate(SETTINGS), addresses) as (world, aws, (left, right)):
        yield world, aws, left, right


def named(aws: Aws) -> list[str]:
    """Addresses that the clients' name means."""
    [zone] = aws.names.list_hosted_zones()["HostedZones"]
    records = aws.names.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]
    return [one["Value"] for record in records if record["Type"] == "A" for one in record["ResourceRecords"]]


def journal(node: Node) -> list[bytes]:
    """All lines of the node's own copy."""
    store = ServiceStore(connect(f"redis://{node.address}:{node.redis_port}"), "shop")
    try:
        return [line for number in store.journal_segments(MODEL) for line in store.journal_lines(MODEL, number)]
    except MarkError:
        return []


@cache
def example() -> dict[str, Any]:
    """A request that the model takes."""
    [model] = make_live_models(Settings.model_validate(SETTINGS))
    return example_body(model.served.inputs)


def infer(node: Node) -> int:
    """The status of a request."""
    body = json.dumps(example()).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.port}/v2/models/{MODEL}/infer",
        data=body,
        headers={"authorization": f"Bearer {TOKEN}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_the_loss_of_a_node_loses_no_decision_and_the_other_serves_on(
    service: tuple[World, Aws, Node, Node],
) -> None:
    world, aws, left, right = service
    left.start("controller")
    until(lambda: len(journal(left)) > 2)
    right.start("controller")

    def serving() -> bool:
        for node in (left, right):
            node.keep_up("gateway")
        return left.answers() and right.answers()

    until(serving)
    until(lambda: named(aws) == [left.address, right.address])
    until(lambda: journal(right)[:3] == journal(left)[:3])
    until(lambda: infer(right) == 200)

    before = journal(left)
    left.lose()
    instances = set(world.instances())
    answered: list[int] = []

    def goes_on() -> bool:
        answered.append(infer(right))
        return len(journal(right)) > len(before) + 1

    until(goes_on)
    lines = journal(right)
    assert lines[: len(before)] == before
    header, ticks = read_journal(lines)
    assert header.model == MODEL
    launched = launched_by_token(list(ticks))
    assert launched
    assert instances <= set(world.instances()), "what was ordered before is known"
    assert len(world.instances()) <= sum(launched.values()), "and nothing is ordered twice"
    assert set(answered) == {200}
    until(lambda: named(aws) == [right.address])


def test_an_upgrade_replaces_both_nodes_one_after_another_and_no_client_notices(tmp_path: Path) -> None:
    """As the group of a deployment does: a new node comes first, then an old one goes; the leader last."""
    addresses = {f"node-{number}": f"127.0.0.{number}" for number in range(1, 5)}
    with lean_nodes(tmp_path, Settings.model_validate(SETTINGS), addresses) as (world, aws, nodes):
        at = {node.address: node for node in nodes}
        up: list[Node] = []

        def serve(node: Node) -> None:
            up.append(node)
            node.start("controller")

            def serving() -> bool:
                for one in up:
                    one.keep_up("gateway")
                return set(named(aws)) == {one.address for one in up} and node.answers()

            until(serving)

        first, second, *new = nodes
        serve(first)
        serve(second)
        until(lambda: infer(first) == infer(second) == 200)
        ended, answered = threading.Event(), Counter[int]()

        def ask() -> None:
            """A client that follows the name, and tries the next address where one does not answer."""
            while not ended.is_set():
                statuses = (infer(at[address]) for address in named(aws))
                answered[next((status for status in statuses if status), 0)] += 1

        client = threading.Thread(target=ask)
        client.start()
        try:
            for old, node in zip((second, first), new, strict=True):
                before = journal(first)
                serve(node)
                until(lambda node=node, before=before: journal(node)[: len(before)] == before)
                instances = set(world.instances())
                up.remove(old)
                old.end()
                so_far = answered[200]
                until(lambda node=node: set(named(aws)) == {one.address for one in up})
                until(lambda so_far=so_far: answered[200] > so_far + 20)
                assert instances <= set(world.instances())
            before = journal(new[0])
            until(lambda: len(journal(new[0])) > len(before))
        finally:
            ended.set()
            client.join()
        assert set(answered) == {200}
        launched = launched_by_token(list(read_journal(journal(new[0]))[1]))
        assert len(world.instances()) <= sum(launched.values())


RUSH = 2000.0
"""Speed at which six hours take eleven seconds; an agent counts at most a quarter of an hour between two looks."""


def test_a_fleet_that_lost_all_its_nodes_ends_and_comes_back_with_them(
    service: tuple[World, Aws, Node, Node],
) -> None:
    world, aws, left, _ = service
    url = f"redis://{left.address}:{left.redis_port}"

    def run_clock(speed: float) -> None:
        wall = time.time()
        anchor = ClockAnchor(wall_at=wall, service_at=float(world.state()["service_time"]), speed=speed)
        ServiceStore(connect(url), "shop").put_clock(anchor)
        world.mark("POST", "clock", {"wall_at": wall, "service_at": anchor.service_at, "speed": speed})

    def serving() -> set[str]:
        return {name for name, one in world.instances().items() if one["state"] == "running" and one["pid"]}

    def acted_at() -> float:
        [bucket] = [one["Name"] for one in aws.objects.list_buckets()["Buckets"]]
        try:
            return float(get_object(aws.objects, bucket, acted_key("shop")))
        except MarkError:
            return 0.0

    left.start("controller")
    until(serving)
    until(acted_at)
    run_clock(RUSH)
    rushed_at = acted_at() + 2 * RUSH
    until(lambda: acted_at() > rushed_at)  # agents know the speed by now
    before = serving()
    assert before
    left.lose()
    until(lambda: not serving())

    left.redis.stop()
    left.redis = EmbeddedRedis(left.folder / "redis", options={"port": str(left.redis_port), "bind": left.address})
    until(lambda: connects(url))
    run_clock(SPEED)
    left.start("controller")
    until(serving)
    assert not before & serving()


def connects(url: str) -> bool:
    try:
        connect(url).call("PING")
    except MarkError:
        return False
    return True

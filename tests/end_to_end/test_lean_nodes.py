"""Two nodes of the lean shape as processes, on the emulated AWS: one is lost, with its store."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mark.aws.archive import get_object
from mark.aws.names import acted_key
from mark.aws.session import Aws, AwsSettings
from mark.config.settings import Settings
from mark.controller.journal import read_journal
from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError
from mark.emulator.config import LambdaLimits
from mark.live.aws_resources import make_resources, published_resources
from mark.live.local.running import Running
from mark.live.models import make_live_models
from mark.live.store_link import at_node
from mark.protocols.oip.bodies import example_body
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.aws.builders import KEYS
from tests.aws.lease_tables import TABLE, make_table
from tests.emulator.conftest import World, config_for
from tests.end_to_end.rig import launched_by_token
from tests.waiting import until

pytestmark = pytest.mark.slow
SPEED = 20.0
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


def free_port(host: str = "127.0.0.1") -> int:
    with socket.create_server((host, 0)) as free:
        port: int = free.getsockname()[1]
        return port


class Metadata:
    """The metadata service of one node: its private address."""

    def __init__(self, address: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.answer(b"token")

            def do_GET(self) -> None:
                self.answer(address.encode() if self.path.endswith("/local-ipv4") else b"")

            def answer(self, body: bytes) -> None:
                self.send_response(200 if body else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Node:
    """Store, controller and gateway of a node; a loopback address is its own."""

    def __init__(self, folder: Path, address: str, store_port: int, environment: dict[str, str]) -> None:
        self.folder, self.address, self.redis_port = folder, address, store_port
        self.redis = EmbeddedRedis(folder / "redis", options={"port": str(store_port), "bind": address})
        self.metadata = Metadata(address)
        self.port = free_port()
        self.environment = {
            **environment,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata.url,
            "MARK_PORT": str(self.port),
            "MARK_CACHE": str(folder / "cache"),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, process: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{process}.log").open("ab") as log:
            self.processes[process] = subprocess.Popen(  # noqa: S603 - our own processes
                [sys.executable, "-m", f"mark.live.processes.cloud_{process}"],
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def keep_up(self, process: str) -> None:
        """As systemd does: who ends is started again."""
        running = self.processes.get(process)
        if running is None or running.poll() is not None:
            self.start(process)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/health/live", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def lose(self) -> None:
        """All of it at once."""
        self.redis.kill()
        for process in self.processes.values():
            process.kill()
            process.wait()

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.metadata.close()
        self.redis.stop()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[World, Aws, Node, Node]]:
    port, store_port = free_port(), free_port("127.0.0.2")
    endpoint = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "mark", "AWS_SECRET_ACCESS_KEY": "mark", "AWS_DEFAULT_REGION": "us-east-1"}
    reach = {**keys, "AWS_ENDPOINT_URL": endpoint}
    anchor = ClockAnchor(wall_at=time.time(), service_at=time.time(), speed=SPEED)
    world = World(
        config_for(
            tmp_path / "aws",
            port=port,
            agent="mark.live.processes.agent:run",
            anchor=anchor,
            environment=reach,
            lambdas=LambdaLimits(cold_start_s=0.0),
        )
    )
    aws = Aws(AwsSettings(region="us-east-1", endpoint_url=endpoint, credentials=KEYS))
    make_table(aws.tables)
    zone = aws.names.create_hosted_zone(Name="example.org.", CallerReference="x")["HostedZone"]["Id"]
    url = f"redis+lease://{TABLE}.us-east-1:{store_port}"
    settings = Settings.model_validate(SETTINGS)
    running = Running(name="shop", pid=os.getpid(), store=url)
    made = make_resources(aws, running, [model.served for model in make_live_models(settings)], settings)
    environment = {
        **os.environ,
        **reach,
        "MARK_SETTINGS": settings.model_dump_json(exclude_defaults=True),
        "MARK_SERVICE": "shop",
        "MARK_LAMBDA_CALLS": "8",
        "AWS_REGION": "us-east-1",
        "MARK_STORE_URL": url,
        "MARK_TOKEN": "a token of the clients",
        "MARK_EVENTS_URL": made.events_url,
        "MARK_BUCKET": made.bucket,
        "MARK_TEMPLATES": json.dumps(dict(published_resources(made, settings.rollout).templates)),
        "MARK_SUBNETS": "[]",
        "MARK_OWNER": "mark",
        "MARK_ZONE": zone.rpartition("/")[2],
        "MARK_HOST": "shop.example.org",
    }
    left, right = (
        Node(tmp_path / name, address, store_port, environment)
        for name, address in (("left", "127.0.0.1"), ("right", "127.0.0.2"))
    )
    ServiceStore(connect(at_node(url, left.address)), "shop").put_clock(anchor)
    yield world, aws, left, right
    left.close()
    right.close()
    aws.close()
    world.stop()


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
        headers={"authorization": "Bearer a token of the clients", "content-type": "application/json"},
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

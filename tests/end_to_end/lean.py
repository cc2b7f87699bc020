"""Nodes of the lean shape as processes, on an emulated AWS of the test's own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mark.aws.session import Aws, AwsSettings
from mark.config.settings import Settings
from mark.domain.clock import ClockAnchor
from mark.emulator.config import LambdaLimits
from mark.live.aws_resources import make_resources, published_resources
from mark.live.local.running import Running
from mark.live.models import make_live_models
from mark.live.store_link import at_node
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from tests.aws.builders import KEYS
from tests.aws.lease_tables import TABLE, make_table
from tests.emulator.conftest import World, config_for

SPEED = 20.0
TOKEN = "a token of the clients"
STOP_S = 60.0
"""A node's containers have so long (infra/user_data.py)."""


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

    def end(self) -> None:
        """As a machine that is shut down: its processes are asked to end, then its store."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(timeout=STOP_S)
        self.redis.stop()

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.metadata.close()
        self.redis.stop()


@contextmanager
def lean_nodes(
    folder: Path, settings: Settings, addresses: Mapping[str, str], *, cold_start_s: float = 0.0, **changes: Any
) -> Iterator[tuple[World, Aws, tuple[Node, ...]]]:
    """An account with the service's resources, and nodes by name and address, none of them started.

    changes: of the nodes' environment.
    """
    port, store_port = free_port(), free_port("127.0.0.2")
    endpoint = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "mark", "AWS_SECRET_ACCESS_KEY": "mark", "AWS_DEFAULT_REGION": "us-east-1"}
    reach = {**keys, "AWS_ENDPOINT_URL": endpoint}
    anchor = ClockAnchor(wall_at=time.time(), service_at=time.time(), speed=SPEED)
    world = World(
        config_for(
            folder / "aws",
            port=port,
            agent="mark.live.processes.agent:run",
            anchor=anchor,
            environment=reach,
            lambdas=LambdaLimits(cold_start_s=cold_start_s),
        )
    )
    aws = Aws(AwsSettings(region="us-east-1", endpoint_url=endpoint, credentials=KEYS))
    make_table(aws.tables)
    zone = aws.names.create_hosted_zone(Name="example.org.", CallerReference="x")["HostedZone"]["Id"]
    url = f"redis+lease://{TABLE}.us-east-1:{store_port}"
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
        "MARK_TOKEN": TOKEN,
        "MARK_EVENTS_URL": made.events_url,
        "MARK_BUCKET": made.bucket,
        "MARK_TEMPLATES": json.dumps(dict(published_resources(made, settings.rollout).templates)),
        "MARK_SUBNETS": "[]",
        "MARK_OWNER": "mark",
        "MARK_ZONE": zone.rpartition("/")[2],
        "MARK_HOST": "shop.example.org",
        **changes,
    }
    nodes = tuple(Node(folder / name, address, store_port, environment) for name, address in addresses.items())
    ServiceStore(connect(at_node(url, nodes[0].address)), "shop").put_clock(anchor)
    try:
        yield world, aws, nodes
    finally:
        for node in nodes:
            node.close()
        aws.close()
        world.stop()

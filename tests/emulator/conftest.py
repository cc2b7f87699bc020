"""An emulated AWS on a thread of its own, and boto3 against it."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import json
import threading
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from mark.domain.clock import ClockAnchor
from mark.domain.offerings.offering import InstanceType
from mark.emulator.aws_server import EmulatedAws
from mark.emulator.config import Draws, EmulatedAwsConfig, LambdaLimits
from mark.live.processes.emulator import life_draws
from mark.simulator.rng import stream
from tests.waiting import PATIENCE_S, until

HOUSE = Path(__file__).parents[2]
TYPES = {
    name: InstanceType(
        name=name,
        vcpus=2,
        memory_gib=4.0,
        architecture="x86_64",
        on_demand_usd_per_hour=price,
        spot_usd_per_hour=price / 3,
        spot_interruption_rate=0.05,
    )
    for name, price in {"c5.large": 0.085, "c5.xlarge": 0.17, "m5.large": 0.096}.items()
}


def draws(seed: int = 7) -> Draws:
    return Draws(victims=stream(seed, "victims"), lambdas=stream(seed, "lambda"), lives=lambda _: life_draws(seed))


def config_for(folder: Path, **changes: Any) -> EmulatedAwsConfig:
    config = EmulatedAwsConfig(
        types=TYPES,
        draws=draws(),
        agent="tests.emulator.agents:run",
        folder=folder,
        anchor=ClockAnchor(wall_at=time.time(), service_at=1_700_000_000.0, speed=1000.0),
        stress=0.0,
        lambdas=LambdaLimits(cold_start_s=0.2),
        python_path=(str(HOUSE),),
        kill_after_s=0.5,
        restart_after_s=0.1,
    )
    return dataclasses.replace(config, **changes)


class World:
    """A running emulated AWS as a test sees it."""

    def __init__(self, config: EmulatedAwsConfig) -> None:
        self.config = config
        self.url = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        if self._failed is not None:
            raise self._failed

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 said on the test's own thread
            self._failed = error
        finally:
            self._ready.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        aws = EmulatedAws(self.config)
        await aws.start()
        self.url = aws.url
        self._ready.set()
        try:
            await self._end.wait()
        finally:
            await aws.stop()

    def client(self, service: str, *, attempts: int = 3, **options: Any) -> Any:
        clients = self.__dict__.setdefault("clients", {})
        asked = f"{service} {attempts} {options}"
        if asked not in clients:  # to make one takes longer than most calls
            clients[asked] = boto3.client(
                service,
                endpoint_url=self.url,
                region_name="us-east-1",
                aws_access_key_id="any",
                aws_secret_access_key="any",
                config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}, **options),
            )
        return clients[asked]

    def mark(self, method: str, path: str, document: Any = None) -> Any:
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(f"{self.url}/_mark/{path}", data=data, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:  # noqa: S310
            return json.loads(reply.read())

    def state(self) -> dict[str, Any]:
        return self.mark("GET", "state")

    def instances(self) -> dict[str, dict[str, Any]]:
        return {found["id"]: found for found in self.state()["instances"]}

    def wait(self, name: str, state: str, *, pid: bool | None = None) -> dict[str, Any]:
        """Until the instance is in that state (with or without a process)."""
        found: dict[str, Any] = until(
            lambda: next(
                (
                    one
                    for one in self.state()["instances"]
                    if one["id"] == name and one["state"] == state and pid in (None, bool(one["pid"]))
                ),
                None,
            )
        )
        return found

    def ask(self, name: str, path: str = "/") -> str:
        """What the instance's own HTTP server answers."""
        address = self.instances()[name]["address"]

        def get() -> str | None:
            try:
                with urllib.request.urlopen(f"http://{address}:8000{path}", timeout=5) as reply:
                    return json.loads(reply.read())
            except OSError:
                return None

        answer: str = until(get)
        return answer


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Starts worlds; one at a time, moto's state is its modules'."""
    worlds: list[World] = []

    def make(**changes: Any) -> World:
        worlds.append(World(config_for(tmp_path / "logs", **changes)))
        return worlds[-1]

    yield make
    for world in worlds:
        world.stop()


@pytest.fixture
def world(start: Callable[..., World]) -> World:
    return start()


def template(world: World, *, behavior: str = "terminate", name: str = "agents") -> str:
    """A launch template like the service's."""
    user_data = base64.b64encode(json.dumps({"service": "demo"}).encode()).decode()
    made = world.client("ec2").create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={
            "ImageId": "ami-12c6146b",
            "UserData": user_data,
            "InstanceInitiatedShutdownBehavior": behavior,
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "mark:service", "Value": "demo"}]}
            ],
        },
    )
    return made["LaunchTemplate"]["LaunchTemplateId"]


def fleet(world: World, template_id: str, count: int = 1, **options: Any) -> dict[str, Any]:
    """An instant fleet of c5.large."""
    market = options.pop("market", "on-demand")
    types = options.pop("types", ["c5.large"])
    tags = options.pop("tags", {"mark:role": "serving"})
    request = {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template_id, "Version": "$Latest"},
                "Overrides": options.pop("overrides", [{"InstanceType": name} for name in types]),
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": market},
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
        **options,
    }
    return world.client("ec2").create_fleet(**request)


def ids_of(reply: dict[str, Any]) -> list[str]:
    return [name for group in reply["Instances"] for name in group["InstanceIds"]]


def stub_zip() -> bytes:
    """A function's code where the handler is importable without it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("README", "the handler is installed")
    return packed.getvalue()

"""MLServer as the model server behind an agent: real batches over real HTTP, in the peers' own environment."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from mark.domain.fleet.instances import Role
from mark.models.digits import Digits
from mark.ports import InferReply, InferRequest
from mark.protocols.oip.bodies import compose_infer, parse_infer_reply
from mark.serving.agent.process import serve_agent
from mark.serving.agent.tenant import AgentConfig
from mark.serving.backends.oip_server import OipBackend
from scripts.bench.peers import MLSERVER, NoPeers, peers_python, start_peer
from tests.serving.harness import live, served

pytestmark = pytest.mark.slow
AT_ONCE = 12
PATH = "/v2/models/digits/infer"
READY_WITHIN_S = 300.0


class Counting:
    """An OIP backend that notes how many requests each of its batches holds."""

    def __init__(self, backend: OipBackend) -> None:
        self.backend = backend
        self.sizes: list[int] = []

    async def start(self) -> None:
        await self.backend.start()

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        self.sizes.append(len(batch))
        return await self.backend.infer(batch)

    async def close(self) -> None:
        await self.backend.close()


@pytest.fixture(scope="module")
def mlserver() -> Iterator[str]:
    """Its URL. MARK_CACHE names the folder under which the environment is kept."""
    folder = Path(os.environ.get("MARK_CACHE") or Path.home() / ".cache" / "mark") / "peers"
    try:
        python = peers_python(folder)
    except NoPeers as error:
        pytest.skip(f"MLServer: {error}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start_peer(python, MLSERVER, port)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(url)
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_ready(url: str) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/v2/models/digits/ready", timeout=5):  # noqa: S310 - our own server
                return
        except OSError:
            assert time.monotonic() < end, "MLServer does not start"
            time.sleep(0.1)


def images(count: int) -> np.ndarray:
    """Handwritten digits, and what they show comes from scikit-learn."""
    return pytest.importorskip("sklearn.datasets").load_digits().images[:count].astype(np.float32)


async def test_digits_are_recognised_in_batches(mlserver: str) -> None:
    pictures = images(AT_ONCE)
    alone = Digits().predict({"image": pictures})
    backend = Counting(OipBackend(mlserver, name="digits"))

    async with live(served(name="digits", latency_s=10.0), agents=0) as running:
        stop = asyncio.Event()
        agent = asyncio.ensure_future(
            serve_agent(
                AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1", frame_port=0, http_port=0),
                served=running.model,
                offering=running.model.offerings[0],
                link=running.store,
                backend=backend,
                interruption=no_notice,
                stop=stop,
            )
        )
        try:
            await running.until_agents(1)
            bodies = [
                compose_infer({"image": picture[None]}, path=PATH, binary=False).body for picture in pictures
            ]
            replies = await asyncio.gather(*(running.ask(PATH, body) for body in bodies))
        finally:
            stop.set()
            await agent
        for place, reply in enumerate(replies):
            assert reply.status == 200, reply.body
            outputs = parse_infer_reply(reply.body)
            assert outputs["label"].reshape(-1).tolist() == [alone["label"][place]]
            np.testing.assert_allclose(outputs["probabilities"], alone["probabilities"][place][None], atol=1e-4)
    assert sum(backend.sizes) == AT_ONCE
    assert max(backend.sizes) > 1


async def no_notice() -> float | None:
    return None

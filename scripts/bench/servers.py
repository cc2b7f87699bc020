"""The processes that `scripts.bench.serving` measures: gateways, an agent that answers at once, and both in one.

Each prints the port it listens on. Run as `python -m scripts.bench.servers ROLE ...`.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import uvloop

import mark.models
from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.dispatch.central.queue import PLAIN
from mark.dispatch.policy import DispatchPolicy
from mark.domain.billing.spending import SpendingLimit
from mark.domain.clients import MOST_CLIENTS, Client, ClientDirectory, HashedKey, Limits, hash_of_key
from mark.domain.clock import ClockAnchor
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState, Peer
from mark.domain.load.traffic import GatewayReport, Warmed
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.models.profile import Evidence, LatencyPoint, Parallelism, Profile, Provenance
from mark.domain.models.versions import ModelVersions
from mark.domain.offerings.offering import BatchPolicy, InstanceType, Market, Offering
from mark.domain.telemetry import Telemetry
from mark.models.digits import Digits
from mark.ports import Backend, InferReply, InferRequest
from mark.protocols.frames import FrameParser, Hello, Request, State, encode, encode_response
from mark.protocols.handshake import AgentHandshake, new_nonce
from mark.protocols.oip.bodies import InferCall
from mark.protocols.oip.replies import compose_infer_reply
from mark.service_spec import BackendSpec, ServedModel, ServiceSpec
from mark.serving.agent.process import serve_agent
from mark.serving.agent.tenant import AgentConfig
from mark.serving.backends.factory import python_backend
from mark.serving.backends.python import PythonBackend
from mark.serving.gateway.config import GatewayConfig
from mark.serving.gateway.server import serve_gateway
from mark.serving.grpc.grpc_server import GrpcConfig, GrpcServer
from mark.serving.http.http_server import HttpServer
from mark.simulator.engine.compiled import compiled_central_code
from mark.telemetry.otlp.sender import TelemetrySender, open_telemetry
from scripts.bench.engine import cache_dir

MAX_BATCH = 32
INSTANT, DIGITS, VISION = "bench", "digits", "vision"
REPLICAS = Parallelism(replicas=2, threads=1)
"""Of the vision model, which is to use two processors whole."""
INSTANT_S = {1: 0.0003, MAX_BATCH: 0.001}
"""A model whose batches take a third of a millisecond and more."""
ANSWER = InferReply(status=200, content_type="application/json", body=b'{"ok":true}')
OUTPUTS = compose_infer_reply(
    INSTANT, {"y": np.zeros((1, 10), dtype=np.float32)}, InferCall({}, binary_outputs=True)
)
"""What an agent answers where the answer has to be Open Inference: ten numbers."""
KEY = "bench"
LATENCY_S = 0.5
EARLY, POOL = "least-finish", 8
"""The rule that binds a request when it arrives, and how many agents a central queue is measured with."""


def served(name: str, batch_s: Mapping[int, float] | None = None) -> ServedModel:
    """The model that answers at once, or another with a profile that was measured: its own of `models`, or this.

    batch_s: seconds by the size of a batch, of which the last is the largest that it gets.
    """
    batch_s = batch_s or (INSTANT_S if name == INSTANT else _batch_s(name))
    max_batch = max(batch_s)
    slo = Slo(latency_s=LATENCY_S, target=0.98)
    assumed = Provenance(evidence=Evidence.ASSUMED, source="bench", formula="constant")
    points = tuple(LatencyPoint(batch=size, latency_s=took_s) for size, took_s in batch_s.items())
    offering = Offering(
        instance_type=InstanceType(
            name="bench", vcpus=1, memory_gib=1, architecture="amd64", on_demand_usd_per_hour=1
        ),
        market=Market.ON_DEMAND,
        usd_per_hour=1,
        profile=Profile(model=name, instance_type="bench", points=points, provenance=assumed),
        batch=BatchPolicy(max_batch=max_batch, max_wait_s=0.0),
        capacity_rps=max_batch / batch_s[max_batch],
        boot_s=0,
        launch_usd=0,
    )
    return ServedModel(
        model=ModelSpec(name=name, slo=slo),
        slo=slo,
        dispatch=DispatchPolicy(),
        offerings=(offering,),
        backend=BackendSpec(kind="emulated"),
    )


def _batch_s(name: str) -> dict[int, float]:
    document = json.loads((Path(mark.models.__file__).parent / name / "profile.json").read_text())
    latency_ms = document["profiles"][0]["latency_ms_by_batch"]
    return {int(size): took_ms / 1000 for size, took_ms in latency_ms.items()}


class BenchLink:
    """The store, as far as the bench needs one."""

    def __init__(
        self,
        name: str,
        agents: Sequence[int],
        clients: ClientDirectory = ClientDirectory(),  # noqa: B008 - it is frozen
    ) -> None:
        self._members = [_member(name, number, port) for number, port in enumerate(agents)]
        self._peers: dict[str, Peer] = {}
        self._clients = clients
        self._version = 1

    async def members_version(self) -> int:
        """Rises when the agent of the same process announces itself."""
        return self._version

    async def members(self) -> Sequence[Member]:
        """The agents."""
        return self._members

    async def clock(self) -> ClockAnchor:
        """The wall's."""
        return ClockAnchor()

    async def acted_at(self) -> float | None:
        """Nobody acts."""
        return None

    async def warmed(self) -> Sequence[Warmed]:
        """Nobody warms."""
        return ()

    async def versions(self) -> tuple[ModelVersions, ...]:
        """No model has any."""
        return ()

    async def clients(self) -> ClientDirectory:
        """Those that the command names."""
        return self._clients

    async def spending_limit(self) -> SpendingLimit:
        """Nobody holds anything back."""
        return SpendingLimit.NONE

    async def report(self, report: GatewayReport) -> None:
        """Nobody reads it."""

    async def announce_gateway(self, peer: Peer) -> Sequence[Peer]:
        """Those that share this link."""
        self._peers[peer.name] = peer
        return tuple(self._peers.values())

    async def leave_gateways(self, name: str) -> None:
        """Nobody counts."""

    async def announce(self, member: Member) -> bool:
        """Nobody drains."""
        if self._members != [member]:
            self._members = [member]
            self._version += 1
        return False

    async def leave(self, instance: str) -> None:
        """Nobody counts."""

    async def host(self, _instance: str) -> None:
        """It has one model."""


def _member(name: str, number: int, port: int) -> Member:
    return Member(
        instance=f"i-{number}",
        model=name,
        offering="bench:on-demand",
        role=Role.SERVING,
        host="127.0.0.1",
        port=port,
        state=MemberState.READY,
        max_batch=MAX_BATCH,
        batch_s=(0.001,) * MAX_BATCH,
        capacity_rps=1e4,
        wire_key=KEY,
    )


class InstantAgent(asyncio.Protocol):
    """Answers every request of a chunk at once, in one write."""

    def __init__(self, answer: InferReply) -> None:
        self._answer = (answer.status, answer.content_type.encode(), answer.header_length, answer.body)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask who it is; once that is known say that this agent is there, four times a second."""
        self._transport = cast("asyncio.Transport", transport)
        self._parser = FrameParser()
        self._saying: asyncio.TimerHandle | None = None
        self._seen = 0
        self._handshake = AgentHandshake(new_nonce())
        self._transport.write(encode(self._handshake.challenge()))

    def connection_lost(self, _: Exception | None) -> None:
        """A gateway has gone."""
        if self._saying is not None:
            self._saying.cancel()

    def _say(self) -> None:
        state = State(self._seen, True, False, 0, 0, 0.0, math.inf, 1e6, (1e-6,) * MAX_BATCH)
        self._transport.write(encode(state))
        self._saying = asyncio.get_running_loop().call_later(0.25, self._say)

    def data_received(self, data: bytes) -> None:
        """Answer."""
        out = []
        for frame in self._parser.feed(data):
            if type(frame) is Request:
                out.append(encode_response(frame.id, *self._answer))
            elif type(frame) is Hello:
                self._transport.write(encode(self._handshake.welcome(frame, [KEY])[1]))
                self._say()
        self._seen += len(out)
        if out:
            self._transport.write(b"".join(out))


class InstantBackend:
    """Behind a real agent: the parts that are ours, and no model."""

    async def start(self) -> None:
        """Nothing to load."""

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """All the same."""
        return [ANSWER] * len(batch)

    async def close(self) -> None:
        """Nothing to end."""


async def run_gateway(
    model: ServedModel, link: BenchLink, token: str | None = None, telemetry: TelemetrySender | None = None
) -> None:
    """A gateway before the agents of this link."""
    await serve_gateway(
        GatewayConfig(name="bench", token=token),
        spec=ServiceSpec(name="bench", models=(model,)),
        link=link,
        overflow=None,
        stop=asyncio.Event(),
        on_bound=_print_port,
        telemetry=telemetry,
    )


async def run_pool(rule: str, port: int) -> None:
    """A gateway before POOL agents, all at this port. rule: of a central queue, or EARLY."""
    model, code = served(INSTANT), PLAIN
    if rule != EARLY:
        model = replace(model, central=CentralPolicy(rule=CentralRule(rule)))
        code = compiled_central_code(cache_dir())
    await serve_gateway(
        GatewayConfig(name="bench"),
        spec=ServiceSpec(name="bench", models=(model,)),
        link=BenchLink(INSTANT, [port] * POOL),
        overflow=None,
        stop=asyncio.Event(),
        on_bound=_print_port,
        central=code,
    )


async def run_grpc_gateway(port: int) -> None:
    """A gateway before the agent at that port; the port that it prints is gRPC's."""
    made: list[GrpcServer] = []

    def beside(http: HttpServer) -> GrpcServer:
        made.append(GrpcServer(GrpcConfig(host="127.0.0.1", port=0), http))
        return made[0]

    await serve_gateway(
        GatewayConfig(name="bench", beside=beside),
        spec=ServiceSpec(name="bench", models=(served(INSTANT),)),
        link=BenchLink(INSTANT, [port]),
        overflow=None,
        stop=asyncio.Event(),
        on_bound=lambda _: _print_port(made[0].port),
    )


async def run_agent(answer: InferReply = ANSWER) -> None:
    """An agent that answers at once."""
    server = await asyncio.get_running_loop().create_server(partial(InstantAgent, answer), "127.0.0.1", 0)
    _print_port(server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


class TakingCollector(asyncio.Protocol):
    """Takes whatever is posted, and answers 200 once it is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._held = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._held += data
        while b"\r\n\r\n" in self._held:
            head, _, rest = self._held.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(rest) < length:
                return
            self._held = rest[length:]
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


async def run_collector() -> None:
    """A collector that keeps nothing."""
    server = await asyncio.get_running_loop().create_server(TakingCollector, "127.0.0.1", 0)
    _print_port(server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


async def run_whole(
    name: str, *, batch_s: Mapping[int, float] | None = None, telemetry: TelemetrySender | None = None
) -> None:
    """Gateway and real agent in one process, with batching and admission. batch_s: the model's profile."""
    backend: Backend = InstantBackend()
    if name == DIGITS:
        backend = PythonBackend(Digits, name=name)
    elif name == VISION:
        from scripts.bench.vision import Vision  # noqa: PLC0415 - brings torch, which no other model here needs

        backend = python_backend(Vision, REPLICAS, name=name)
    model, link = served(name, batch_s), BenchLink(name, ())

    async def no_notice() -> float | None:
        return None

    running = asyncio.ensure_future(
        serve_agent(
            AgentConfig(instance="i-0", role=Role.SERVING, host="127.0.0.1", frame_port=0, http_port=0),
            served=model,
            offering=model.offerings[0],
            link=link,
            backend=backend,
            interruption=no_notice,
            stop=asyncio.Event(),
            telemetry=telemetry,
        )
    )
    await asyncio.gather(running, run_gateway(model, link, telemetry=telemetry))


async def run_traced(ratio: float, port: int) -> None:
    """The same, with that share of the requests traced and sent to a collector at this port."""
    told = Telemetry(endpoint=f"http://127.0.0.1:{port}", trace_ratio=ratio)
    telemetry = open_telemetry(told, process="bench", namespace="bench", instance="bench", headers={})
    await run_whole(INSTANT, telemetry=telemetry)


def limited(key: str) -> ClientDirectory:
    """A client with that key among others, with limits that no bench reaches."""
    limits = Limits(rate_rps=1e6, burst=1_000_000, concurrency=1_000_000)
    names = {"bench": key, **{f"other-{number}": f"{key}-{number}" for number in range(MOST_CLIENTS - 1)}}
    clients = (
        Client(name=name, keys=(HashedKey(sha256=hash_of_key(one.encode())),), limits=limits)
        for name, one in names.items()
    )
    return ClientDirectory(version=1, clients=tuple(clients))


def _print_port(port: int) -> None:
    print(port, flush=True)


def main() -> None:
    """Be one of them.

    `gateway PORT [TOKEN [KEY]]`, `grpc PORT`, `pool RULE PORT` (an agent's); `agent [oip]`;
    `whole MODEL [SIZE=MS ...]`; `traced RATIO PORT` (a collector's); `collector`.
    """
    match sys.argv[1:]:
        case ["gateway", port]:
            uvloop.run(run_gateway(served(INSTANT), BenchLink(INSTANT, [int(port)])))
        case ["gateway", port, token]:
            uvloop.run(run_gateway(served(INSTANT), BenchLink(INSTANT, [int(port)]), token))
        case ["gateway", port, token, key]:
            uvloop.run(run_gateway(served(INSTANT), BenchLink(INSTANT, [int(port)], limited(key)), token))
        case ["pool", rule, port]:
            uvloop.run(run_pool(rule, int(port)))
        case ["grpc", port]:
            uvloop.run(run_grpc_gateway(int(port)))
        case ["agent"]:
            uvloop.run(run_agent())
        case ["collector"]:
            uvloop.run(run_collector())
        case ["traced", ratio, port]:
            uvloop.run(run_traced(float(ratio), int(port)))
        case ["agent", "oip"]:
            uvloop.run(run_agent(OUTPUTS))
        case ["whole", name, *batch_ms]:
            sizes = (one.split("=") for one in batch_ms)
            uvloop.run(run_whole(name, batch_s={int(size): float(took_ms) / 1000 for size, took_ms in sizes}))
        case other:
            raise SystemExit(f"no such role: {other}")


if __name__ == "__main__":
    main()

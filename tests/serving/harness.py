"""A gateway and agents in one event loop, with fakes for all that lies beyond them, and a plain HTTP client."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import uvloop

from mark.dispatch.policy import DispatchPolicy
from mark.dispatch.variants.serving import VariantServing
from mark.domain.fleet.instances import Role
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.models.profile import Evidence, LatencyPoint, Profile, Provenance
from mark.domain.offerings.offering import BatchPolicy, InstanceType, LambdaOffering, Market, Offering
from mark.domain.tensor import TensorSpec
from mark.protocols.oip import bodies as oip
from mark.service_spec import BackendSpec, ServedModel, ServiceSpec
from mark.serving.agent.process import serve_agent
from mark.serving.agent.tenant import AgentConfig
from mark.serving.gateway.config import GatewayConfig, TokenReader
from mark.serving.gateway.server import serve_gateway
from mark.serving.http.limits import HttpLimits
from mark.telemetry.otlp.sender import TelemetrySender
from tests.serving.fakes import EchoBackend, FakeLambda, FakeStore
from tests.waiting import PATIENCE_S

ASSUMED = Provenance(evidence=Evidence.ASSUMED, source="a test", formula="as given")
INPUTS = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)
BODY = json.dumps(oip.example_body(INPUTS)).encode()
INFER = "/v2/models/echo/infer"


def offering(*, batch_s: tuple[float, ...] = (0.002, 0.003, 0.004, 0.005)) -> Offering:
    points = tuple(LatencyPoint(batch=size, latency_s=took_s) for size, took_s in enumerate(batch_s, 1))
    return Offering(
        instance_type=InstanceType(
            name="c5.large", vcpus=2, memory_gib=4, architecture="amd64", on_demand_usd_per_hour=0.085
        ),
        market=Market.ON_DEMAND,
        usd_per_hour=0.085,
        profile=Profile(model="echo", instance_type="c5.large", points=points, provenance=ASSUMED),
        batch=BatchPolicy(max_batch=len(batch_s), max_wait_s=0.01),
        capacity_rps=len(batch_s) / batch_s[-1],
        boot_s=1.0,
        launch_usd=0.0,
    )


def served(
    *,
    latency_s: float = 0.5,
    dispatch: DispatchPolicy | None = None,
    redispatch: bool = True,
    overflow: LambdaOffering | None = None,
    variants: tuple[str, ...] = (),
    variant_serving: VariantServing | None = None,
    name: str = "echo",
    batch_s: tuple[float, ...] = (0.002, 0.003, 0.004, 0.005),
) -> ServedModel:
    slo = Slo(latency_s=latency_s, target=0.98)
    return ServedModel(
        model=ModelSpec(name=name, slo=slo, redispatch=redispatch),
        slo=slo,
        dispatch=dispatch or DispatchPolicy(),
        offerings=(offering(batch_s=batch_s),),
        backend=BackendSpec(kind="emulated"),
        overflow=overflow,
        function=f"mark-{name}" if overflow else "",
        inputs=INPUTS,
        outputs=INPUTS,
        variants=variants,
        variant_serving=variant_serving,
    )


LAMBDA = LambdaOffering(latency_s=0.05, provenance=ASSUMED, cold_start_s=0.1)
SLOW_LAMBDA = LambdaOffering(latency_s=30.0, provenance=ASSUMED, cold_start_s=600.0)
PATIENT_S = 90.0
"""An objective that a warm environment of SLOW_LAMBDA keeps on a busy machine too, and a cold one never."""


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection; requests as bytes, replies as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str = INFER, body: bytes | None = BODY, method: str = "POST", **headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: test"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))

    async def read(self, *, head: bool = False, within_s: float = PATIENCE_S) -> Reply:
        text = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), within_s)
        status_line, *lines = text.decode().split("\r\n")[:-2]
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
        length = 0 if head else int(headers.get("content-length", 0))
        body = await asyncio.wait_for(self.reader.readexactly(length), within_s)
        return Reply(int(status_line.split()[1]), headers, body)

    async def ask(
        self, path: str = INFER, body: bytes | None = BODY, method: str = "POST", **headers: str
    ) -> Reply:
        self.send(path, body, method, **headers)
        return await self.read(head=method == "HEAD")

    async def is_closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), PATIENCE_S) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class RunningAgent:
    instance: str
    backend: EchoBackend
    stop: asyncio.Event
    task: asyncio.Task[int]
    taken_at: list[float] = field(default_factory=list)
    http_port: int = 0


@dataclass
class Live:
    """What runs. `agents` by instance."""

    model: ServedModel
    store: FakeStore
    overflow: FakeLambda
    port: int = 0
    agents: dict[str, RunningAgent] = field(default_factory=dict)
    gateway_stop: asyncio.Event = field(default_factory=asyncio.Event)
    #: Frames go over TLS, as where gateway and agent are on different hosts.
    encrypted: bool = False
    clients: list[Client] = field(default_factory=list)
    telemetry: TelemetrySender | None = None

    async def client(self, port: int = 0) -> Client:
        """A connection to the gateway, or to that port; at the end those that are left are closed."""
        client = Client(*await asyncio.open_connection("127.0.0.1", port or self.port))
        self.clients.append(client)
        return client

    async def ask(self, *args: Any, **kwargs: Any) -> Reply:
        client = await self.client()
        try:
            return await client.ask(*args, **kwargs)
        finally:
            await client.close()

    async def refuses_connections(self) -> bool:
        try:
            client = await self.client()
        except ConnectionRefusedError:
            return True
        await client.close()
        return False

    async def add_agent(
        self,
        instance: str,
        *,
        takes_s: float = 0.0,
        role: Role = Role.SERVING,
        wait: bool = True,
        version: str = "",
        backend: EchoBackend | None = None,
    ) -> RunningAgent:
        backend = backend or EchoBackend(takes_s)
        agent = RunningAgent(instance, backend, asyncio.Event(), asyncio.Task(asyncio.sleep(0, 0)))
        await agent.task
        bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def interruption() -> float | None:
            return agent.taken_at[-1] if agent.taken_at else None

        agent.task = asyncio.ensure_future(
            serve_agent(
                AgentConfig(
                    instance=instance,
                    role=role,
                    host="127.0.0.1",
                    frame_port=0,
                    http_port=0,
                    encrypted=self.encrypted,
                ),
                served=replace(self.model, version=version),
                offering=self.model.offerings[0],
                link=self.store,
                backend=agent.backend,
                interruption=interruption,
                stop=agent.stop,
                on_bound=lambda _, http: bound.set_result(http),
                telemetry=self.telemetry,
            )
        )
        agent.http_port = await bound
        self.agents[instance] = agent
        if wait:
            await self.until_agents(len(self.agents))
        return agent

    async def until_agents(self, count: int) -> None:
        await self.until_metric(f'mark_gateway_agents{{model="{self.model.name}"}}', count)

    async def until_metric(self, name: str, value: float) -> None:
        async def reached() -> bool:
            return await self.metric(name) == value

        await until(reached)

    async def metric(self, name: str) -> float:
        page = (await self.ask("/metrics", None, "GET")).body.decode()
        return next((float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name)), 0.0)


async def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until it is true, or until the coroutine that it makes returns what is."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not (await found if inspect.isawaitable(found := condition()) else found):
        assert loop.time() < end, "it never came about"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def live(
    model: ServedModel | None = None,
    *,
    agents: int = 1,
    takes_s: float = 0.0,
    overflow: FakeLambda | None = None,
    limits: HttpLimits | None = None,
    token: str | None = None,
    encrypted: bool = False,
    tokens: TokenReader | None = None,
    telemetry: TelemetrySender | None = None,
    **config: Any,
) -> AsyncIterator[Live]:
    model = model or served()
    running = Live(model, FakeStore(), overflow or FakeLambda(), encrypted=encrypted, telemetry=telemetry)
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    gateway = asyncio.ensure_future(
        serve_gateway(
            GatewayConfig(name="g1", limits=limits or HttpLimits(), token=token, **config),
            spec=ServiceSpec(name="test", models=(model,)),
            link=running.store,
            overflow=running.overflow,
            stop=running.gateway_stop,
            on_bound=bound.set_result,
            tokens=tokens,
            telemetry=telemetry,
        )
    )
    try:
        await asyncio.wait([gateway, bound], return_when=asyncio.FIRST_COMPLETED)
        if gateway.done():
            gateway.result()
        running.port = bound.result()
        for number in range(agents):
            await running.add_agent(f"i-{number}", takes_s=takes_s, wait=token is None)
        yield running
    finally:
        for client in running.clients:
            await client.close()
        for agent in running.agents.values():
            agent.backend.free.set()
            agent.stop.set()
        await asyncio.gather(*(agent.task for agent in running.agents.values()))
        running.gateway_stop.set()
        await gateway


def run(test: Coroutine[Any, Any, None], within_s: float = PATIENCE_S) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(within_s):
            await test

    uvloop.run(bounded())

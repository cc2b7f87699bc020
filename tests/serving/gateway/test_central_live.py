"""A live pool of two unlike types: what it attains under each rule, and what its replay says it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.domain.fleet.instances import Role
from mark.domain.load.sizes import size_distribution
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.service_spec import ServedModel, ServiceSpec
from mark.serving.agent.process import serve_agent
from mark.serving.agent.tenant import AgentConfig
from mark.serving.backends.emulated import EmulatedBackend
from mark.serving.gateway.config import GatewayConfig
from mark.serving.gateway.server import serve_gateway
from mark.serving.loadgen.run import Load, LoadResult, Target
from mark.simulator.engine.compiled import plain_central_kernel
from mark.simulator.fixed.fixed_pool import FixedPool, PoolLoad
from tests.serving.fakes import FakeStore
from tests.serving.harness import BODY, Live, offering, run, served

TIMES_S = {"fast": (0.06, 0.10, 0.14, 0.18), "slow": (0.15, 0.30, 0.45, 0.60)}
"""By items: the slow type answers one or two in time."""
POOL = {"fast": 1, "slow": 2}
SLO = Slo(latency_s=0.4, target=0.98)
SIZES = size_distribution("mix", {1: 5, 2: 3, 3: 1, 4: 1})
QPS, QUERIES = 8.0, 250
RULES = (CentralRule.KAIROS, CentralRule.FCFS)
POINT = 0.01


def of_type(name: str) -> Offering:
    base = offering(batch_s=TIMES_S[name])
    return replace(base, instance_type=replace(base.instance_type, name=name))


def model_under(rule: CentralRule) -> ServedModel:
    model = served(latency_s=SLO.latency_s, name=rule.value)
    offerings = tuple(of_type(name) for name in POOL)
    return replace(model, offerings=offerings, central=CentralPolicy(rule=rule))


@asynccontextmanager
async def pools(models: tuple[ServedModel, ...]) -> AsyncIterator[Live]:
    """One gateway, and a pool of emulated instances for each model."""
    loop, store, stop = asyncio.get_running_loop(), FakeStore(), asyncio.Event()
    bound: asyncio.Future[int] = loop.create_future()
    tasks: list[asyncio.Future[object]] = [
        asyncio.ensure_future(
            serve_gateway(
                GatewayConfig(name="g1"),
                spec=ServiceSpec(name="test", models=models),
                link=store,
                overflow=None,
                stop=stop,
                on_bound=bound.set_result,
            )
        )
    ]

    async def no_notice() -> float | None:
        return None

    for model in models:
        for offered in model.offerings:
            for number in range(POOL[offered.instance_type.name]):
                backend = EmulatedBackend(
                    offered,
                    name=model.name,
                    inputs=model.inputs,
                    outputs=model.outputs,
                    now=loop.time,
                    speed=lambda: 1.0,
                    rng=np.random.default_rng(0),
                )
                config = AgentConfig(
                    instance=f"{model.name}-{offered.instance_type.name}-{number}",
                    role=Role.SERVING,
                    host="127.0.0.1",
                    frame_port=0,
                    http_port=0,
                )
                serving = serve_agent(
                    config,
                    served=model,
                    offering=offered,
                    link=store,
                    backend=backend,
                    interruption=no_notice,
                    stop=stop,
                )
                tasks.append(asyncio.ensure_future(serving))
    running = Live(models[0], store, overflow=None, port=await bound)  # type: ignore[arg-type]
    try:
        for model in models:
            metric = f'mark_gateway_own_agents{{model="{model.name}"}}'
            await running.until_metric(metric, sum(POOL.values()))
        yield running
    finally:
        stop.set()
        await asyncio.gather(*tasks)


@pytest.mark.slow
def test_two_unlike_types_attain_more_under_kairos_than_under_fcfs_and_as_much_as_their_replay() -> None:
    times_ms = {name: tuple(1000 * value for value in times) for name, times in TIMES_S.items()}
    table = LatencyTable(model="m", sizes=(1, 2, 3, 4), mean_ms=times_ms)
    replay = FixedPool(table, SLO, PoolLoad(sizes=SIZES, queries=QUERIES), kernel=plain_central_kernel())
    expected = {rule: replay.run(POOL, CentralPolicy(rule=rule), QPS).attained for rule in RULES}
    due_s, sizes = replay.queries(QPS)
    assert expected[CentralRule.KAIROS] > expected[CentralRule.FCFS] + 5 * POINT

    async def load(running: Live, rule: CentralRule) -> LoadResult:
        target = Target(host="127.0.0.1", port=running.port, path=f"/v2/models/{rule}/infer", body=BODY)
        sent = Load(target, objective_s=SLO.latency_s, run_id=rule.value)
        return await sent.run(list(due_s), sizes, stop=asyncio.Event())

    async def test() -> None:
        async with pools(tuple(map(model_under, RULES))) as running:
            found = dict(zip(RULES, await asyncio.gather(*(load(running, rule) for rule in RULES)), strict=True))
        for rule, result in found.items():
            assert result.answered == QUERIES, (rule, result)
        attained = {rule: result.attained or 0.0 for rule, result in found.items()}
        assert attained[CentralRule.KAIROS] == pytest.approx(expected[CentralRule.KAIROS], abs=POINT)
        assert attained[CentralRule.KAIROS] > attained[CentralRule.FCFS]

    run(test())

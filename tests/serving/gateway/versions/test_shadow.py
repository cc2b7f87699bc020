"""Copies of requests for a version that is to be compared: no client and no count of theirs knows of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from mark.dispatch.central.policy import CentralPolicy
from mark.domain.models.versions import CanaryPolicy, ModelVersions, Rollout, RolloutPhase, VersionCounts
from mark.protocols.oip import bodies as oip
from tests.serving.gateway.test_versions import (
    NEW,
    OLD,
    STABLE,
    ask_many,
    each_binding,
    model,
    path_of,
    two_versions,
)
from tests.serving.harness import BODY, Live, live, served, until


def rollout_of(share: float) -> Rollout:
    policy = CanaryPolicy(shadow=share)
    phase = RolloutPhase.SHADOWING
    return Rollout(id="1", before=OLD, candidate=NEW, began_at=0.0, since=0.0, policy=policy, phase=phase)


def shadowed(share: float, phase: RolloutPhase = RolloutPhase.SHADOWING) -> ModelVersions:
    return replace(STABLE, rollout=replace(rollout_of(share), phase=phase))


def counted(running: Live) -> VersionCounts:
    """Of the candidate, in all reports so far."""
    models = [model for report in running.store.reports.values() for model in report.models]
    found = [one for model in models for one in model.versions if one.version == NEW]
    names = ("answered", "late", "failed", "compared", "differing", "shadow_failed", "shadow_dropped", "shadow_us")
    return VersionCounts(version=NEW, **{name: sum(getattr(one, name) for one in found) for name in names})


async def reported(running: Live, copies: int) -> VersionCounts:
    async def are_told() -> bool:
        found = counted(running)
        return found.compared + found.shadow_dropped >= copies

    await until(are_told)
    return counted(running)


async def ready(running: Live, share: float) -> None:
    """Both versions behind the gateway, and what that took reported."""
    await two_versions(running, shadowed(share))
    await until(lambda: counted(running).answered == 1)
    running.agents["i-new"].backend.requests.clear()


@each_binding
async def test_copies_are_answered_by_the_new_version_and_clients_by_the_stable_one(
    central: CentralPolicy | None,
) -> None:
    async with live(model(central), agents=0) as running:
        await ready(running, 1.0)
        assert await ask_many(running, 200) == Counter({OLD: 200})
        found = await reported(running, 200)
        assert found.compared + found.shadow_dropped == 200
        assert found.compared == len(running.agents["i-new"].backend.requests) > 0
        assert (found.differing, found.shadow_failed) == (0, 0)
        assert found.shadow_us > 0
        assert found.answered == 1, "no client of it"
        assert running.store.arrivals() < 200 + found.compared, "no load"
        assert await running.metric('mark_gateway_shadow_requests_total{model="echo",outcome="alike"}') > 0


@pytest.mark.parametrize("share", [0.0, 0.25])
async def test_a_share_is_copied(share: float) -> None:
    async with live(agents=0) as running:
        await ready(running, share)
        assert await ask_many(running, 1000) == Counter({OLD: 1000})
        found = await reported(running, 200 if share else 0)
        assert found.compared + found.shadow_dropped <= (300 if share else 0)


async def test_differing_and_failed_answers_are_counted_and_no_client_gets_them() -> None:
    async with live(agents=0) as running:
        await ready(running, 1.0)
        backend = running.agents["i-new"].backend
        backend.answers = oip.error_reply(500, "broken")
        assert await ask_many(running, 50) == Counter({OLD: 50})
        found = await reported(running, 50)
        assert found.compared == found.differing == found.shadow_failed > 0
        late, failed = running.store.total("late"), running.store.total("failed")
        assert (late, failed) == (0, 0)


async def test_a_new_version_that_hangs_holds_up_nobody_and_gets_a_bounded_load() -> None:
    async with live(served(latency_s=0.02), agents=0) as running:
        await ready(running, 1.0)
        backend = running.agents["i-new"].backend
        backend.free.clear()
        assert await ask_many(running, 300) == Counter({OLD: 300})
        found = await reported(running, 200)
        assert found.shadow_dropped > 200, "it had no room for more"
        assert len(backend.requests) < 100
        backend.free.set()


async def test_a_lost_agent_and_the_end_of_the_shadow_drop_copies() -> None:
    async with live(served(latency_s=30.0), agents=0) as running:
        await ready(running, 1.0)
        backend = running.agents["i-new"].backend
        backend.free.clear()
        await ask_many(running, 5)
        running.store.versioned = (shadowed(1.0, RolloutPhase.PREPARING),)
        found = await reported(running, 5)
        assert (found.compared, found.shadow_dropped) == (0, 5)
        await ask_many(running, 5)
        backend.free.set()
        await ask_many(running, 5)
        await asyncio.sleep(0)
        assert len(backend.requests) <= 5, "nothing is copied any more"
        running.store.versioned = (shadowed(1.0),)

        async def is_copied() -> bool:
            await ask_many(running, 1)
            return counted(running).compared > 0

        await until(is_copied)
        backend.free.clear()
        await ask_many(running, 3)
        dropped = counted(running).shadow_dropped
        running.agents["i-new"].stop.set()
        backend.free.set()
        await running.agents["i-new"].task
        assert await ask_many(running, 20) == Counter({OLD: 20})
        assert counted(running).shadow_dropped >= dropped
        assert running.store.total("failed") == 0


async def test_who_names_a_version_is_not_copied_and_a_hurried_promotion_takes_no_copy_along() -> None:
    async with live(served(latency_s=30.0), agents=0) as running:
        await ready(running, 1.0)
        for version in (OLD, NEW):
            assert (await running.ask(path_of(version))).headers["x-mark-version"] == version
        assert (await reported(running, 0)).compared == 0
        backend = running.agents["i-new"].backend
        backend.free.clear()
        await ask_many(running, 3)
        over = replace(rollout_of(1.0), phase=RolloutPhase.PROMOTED)
        promoted = replace(STABLE, stable=NEW, rollout=over)
        running.store.versioned = (promoted,)
        assert (await reported(running, 3)).shadow_dropped == 3
        backend.free.set()
        answered = running.store.total("instance")
        reply = await running.ask("/v2/models/echo/infer", BODY)
        assert reply.headers["x-mark-version"] == NEW
        await until(lambda: running.store.total("instance") > answered)
        assert running.store.total("failed") == 0

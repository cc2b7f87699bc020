"""Two versions of a model behind one gateway: a share for the candidate, none for one that was aborted."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from mark.domain.versions import ModelVersions, Rollout, RolloutPhase
from mark.protocols import oip
from tests.serving.harness import BODY, INFER, LAMBDA, Live, live, run, served, until

OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
STABLE = ModelVersions(model="echo", stable=OLD)
ROLLOUT = Rollout(id="1", before=OLD, candidate=NEW, began_at=0.0, since=0.0)


def candidate(weight: float) -> ModelVersions:
    return replace(STABLE, rollout=replace(ROLLOUT, phase=RolloutPhase.DWELLING, weight=weight))


ABORTED = replace(STABLE, rollout=replace(ROLLOUT, phase=RolloutPhase.ABORTED))
PROMOTED = replace(STABLE, stable=NEW, rollout=replace(ROLLOUT, phase=RolloutPhase.PROMOTED, weight=1.0))


def path_of(version: str) -> str:
    return f"/v2/models/echo/versions/{version}/infer"


async def two_versions(running: Live, versions: ModelVersions) -> None:
    """An agent of each; returns once the gateway has both and routes by `versions`."""
    running.store.versioned = (versions,)
    await running.add_agent("i-old", version=OLD, wait=False)
    await running.add_agent("i-new", version=NEW, wait=False)
    await running.until_agents(1)
    for version in filter(None, (versions.stable, versions.candidate)):
        await until(lambda version=version: answers(running, path_of(version), version))
    await asyncio.sleep(0)


async def answers(running: Live, path: str, version: str) -> bool:
    reply = await running.ask(path)
    return reply.status == 200 and reply.headers["x-mark-version"] == version


async def ask_many(running: Live, count: int) -> Counter[str]:
    client = await running.client()
    found: Counter[str] = Counter()
    for _ in range(count):
        reply = await client.ask()
        assert reply.status == 200
        found[reply.headers["x-mark-version"]] += 1
    await client.close()
    return found


async def routed(running: Live, versions: ModelVersions) -> None:
    """Have the gateway route by these."""
    running.store.versioned = (versions,)
    names = {versions.stable, versions.candidate} - {""}

    async def known() -> bool:
        told = (await running.ask("/v2/models/echo", None, "GET")).document["versions"]
        return names | {"1"} == set(told)

    await until(known)


def test_the_candidate_answers_its_share_and_the_rest_is_the_stable_version_s() -> None:
    async def test() -> None:
        async with live(agents=0) as running:
            await two_versions(running, candidate(0.25))
            found = await ask_many(running, 1000)
            assert abs(found[NEW] / 1000 - 0.25) < 0.05
            assert found[OLD] + found[NEW] == 1000
            # a retry with the client's id is the same version's, in any gateway
            first = [(await running.ask(x_mark_request_id=f"r{n}")).headers["x-mark-version"] for n in range(40)]
            again = [
                (await running.ask(x_mark_request_id=f"r{n}", accept_encoding="")).headers["x-mark-version"]
                for n in range(40)
            ]
            assert first == again

    run(test())


def test_a_canary_of_five_percent_gets_five_percent() -> None:
    async def test() -> None:
        async with live(agents=0) as running:
            await two_versions(running, candidate(0.05))
            client = await running.client()
            found: Counter[str] = Counter()
            for number in range(2000):
                reply = await client.ask(x_mark_request_id=f"request-{number}")
                assert reply.status == 200
                found[reply.headers["x-mark-version"]] += 1
            await client.close()
            assert abs(found[NEW] / 2000 - 0.05) <= 0.01

    run(test())


def test_a_path_names_a_version_and_an_unknown_one_is_not_found() -> None:
    async def test() -> None:
        async with live(agents=0) as running:
            await two_versions(running, candidate(0.0))
            assert set(await ask_many(running, 50)) == {OLD}
            assert (await running.ask(path_of(NEW))).headers["x-mark-version"] == NEW
            assert (await running.ask(path_of(OLD))).headers["x-mark-version"] == OLD
            assert (await running.ask(path_of("1"))).headers["x-mark-version"] == OLD
            assert (await running.ask(path_of("cccccccccccc"))).status == 404

    run(test())


def test_what_overflows_is_answered_by_the_version_that_it_was_routed_to() -> None:
    """Each version has an alias of the function; the candidate's is the stable one's once it is promoted."""

    async def test() -> None:
        model = replace(served(overflow=LAMBDA), function_versions=True)
        async with live(model, agents=0) as running:
            await routed(running, candidate(1.0))
            for path in (path_of(NEW), path_of(OLD)):
                assert (await running.ask(path)).status == 200
            await routed(running, PROMOTED)
            assert (await running.ask()).headers["x-mark-version"] == NEW
            assert [name for name, _ in running.overflow.calls] == [
                f"mark-echo:v{version}" for version in (NEW, OLD, NEW)
            ]

    run(test())


def test_a_request_that_the_candidate_does_not_admit_goes_to_its_function_first() -> None:
    async def test() -> None:
        model = replace(served(overflow=LAMBDA), function_versions=True)
        async with live(model, agents=0) as running:
            await two_versions(running, candidate(1.0))
            backend = running.agents["i-new"].backend
            backend.free.clear()
            clients = [await running.client() for _ in range(600)]
            for client in clients:
                client.send()

            async def overflowed() -> bool:
                return bool(running.overflow.calls)

            await until(overflowed)
            backend.free.set()
            for client in clients:
                await client.read()
                await client.close()
            assert running.overflow.calls[0][0] == f"mark-echo:v{NEW}"

    run(test())


@pytest.mark.parametrize("redispatch", [True, False])
def test_what_an_aborted_version_has_in_flight_is_answered_by_the_stable_one(redispatch: bool) -> None:
    async def test() -> None:
        async with live(served(latency_s=30.0, redispatch=redispatch), agents=0) as running:
            await two_versions(running, candidate(1.0))
            backend = running.agents["i-new"].backend
            before = len(backend.requests)
            backend.free.clear()
            clients = [await running.client() for _ in range(8)]
            for client in clients:
                client.send()
            named = await running.client()
            named.send(path_of(NEW))
            await until(lambda: in_flight(running, "i-new", 1))
            await routed(running, ABORTED)
            if not redispatch:  # what may be worked on is not executed twice
                backend.free.set()
            found = Counter([(await client.read()).headers["x-mark-version"] for client in clients])
            assert found == {OLD if redispatch else NEW: 8}
            assert (await named.read()).status == (503 if redispatch else 200)
            backend.free.set()
            seen = len(backend.requests)
            assert set(await ask_many(running, 100)) == {OLD}
            assert (await running.ask(path_of(NEW))).status == 404
            assert len(backend.requests) == seen > before
            for client in (*clients, named):
                await client.close()

    run(test())


async def in_flight(running: Live, instance: str, least: int) -> bool:
    return len(running.agents[instance].backend.batches) >= least


def test_a_retry_gets_no_answer_of_a_version_that_was_aborted() -> None:
    async def test() -> None:
        async with live(agents=0) as running:
            await two_versions(running, candidate(1.0))
            assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == NEW
            assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == NEW
            await routed(running, ABORTED)
            assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == OLD

    run(test())


def test_a_candidate_without_instances_costs_nobody_an_answer() -> None:
    async def test() -> None:
        async with live(served(latency_s=30.0), agents=0) as running:
            await two_versions(running, candidate(1.0))
            agent = running.agents["i-new"]
            agent.backend.free.clear()
            client = await running.client()
            batches = len(agent.backend.batches)
            client.send()
            await until(lambda: in_flight(running, "i-new", batches + 1))
            agent.stop.set()
            agent.backend.free.set()
            assert (await client.read()).status == 200
            assert set(await ask_many(running, 20)) == {OLD}
            assert (await running.ask(path_of(NEW))).status == 503
            await client.close()

    run(test())


def test_after_the_promotion_the_old_version_gets_no_request() -> None:
    async def test() -> None:
        async with live(agents=0) as running:
            await two_versions(running, candidate(0.5))
            await routed(running, PROMOTED)
            seen = len(running.agents["i-old"].backend.requests)
            assert set(await ask_many(running, 100)) == {NEW}
            assert (await running.ask(INFER, BODY)).status == 200
            assert (await running.ask(path_of(OLD))).status == 404
            assert len(running.agents["i-old"].backend.requests) == seen

    run(test())


def test_reports_count_both_versions_while_a_rollout_runs() -> None:
    async def test() -> None:
        async with live(agents=0) as running:
            await two_versions(running, candidate(0.5))
            found = await ask_many(running, 200)
            running.agents["i-new"].backend.answers = oip.error_reply(500, "broken")
            failed = [(await running.ask()).status for _ in range(50)].count(500)

            def totals() -> dict[str, tuple[int, int]]:
                models = [model for report in running.store.reports.values() for model in report.models]
                return {
                    name: (
                        sum(v.answered for m in models for v in m.versions if v.version == name),
                        sum(v.failed for m in models for v in m.versions if v.version == name),
                    )
                    for name in (OLD, NEW)
                }

            async def told() -> bool:
                return totals()[NEW][0] >= found[NEW] and totals()[NEW][1] >= failed

            await until(told)
            assert failed > 0
            assert totals()[NEW][1] == failed
            assert totals()[OLD][1] == 0
            assert totals()[OLD][0] >= found[OLD]

    run(test())

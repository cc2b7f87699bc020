"""Two versions of a model behind one gateway: a share for the candidate, none for one that was aborted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.domain.load.traffic import Warmed
from mark.domain.models.versions import VERSION_COUNTS, ModelVersions, Rollout, RolloutPhase, VersionCounts
from mark.protocols.oip import bodies as oip
from mark.service_spec import ServedModel
from mark.serving.gateway.agent import Agent
from mark.serving.gateway.held_requests import HeldRequests
from mark.serving.gateway.idempotency import IdempotencyCache
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.request import InferenceRequest, Loss
from mark.serving.gateway.versions.router import VersionRouter
from mark.serving.unexpected_errors import UnexpectedErrors
from tests.serving.gateway.test_query_of_death import DEADLY, make_mortal
from tests.serving.harness import BODY, INFER, LAMBDA, Live, RunningAgent, live, served, until

OLD, NEW = "a" * 64, "b" * 64
STABLE = ModelVersions(model="echo", stable=OLD)
ROLLOUT = Rollout(id="1", before=OLD, candidate=NEW, began_at=0.0, since=0.0)


def candidate(weight: float) -> ModelVersions:
    return replace(STABLE, rollout=replace(ROLLOUT, phase=RolloutPhase.DWELLING, weight=weight))


ABORTED = replace(STABLE, rollout=replace(ROLLOUT, phase=RolloutPhase.ABORTED))
PROMOTED = replace(STABLE, stable=NEW, rollout=replace(ROLLOUT, phase=RolloutPhase.PROMOTED, weight=1.0))


CENTRAL = [None, CentralPolicy(rule=CentralRule.KAIROS)]
"""Early binding and a central queue: which of its rules chooses is nothing to versions."""
each_binding = pytest.mark.parametrize("central", CENTRAL, ids=["early", "central"])


def model(central: CentralPolicy | None, *, redispatch: bool = True) -> ServedModel:
    return replace(served(latency_s=30.0, redispatch=redispatch), central=central)


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


@each_binding
async def test_the_candidate_answers_its_share_and_the_rest_is_the_stable_version_s(
    central: CentralPolicy | None,
) -> None:
    async with live(model(central), agents=0) as running:
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


@each_binding
async def test_a_path_names_a_version_and_an_unknown_one_is_not_found(central: CentralPolicy | None) -> None:
    async with live(model(central), agents=0) as running:
        await two_versions(running, candidate(0.0))
        assert set(await ask_many(running, 50)) == {OLD}
        assert (await running.ask(path_of(NEW))).headers["x-mark-version"] == NEW
        assert (await running.ask(path_of(OLD))).headers["x-mark-version"] == OLD
        assert (await running.ask(path_of("1"))).headers["x-mark-version"] == OLD
        assert (await running.ask(path_of(NEW[:12]))).headers["x-mark-version"] == NEW
        for unknown in ("c" * 64, NEW[:11], NEW[:13]):
            assert (await running.ask(path_of(unknown))).status == 404


def called(running: Live) -> list[tuple[str, str]]:
    """The functions that were called, and as which version."""
    return [(name, request.version) for name, request in running.overflow.calls]


async def test_what_overflows_is_answered_by_the_version_that_it_was_routed_to() -> None:
    """A candidate has the model's second function, and keeps it once it is promoted."""

    model = replace(served(overflow=LAMBDA), function_versions=True)
    async with live(model, agents=0) as running:
        await routed(running, candidate(1.0))
        for path in (path_of(NEW), path_of(OLD)):
            assert (await running.ask(path)).status == 200
        await until(lambda: all(counted(running, version).lambda_calls == 1 for version in (NEW, OLD)))
        assert counted(running, NEW).lambda_gib_us > 0
        await routed(running, replace(PROMOTED, function=1))
        assert (await running.ask()).headers["x-mark-version"] == NEW
        assert called(running) == [("mark-echo_2", NEW), ("mark-echo", OLD), ("mark-echo_2", NEW)]
        # the next candidate has the function that is free, whichever version it is
        back = Rollout(id="2", before=NEW, candidate=OLD, weight=1.0, began_at=0.0, since=0.0)
        await routed(running, ModelVersions(model="echo", stable=NEW, rollout=back, function=1))
        assert (await running.ask(path_of(OLD))).headers["x-mark-version"] == OLD
        assert called(running)[3:] == [("mark-echo", OLD)]


async def test_a_request_that_the_candidate_does_not_admit_goes_to_its_function_first() -> None:
    model = replace(served(overflow=LAMBDA), function_versions=True)
    async with live(model, agents=0) as running:
        await two_versions(running, candidate(1.0))
        backend = running.agents["i-new"].backend
        backend.free.clear()
        clients = [await running.client() for _ in range(600)]
        for client in clients:
            client.send()
        await until(lambda: bool(running.overflow.calls))
        backend.free.set()
        for client in clients:
            await client.read()
            await client.close()
        assert called(running)[0] == ("mark-echo_2", NEW)


async def test_each_version_s_environments_are_its_own_and_all_go_with_the_function() -> None:
    model = replace(served(overflow=LAMBDA), function_versions=True)
    async with live(model, agents=0) as running:
        now = time.time()

        def warmed(share: int, version: str = "", anew_at: float = 0.0) -> Warmed:
            return Warmed(model="echo", at=now, share=share, anew_at=anew_at, version=version)

        async def believes(warm: int) -> bool:
            await running.ask(path_of(OLD))  # so that there is something to report
            reports = running.store.reports.values()
            return bool(reports) and max(reports, key=lambda one: one.sequence).models[0].lambda_warm == warm

        running.store.warmings = (warmed(0), warmed(8, OLD))
        await routed(running, STABLE)
        await until(lambda: believes(8))
        # as much as the candidate's environments are enough for by its share
        await routed(running, candidate(0.25))
        await until(lambda: believes(0))
        running.store.warmings = (warmed(0), warmed(8, OLD), warmed(1, NEW))
        await until(lambda: believes(4))
        # an account made anew has none of either; those warmed since count, in the same look
        running.store.warmings = (warmed(0, "", now), warmed(6, OLD, now), warmed(1, NEW))
        await until(lambda: believes(0))
        running.store.warmings = (warmed(0, "", now), warmed(6, OLD, now), warmed(5, NEW, now))
        await until(lambda: believes(6))


@each_binding
@pytest.mark.parametrize("redispatch", [True, False])
async def test_what_the_candidate_fails_the_stable_version_answers(
    central: CentralPolicy | None, redispatch: bool
) -> None:
    """Unless the model forbids a second try, or the request names the candidate."""

    async with live(model(central, redispatch=redispatch), agents=0) as running:
        await two_versions(running, candidate(1.0))
        running.agents["i-new"].backend.answers = oip.error_reply(500, "broken")
        before = counted(running, NEW).failed
        for _ in range(5):
            reply = await running.ask()
            wanted = (200, OLD) if redispatch else (500, NEW)
            assert (reply.status, reply.headers["x-mark-version"]) == wanted
        assert (await running.ask(path_of(NEW))).status == 500
        await until(lambda: counted(running, NEW).failed == before + 6)


@each_binding
async def test_the_candidate_fails_a_request_once_though_the_stable_version_loses_it_then(
    central: CentralPolicy | None,
) -> None:
    async with live(model(central), agents=0) as running:
        await two_versions(running, candidate(1.0))
        await running.add_agent("i-old2", version=OLD, wait=False)
        await running.until_agents(2)
        new = running.agents["i-new"].backend
        new.answers = oip.error_reply(500, "broken")
        stable = [running.agents[name] for name in ("i-old", "i-old2")]
        before = {one.instance: len(one.backend.requests) for one in running.agents.values()}
        for one in stable:
            one.backend.free.clear()
        asked = asyncio.ensure_future(running.ask())

        def holders() -> list[RunningAgent]:
            return [one for one in stable if len(one.backend.requests) > before[one.instance]]

        await until(lambda: len(holders()) == 1)
        (lost,) = holders()
        lost.stop.set()
        await lost.task
        for one in stable:
            one.backend.free.set()
        reply = await asked
        assert (reply.status, reply.headers["x-mark-version"]) == (200, OLD)
        assert {len(one.backend.requests) - before[one.instance] for one in running.agents.values()} == {1}


@each_binding
@pytest.mark.parametrize("redispatch", [True, False])
async def test_what_an_aborted_version_has_in_flight_is_answered_by_the_stable_one(
    central: CentralPolicy | None, redispatch: bool
) -> None:
    async with live(model(central, redispatch=redispatch), agents=0) as running:
        await two_versions(running, candidate(1.0))
        backend = running.agents["i-new"].backend
        before = len(backend.requests)
        backend.free.clear()
        came = await arrived(running)
        clients = [await running.client() for _ in range(8)]
        for client in clients:
            client.send()
        named = await running.client()
        named.send(path_of(NEW))
        await until(lambda: running.store.arrivals() >= came + 9)
        await routed(running, ABORTED)
        if not redispatch:  # what may be worked on is not executed twice
            backend.free.set()
        found = Counter([(await client.read()).headers["x-mark-version"] for client in clients])
        kept = 0 if redispatch else 8 if central is None else 1  # in a queue the others were not begun
        assert found == Counter({OLD: 8 - kept, NEW: kept})
        assert (await named.read()).status == (200 if kept == 8 else 503)
        backend.free.set()
        seen = len(backend.requests)
        assert set(await ask_many(running, 100)) == {OLD}
        assert (await running.ask(path_of(NEW))).status == 404
        assert len(backend.requests) == seen > before
        for client in (*clients, named):
            await client.close()


@each_binding
async def test_a_request_that_names_a_version_gets_no_other_s_answer_if_it_waited_while_that_was_aborted(
    central: CentralPolicy | None,
) -> None:
    async with live(model(central), agents=0) as running:
        await two_versions(running, candidate(0.5))
        client = await running.client()
        for _ in range(2):  # the head is known from now on
            assert (await client.ask(path_of(NEW))).status == 200
        running.agents["i-new"].backend.free.clear()
        came = await arrived(running)
        client.send(path_of(NEW))
        await until(lambda: running.store.arrivals() > came)
        client.send(path_of(NEW))  # waits behind the other
        await routed(running, ABORTED)
        assert (await client.read()).status == 503
        assert (await client.read()).status in (503, 404)  # by when its head was parsed
        running.agents["i-new"].backend.free.set()


async def arrived(running: Live) -> int:
    """Arrivals so far, once all are reported."""
    own = len([one for agent in running.agents.values() for one in agent.backend.requests])
    await until(lambda: running.store.arrivals() >= own)
    return running.store.arrivals()


async def in_flight(running: Live, instance: str, least: int) -> bool:
    return len(running.agents[instance].backend.batches) >= least


@each_binding
async def test_a_retry_gets_no_answer_of_a_version_that_was_aborted(central: CentralPolicy | None) -> None:
    async with live(model(central), agents=0) as running:
        await two_versions(running, candidate(1.0))
        assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == NEW
        assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == NEW
        await routed(running, ABORTED)
        assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == OLD


@each_binding
async def test_what_an_aborted_version_finishes_is_not_kept_for_retries(central: CentralPolicy | None) -> None:
    """A model that forbids a second execution: the request that was begun gets its answer, no later one does."""

    async with live(model(central, redispatch=False), agents=0) as running:
        await two_versions(running, candidate(1.0))
        agent = running.agents["i-new"]
        agent.backend.free.clear()
        batches = len(agent.backend.batches)
        client = await running.client()
        client.send(x_mark_request_id="once")
        await until(lambda: in_flight(running, "i-new", batches + 1))
        await routed(running, ABORTED)
        following = replace(ROLLOUT, id="2", candidate="cccccccccccc")
        await routed(running, replace(STABLE, rollout=following))
        agent.backend.free.set()
        assert (await client.read()).headers["x-mark-version"] == NEW
        assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == OLD


@each_binding
async def test_an_abort_that_a_gateway_did_not_see_takes_effect_with_the_next_rollout(
    central: CentralPolicy | None,
) -> None:
    """The store was unreachable for the gateway meanwhile."""

    async with live(model(central), agents=0) as running:
        await two_versions(running, candidate(1.0))
        assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == NEW
        agent = running.agents["i-new"]
        agent.backend.free.clear()
        batches = len(agent.backend.batches)
        client = await running.client()
        client.send()
        await until(lambda: in_flight(running, "i-new", batches + 1))
        following = replace(ROLLOUT, id="2", candidate="cccccccccccc")
        await routed(running, replace(STABLE, rollout=following))
        assert (await client.read()).headers["x-mark-version"] == OLD
        assert (await running.ask(x_mark_request_id="once")).headers["x-mark-version"] == OLD


def test_a_request_counts_once_as_failed_by_its_version_and_none_for_another_gateway() -> None:
    unexpected = UnexpectedErrors(logging.getLogger("test"))
    router = ModelRouter(served(), overflow=None, idempotency=IdempotencyCache(unexpected), unexpected=unexpected)
    router.version_tally = router.tally.of_version(OLD)

    def request() -> InferenceRequest:
        made = InferenceRequest(None, b"POST", b"/", {}, b"", keep_alive=True)
        made.arrived_at = made.deadline_at = time.monotonic() - router.give_up_s - 1.0
        return made

    router.lost(request(), Loss("i-0", 1))  # too late to be tried again
    assert (router.version_tally.failed_, router.tally.failed) == (1, 1)
    router.expire(request())
    assert (router.version_tally.failed_, router.tally.failed) == (2, 2)
    router.time_out(request())  # in another gateway, whose version nobody knows here
    assert (router.version_tally.failed_, router.tally.failed) == (2, 3)


@each_binding
async def test_a_candidate_without_instances_costs_nobody_an_answer(central: CentralPolicy | None) -> None:
    async with live(model(central), agents=0) as running:
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


@pytest.mark.parametrize("redispatch", [True, False])
async def test_a_candidate_that_ends_with_its_requests_is_counted_as_failing(redispatch: bool) -> None:
    async with live(served(latency_s=30.0, redispatch=redispatch), agents=0) as running:
        await two_versions(running, candidate(1.0))
        make_mortal(running.agents["i-new"])
        reply = await running.ask(body=DEADLY)
        assert reply.status == (200 if redispatch else 502)
        if redispatch:
            assert reply.headers["x-mark-version"] == OLD
        await until(lambda: counted(running, NEW).failed == 1)
        assert counted(running, OLD).failed == 0


@pytest.mark.parametrize(
    ("loss", "by"),
    [(Loss("i-new", 1), "stable"), (None, "candidate")],
    ids=["it may have ended the instance", "it only waited there"],
)
def test_what_may_end_instances_of_the_candidate_is_tried_again_by_the_stable_version(
    loss: Loss | None, by: str
) -> None:
    """It has two tries: were both the candidate's, a version that ends on each request would fail them."""
    found: list[str] = []

    class Stable(ModelRouter):
        def offer_here(self, request: InferenceRequest, now: float) -> None:
            found.append("stable")

    class Candidate(VersionRouter):
        def offer_here(self, request: InferenceRequest, now: float) -> None:
            found.append("candidate")

    unexpected = UnexpectedErrors(logging.getLogger("test"))
    stable = Stable(served(), overflow=None, idempotency=IdempotencyCache(unexpected), unexpected=unexpected)
    stable.candidate = new = Candidate(stable, NEW)
    new.weight = 1.0
    new.set_agents([cast("Agent", SimpleNamespace(view=AgentView("i-newer", (0.0, 0.01))))])
    request = InferenceRequest(None, b"POST", b"/", {}, b"", keep_alive=True)
    request.arrived_at = time.monotonic()
    request.deadline_at = request.arrived_at + 60.0
    new.lost(request, loss)
    assert found == [by]


def test_what_can_wait_waits_again_where_the_candidate_is_lost() -> None:
    class Held:
        def put_back(self, request: InferenceRequest, now: float) -> bool:
            found.append(request)
            return True

    found: list[InferenceRequest] = []
    unexpected = UnexpectedErrors(logging.getLogger("test"))
    stable = ModelRouter(served(), overflow=None, idempotency=IdempotencyCache(unexpected), unexpected=unexpected)
    stable.held = cast("HeldRequests", Held())
    request = InferenceRequest(None, b"POST", b"/", {}, b"", keep_alive=True)
    request.arrived_at = time.monotonic()
    request.deadline_at = request.arrived_at + 60.0
    VersionRouter(stable, NEW).lost(request)
    assert found == [request]


def counted(running: Live, version: str) -> VersionCounts:
    """Counts of a version in all reports."""
    told = [model for report in running.store.reports.values() for model in report.models]
    found = [one for model in told for one in model.versions if one.version == version]
    return VersionCounts(
        version=version, **{name: sum(getattr(one, name) for one in found) for name in VERSION_COUNTS}
    )


@each_binding
async def test_after_the_promotion_the_old_version_gets_no_request(central: CentralPolicy | None) -> None:
    async with live(model(central), agents=0) as running:
        await two_versions(running, candidate(0.5))
        await routed(running, PROMOTED)
        seen = len(running.agents["i-old"].backend.requests)
        assert set(await ask_many(running, 100)) == {NEW}
        assert (await running.ask(INFER, BODY)).status == 200
        assert (await running.ask(path_of(OLD))).status == 404
        assert len(running.agents["i-old"].backend.requests) == seen


async def test_reports_count_both_versions_while_a_rollout_runs() -> None:
    async with live(agents=0) as running:
        await two_versions(running, candidate(0.5))
        found = await ask_many(running, 200)
        running.agents["i-new"].backend.answers = oip.error_reply(500, "broken")
        failed = [(await running.ask(path_of(NEW))).status for _ in range(20)].count(500)

        async def told() -> bool:
            new = counted(running, NEW)
            return new.answered >= found[NEW] and new.failed >= failed

        await until(told)
        assert failed > 0
        assert counted(running, NEW).failed == failed
        assert counted(running, OLD).failed == 0
        assert counted(running, OLD).answered >= found[OLD]

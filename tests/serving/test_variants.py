"""Variants live: agents choose as a replay does; clients set floors, and answers name their variant."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.instance.measured import VariantTimes
from mark.dispatch.variants.qos import QosRule
from mark.dispatch.variants.qos_policy import (
    QosNetwork,
    action_count,
    feature_count,
    network_of,
    network_shapes,
    network_text,
)
from mark.dispatch.variants.serving import QualityDeadlines, VariantDispatch, VariantServing
from mark.dispatch.variants.slackfit import VariantRule
from mark.domain.errors import Misconfigured
from mark.domain.models.variants import Variant, VariantTable
from mark.protocols.oip import bodies as oip
from mark.service_spec import ServiceSpec
from mark.serving.agent.quality_rule import QualityRule
from mark.serving.agent.variants import AgentVariants, Waiting
from mark.simulator.engine import arrays, kernel
from mark.store.codec import SPEC
from tests.serving.gateway.test_peers import pair
from tests.serving.harness import BODY, INFER, INPUTS, Live, RunningAgent, live, served, until

TYPE = "c5.large"
HORIZON_S = 0.5
TABLE = VariantTable(
    model="echo",
    variants=(Variant("small", 0.7), Variant("middle", 0.75), Variant("large", 0.8)),
    latency_s={
        "c5.xlarge": tuple(
            tuple(float(s) for s in np.linspace(last / 6, last / 2, 8)) for last in (0.06, 0.1, 0.2)
        ),
        TYPE: tuple(tuple(float(s) for s in np.linspace(last / 3, last, 8)) for last in (0.06, 0.12, 0.25)),
    },
)
SERVING = VariantServing(
    table=TABLE, dispatch=VariantDispatch(), floor=0, max_batch={TYPE: 8, "c5.xlarge": 8},
    late={TYPE: 1.2, "c5.xlarge": 1.0},
)  # fmt: skip
CENTRAL = replace(SERVING, dispatch=VariantDispatch(is_central=True))
CHOOSERS = {
    rule: AgentVariants(replace(SERVING, dispatch=VariantDispatch(rule)), TYPE, horizon_s=HORIZON_S)
    for rule in (VariantRule.SLACKFIT, VariantRule.MAXACC, VariantRule.MAXBATCH)
}
LIFTED = {
    rule: AgentVariants(replace(SERVING, dispatch=VariantDispatch(rule)), TYPE, horizon_s=HORIZON_S)
    for rule in (VariantRule.SLACKFIT, VariantRule.MAXBATCH)
}
"""Each of their questions says the floors anew."""
FASTEST_S = TABLE.latency_s[TYPE][0]


@cache
def replayed(rule: VariantRule) -> tuple[VariantServing, Any]:
    """A replay's settings, and its variants, which take a moment to make."""
    serving = replace(SERVING, dispatch=VariantDispatch(rule))
    made = arrays.records(kernel.RULES, 1)[0]
    made.objective_s, made.speed = HORIZON_S, 1.0
    return serving, arrays.variants(serving, made)


def in_a_replay(rule: VariantRule, ages_s: list[float], now: float) -> tuple[int, int]:
    """Requests and variant of the batch that a replay takes. ages_s: of what waits, the oldest first."""
    serving, variants = replayed(rule)
    server = arrays.records(kernel.SERVER, 1)[0]
    server.kind, server.waiting, server.max_batch = serving.types.index(TYPE), len(ages_s), 8
    server.full_batch_s = FASTEST_S[-1]
    queue = np.zeros(64)
    queue[: len(ages_s)] = [now - age_s for age_s in ages_s]
    most = kernel._choose_variant(now, server, queue, variants, arrays.tally(0.0, 1).totals)
    return min(most, len(ages_s)), int(server.variant)


@given(
    rule=st.sampled_from(sorted(CHOOSERS)),
    ages_s=st.lists(st.floats(0, 0.8, allow_nan=False), min_size=1, max_size=40),
)
def test_the_choice_is_the_replays(rule: VariantRule, ages_s: list[float]) -> None:
    now = 100.0
    ages_s.sort(reverse=True)
    waiting = [Waiting(now - age_s + HORIZON_S) for age_s in ages_s]
    assert CHOOSERS[rule].choose(waiting, now) == in_a_replay(rule, ages_s, now)


@given(
    rule=st.sampled_from(list(QosRule)),
    ages_s=st.lists(st.floats(0, 0.8, allow_nan=False), min_size=1, max_size=40),
)
def test_a_rule_that_weighs_quality_chooses_as_in_a_replay(rule: QosRule, ages_s: list[float]) -> None:
    now = 100.0
    ages_s.sort(reverse=True)
    serving = weighing(rule)
    chooser = AgentVariants(serving, TYPE, horizon_s=HORIZON_S)
    made = arrays.records(kernel.RULES, 1)[0]
    made.objective_s, made.speed = HORIZON_S, 1.0
    server = arrays.records(kernel.SERVER, 1)[0]
    server.waiting, server.max_batch = len(ages_s), 8
    queue = np.zeros(64)
    queue[: len(ages_s)] = [now - age_s for age_s in ages_s]
    totals = arrays.tally(0.0, 1).totals
    most = kernel._choose_variant(now, server, queue, arrays.variants(serving, made), totals)
    found = chooser.choose([Waiting(now - age_s + HORIZON_S) for age_s in ages_s], now)
    assert found == (min(most, len(ages_s)), int(server.variant))


def test_a_learned_answer_that_is_no_number_or_late_is_the_heuristics() -> None:
    serving, now = weighing(QosRule.LEARNED), 100.0
    network = network_of(serving.weights)
    broken = network._replace(outer_bias=np.full_like(network.outer_bias, np.nan))
    afar = network._replace(most=np.full_like(network.most, -1.0))
    heuristic = QualityRule(weighing(QosRule.HEURISTIC), HORIZON_S)
    deadlines_at = [now + left for left in np.linspace(-0.1, 0.4, 30)]
    ticks = itertools.count()
    rules = [
        QualityRule(replace(serving, weights=network_text(one)), HORIZON_S, clock=lambda: 0.0)
        for one in (broken, afar)
    ]
    rules.append(QualityRule(serving, HORIZON_S, clock=lambda: float(next(ticks))))
    for rule in rules:
        assert rule.choose(deadlines_at, now) == heuristic.choose(deadlines_at, now)
        assert rule.learned is not None
        assert rule.learned.fallbacks == 1


def weighing(rule: QosRule) -> VariantServing:
    """By quality, on one type; weights at random."""
    deadlines = QualityDeadlines(soft_s=HORIZON_S, hard_s=2 * HORIZON_S)
    serving = replace(SERVING, dispatch=VariantDispatch(rule), deadlines=deadlines).on(TYPE)
    if rule is not QosRule.LEARNED:
        return serving
    pool, rng = serving.learned_pool(), np.random.default_rng(0)
    *shapes, facts, _ = network_shapes(feature_count(pool), action_count(pool))
    parts = [rng.normal(size=shape) for shape in shapes]
    network = QosNetwork._make((*parts, np.full(facts, -np.inf), np.full(facts, np.inf)))
    return replace(serving, weights=network_text(network))


@given(floors=st.lists(st.integers(0, 2), min_size=1, max_size=20), slack_s=st.floats(-0.1, 0.5))
def test_a_floor_lifts_its_whole_batch(floors: list[int], slack_s: float) -> None:
    chooser = LIFTED[VariantRule.MAXBATCH]
    chooser.lift_for(floors)
    count, number = chooser.choose([Waiting(slack_s, floor) for floor in floors], 0.0)
    assert 1 <= count <= min(8, len(floors))
    assert number >= max(floors[:count])


@given(
    waiting=st.lists(
        st.builds(Waiting, st.floats(-0.1, 0.5), st.integers(0, 2), st.booleans()), min_size=1, max_size=20
    )
)
def test_a_pinned_variant_answers_and_floors_beside_it_are_kept(waiting: list[Waiting]) -> None:
    chooser = LIFTED[VariantRule.SLACKFIT]
    chooser.lift_for([one.floor for one in waiting])
    count, number = chooser.choose(waiting, 0.0)
    assert 1 <= count <= len(waiting)
    assert all(number == one.floor if one.is_pinned else number >= one.floor for one in waiting[:count])
    unpinned = [one._replace(is_pinned=False) for one in waiting]
    assert count <= chooser.choose(unpinned, 0.0)[0]


def test_a_tightened_deadline_behind_the_first_counts() -> None:
    chooser = CHOOSERS[VariantRule.SLACKFIT]
    assert chooser.choose([Waiting(0.5), Waiting(0.5)], 0.0)[1] == 2
    assert chooser.choose([Waiting(0.5), Waiting(0.05)], 0.0)[1] == 0


def test_admission_counts_on_the_fastest_variant_that_may_answer_all_that_wait() -> None:
    chooser = AgentVariants(SERVING, TYPE, horizon_s=HORIZON_S)
    rows = TABLE.latency_s[TYPE]
    assert chooser.predicted_s(0) == (rows[0][0], rows[0][-1])
    assert chooser.predicted_s(1) == (rows[1][0], rows[1][-1])
    chooser.lift(2)
    assert chooser.predicted_s(0) == (rows[2][0], rows[2][-1])
    chooser.lift_for([])
    assert chooser.predicted_s(0) == (rows[0][0], rows[0][-1])


def test_a_slow_machine_has_less_slack() -> None:
    fair, slow = (AgentVariants(SERVING, TYPE, horizon_s=HORIZON_S) for _ in range(2))
    for _ in range(40):
        slow.note(2, 1, 3 * TABLE.latency_s[TYPE][2][0])
    waiting = [Waiting(0.3)] * 4
    assert slow.choose(waiting, 0.0)[1] < fair.choose(waiting, 0.0)[1]
    assert slow.fastest_times.full_batch_s == pytest.approx(3 * FASTEST_S[-1], rel=0.01)
    counted = slow.counted_s(TABLE.latency_s[TYPE][2])
    assert counted[0] == pytest.approx(3 * TABLE.latency_s[TYPE][2][0], rel=0.01)


def test_variants_whose_profiles_are_off_by_different_factors_keep_their_own_times() -> None:
    times = VariantTimes([(0.1,), (0.2,)])
    for _ in range(60):
        times.note(0, 1, 0.1)
        times.note(1, 1, 0.3)
    assert times.of(0).single_s == pytest.approx(0.1)
    assert times.of(1).single_s == pytest.approx(0.3)


def test_the_store_keeps_what_agents_choose_from() -> None:
    spec = ServiceSpec(name="test", models=(served(variant_serving=SERVING),))
    assert SPEC.decode(SPEC.encode(spec)) == spec


@pytest.mark.parametrize("serving", [SERVING, CENTRAL])
async def test_answers_name_their_variant_and_gateways_and_agents_count_it(serving: VariantServing) -> None:
    async with live(served(latency_s=HORIZON_S, variant_serving=serving)) as running:
        reply = await running.ask()
        assert (reply.status, reply.headers["x-mark-variant"]) == (200, "large")
        assert running.agents["i-0"].backend.variants == ["large"]
        name = 'mark_gateway_variant_responses_total{model="echo",variant="large"}'
        assert await running.metric(name) == 1
        own = await running.client(running.agents["i-0"].http_port)
        page = (await own.ask("/metrics", None, "GET")).body.decode()
        assert 'mark_agent_variant_batches_total{instance="i-0",model="echo",variant="large"} 1' in page
        await until(lambda: running.store.total("accuracy_known") == 1)
        assert running.store.total("accuracy_sum") == pytest.approx(0.8)


async def test_a_surge_lowers_accuracy_and_floors_are_kept() -> None:
    """All times are 200 times as long, and the backend takes none: what a busy machine adds changes no choice."""
    longer = {
        name: tuple(tuple(200 * took_s for took_s in row) for row in rows)
        for name, rows in TABLE.latency_s.items()
    }
    serving = replace(SERVING, table=replace(TABLE, latency_s=longer))

    async with live(served(latency_s=200 * HORIZON_S, variant_serving=serving)) as running:
        backend = running.agents["i-0"].backend
        backend.free.clear()
        clients = [await running.client() for _ in range(9)]
        clients[0].send(INFER, BODY)
        await until(lambda: len(backend.batches) == 1)
        for client in clients[1:]:
            client.send(INFER, BODY, x_mark_deadline_ms="30000")
        await until(lambda: _waiting(running, 8))
        backend.free.set()
        replies = [await client.read() for client in clients]
        assert {reply.status for reply in replies} == {200}
        assert replies[1].headers["x-mark-variant"] in ("small", "middle")
        floored = await running.ask(x_mark_accuracy_floor="0.75")
        assert floored.headers["x-mark-variant"] in ("middle", "large")
        for client in clients:
            await client.close()


async def test_one_queue_hands_idle_agents_whole_batches_and_a_lost_one_costs_no_answer() -> None:
    """Bodies are so large that many do not come in one piece."""
    body = BODY[:-1] + b" " * 500_000 + b"}"

    model = served(latency_s=200 * HORIZON_S, variant_serving=CENTRAL)
    async with live(model, agents=2) as running:
        await running.until_metric('mark_gateway_own_agents{model="echo"}', 2)
        agents = list(running.agents.values())
        for agent in agents:
            agent.backend.free.clear()
        clients = [await running.client() for _ in range(18)]

        for count, client in enumerate(clients[:2], 1):
            client.send(INFER, body)
            await until(lambda count=count: _batches(agents, count))  # type: ignore[misc]
        for client in clients[2:]:
            client.send(INFER, body, x_mark_accuracy_floor="0.75")
        await running.until_metric('mark_gateway_waiting{model="echo"}', 16)
        lost, other = agents
        lost.task.cancel()
        await running.until_agents(1)
        await running.until_metric('mark_gateway_waiting{model="echo"}', 17)
        other.backend.free.set()
        replies = [await client.read() for client in clients]
        assert {reply.status for reply in replies} == {200}
        assert {reply.headers["x-mark-variant"] for reply in replies[2:]} <= {"middle", "large"}
        assert sum(other.backend.batches) == 18
        assert max(other.backend.batches) == 8
        formed = await running.metric('mark_gateway_batches_total{model="echo"}')
        assert formed == len(other.backend.batches) + 1
        running.agents.pop(lost.instance)


async def _batches(agents: list[RunningAgent], count: int) -> bool:
    return sum(len(agent.backend.batches) for agent in agents) == count


async def _waiting(running: Live, count: int) -> bool:
    page = await running.metric('mark_gateway_in_flight{model="echo"}')
    return page == count + 1


PARAMETERS = {"accuracy_floor": 0.8}


async def test_impossible_floors_are_refused() -> None:
    body = oip.example_body(INPUTS)

    async with live(served(latency_s=HORIZON_S, variant_serving=SERVING)) as running:
        refused = await running.ask(x_mark_accuracy_floor="0.9")
        assert refused.status == 400
        assert "the most accurate that answers, large, has 0.8" in refused.document["error"]
        for odd in ("1.5", "nan", "much", "-0.1"):
            reply = await running.ask(x_mark_accuracy_floor=odd)
            assert (reply.status, "between 0 and 1" in reply.document["error"]) == (400, True)
        inside = json.dumps({**body, "parameters": PARAMETERS}).encode()
        assert (await running.ask(body=inside)).headers["x-mark-variant"] == "large"
        above = json.dumps({**body, "parameters": {"accuracy_floor": 0.81}}).encode()
        assert (await running.ask(body=above)).status == 400
        text = json.dumps({**body, "parameters": {"accuracy_floor": "high"}}).encode()
        assert (await running.ask(body=text)).status == 400
        aws = await running.ask(x_amzn_sagemaker_target_variant="large")
        assert (aws.status, "x-mark-variant" in aws.document["error"]) == (400, True)
        assert (await running.ask(x_mark_size="2")).status == 400
    async with live() as running:
        reply = await running.ask(x_mark_accuracy_floor="0.5")
        assert (reply.status, reply.document["error"]) == (
            400, "echo has no variants: leave x-mark-accuracy-floor out"
        )  # fmt: skip
        answered = await running.ask()
        assert "x-mark-variant" not in answered.headers


@pytest.mark.parametrize("serving", [SERVING, CENTRAL])
async def test_a_request_names_its_variant(serving: VariantServing) -> None:
    body = json.dumps({**oip.example_body(INPUTS), "parameters": {"accuracy_floor": 0.8}}).encode()

    async with live(served(latency_s=HORIZON_S, variant_serving=serving)) as running:
        for name in ("small", "large", "middle"):
            reply = await running.ask(x_mark_variant=name)
            assert (reply.status, reply.headers["x-mark-variant"]) == (200, name)
        assert running.agents["i-0"].backend.variants == ["small", "large", "middle"]
        unknown = await running.ask(x_mark_variant="huge")
        assert unknown.status == 400
        assert "unknown variant of echo" in unknown.document["error"]
        both = await running.ask(x_mark_variant="small", x_mark_accuracy_floor="0.75")
        assert (both.status, "small answers 0.7 right" in both.document["error"]) == (400, True)
        inside = await running.ask(body=body, x_mark_variant="small")
        assert (inside.status, "small answers 0.7 right" in inside.document["error"]) == (400, True)


LONG = "a-name-that-goes-on-" * 5
"""Of 100 characters."""


async def test_a_long_name_is_whole_or_unknown() -> None:
    table = replace(TABLE, variants=(Variant("small", 0.7), Variant(LONG[:80], 0.75), Variant(LONG, 0.8)))

    serving = replace(SERVING, table=table)
    async with live(served(latency_s=HORIZON_S, variant_serving=serving)) as running:
        for name in (LONG, LONG[:80]):
            reply = await running.ask(x_mark_variant=name)
            assert (reply.status, reply.headers["x-mark-variant"]) == (200, name)
        for name in (LONG[:90], "b" * 5000):
            reply = await running.ask(x_mark_variant=name)
            assert (reply.status, "unknown variant of echo" in reply.document["error"]) == (400, True)
            assert name not in reply.document["error"]


@pytest.mark.parametrize(
    "other",
    [
        {"x_mark_variant": "small"},
        {"x_mark_variant": "large"},
        {"x_mark_accuracy_floor": "0.8"},
        {"x_mark_accuracy_floor": "0.7"},
        {},
    ],
)
async def test_an_id_stands_for_one_variant_and_floor(other: dict[str, str]) -> None:
    first = {"x_mark_variant": "middle", "x_mark_accuracy_floor": "0.75"}

    async with live(served(latency_s=HORIZON_S, variant_serving=SERVING)) as running:
        assert (await running.ask(x_mark_request_id="one", **first)).headers["x-mark-variant"] == "middle"
        again = await running.ask(x_mark_request_id="one", **first)
        assert (again.status, again.headers["x-mark-variant"]) == (200, "middle")
        reply = await running.ask(x_mark_request_id="one", **other)
        assert (reply.status, "another body, content type, variant" in reply.document["error"]) == (
            409,
            True,
        )
        assert running.agents["i-0"].backend.variants == ["middle"]


async def test_an_id_stands_for_one_variant_across_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(monkeypatch, served(latency_s=HORIZON_S, variant_serving=SERVING)) as two:
        name = two.id_of(1)
        for gateway, variant, status in (
            (0, "middle", 200),
            (1, "middle", 200),
            (0, "small", 409),
            (1, "large", 409),
        ):
            reply = await two.ask(gateway, x_mark_request_id=name, x_mark_variant=variant)
            assert reply.status == status
            assert reply.headers.get("x-mark-variant") == ("middle" if status == 200 else None)
        floored = await two.ask(0, x_mark_request_id=name, x_mark_accuracy_floor="0.75")
        assert floored.status == 409
        assert two.executed == 1


@pytest.mark.parametrize(
    ("serving", "reason"),
    [
        (replace(SERVING, floor=1), "below the service's accuracy floor: the first variant above it is middle"),
        (
            replace(SERVING, dispatch=VariantDispatch(VariantRule.FIXED, "large")),
            "small does not answer here: the service answers with large alone",
        ),
    ],
)
def test_a_variant_that_may_not_answer_is_refused(serving: VariantServing, reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason):
        serving.pinned("small")
    assert serving.pinned("large") == 2
    assert serving.slowest_s(TYPE) == TABLE.latency_s[TYPE][2][-1]

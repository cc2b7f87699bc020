"""A gateway's central queue: agents get a request once they are idle, and nothing is lost whatever goes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from mark.dispatch.central.policy import CentralPolicy, CentralRule, TooLate
from mark.dispatch.central.queue import PLAIN
from mark.dispatch.policy import Bounced, DispatchPolicy, Late
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState
from mark.domain.offerings.offering import Market, Offering
from mark.protocols.frames import Response
from mark.service_spec import ServedModel
from mark.serving.gateway.central.router import CentralRouter
from mark.serving.gateway.central.shares import assign_gateways
from mark.serving.gateway.idempotency import IdempotencyCache
from mark.serving.gateway.lambda_overflow import LambdaCalls
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.versions.shadow import ShadowRequest
from mark.serving.http.exchange import HttpExchange
from mark.serving.unexpected_errors import UnexpectedErrors
from tests.serving.harness import Live, live, offering, served, until

KAIROS = CentralPolicy(rule=CentralRule.KAIROS)
RULES = [rule for rule in CentralRule if rule is not CentralRule.ORACLE]
TIMES_S = {"fast": (10.0, 20.0), "slow": (20.0, 60.0)}
"""By items: so long that a busy machine changes no decision; nothing takes them. The objective is 50 s."""
SLO_S = 50.0
ANSWER = Response(1, 200, b"application/json", 0, b"{}")


def of_type(name: str) -> Offering:
    base = offering(batch_s=TIMES_S[name])
    return replace(base, instance_type=replace(base.instance_type, name=name))


def two_types(policy: CentralPolicy = KAIROS, **given: object) -> ServedModel:
    return replace(served(latency_s=SLO_S, **given), offerings=(of_type("fast"), of_type("slow")), central=policy)  # type: ignore[arg-type]


class Client:
    """The other end of a request."""

    def __init__(self) -> None:
        self.statuses: list[int] = []

    def send(self, exchange: HttpExchange, status: int, content_type: bytes, body: bytes, extra: bytes) -> None:
        self.statuses.append(status)
        exchange.connection = None


class FakeAgent:
    """An agent that keeps what it gets until it is told to answer."""

    def __init__(self, router: CentralRouter, instance: str, kind: str) -> None:
        self.offering = next(o.name for o in router.served.offerings if o.instance_type.name == kind)
        self.forced = True
        self.router, self.held = router, list[InferenceRequest]()
        self.view = AgentView(instance, router.profile_s(self.offering))
        self.view.accepting, self.view.max_batch = True, 2
        self.view.single_s, self.view.full_batch_s = TIMES_S[kind]

    def send(self, request: InferenceRequest, now: float, *, forced: bool, batch_id: int = 0) -> None:
        assert forced is self.forced
        self.held.append(request)
        self.view.sent(now, self.view.alone_s(request.size), request.size)

    def send_shadow(self, shadow: ShadowRequest, now: float) -> None:
        raise AssertionError("nothing is copied here")

    def answer(self) -> InferenceRequest:
        request = self.held.pop(0)
        self.view.answered(time.monotonic(), self.view.full_batch_s, request.size)
        self.router.answer(request, ANSWER, "instance", time.monotonic())
        return request


class Gateway:
    """A router; its turns of the loop are taken by hand."""

    def __init__(self, model: ServedModel | None = None, overflow: FakeCalls | None = None) -> None:
        self.model, self.client, self.turns = model or two_types(), Client(), list[Callable[[], None]]()
        assert self.model.central is not None
        unexpected = UnexpectedErrors(logging.getLogger("test"))
        self.router = CentralRouter(
            self.model,
            overflow=cast("LambdaCalls | None", overflow),
            idempotency=IdempotencyCache(unexpected),
            unexpected=unexpected,
            code=PLAIN,
            soon=self.turns.append,
        )

    def add(self, *kinds: str) -> list[FakeAgent]:
        agents = [FakeAgent(self.router, f"i-{number}", kind) for number, kind in enumerate(kinds)]
        self.router.set_agents(list(agents))
        self.turn()
        return agents

    def turn(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    def ask(self, size: int = 1, within_s: float = SLO_S) -> InferenceRequest:
        request = InferenceRequest(self.client, b"POST", b"/", {}, b"", keep_alive=True)
        request.size, request.arrived_at = size, time.monotonic()
        request.deadline_at = request.arrived_at + within_s
        self.router.offer(request, request.arrived_at)
        return request


class FakeCalls:
    """Calls of Lambda, which takes what it is asked."""

    def __init__(self, takes_s: float = 0.0, most: int = 1000) -> None:
        self.takes_s, self.most = takes_s, most
        self.called: list[InferenceRequest] = []
        self.asked = 0

    def takes(self, body_bytes: int, beside: int = 0) -> bool:
        return len(self.called) + beside < self.most

    def finish_at(self, now: float, beside: int = 0) -> float:
        self.asked += 1
        return now + self.takes_s

    def call(self, router: ModelRouter, request: InferenceRequest) -> None:
        self.called.append(request)


def test_an_agent_gets_one_request_at_a_time_and_the_next_once_it_is_idle() -> None:
    gateway = Gateway()
    fast, slow = gateway.add("fast", "slow")
    for _ in range(5):
        gateway.ask()
    assert gateway.turns == [gateway.router._decide]
    gateway.turn()
    assert (len(fast.held), len(slow.held)) == (1, 1)
    for agent in (fast, slow, fast):
        agent.answer()
        gateway.turn()
        assert (len(fast.held), len(slow.held)) <= (1, 1)
    fast.answer()
    slow.answer()
    gateway.turn()
    assert gateway.client.statuses == [200] * 5
    assert len(gateway.router.queue) == 0


def test_a_large_request_waits_for_the_type_that_answers_it_in_time() -> None:
    gateway = Gateway()
    fast, slow = gateway.add("fast", "slow")
    first = gateway.ask(size=2)
    gateway.turn()
    second = gateway.ask(size=2)
    gateway.turn()
    assert (fast.held, slow.held) == ([first], [])
    fast.answer()
    gateway.turn()
    assert (fast.held, slow.held) == ([second], [])


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_answers_everything(rule: CentralRule) -> None:
    gateway = Gateway(two_types(CentralPolicy(rule=rule, threshold=1)))
    agents = gateway.add("fast", "slow", "slow")
    for number in range(20):
        gateway.ask(size=1 + number % 2)
    gateway.turn()
    while any(agent.held for agent in agents):
        assert all(len(agent.held) <= 1 for agent in agents)
        for agent in agents:
            if agent.held:
                agent.answer()
        gateway.turn()
    assert gateway.client.statuses == [200] * 20


def test_what_a_lost_agent_had_joins_the_queue_again_and_is_answered_once() -> None:
    gateway = Gateway()
    fast, slow = gateway.add("fast", "slow")
    asked = [gateway.ask() for _ in range(3)]
    gateway.turn()
    held, fast.held = fast.held, []
    fast.view.accepting = False
    gateway.router.set_agents([slow])
    gateway.router.agent_lost(fast.view, held)
    for _ in asked:
        gateway.turn()
        slow.answer()
    assert gateway.client.statuses == [200] * 3
    assert gateway.router.tally.redispatched == 1


def test_a_request_that_loses_two_agents_is_given_up() -> None:
    gateway = Gateway()
    agents = gateway.add("fast", "slow")
    gateway.ask()
    for _ in range(2):
        gateway.turn()
        (taken,) = (agent for agent in agents if agent.held)
        agents.remove(taken)
        gateway.router.set_agents(list(agents))
        gateway.router.agent_lost(taken.view, taken.held)
    assert gateway.client.statuses == [502]


def test_without_any_agent_left_what_waits_is_not_held_back() -> None:
    gateway = Gateway()
    (fast,) = gateway.add("fast")
    for _ in range(3):
        gateway.ask()
    gateway.turn()
    gateway.router.set_agents([])
    gateway.router.agent_lost(fast.view, fast.held)
    gateway.turn()
    assert gateway.client.statuses == [503] * 3


def test_an_agent_that_goes_away_soon_gets_no_more() -> None:
    gateway = Gateway()
    fast, slow = gateway.add("fast", "slow")
    fast.view.terminates_at = time.monotonic() + 15.0
    gateway.router.agent_changed(fast.view)
    for _ in range(2):
        gateway.ask()
        gateway.turn()
    assert fast.held == []
    assert len(slow.held) == 1
    assert gateway.router.share == (1, 2)


LATE = {TooLate.HOLD: [1, 0], TooLate.COMMIT: [1, 0], TooLate.OVERFLOW: [0, 1]}


def test_an_agent_of_a_type_that_is_offered_no_more_harms_no_other() -> None:
    gateway = Gateway()
    fast, gone = (FakeAgent(gateway.router, f"i-{number}", "fast") for number in range(2))
    gone.offering = "c3.large:spot"
    gateway.router.set_agents([fast, gone])
    gateway.ask()
    gateway.turn()
    assert (len(fast.held), len(gone.held)) == (1, 0)
    assert gateway.router.share == (1, 2)


@pytest.mark.parametrize("too_late", TooLate)
def test_a_request_that_is_too_late_goes_where_the_setting_says(too_late: TooLate) -> None:
    calls = FakeCalls()
    gateway = Gateway(two_types(CentralPolicy(rule=CentralRule.KAIROS, too_late=too_late)), calls)
    (fast,) = gateway.add("fast")
    gateway.ask(within_s=5.0)
    gateway.turn()
    assert [len(fast.held), len(calls.called)] == LATE[too_late]


def test_what_lambda_cannot_take_is_held_for_an_idle_agent_or_shed_where_the_model_sheds() -> None:
    policy = CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.OVERFLOW)
    gateway = Gateway(two_types(policy), FakeCalls())
    (fast,) = gateway.add("fast")
    gateway.ask(size=2, within_s=5.0)  # Lambda takes requests of one item
    gateway.turn()
    assert len(fast.held) == 1
    refused = gateway.ask(within_s=5.0)
    assert gateway.router.queue.remove(refused)
    gateway.router.bounced(refused, time.monotonic(), lambda_refused=True)
    assert gateway.router.queue.held == 1

    shedding = Gateway(two_types(KAIROS, dispatch=DispatchPolicy(bounced=Bounced.NOWHERE, late=Late.SHED)))
    shedding.add("fast")
    shedding.ask(within_s=5.0)
    shedding.turn()
    assert shedding.client.statuses == [503]


@pytest.mark.parametrize(
    ("lambda_s", "waited_s", "handed_on"),
    [(30.0, 10.0, 0), (30.0, 25.0, 1), (60.0, 25.0, 0)],
    ids=["there is time", "the last moment", "Lambda never was in time"],
)
async def test_what_waits_is_handed_to_lambda_while_that_is_in_time(
    lambda_s: float, waited_s: float, handed_on: int
) -> None:
    calls = FakeCalls(lambda_s)
    gateway = Gateway(two_types(CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.OVERFLOW)), calls)
    agent = FakeAgent(gateway.router, "i-0", "slow")
    agent.view.in_service, agent.view.free_at = 1, time.monotonic() + 100.0
    gateway.router.set_agents([agent])
    waits = gateway.ask()
    waits.arrived_at -= waited_s
    waits.deadline_at -= waited_s
    gateway.router.hand_on_waiting()
    assert len(calls.called) == handed_on


async def test_what_lambda_refused_is_not_sent_to_it_again() -> None:
    calls = FakeCalls(10.0)
    gateway = Gateway(two_types(CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.OVERFLOW)), calls)
    agent = FakeAgent(gateway.router, "i-0", "slow")
    agent.view.in_service, agent.view.free_at = 1, time.monotonic() + 100.0
    gateway.router.set_agents([agent])
    waits = gateway.ask()
    waits.arrived_at -= 45.0
    waits.deadline_at -= 45.0
    gateway.router.hand_on_waiting()
    assert calls.called == [waits]
    gateway.router.bounced(waits, time.monotonic(), lambda_refused=True)
    for others in ([], [FakeAgent(gateway.router, "i-1", "slow")]):
        gateway.router.set_agents([agent, *others])
        gateway.router.hand_on_waiting()
    gateway.turn()
    assert calls.called == [waits]


async def test_no_more_is_handed_on_than_lambda_takes_at_once() -> None:
    calls = FakeCalls(10.0, most=3)
    gateway = Gateway(two_types(CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.OVERFLOW)), calls)
    agent = FakeAgent(gateway.router, "i-0", "slow")
    agent.view.in_service, agent.view.free_at = 1, time.monotonic() + 100.0
    gateway.router.set_agents([agent])
    for _ in range(5):
        waits = gateway.ask()
        waits.arrived_at -= 45.0
        waits.deadline_at -= 45.0
    gateway.router.hand_on_waiting()
    assert (len(calls.called), len(gateway.router.queue)) == (3, 2)


@pytest.mark.parametrize("rule", RULES)
async def test_a_model_that_sheds_answers_nothing_late_however_busy_its_agents(rule: CentralRule) -> None:
    model = two_types(
        CentralPolicy(rule=rule, threshold=1), dispatch=DispatchPolicy(bounced=Bounced.NOWHERE, late=Late.SHED)
    )
    gateway = Gateway(model)
    (fast,) = gateway.add("fast")
    gateway.ask()
    gateway.turn()
    waits = [gateway.ask(within_s=15.0), gateway.ask()]
    for request in waits[:1]:
        request.deadline_at -= 10.0
    gateway.router.hand_on_waiting()
    assert gateway.client.statuses == [503]
    fast.answer()
    gateway.turn()
    assert fast.held == [waits[1]]


def test_a_type_is_the_same_on_spot_and_on_demand() -> None:
    spot = replace(of_type("fast"), market=Market.SPOT)
    model = two_types(CentralPolicy(rule=CentralRule.DRS, threshold=1))
    gateway = Gateway(replace(model, offerings=(*model.offerings, spot)))
    assert spot.name not in {one.name for one in model.offerings}
    slow = FakeAgent(gateway.router, "i-0", "slow")
    fast = FakeAgent(gateway.router, "i-1", "fast")
    fast.offering = spot.name
    gateway.router.set_agents([slow, fast])
    small, large = gateway.ask(size=1), gateway.ask(size=2)
    gateway.turn()
    assert (slow.held, fast.held) == ([small], [large])


def test_what_nobody_waits_for_takes_no_agent() -> None:
    gateway = Gateway()
    (fast,) = gateway.add("fast")
    gone = gateway.ask()
    gone.connection = None
    gateway.turn()
    assert fast.held == []
    gateway.ask()
    gateway.turn()
    waits = gateway.ask()
    waits.connection = None
    gateway.router.check_timeouts(time.monotonic())
    assert (len(fast.held), len(gateway.router.queue)) == (1, 0)
    assert (gateway.router.tally.left, gateway.router.tally.failed) == (2, 0)


def test_who_leaves_after_the_objective_was_missed_is_a_failure_too() -> None:
    gateway = Gateway()
    gateway.add("fast")
    gateway.ask()
    gateway.turn()
    late = gateway.ask()
    late.connection, late.arrived_at = None, late.arrived_at - 1.1 * SLO_S
    gateway.router.check_timeouts(time.monotonic())
    assert (gateway.router.tally.left, gateway.router.tally.failed) == (1, 1)


async def test_a_decision_asks_lambda_once_however_many_wait() -> None:
    calls = FakeCalls(60.0)  # never in time
    gateway = Gateway(two_types(CentralPolicy(rule=CentralRule.KAIROS, too_late=TooLate.OVERFLOW)), calls)
    (fast,) = gateway.add("fast")
    for _ in range(50):
        gateway.ask()
    gateway.turn()
    calls.asked = 0
    fast.answer()
    gateway.turn()
    assert len(fast.held) == 1
    assert calls.asked <= 1


def member(agent: FakeAgent) -> Member:
    return Member(
        instance=agent.view.instance,
        model="echo",
        offering=agent.offering,
        host="",
        port=1,
        role=Role.SERVING,
        state=MemberState.READY,
        max_batch=2,
        batch_s=(1.0, 1.0),
        capacity_rps=1.0,
    )


def test_an_agent_that_one_gateway_is_not_connected_to_yet_has_one_owner() -> None:
    gateways = {name: Gateway() for name in ("g1", "g2")}
    kinds = ("fast", "slow") * 3
    agents = {name: gateway.add(*kinds) for name, gateway in gateways.items()}
    gateways["g2"].router.set_agents(list(agents["g2"][1:]))
    known = {agent.view.instance: member(agent) for agent in agents["g1"]}
    for name, gateway in gateways.items():
        gateway.router.set_members(known)
        gateway.router.set_gateways(name, {"g1": "", "g2": ""})
    shares = [set(gateway.router.queue.instances) for gateway in gateways.values()]
    assert not shares[0] & shares[1]
    assert (shares[0] | shares[1]) >= set(known) - {"i-0"}


def test_what_has_waited_too_long_expires() -> None:
    gateway = Gateway(two_types(dispatch=DispatchPolicy(give_up_s=60.0)))
    gateway.add("fast")
    for _ in range(2):
        gateway.ask()
    gateway.turn()
    gateway.router.check_timeouts(time.monotonic())
    assert gateway.client.statuses == []
    gateway.router.check_timeouts(time.monotonic() + 61.0)
    assert gateway.client.statuses == [504]
    assert len(gateway.router.queue) == 0


def test_gateways_share_the_agents_and_one_that_dies_leaves_its_share() -> None:
    gateways = {name: Gateway() for name in ("g1", "g2")}
    kinds = ("fast", "slow") * 3
    agents = {name: gateway.add(*kinds) for name, gateway in gateways.items()}
    for name, gateway in gateways.items():
        gateway.router.set_gateways(name, {"g1": "", "g2": ""})
    shares = {name: set(gateway.router.queue.instances) for name, gateway in gateways.items()}
    assert shares["g1"] | shares["g2"] == {f"i-{number}" for number in range(6)}
    assert [len(share) for share in shares.values()] == [3, 3]

    # the other one's agent still works on what g2 sent it: it is g1's now, and finishes that first
    busy = next(agent for agent in agents["g1"] if agent.view.instance in shares["g2"])
    busy.view.sent(time.monotonic(), busy.view.single_s)
    gateways["g1"].router.set_gateways("g1", {"g1": ""})
    assert gateways["g1"].router.share == (6, 6)
    for _ in range(6):
        gateways["g1"].ask()
    gateways["g1"].turn()
    assert sorted(len(agent.held) for agent in agents["g1"]) == [0, 1, 1, 1, 1, 1]
    assert busy.held == []
    busy.view.answered(time.monotonic(), busy.view.full_batch_s)
    gateways["g1"].router.agent_changed(busy.view)
    gateways["g1"].turn()
    assert len(busy.held) == 1


def test_a_gateway_without_a_share_binds_early() -> None:
    gateway = Gateway()
    (fast,) = gateway.add("fast")
    other = next(
        name
        for name in map(str, range(1000))
        if assign_gateways({"i-0": fast.offering}, {name: "", "me": ""}, {})["i-0"] == name
    )
    fast.forced = False
    gateway.router.set_gateways("me", {"me": "", other: ""})
    for _ in range(2):
        gateway.ask()
    assert len(fast.held) == 2
    assert gateway.router.share == (0, 1)


async def test_over_the_wire_all_are_answered_by_agents_that_never_had_two() -> None:
    async def ask_often(running: Live) -> list[int]:
        client = await running.client()
        found = [(await client.ask(x_mark_size=str(1 + at % 4))).status for at in range(20)]
        await client.close()
        return found

    async with live(replace(served(), central=KAIROS), agents=2, takes_s=0.001) as running:
        statuses = await asyncio.gather(*(ask_often(running) for _ in range(8)))
        assert [status for found in statuses for status in found] == [200] * 160
        batches = [agent.backend.batches for agent in running.agents.values()]
        assert sum(map(len, batches)) == 160
        assert all(set(sizes) == {1} for sizes in batches)
        assert await running.metric("mark_gateway_own_agents") == 2
        assert await running.metric("mark_gateway_matchings_total") > 0
        assert await running.metric("mark_gateway_waiting") == 0


async def test_over_the_wire_an_agent_that_stops_loses_nothing() -> None:
    async def ask_often(running: Live) -> list[int]:
        client = await running.client()
        found = [(await client.ask()).status for _ in range(40)]
        await client.close()
        return found

    async with live(replace(served(latency_s=5.0), central=KAIROS), agents=3, takes_s=0.002) as running:
        asking = [asyncio.ensure_future(ask_often(running)) for _ in range(6)]
        first = running.agents["i-0"]
        await until(lambda: len(first.backend.requests) > 5)
        first.stop.set()
        answered = await asyncio.gather(*asking)
        assert [status for found in answered for status in found] == [200] * 240


async def test_over_the_wire_agents_that_the_store_forgot_keep_their_places_until_they_go() -> None:
    async with live(replace(served(latency_s=5.0), central=KAIROS), agents=2) as running:
        read: list[bool] = []

        async def forgotten() -> list[Member]:
            read.append(True)
            return []

        async def is_read() -> bool:
            return len(read) > 0

        running.store.members = forgotten  # type: ignore[method-assign]
        running.store._version += 1
        await until(is_read)
        assert (await running.ask()).status == 200
        assert await running.metric("mark_gateway_own_agents") == 2
        running.agents["i-0"].stop.set()

        async def is_one() -> bool:
            return await running.metric("mark_gateway_own_agents") == 1

        await until(is_one)
        assert (await running.ask()).status == 200

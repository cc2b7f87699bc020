"""Routing by zone: agents of the gateway's own zone first while in time, and Lambda before a dear crossing."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mark.dispatch.instance.device_share import has_share
from mark.dispatch.policy import DispatchPolicy, Late
from mark.protocols.frames import Response
from mark.serving.gateway.idempotency import IdempotencyCache
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.request import InferenceRequest, Loss
from mark.serving.gateway.shared_device import SharedDevice
from mark.serving.gateway.versions.router import VersionRouter
from mark.serving.unexpected_errors import UnexpectedErrors
from tests.serving.harness import LAMBDA, served

if TYPE_CHECKING:
    from mark.serving.gateway.agent import Agent
    from mark.serving.gateway.held_use import HeldUse
    from mark.serving.gateway.lambda_overflow import LambdaCalls
    from mark.serving.http.connection import HttpConnection

NOW, SLO_S = 1000.0, 0.5
FULL = 10_000
"""Waiting requests with which an agent is in time for none more."""
DEAR_USD = 1.0


@dataclass
class FakeAgent:
    view: AgentView
    offering: str = "c5.large"
    got: list[bool] = field(default_factory=list)

    def send(self, request: InferenceRequest, now: float, *, forced: bool) -> None:
        self.got.append(forced)
        request.is_forced = forced


def agent(name: str, *, waiting: int = 0, share_rps: float | None = None) -> FakeAgent:
    """An agent whose name ends with `near` or `far`."""
    view = AgentView(name, (0.0, 0.002))
    view.accepting, view.max_batch, view.single_s, view.full_batch_s = True, 4, 0.002, 0.005
    view.waiting, view.is_far = waiting, name.endswith("far")
    if share_rps is not None:
        view.give_share(share_rps, NOW)
        view.share_at, view.share_left = NOW, 1.0 if share_rps else 0.0
    return FakeAgent(view)


@dataclass
class FakeCalls:
    late: bool = False
    called: int = 0
    warmed: int = 0

    def takes(self, _bytes: int, _beside: int = 0) -> bool:
        return True

    def finish_at(self, now: float, _beside: int = 0) -> float:
        return now + (2 * SLO_S if self.late else 0.01)

    def call(self, _router: ModelRouter, _request: InferenceRequest) -> None:
        self.called += 1

    def warm_one_more(self, _router: ModelRouter, _now: float, _deadline_at: float) -> None:
        self.warmed += 1


@dataclass
class FakeDevice:
    finish_s: float
    harms: bool
    likely_s: float = math.inf

    def likely_finish_at(self, _view: AgentView, now: float, _due_at: float) -> float:
        return now + self.likely_s

    def finish_at(self, _view: AgentView, now: float, _due_at: float) -> float:
        return now + self.finish_s

    def harms_nobody(self, _view: AgentView, _now: float, _due_at: float) -> bool:
        return not self.harms

    def overdue_s(self, _now: float) -> float:
        return 0.0


def router_of(
    agents: Sequence[FakeAgent], calls: FakeCalls | None, *, crossing_usd: float = 0.0, late: Late = Late.SERVE
) -> ModelRouter:
    unexpected = UnexpectedErrors(logging.getLogger("test"))
    slow = replace(LAMBDA, latency_s=2.0 * SLO_S)
    overflow = None if calls is None else slow if calls.late else LAMBDA
    model = served(latency_s=SLO_S, overflow=overflow, dispatch=DispatchPolicy(late=late))
    made = ModelRouter(
        replace(model, crossing_usd=crossing_usd),
        overflow=cast("LambdaCalls | None", calls),
        idempotency=IdempotencyCache(unexpected),
        unexpected=unexpected,
    )
    made.set_agents([cast("Agent", one) for one in agents])
    return made


def ask(router: ModelRouter) -> InferenceRequest:
    somebody = cast("HttpConnection", SimpleNamespace(send=lambda *_answer: None))
    request = InferenceRequest(somebody, b"POST", b"/", {}, b"", keep_alive=True)
    request.size, request.arrived_at, request.deadline_at = 1, NOW, NOW + SLO_S
    router.offer(request, NOW)
    return request


NEAR, BUSY, FULL_NEAR = agent("0-near"), agent("0-near", waiting=8), agent("0-near", waiting=FULL)
FAR, STANDBY, LEAVING = agent("1-far"), agent("0-near"), agent("0-near")
STANDBY.view.standby, LEAVING.view.terminates_at = True, NOW + 60.0


@pytest.mark.parametrize(
    ("agents", "crossing_usd", "lambda_late", "by"),
    [
        ((NEAR, FAR), 0.0, False, "0-near"),
        ((BUSY, FAR), 0.0, False, "0-near"),
        ((FULL_NEAR, FAR), 0.0, False, "1-far"),
        ((FAR,), 0.0, False, "1-far"),
        ((BUSY, FAR), DEAR_USD, False, "0-near"),
        ((FULL_NEAR, FAR), DEAR_USD, False, "lambda"),
        ((FULL_NEAR, FAR), DEAR_USD, True, "1-far"),
        ((FAR,), DEAR_USD, False, "lambda"),
        ((FAR,), DEAR_USD, True, "1-far"),
        ((agent("s-near", share_rps=5.0), NEAR, agent("s-far", share_rps=5.0)), 0.0, False, "s-near"),
        ((agent("s-near", share_rps=0.0), NEAR, agent("s-far", share_rps=5.0)), 0.0, False, "s-far"),
        ((NEAR, agent("s-far", share_rps=5.0)), DEAR_USD, False, "0-near"),
        ((FULL_NEAR, agent("s-far", share_rps=5.0)), DEAR_USD, False, "lambda"),
        ((BUSY, FAR, agent("s-far", share_rps=0.0)), 0.0, False, "0-near"),
        ((BUSY, agent("s-near", share_rps=0.0)), 0.0, False, "0-near"),
        ((FULL_NEAR, agent("s-near", share_rps=0.0)), 0.0, False, "s-near"),
        ((FULL_NEAR, agent("s-far", share_rps=0.0)), 0.0, False, "s-far"),
        ((FULL_NEAR, agent("s-near", waiting=FULL, share_rps=0.0)), 0.0, False, "0-near"),
    ],
)
def test_a_request_stays_in_its_zone_while_it_is_in_time_there(
    agents: Sequence[FakeAgent], crossing_usd: float, lambda_late: bool, by: str
) -> None:
    fresh = [
        agent(a.view.instance, waiting=a.view.waiting, share_rps=a.view.share_rps if a.view.is_shared else None)
        for a in agents
    ]
    calls = FakeCalls(late=lambda_late)
    ask(router_of(fresh, calls, crossing_usd=crossing_usd))
    got = [one.view.instance for one in fresh if one.got] + ["lambda"] * calls.called
    assert got == [by]


@pytest.mark.parametrize(
    ("agents", "idle"),
    [((NEAR, FAR), ["0-near"]), ((BUSY, FAR), []), ((FAR,), ["1-far"]), ((STANDBY, LEAVING, FAR), ["1-far"])],
)
def test_what_can_wait_crosses_only_where_its_zone_has_no_instance(
    agents: Sequence[FakeAgent], idle: list[str]
) -> None:
    assert [one.view.instance for one, _room in router_of(agents, FakeCalls()).idle_agents()] == idle


def test_what_was_lost_with_its_server_goes_to_another_zone_first() -> None:
    near, far = agent("0-near"), agent("1-far", waiting=8)
    router = router_of([near, far], FakeCalls())
    request = ask(router)
    request.losses = (Loss("0-near", 1),)
    router.offer(request, NOW)
    assert (near.got, far.got) == ([False], [False])


def test_what_its_zone_bounces_crosses_before_lambda_is_asked_and_comes_to_an_end() -> None:
    near, far, calls = agent("0-near"), agent("1-far"), FakeCalls()
    router = router_of([near, far], calls)
    request = ask(router)
    router.bounced_near(request, NOW, was_shared=False)
    assert (near.got, far.got, calls.called) == ([False], [False], 0)
    router.bounced(request, NOW)
    assert calls.called == 1


def test_what_a_shared_instance_bounces_goes_to_the_models_own_in_the_zone() -> None:
    shared, near, far, calls = agent("s-near", share_rps=5.0), agent("0-near"), agent("1-far"), FakeCalls()
    router = router_of([shared, near, far], calls)
    request = ask(router)
    assert shared.got == [False]
    router.bounced_near(request, NOW, was_shared=True)
    assert (near.got, far.got, calls.called) == ([False], [], 0)


@pytest.mark.parametrize("calls", [FakeCalls(), FakeCalls(late=True), None])
@pytest.mark.parametrize("own", [(), (agent("0-near"),)])
def test_without_lambda_what_is_beyond_its_share_is_load_of_the_models_own_fleet(
    calls: FakeCalls | None, own: tuple[FakeAgent, ...]
) -> None:
    """It is the same whether the shared instance is the only one, which needs no choice, or not."""
    shared = agent("s-near", share_rps=5.0)
    router = router_of([shared, *own], calls)
    first, second = ask(router), ask(router)
    assert shared.got == [False] * (2 - len(own))
    has_backup = calls is not None and not calls.late
    assert [router.spares_own(shared.view, one, NOW) for one in (first, second)] == [True, has_backup]
    assert shared.view.share_left == (1.0 if has_backup and not own else 0.0)
    assert router.spares_own(shared.view, first, NOW), "what comes again is of the share that it had"
    first.client = cast("HeldUse", SimpleNamespace(is_load=False))
    assert not router.spares_own(shared.view, first, NOW), "what idle capacity takes of the async class is no load"


def test_what_a_shared_instance_would_bounce_goes_to_the_models_own_and_takes_none_of_the_share() -> None:
    """Its batch takes much longer than expected, say."""
    shared, near = agent("s-near", share_rps=5.0), agent("0-near")
    shared.view.in_service, shared.view.free_at = 1, NOW + 10.0 * SLO_S
    ask(router_of([shared, near], FakeCalls()))
    assert (shared.got, near.got, shared.view.share_left) == ([], [False], 1.0)


def test_what_a_shared_instance_bounces_took_none_of_the_share() -> None:
    shared, near = agent("s-near", share_rps=5.0), agent("0-near")
    router = router_of([shared, near], FakeCalls())
    request = ask(router)
    assert (shared.got, shared.view.share_left) == ([False], 0.0)
    for _ in range(2):
        router.gave_back(request)
    assert (near.view.share_left, shared.view.share_left) == (math.inf, 1.0)


@pytest.mark.parametrize(
    ("calls", "likely_s", "spared"),
    [
        (None, 0.5 * SLO_S, 1),
        (FakeCalls(late=True), 0.5 * SLO_S, 1),
        (None, 1.5 * SLO_S, 0),
        (FakeCalls(), 0.1, 0),
    ],
)
def test_what_a_shared_instance_would_likely_have_answered_is_no_load_of_the_models_own(
    calls: FakeCalls | None, likely_s: float, spared: int
) -> None:
    """Admission goes by the worst case. With Lambda as a backup there is no such load anyway."""
    shared, near = agent("s-near", share_rps=5.0), agent("0-near")
    shared.view.device = cast("SharedDevice", FakeDevice(1.5 * SLO_S, harms=False, likely_s=likely_s))
    router = router_of([shared, near], calls)
    router.tally.open_window(7, NOW)
    request = ask(router)
    assert (shared.got, near.got, shared.view.share_left) == ([], [False], 1.0 - spared)
    assert router.tally.shared.total() == spared
    router.gave_back(request)  # the model's own does not admit it
    assert (shared.view.share_left, router.tally.shared.total()) == (1.0, 0)


@pytest.mark.parametrize("has_far", [False, True])
def test_it_is_the_same_where_the_instance_said_so_and_not_the_gateway(has_far: bool) -> None:
    shared, near, far = agent("s-near", share_rps=5.0), agent("0-near"), agent("1-far")
    shared.view.device = cast("SharedDevice", FakeDevice(0.5 * SLO_S, harms=False, likely_s=0.5 * SLO_S))
    router = router_of([shared, near, far] if has_far else [shared, near], None)
    router.tally.open_window(7, NOW)
    request = ask(router)
    router.gave_back(request)
    if has_far:
        router.bounced_near(request, NOW, was_shared=True)
    else:
        router.bounced_by_neighbours(request, NOW)
    assert (shared.got, near.got, shared.view.share_left) == ([False], [False], 0.0)
    assert router.tally.shared.total() == 1


@pytest.mark.parametrize(("status", "taken"), [(200, 1), (400, 0), (500, 1)])
def test_what_the_model_rejects_is_no_load_that_a_shared_instance_took(status: int, taken: int) -> None:
    """Its arrival is taken back: it would be one less for the model's own fleet, which never had it."""
    router = router_of([agent("s-near", share_rps=5.0)], None)
    router.tally.open_window(7, NOW)
    request = ask(router)
    router.tally.arrived(1)
    router.tally.took_shared(request)
    router.answer(request, Response(1, status, b"application/json", 0, b"{}"), "instance", NOW + 0.1)
    assert (router.tally.window_count, router.tally.shared.total()) == (taken, taken)


@pytest.mark.parametrize(
    ("late", "finish_s", "harms", "waits"),
    [
        (True, 1.5 * SLO_S, False, True),
        (True, 1.5 * SLO_S, True, False),
        (True, 2.5 * SLO_S, False, False),
        (False, 1.5 * SLO_S, False, False),
    ],
)
def test_what_a_shared_instance_bounces_waits_there_where_lambda_is_cold_and_later(
    late: bool, finish_s: float, harms: bool, waits: bool
) -> None:
    shared, calls = agent("s-near", share_rps=5.0), FakeCalls(late=late)
    shared.view.device = cast("SharedDevice", FakeDevice(finish_s, harms))
    router = router_of([shared], calls)
    router.tally.open_window(7, NOW)
    request = ask(router)
    router.bounced_by_neighbours(request, NOW)
    assert shared.got == ([False, True] if waits else [False])
    assert (calls.called, calls.warmed) == ((0, 1) if waits else (1, 0))
    assert router.tally.shared == Counter({7: 1} if waits else {})


def test_nothing_waits_late_on_a_shared_instance_that_its_model_leaves() -> None:
    """Requests that it takes there are load of the own fleet, which is on its way."""
    shared, calls = agent("s-near", share_rps=0.0), FakeCalls(late=True)
    shared.view.device = cast("SharedDevice", FakeDevice(1.5 * SLO_S, harms=False))
    router = router_of([shared], calls)
    router.tally.open_window(7, NOW)
    router.bounced_by_neighbours(ask(router), NOW)
    assert (shared.got, calls.called, router.tally.shared.total()) == ([False], 1, 0)


@pytest.mark.parametrize(("late", "forced"), [(Late.SHED, []), (Late.SERVE, [True])])
def test_what_waited_late_and_comes_back_makes_nobody_late_where_the_policy_is_to_shed(
    late: Late, forced: list[bool]
) -> None:
    """The instance knows more of its neighbours than the gateway, and does not take it."""
    shared, own, calls = agent("s-near", share_rps=5.0), agent("0-near", waiting=FULL), FakeCalls(late=True)
    shared.view.device = cast("SharedDevice", FakeDevice(1.5 * SLO_S, harms=False))
    router = router_of([shared], calls, late=late)
    request = ask(router)
    router.bounced_by_neighbours(request, NOW)
    assert (shared.got, calls.warmed) == ([False, True], 1)
    router.set_agents([cast("Agent", one) for one in (shared, own)])
    router.bounced_by_neighbours(request, NOW)
    assert (shared.got, own.got, calls.called, calls.warmed) == ([False, True], forced, 0, 1)
    assert router.tally.shed == 1 - len(forced)


def test_what_was_forced_on_a_shared_instance_and_comes_back_is_forced_on_the_models_own() -> None:
    shared, near = agent("s-near", share_rps=5.0), agent("0-near")
    router = router_of([shared], None)
    request = ask(router)
    request.is_forced = True
    router.set_agents([cast("Agent", one) for one in (shared, near)])
    router.bounced_by_neighbours(request, NOW)
    assert (shared.got, near.got) == ([False], [True])


def test_a_change_of_a_share_leaves_what_was_saved_up() -> None:
    view = agent("s-near", share_rps=5.0).view
    view.give_share(1.0, NOW + 1.0)
    assert has_share(NOW + 1.0, view)
    assert view.share_left == 1.0 + 5.0


def test_what_a_candidate_takes_off_a_shared_instance_counts_as_taken_by_it() -> None:
    shared, new = agent("s-near", share_rps=5.0), agent("0-near")
    router = router_of([shared], FakeCalls())
    router.tally.open_window(7, NOW)
    candidate = router.candidate = VersionRouter(router, "new")
    candidate.weight = 1.0
    candidate.set_agents([cast("Agent", new)])
    taken, _beyond_its_share = ask(router), ask(router)
    assert (shared.got, new.got, router.tally.shared.total()) == ([], [False, False], 1)
    candidate.bounced(taken, NOW)
    assert (shared.got, router.tally.shared.total(), shared.view.share_left) == ([False], 0, 1.0)

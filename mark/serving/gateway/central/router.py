"""Routing of one model's requests through a central queue: agents get a request once they are idle.

The decisions are those of `mark.dispatch.central.queue`, one for all that happens in one turn of the event loop.
Where the model has variants they are those of `deadlines` there: agents get a batch and the variant for it.
With several gateways each keeps a queue for its share of the agents (`shares.py`): of those that the store knows,
which all gateways read alike, while connections come and go. An agent that changes its gateway finishes what it
has first: its state says when. A gateway without a share, because there are fewer agents than gateways, binds
requests early, as where there is no central queue.

A request that no agent answers in time any more goes where the model's dispatch says; where that is Lambda and
Lambda does not take it, it is held for an agent that would idle, and not sent to Lambda again. One that waits is
handed to Lambda before that, when Lambda would next be too late as well; where the model sheds, it is shed once no
agent could be in time. A request whose client has gone takes no agent, unless its id may be asked for again.

While a version is rolled out, its agents are in the same pool and its share of the requests in the same queue: the
rule serves a request by an agent of its version, and what the new version cannot answer in time joins the stable
one's. A gateway without an agent of a version binds its requests early.

What an agent bounces or loses goes the way of every router's requests (`model_router.py`), and a request that is
dispatched again joins the queue again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from mark.dispatch.central.deadlines import Batch, DeadlineQueue, Formed
from mark.dispatch.central.policy import TooLate
from mark.dispatch.central.queue import CentralCode, CentralQueue, Instance, base_first
from mark.dispatch.policy import Late
from mark.domain.fleet.member import Member
from mark.domain.load.traffic import CLIENT_ERROR
from mark.protocols.frames import Response
from mark.service_spec import ServedModel
from mark.serving.gateway.agent import Agent
from mark.serving.gateway.central.shares import assign_gateways, kinds_of
from mark.serving.gateway.idempotency import IdempotencyCache
from mark.serving.gateway.lambda_overflow import LambdaCalls
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.model_router import GONE, ModelRouter
from mark.serving.gateway.request import InferenceRequest, Loss
from mark.serving.gateway.telemetry.traffic_tally import Server
from mark.serving.unexpected_errors import UnexpectedErrors

log = logging.getLogger("mark.gateway")
TURN_S = 0.001
"""A timer may be a millisecond early."""
ME = ""
"""The only gateway, until others are known."""


def _is_idle(view: AgentView) -> bool:
    return not view.in_service and not view.waiting


class CentralRouter(ModelRouter):
    """A model's central queue. code: compiled decisions; soon: calls a function later in this turn of the loop."""

    decides_late = True

    def __init__(
        self,
        served: ServedModel,
        *,
        overflow: LambdaCalls | None,
        idempotency: IdempotencyCache,
        unexpected: UnexpectedErrors,
        code: CentralCode,
        soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        super().__init__(served, overflow=overflow, idempotency=idempotency, unexpected=unexpected)
        #: instance type by the name of an offering: a type is the same on spot and on demand
        self._type_of = {o.name: o.instance_type.name for o in served.offerings}
        profiles = {o.instance_type.name: o.profile.latencies_s(self.largest) for o in served.offerings}
        policy = served.central
        self._too_late = TooLate.HOLD if policy is None else policy.too_late
        self._factor = math.inf if policy is None else policy.admission_factor
        self._sheds = self._policy.late is Late.SHED
        self.queue: CentralQueue[InferenceRequest] | DeadlineQueue[InferenceRequest]
        if policy is None:
            self.queue = self._deadlines()
        else:
            if self._sheds:  # what is too late leaves the queue in any case
                policy = replace(policy, too_late=TooLate.OVERFLOW)
            self.queue = CentralQueue(
                policy, slo_ms=1000 * self.objective_s, profiles_s=base_first(profiles), code=code
            )
        self._slowest_s = {name: times[-1] for name, times in profiles.items()}
        if (serving := served.variant_serving) is not None:
            self._slowest_s |= {name: serving.slowest_s(name) for name in serving.types}
        self._gateways: Mapping[str, str] = {ME: ""}
        self._me, self._zone_of = ME, dict[str, str]()
        #: offering and version of the agents that the store knows
        self._members: dict[str, tuple[str, str]] | None = None
        self._own: dict[str, Agent] = {}
        #: those of them that are the candidate's
        self._new: frozenset[str] = frozenset()
        #: requests at this gateway's agents, and since when
        self._at: dict[InferenceRequest, tuple[Agent, float]] = {}
        self._soon = soon
        self._is_due = False
        #: came since the last decision
        self._came: list[InferenceRequest] = []
        #: batches so far
        self._batches = 0
        self._watch: asyncio.TimerHandle | None = None

    def _deadlines(self) -> DeadlineQueue[InferenceRequest]:
        serving = self.served.variant_serving
        assert serving is not None, "a model without variants has a rule of a central queue"

        def wish(request: InferenceRequest) -> tuple[int, bool]:
            if request.variant:
                return serving.pinned(request.variant.decode()), True
            return serving.request_floor(request.accuracy_floor) if request.accuracy_floor else 0, False

        return DeadlineQueue(
            serving,
            sorted(set(self._type_of.values())),
            horizon_s=self.objective_s,
            give_up_s=self.give_up_s,
            wish=wish,
            holds=not self._sheds,
        )

    @property
    def share(self) -> tuple[int, int]:
        """This gateway's agents, and those of all gateways."""
        return len(self._own) - len(self._new), self.agent_count

    def set_agents(self, agents: list[Agent]) -> None:
        """Replace the agents that accept requests, and take this gateway's share of them."""
        super().set_agents(agents)
        self._take_share()

    def set_members(self, members: Mapping[str, Member]) -> None:
        """Share the agents that the store knows: other gateways share the same ones."""
        known = {name: (member.offering, member.version) for name, member in members.items()}
        zones = {name: member.zone for name, member in members.items()}
        if (known, zones) != (self._members, self._zone_of):
            self._members, self._zone_of = known, zones
            self._take_share()

    def candidate_changed(self) -> None:
        """Take this gateway's share of the candidate's agents."""
        self._take_share()

    def set_gateways(self, me: str, gateways: Mapping[str, str]) -> None:
        """Share the agents anew."""
        self._me, self._gateways = me, gateways
        self._take_share()

    def offer_here(self, request: InferenceRequest, now: float) -> None:
        """Queue a request for the stable version."""
        if len(self._own) == len(self._new):
            super().offer_here(request, now)
        else:
            self._guarded_add(request, now, is_candidate=False)

    @property
    def queues_candidate(self) -> bool:
        """True where this gateway has agents of the candidate."""
        return bool(self._new)

    def queue_for_candidate(self, request: InferenceRequest, now: float) -> None:
        """Queue a request for the candidate."""
        self._guarded_add(request, now, is_candidate=True)

    def _guarded_add(self, request: InferenceRequest, now: float, *, is_candidate: bool) -> None:
        try:
            self._add(request, now, is_candidate=is_candidate)
        except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
            self.fail_unexpected(request, error)

    def may_queue(self, request: InferenceRequest, now: float, share: float) -> bool:
        """True: a central queue orders by its own rule, which knows no classes."""
        return len(self._own) > len(self._new) or super().may_queue(request, now, share)

    def bounced(self, request: InferenceRequest, now: float, *, lambda_refused: bool = False) -> None:
        """Route a request that an agent or Lambda did not take, or that is late when its server was lost."""
        from_agent = request in self._at
        self.settle(request)
        if from_agent or len(self._own) == len(self._new):
            super().bounced(request, now, lambda_refused=lambda_refused)
        else:
            self._route_late(request, now, lambda_refused=lambda_refused)

    def lost(self, request: InferenceRequest, loss: Loss | None = None, *, lambda_refused: bool = False) -> None:
        """Dispatch again a request whose server was lost."""
        self.settle(request)
        super().lost(request, loss, lambda_refused=lambda_refused)

    def answer(self, request: InferenceRequest, response: Response, by: Server, now: float) -> None:
        """Answer with a model's response; its agent is idle now, and what it took is learned."""
        sent = self._at.pop(request, None)
        super().answer(request, response, by, now)
        if sent is None:
            return
        agent, sent_at = sent
        if response.status < CLIENT_ERROR and isinstance(self.queue, CentralQueue):
            self.queue.learn(self._type_of[agent.offering], request.size, now - sent_at)
        view = agent.view
        if not view.in_service and not view.waiting:
            self._set_idle(agent)

    def fail(self, request: InferenceRequest, status: int, text: str) -> None:
        """Answer with an error of the service."""
        super().fail(request, status, text)
        self.settle(request)

    def agent_changed(self, view: AgentView) -> None:
        """An agent of this gateway's goes away soon, or has answered what another gateway sent it."""
        agent = self._own.get(view.instance)
        if agent is None or agent.view is not view:
            return
        if isinstance(self.queue, DeadlineQueue):
            self.queue.set_pace(view.instance, view.full_batch_s)
        if not self._remains(agent, time.monotonic()):
            self._take_share()
        elif _is_idle(view) and all(other is not agent for other, _ in self._at.values()):
            self._set_idle(agent)

    def check_timeouts(self, now: float) -> None:
        """Expire what has waited past the time-out, forget what nobody waits for, predict by what was learned."""
        if isinstance(self.queue, CentralQueue):
            self.queue.refresh()
        give_up_at = now - self.give_up_s
        waiting = self.queue.waiting()
        new = set(self.queue.waiting_for(is_candidate=True)) if self._new else ()
        for request in self.queue.remove_all(one for one in waiting if one.arrived_at < give_up_at):
            version = self.candidate if request in new and self.candidate is not None else self
            version.expire(request)
        for request in self.queue.remove_all(one for one in waiting if one.is_unasked):
            self.forget(request)

    def _take_share(self) -> None:
        now = time.monotonic()
        candidates = () if self.candidate is None else self.candidate.agents
        connected = {agent.view.instance: agent for agent in (*self._agents, *candidates)}
        new = {agent.view.instance for agent in candidates}
        known = self._members
        if known is None:
            known = {name: (agent.offering, "new" if name in new else "") for name, agent in connected.items()}
        else:
            known = {name: one for name, one in known.items() if not one[1] or self._serves(one[1].encode())}
        owner_of = assign_gateways(kinds_of(known, self._type_of), self._gateways, self._zone_of)
        own = {
            name: agent
            for name, agent in connected.items()
            if owner_of.get(name) == self._me and self._remains(agent, now)
        }
        new &= own.keys()
        if own == self._own and new == self._new:
            return
        self._own, self._new = own, frozenset(new)
        log.info("share of agents", extra={"model": self.name, "agents": len(own), "of": self.agent_count})
        pool = [
            Instance(
                name,
                self._type_of[agent.offering],
                None if _is_idle(agent.view) else 1000 * max(now, agent.view.free_at),
                name in new,
            )
            for name, agent in own.items()
        ]
        left = self._without_agents()
        self.queue.set_pool(1000 * now, pool)
        if isinstance(self.queue, DeadlineQueue):
            for name, agent in own.items():
                self.queue.set_pace(name, agent.view.full_batch_s)
        for request in left:
            if request.version and not self._serves(request.version):
                self.fail(request, 503, GONE)
            else:
                self.offer(request, now)
        self._decide_soon()

    def _serves(self, version: bytes) -> bool:
        """True for the stable version and the candidate; where versions are not told apart, for each."""
        new = b"" if self.candidate is None else self.candidate.version
        return not self.version or version in (self.version, new)

    def _without_agents(self) -> list[InferenceRequest]:
        """Take out of the queue what waits for agents that this gateway has not, or for a version that ended."""
        queue, gone = self.queue, []
        for is_candidate, count in ((False, len(self._own) - len(self._new)), (True, len(self._new))):
            waiting = queue.waiting_for(is_candidate=is_candidate)
            gone += [one for one in waiting if not count or (one.version and not self._serves(one.version))]
        return queue.remove_all(gone)

    def _remains(self, agent: Agent, now: float) -> bool:
        """True where the agent is there until whatever starts now is answered."""
        return now + self._slowest_s[self._type_of[agent.offering]] <= agent.view.terminates_at

    def _add(self, request: InferenceRequest, now: float, *, is_candidate: bool) -> None:
        deadline_ms = 1000 * request.deadline_at
        self.queue.add(1000 * now, request, size=request.size, deadline_ms=deadline_ms, is_candidate=is_candidate)
        if self.queue.idle or is_candidate:  # what the candidate cannot answer in time leaves at once
            if self._overflows or self._sheds:
                self._came.append(request)
            if not self._is_due:
                self._decide_soon()
        elif self._overflows or self._sheds:
            self._watch_waiting(self._leaves_at(request, self._lambda_s(now)), now)

    @property
    def _overflows(self) -> bool:
        return self.overflow is not None and self._too_late is TooLate.OVERFLOW

    def _lambda_s(self, now: float, beside: int = 0) -> float:
        """Predicted seconds of a call to Lambda; infinite where it takes nothing that waits."""
        calls = self.overflow
        return calls.finish_at(now, beside) - now if calls is not None and self._overflows else math.inf

    def _leaves_at(self, request: InferenceRequest, lambda_s: float) -> float:
        """The instant at which a request that has not started leaves the queue; infinite where none is."""
        return min(self._hand_on_at(request, lambda_s), self._shed_at(request))

    def _hand_on_at(self, request: InferenceRequest, lambda_s: float) -> float:
        """The last instant at which Lambda is predicted to answer in time; infinite where it never was."""
        at = self._due_at(request) - lambda_s
        return at if request.size == 1 and at >= request.arrived_at else math.inf

    def _shed_at(self, request: InferenceRequest) -> float:
        """The first instant at which no agent is predicted to answer in time; infinite where nothing is shed."""
        return request.deadline_at - self.queue.best_ms(request.size) / 1000 + TURN_S if self._sheds else math.inf

    def _due_at(self, request: InferenceRequest) -> float:
        return request.arrived_at + self._factor * (request.deadline_at - request.arrived_at)

    def _watch_waiting(self, at: float, now: float) -> None:
        """Look at what waits at that instant, or before it."""
        if at == math.inf or (self._watch is not None and self._watch.when() <= at):
            return
        if self._watch is not None:
            self._watch.cancel()
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(max(0.0, at - now), self.hand_on_waiting)

    def hand_on_waiting(self) -> None:
        """Hand to Lambda what would next be too late there as well, and is not expected to start in time here.

        What is held was refused there, or is late in any case: it stays.
        """
        self._watch, now, next_at, ahead = None, time.monotonic(), math.inf, 0
        soon = now + TURN_S
        leaving: list[InferenceRequest] = []
        lambda_s = self._lambda_s(now)
        for request in self.queue.not_held():
            at, shed_at = self._hand_on_at(request, lambda_s), self._shed_at(request)
            if shed_at > now:
                is_open = at <= soon and self._lambda_open(len(request.body), len(leaving))
                if not is_open or self._is_expected_in_time(request, ahead, now):
                    next_at = min(next_at, shed_at, at if at > soon else math.inf)
                    ahead += 1
                    continue
            leaving.append(request)
            lambda_s = self._lambda_s(now, len(leaving))
        for request in self.queue.remove_all(leaving):
            self._guarded_route_late(request, now)
        self._watch_waiting(next_at, now)

    def _is_expected_in_time(self, request: InferenceRequest, ahead: int, now: float) -> bool:
        assert isinstance(self.queue, CentralQueue), "Lambda takes nothing that waits for variants"
        return self.queue.expected_ms(1000 * now, ahead, request.size) <= 1000 * self._due_at(request)

    def settle(self, request: InferenceRequest) -> None:
        """The request is at its agent no more, which is idle where it holds nothing else."""
        sent = self._at.pop(request, None)
        if sent is not None and _is_idle(sent[0].view):
            self._set_idle(sent[0])

    def _set_idle(self, agent: Agent) -> None:
        self.queue.set_idle(agent.view.instance)
        if not self._is_due and len(self.queue):
            self._decide_soon()

    def _decide_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            soon = self._soon or asyncio.get_running_loop().call_soon
            soon(self._decide)

    def _decide(self) -> None:
        self._is_due = False
        now = time.monotonic()
        try:
            decided = self.queue.decide(1000 * now)
        except Exception as error:  # noqa: BLE001 - the driver of decisions: what waits is decided on anew
            self.unexpected.note(error, model=self.name)
            return
        if isinstance(decided, Formed):
            for batch in decided.batches:
                self._send_batch(batch, now)
        else:
            for request, instance in decided.started:
                agent = self._own[instance]
                if request.is_unasked:
                    self.forget(request)
                    self._set_idle(agent)
                else:
                    self._send(request, agent, now)
        for request in decided.handed_on:
            self._guarded_route_late(request, now)
        for request in decided.spilled:
            self._guarded_spill(request, now)
        came, self._came = [request for request in self._came if request in self.queue], []
        if came:
            lambda_s = self._lambda_s(now)
            self._watch_waiting(min(self._leaves_at(request, lambda_s) for request in came), now)

    def _send(self, request: InferenceRequest, agent: Agent, now: float, *, batch_id: int = 0) -> None:
        self._at[request] = (agent, now)
        try:
            agent.send(request, now, forced=True, batch_id=batch_id)
        except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
            self.fail_unexpected(request, error)

    def _send_batch(self, batch: Batch[InferenceRequest], now: float) -> None:
        """Send a batch without those that nobody waits for."""
        agent = self._own[batch.instance]
        self._batches += 1
        for request in batch.queries:
            if request.is_unasked:
                self.forget(request)
            else:
                self._send(request, agent, now, batch_id=self._batches)
        agent.begin(self._batches, batch.variant)
        if _is_idle(agent.view):
            self._set_idle(agent)

    def _guarded_spill(self, request: InferenceRequest, now: float) -> None:
        """Have the stable version answer what the candidate cannot in time; what names that one waits for it."""
        try:
            if not request.version:
                self.offer_here(request, now)
            elif self._sheds:
                self._shed(request)
            else:
                deadline_ms = 1000 * request.deadline_at
                self.queue.hold(request, size=request.size, deadline_ms=deadline_ms, is_candidate=True)
        except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
            self.fail_unexpected(request, error)

    def _guarded_route_late(self, request: InferenceRequest, now: float) -> None:
        try:
            self._route_late(request, now)
        except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
            self.fail_unexpected(request, error)

    def _route_late(self, request: InferenceRequest, now: float, *, lambda_refused: bool = False) -> None:
        """Hand on a request that no agent answers in time any more, or hold it."""
        if isinstance(self.queue, DeadlineQueue) and self._sheds:
            self._shed(request)
            return
        instance_at = now + self.queue.best_ms(request.size) / 1000
        refused = lambda_refused or self._too_late is not TooLate.OVERFLOW
        if self._stays(request, now, instance_at, lambda_refused=refused):
            self.queue.hold(request, size=request.size, deadline_ms=1000 * request.deadline_at)
            if self.queue.idle:
                self._decide_soon()

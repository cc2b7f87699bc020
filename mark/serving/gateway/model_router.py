"""One model in a gateway: which agent gets a request, and what becomes of it when that one bounces or is lost.

Every ticket that is offered is answered exactly once: by an agent, by Lambda, or with an error. The decisions are
those of `mark.dispatch`, the same that the simulator takes.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol

from mark.controller.service import ServedModel
from mark.dispatch.overflow import TO_INSTANCE, TO_LAMBDA, after_bounce
from mark.dispatch.policy import Bounced, Late, Routing
from mark.dispatch.redispatch import AfterLoss, after_loss, at_work
from mark.dispatch.routing import NONE, least_finish, least_outstanding, weighted
from mark.domain.traffic import CLIENT_ERROR
from mark.protocols.frames import Response
from mark.serving.gateway.idempotency import Answer, IdempotencyCache
from mark.serving.gateway.lambda_overflow import LambdaCalls
from mark.serving.gateway.members_view import AgentView, ModelView
from mark.serving.gateway.request import Loss, InferenceRequest
from mark.serving.gateway.stats import Server, Tally
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors

log = logging.getLogger("mark.gateway")
BY: dict[Server, bytes] = {"instance": b"instance", "standby": b"standby", "lambda": b"lambda"}


class Agent(Protocol):
    """A connection to an agent, as a lane uses it."""

    view: AgentView

    def send(self, ticket: InferenceRequest, now: float, *, forced: bool) -> None:
        """Send a request there."""
        ...


Rest = ParamSpec("Rest")
WithTicket = Callable[Concatenate["ModelRouter", InferenceRequest, Rest], None]


def _answers_all_the_same(decide: WithTicket[Rest]) -> WithTicket[Rest]:
    """Where a decision raises, its ticket gets a 500: whoever asked for it has others to look after."""

    @functools.wraps(decide)
    def decided(lane: ModelRouter, ticket: InferenceRequest, /, *args: Rest.args, **kwargs: Rest.kwargs) -> None:
        try:
            decide(lane, ticket, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
            lane.defect(ticket, error)

    return decided


TIMED_OUT = 504
"""The answer of a batch that hung: whoever repeats its id is executed, and may be in time."""


class ModelRouter:
    """A model's agents, its calls to Lambda, and its counts."""

    def __init__(
        self,
        served: ServedModel,
        *,
        overflow: LambdaCalls | None,
        repeats: IdempotencyCache,
        defects: UnexpectedErrors,
    ) -> None:
        self.served = served
        self.name = served.name
        self.objective_s = served.slo.latency_s
        self.tally = Tally()
        self.view = ModelView()
        self.overflow = overflow
        self._agents: list[Agent] = []
        self._policy = served.dispatch
        self._repeats = repeats
        self.defects = defects
        self._only: Agent | None = None

    def set_agents(self, agents: list[Agent]) -> None:
        """These agents accept requests from now on."""
        self._agents = sorted(agents, key=lambda agent: agent.view.instance)
        self.view.set_agents(agent.view for agent in agents)
        self._only = self._agents[0] if len(self._agents) == 1 else None

    @property
    def is_ready(self) -> bool:
        """Whether a request would be served by anyone."""
        return bool(self._agents) or self._lambda_open(0)

    @property
    def agent_count(self) -> int:
        """Agents that accept."""
        return len(self._agents)

    def offer(self, ticket: InferenceRequest, now: float) -> None:
        """Route a request that has come."""
        only = self._only
        try:
            if only is not None and only.view.gone_at == math.inf:  # all rules agree on one that stays
                only.send(ticket, now, forced=False)
                return
            agent = self._route(now)
            if agent is None:
                self.bounced(ticket, now)
            else:
                agent.send(ticket, now, forced=False)
        except Exception as error:  # noqa: BLE001 - on the hot path, what `_answers_all_the_same` does elsewhere
            self.defect(ticket, error)

    @_answers_all_the_same
    def bounced(self, ticket: InferenceRequest, now: float, *, lambda_refused: bool = False) -> None:
        """No agent admitted it: Lambda, the instance that finishes first, or nobody."""
        agent, instance_at = self._first_to_finish(now)
        calls, policy = self.overflow, self._policy
        lambda_open = not lambda_refused and self._lambda_open(len(ticket.body))
        lambda_at = calls.finish_at(now) if calls is not None and lambda_open else math.inf
        if calls is not None and lambda_open and policy.late is Late.SHED and lambda_at > ticket.deadline_at:
            calls.warm_one_more(self, now, ticket.deadline_at)
        choice = after_bounce(
            lambda_open,
            policy.bounced is Bounced.LAMBDA,
            policy.late is Late.SHED,
            lambda_at,
            instance_at,
            ticket.arrived_at,
            ticket.deadline_at,
            policy.give_up_s,
        )
        if choice == TO_LAMBDA and calls is not None:
            calls.call(self, ticket)
        elif choice == TO_INSTANCE and agent is not None:
            agent.send(ticket, now, forced=True)
        else:
            self.tally.shed += 1
            self.fail(ticket, 503, "no capacity to meet the deadline; retry after 1 s")

    def agent_lost(self, view: AgentView, held: list[InferenceRequest]) -> None:
        """An agent is gone, which held these requests, oldest first: others get them."""
        suspects = held[: at_work(view.max_batch)]
        before = [tuple(loss.server for loss in ticket.losses) for ticket in suspects]
        alike = Counter(before)
        for ticket, servers in zip(suspects, before, strict=True):
            self.lost(ticket, Loss(view.instance, alike[servers]))
        for ticket in held[len(suspects) :]:
            self.lost(ticket)

    @_answers_all_the_same
    def lost(self, ticket: InferenceRequest, loss: Loss | None = None, *, lambda_refused: bool = False) -> None:
        """Its server is gone: another one, while the model, the tries and the time allow it.

        loss: given where the server may have been working on it. lambda_refused: Lambda is not asked again.
        """
        now = time.monotonic()
        if loss is not None:
            ticket.losses += (loss,)
        again = after_loss(
            allowed=self.served.model.redispatch,
            losses=len(ticket.losses),
            waited_s=now - ticket.arrived_at,
            give_up_s=self._policy.give_up_s,
        )
        if again is AfterLoss.FORBIDDEN:
            self.tally.failed += 1
            self.fail(
                ticket, 502, "the server was lost; the model does not allow a second execution (model.redispatch)"
            )
        elif again is AfterLoss.GIVEN_UP:
            self._give_up(ticket)
        elif again is AfterLoss.EXPIRED:
            self.expire(ticket)
        else:
            self.tally.redispatched += 1
            if now > ticket.deadline_at or lambda_refused:
                self.bounced(ticket, now, lambda_refused=lambda_refused)
            else:
                self.offer(ticket, now)

    def _give_up(self, ticket: InferenceRequest) -> None:
        """Every server that tried it was lost: it may be what ends them, so no other one tries it."""
        losses = ticket.losses
        others = losses[-1].suspects - 1
        said = f"as were {others} others" if others else "and is the only request of which that is so"
        fields = {
            "model": self.name,
            "request_id": ticket.request_id.decode("latin-1"),
            "lost": [loss.server for loss in losses],
            "others": others,
        }
        log.warning("a request is given up: it was on each of the servers that were lost, %s", said, extra=fields)
        self.tally.failed += 1
        text = f"{len(losses)} servers were lost while they worked on this request; no further retry"
        self.fail(ticket, 502, text)

    @_answers_all_the_same
    def expire(self, ticket: InferenceRequest) -> None:
        """Nobody answered until the service's own time-out."""
        self.tally.failed += 1
        self.fail(ticket, 504, f"not answered within {self._policy.give_up_s:g} s")

    @property
    def give_up_s(self) -> float:
        """The service's own time-out."""
        return self._policy.give_up_s

    def answer(self, ticket: InferenceRequest, response: Response, by: Server, now: float) -> None:
        """A model has answered."""
        try:
            ticket.answer(response.status, response.content_type, response.header_length, response.body, BY[by])
        except Exception as error:  # noqa: BLE001 - as in `offer`
            self.defect(ticket, error)
            return
        if response.status < CLIENT_ERROR:
            self.tally.answered(by, now - ticket.arrived_at, self.objective_s)
        else:
            self.tally.refused(response.status, ticket.arrived_at)
        if ticket.repeat is not None and response.status == TIMED_OUT:
            self._repeats.failed(ticket.repeat, TIMED_OUT, "not answered in time; retry with the same id")
        elif ticket.repeat is not None:
            answer = Answer(response.status, response.content_type, response.header_length, response.body, BY[by])
            self._repeats.answered(ticket.repeat, answer)

    def fail(self, ticket: InferenceRequest, status: int, text: str) -> None:
        """Answer without a model's answer."""
        ticket.fail(status, text)
        if ticket.repeat is not None:
            self._repeats.failed(ticket.repeat, status, text)

    def defect(
        self, ticket: InferenceRequest, error: BaseException, status: int = 500, text: str = INTERNAL_ERROR
    ) -> None:
        """What raised on this request's way costs it its answer, and nobody else anything."""
        self.defects.note(error, model=self.name, request_id=ticket.request_id.decode("latin-1"))
        self.tally.failed += 1
        self.fail(ticket, status, text)

    def _route(self, now: float) -> Agent | None:
        view = self.view
        if not self._agents:
            return None
        if self._policy.routing is Routing.LEAST_FINISH:
            row = least_finish(now, view.rows, view.servers(now))
        elif self._policy.routing is Routing.WEIGHTED:
            row = weighted(view.rows, view.servers(now))
        else:
            row = least_outstanding(view.rows, view.servers(now))
        if row == NONE:
            return None
        agent = self._agents[row]
        return agent if agent.view.finish_at(now) <= agent.view.gone_at else None

    def _first_to_finish(self, now: float) -> tuple[Agent | None, float]:
        if not self._agents:
            return None, math.inf
        row = least_finish(now, self.view.rows, self.view.servers(now))
        if row == NONE:
            return None, math.inf
        return self._agents[row], self._agents[row].view.finish_at(now)

    def _lambda_open(self, body_bytes: int) -> bool:
        calls = self.overflow
        return calls is not None and self._policy.bounced is not Bounced.NOWHERE and calls.takes(body_bytes)

"""Routing of one model's requests: to an agent, to Lambda (overflow), or load shedding with 503.

A request that an agent bounces, or that is lost with its server, is routed again (failover). Every request is
answered exactly once: by an agent, by Lambda, or with an error. The decisions are those of `mark.dispatch`, the
same that the simulator takes.

The router owns the agents of one version, and what it hands requests to: held requests and calls of Lambda, which
see it by protocols of their own. Routers of other versions are its subclasses, and it knows them as routers.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec

from mark.dispatch.backlog import idle_room
from mark.dispatch.bouncer import stays
from mark.dispatch.client_limits import may_wait
from mark.dispatch.instance.device import stays_late
from mark.dispatch.instance.device_share import has_share, spares_own
from mark.dispatch.overflow import TO_INSTANCE, TO_LAMBDA, after_bounce, comes_before_crossing, warm_for_all
from mark.dispatch.policy import Bounced, Late, Routing
from mark.dispatch.redispatch import AfterLoss, after_loss, at_work
from mark.dispatch.routing import NONE, least_finish, least_finish_of_size, least_outstanding, weighted
from mark.domain.billing.spending import SpendingLimit
from mark.domain.fleet.member import Member
from mark.domain.load.traffic import CLIENT_ERROR, CLIENT_GONE, is_rejection
from mark.protocols.frames import Response
from mark.service_spec import ServedModel
from mark.serving.gateway.agent import Agent
from mark.serving.gateway.clients import ClientUse
from mark.serving.gateway.held_requests import HeldRequests
from mark.serving.gateway.held_use import HeldUse
from mark.serving.gateway.idempotency import IdempotencyCache
from mark.serving.gateway.lambda_overflow import LambdaCalls
from mark.serving.gateway.members_view import AgentView, ModelView
from mark.serving.gateway.request import InferenceRequest, Loss, StoredResponse
from mark.serving.gateway.shared_device import least_finish_on_devices
from mark.serving.gateway.telemetry.traffic_tally import Server, Tally, VersionTally
from mark.serving.gateway.versions.shadow import Shadows
from mark.serving.unexpected_errors import INTERNAL_ERROR, UnexpectedErrors

log = logging.getLogger("mark.gateway")
BY: dict[Server, bytes] = {"instance": b"instance", "standby": b"standby", "lambda": b"lambda"}


Rest = ParamSpec("Rest")
WithRequest = Callable[Concatenate["ModelRouter", InferenceRequest, Rest], None]


def _fails_its_request(decide: WithRequest[Rest]) -> WithRequest[Rest]:
    """Decorate a decision so that an unexpected exception costs its own request a 500 and no other anything."""

    @functools.wraps(decide)
    def decided(
        router: ModelRouter, request: InferenceRequest, /, *args: Rest.args, **kwargs: Rest.kwargs
    ) -> None:
        try:
            decide(router, request, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the driver of one request: it gets its answer
            router.fail_unexpected(request, error)

    return decided


def _is_load(request: InferenceRequest) -> bool:
    """True for an arrival, which the objective counts: all but what idle capacity takes of the async class."""
    return request.client is None or request.client.is_load


NO_CAPACITY = "no capacity to meet the deadline; retry after 1 s"
PAUSED = "the service is paused, or its budget is spent: nothing is rented until it is resumed"
GONE = "the version that the path names was aborted or replaced"
TIMED_OUT = 504
"""Status of a batch that hung; it is not stored, so that a retry with the same id is executed."""


class ModelRouter:
    """A model's agents, its calls to Lambda, and its counts."""

    decides_late = False
    """True where requests are sent at the end of a turn of the loop, for all that came in it."""
    weight = 0.0
    """A candidate's share of the model's requests."""
    crosses = False
    """True where some agents stand in another zone than this gateway, and those of its own are asked first."""

    def __init__(
        self,
        served: ServedModel,
        *,
        overflow: LambdaCalls | None,
        idempotency: IdempotencyCache,
        unexpected: UnexpectedErrors,
        tally: Tally | None = None,
    ) -> None:
        """tally: where it counts; its own by default."""
        self.served = served
        self.name = served.name
        self.objective_s = served.slo.latency_s
        #: True where answers stream (docs/protocols.md)
        self.streams = served.backend.streams
        self.tally = tally or Tally()
        #: the version that its agents serve; empty where versions are not told apart
        self.version = b""
        #: its answers are not wanted any more: its version was aborted
        self.is_aborted = False
        #: the router of the version that a rollout brings in; None without one
        self.candidate: ModelRouter | None = None
        #: copies of what is answered here, for that version; None where none are made
        self.shadows: Shadows | None = None
        #: counts of its own version; None without a rollout
        self.version_tally: VersionTally | None = None
        #: requests of the async class; None where the model has a central queue
        self.held: HeldRequests | None = None
        self.view = ModelView()
        self.overflow = overflow
        self._agents: list[Agent] = []
        self._policy = served.dispatch
        self._factor = math.inf if served.dispatch.admission_factor is None else served.dispatch.admission_factor
        lambda_usd = math.inf if served.overflow is None else served.overflow.usd_per_warm_request
        self._lambda_first = comes_before_crossing(lambda_usd, served.crossing_usd)
        backup = served.overflow if self._policy.bounced is Bounced.LAMBDA else None
        self._has_backup = backup is not None and backup.is_backup(self.objective_s)
        self.idempotency = idempotency
        self.unexpected = unexpected
        self._only: Agent | None = None
        self._is_paused = False
        profiles = {offering.name: offering.profile for offering in served.offerings}
        #: Items of the largest request, which every offering can take.
        self.largest = min((profile.max_batch for profile in profiles.values()), default=1)
        self._profiles_s = {name: (0.0, *profile.latencies_s(self.largest)) for name, profile in profiles.items()}
        serving = served.variant_serving
        variants = () if serving is None else serving.table.variants
        #: Accuracy by the name of a variant; empty for a model that has one, whose requests may be of many items.
        self.accuracy_of = {variant.name.encode(): variant.accuracy for variant in variants}
        if variants or self.streams:
            self.largest = 1

    def profile_s(self, offering: str) -> Sequence[float]:
        """Seconds of 0, 1, 2, ... items by the profile; the same for all sizes where it is offered no more."""
        return self._profiles_s.get(offering) or (0.0, *[1.0] * self.largest)

    def set_agents(self, agents: list[Agent]) -> None:
        """Replace the agents that accept requests."""
        self._agents = sorted(agents, key=lambda agent: agent.view.instance)
        self.view.set_agents(agent.view for agent in agents)
        self.crosses = self.view.has_far and not self.decides_late
        self._only = self._agents[0] if len(self._agents) == 1 and not self.crosses else None

    @property
    def is_ready(self) -> bool:
        """True where an agent or Lambda takes requests."""
        return bool(self._agents) or self._lambda_open(0)

    @property
    def agents(self) -> Sequence[Agent]:
        """Agents that accept requests, by instance."""
        return self._agents

    @property
    def agent_count(self) -> int:
        """The number of agents that accept requests."""
        return len(self._agents)

    def set_members(self, members: Mapping[str, Member]) -> None:
        """Take all ready agents, connected or not; early binding has no shares."""

    def set_gateways(self, me: str, gateways: Mapping[str, str]) -> None:
        """Share the agents among the gateways that are up, each with its zone; early binding has no shares."""

    def agent_changed(self, view: AgentView) -> None:
        """An agent's queue has changed by more than an answer to one of this gateway's requests."""

    def candidate_changed(self) -> None:
        """The candidate has other agents; early binding has no queue that they are to serve."""

    @property
    def queues_candidate(self) -> bool:
        """True where the candidate's requests wait in this router's queue; with early binding none does."""
        return False

    def queue_for_candidate(self, request: InferenceRequest, now: float) -> None:
        """Queue a request for the candidate's agents."""

    def settle(self, request: InferenceRequest) -> None:
        """Forget that an agent of a version has a request; early binding remembers none."""

    def check_timeouts(self, now: float) -> None:  # noqa: ARG002 - as held requests know their own times
        """Forget held requests whose clients have gone; with early binding no other waits here."""
        if self.held is not None:
            self.held.forget_gone()

    def limit_spending(self, limit: SpendingLimit) -> None:
        """Call Lambda no more under a limit; clients hear of a pause."""
        self._is_paused = limit is SpendingLimit.PAUSE
        if self.overflow is not None:
            self.overflow.closed = limit is not SpendingLimit.NONE

    @property
    def lambda_warm(self) -> int:
        """Lambda environments believed warm; with a rollout, by the version with the fewest of its share."""
        calls, candidate = self.overflow, self.candidate
        if calls is None:
            return 0
        warm = [(calls.warm, 1.0)]
        if candidate is not None and candidate.weight > 0 and candidate.overflow is not None:
            warm.append((candidate.overflow.warm, candidate.weight))
        return warm_for_all(warm)

    def calls_of(self, version: str) -> LambdaCalls | None:
        """Calls of a version's Lambda function; empty: of the stable one's. None where it is not called."""
        if not version or version.encode() == self.version:
            return self.overflow
        candidate = self.candidate
        return candidate.overflow if candidate is not None and version.encode() == candidate.version else None

    def takes(self, request: InferenceRequest) -> bool:  # noqa: ARG002 - a version's router looks at it
        """True for a request that a rollout's version is to answer; the stable one gets what is left."""
        return False

    def offer(self, request: InferenceRequest, now: float) -> None:
        """Route a new request, to the candidate of a rollout where it is in its share.

        One that waited on its connection may name a version that is gone.
        """
        candidate = self.candidate
        if candidate is not None and candidate.takes(request):
            candidate.offer_here(request, now)
        elif request.version and request.version != self.version:
            self.fail(request, 503, GONE)
        else:
            self.offer_here(request, now)

    def offer_here(self, request: InferenceRequest, now: float) -> None:
        """Route a request among these agents."""
        only = self._only
        try:
            if only is not None and only.view.terminates_at == math.inf:  # all rules agree on one that stays
                only.send(request, now, forced=False)
                return
            if self.crosses:
                self._offer_by_zone(request, now)
                return
            agent = self._choose(request, now)
            if agent is None:
                self.bounced(request, now)
            else:
                agent.send(request, now, forced=False)
        except Exception as error:  # noqa: BLE001 - on the hot path, what `_fails_its_request` does elsewhere
            self.fail_unexpected(request, error)

    def may_queue(self, request: InferenceRequest, now: float, share: float) -> bool:
        """True where the queue leaves its client's class room: it may use that share of the time for waiting."""
        agent, finish_at = self._first_to_finish(request, now)
        if agent is None:
            return False
        view, size = agent.view, request.size
        alone_s = view.single_s if size == 1 else view.alone_s(size)
        return may_wait(finish_at - now - alone_s, request.deadline_at - now - alone_s, share)

    @_fails_its_request
    def give_way(self, request: InferenceRequest, now: float) -> None:
        """Leave the instances to higher classes: Lambda answers the request, or nobody does."""
        self._stays(request, now, math.inf)

    def idle_agents(self) -> list[tuple[Agent, int]]:
        """Serving agents that have nothing to do, and how many items of the async class each may take.

        Those of other zones only where this one has none: what can wait does not cross.
        """
        found, now = [], time.monotonic()
        staying = [one for one in self._agents if not one.view.standby and one.view.terminates_at == math.inf]
        for agent in [one for one in staying if not one.view.is_far] or staying:
            view = agent.view
            if not view.is_idle(now):
                continue
            room = idle_room(view.single_s, view.full_batch_s, view.max_batch, self.objective_s)
            if room:
                found.append((agent, room))
        return found

    @_fails_its_request
    def send_to(self, request: InferenceRequest, agent: Agent, now: float) -> None:
        """Send a request to that agent."""
        agent.send(request, now, forced=False)

    @_fails_its_request
    def bounced(self, request: InferenceRequest, now: float, *, lambda_refused: bool = False) -> None:
        """Route a request that was not admitted: to Lambda, to the instance that finishes first, or shed it.

        One of the async class waits again while its deadline lets it.
        """
        if self._waits_or_left(request, now):
            return
        agent, instance_at = self._first_to_finish(request, now)
        if agent is not None and not lambda_refused and self._waits_late(request, agent.view, now, instance_at):
            agent.send(request, now, forced=True)
            if _is_load(request):
                self.tally.took_shared(request)
            return
        if not self._stays(request, now, instance_at, lambda_refused=lambda_refused):
            return
        if agent is None:
            self._shed(request)
        else:
            agent.send(request, now, forced=True)

    def _waits_late(self, request: InferenceRequest, view: AgentView, now: float, instance_at: float) -> bool:
        """True where it waits on a shared instance all the same; Lambda is warmed for the next one.

        Not where the model leaves that instance, nor a second time.
        """
        calls, due_at = self.overflow, request.deadline_at
        if view.device is None or not view.share_rps or request.is_forced:
            return False
        if calls is None or not self._lambda_takes(request):
            return False
        if not stays_late(instance_at, calls.finish_at(now), due_at):
            return False
        if not view.device.harms_nobody(view, now, due_at):
            return False
        calls.warm_one_more(self, now, due_at)
        return True

    def _waits_or_left(self, request: InferenceRequest, now: float) -> bool:
        """True for a request that waits again, in the async class, or that nobody waits for."""
        if request.is_unasked:
            self.forget(request)
            return True
        return self.held is not None and self.held.put_back(request, now)

    @_fails_its_request
    def bounced_near(self, request: InferenceRequest, now: float, *, was_shared: bool) -> None:
        """Route a request that an agent of this zone did not admit, though it was expected to.

        To one of the model's own here, after a shared one; then to another zone's, or to Lambda where that costs
        less; else as any other.
        """
        if self._waits_or_left(request, now):
            return
        view = self.view
        agent = self._in_time(request, now, view.near_own) if was_shared else None
        if agent is None and self._lambda_first and self._calls_in_time(request, now):
            return
        agent = agent or self._in_time(request, now, view.far_own)
        if agent is not None:
            if was_shared:
                self._spare_own(self._route(request, now, view.shared), request, now)
            agent.send(request, now, forced=False)
        elif was_shared:
            self.bounced_by_neighbours(request, now)
        else:
            self.bounced(request, now)

    @_fails_its_request
    def bounced_by_neighbours(self, request: InferenceRequest, now: float) -> None:
        """Route a request that a shared instance did not admit: to the model's own, else as any other.

        What would make others late there, though it is late itself, is forced on no shared instance again; nor on
        the model's own, where the policy is to shed it.
        """
        agent = self._route(request, now, self.view.own)
        if agent is not None and request.is_forced and self._policy.late is Late.SHED:
            finish_at = agent.view.finish_at(now, request.size, request.deadline_at)
            agent = agent if finish_at <= request.deadline_at else None
        if agent is not None:
            if not request.is_forced:
                self._spare_own(self._route(request, now, self.view.shared), request, now)
            agent.send(request, now, forced=request.is_forced)
        elif not request.is_forced:
            self.bounced(request, now)
        elif self._stays(request, now, math.inf):
            self._shed(request)

    def _stays(
        self, request: InferenceRequest, now: float, instance_at: float, *, lambda_refused: bool = False
    ) -> bool:
        """True where an instance is to take the request; else it was sent to Lambda, or shed.

        instance_at: when an instance is predicted to answer it, infinite where none can.
        """
        calls, policy = self.overflow, self._policy
        lambda_open = not lambda_refused and self._lambda_takes(request)
        lambda_at = calls.finish_at(now) if calls is not None and lambda_open else math.inf
        is_late = policy.late is Late.SHED and lambda_at > request.deadline_at
        if calls is not None and lambda_open and is_late and not request.is_forced:  # such a one has warmed one
            calls.warm_one_more(self, now, request.deadline_at)
        choice = after_bounce(
            lambda_open,
            policy.late is Late.SHED,
            lambda_at,
            instance_at,
            request.arrived_at,
            request.deadline_at,
            policy.give_up_s,
        )
        if choice == TO_LAMBDA and calls is not None:
            calls.call(self, request)
        elif choice == TO_INSTANCE:
            return True
        else:
            self._shed(request)
        return False

    def _shed(self, request: InferenceRequest) -> None:
        self.tally.shed += _is_load(request)
        self.fail(request, 503, PAUSED if self._is_paused else NO_CAPACITY)

    def agent_lost(self, view: AgentView, held: list[InferenceRequest]) -> None:
        """Dispatch the requests of a lost agent again. held: oldest first."""
        suspects = held[: at_work(view.max_batch)]
        before = [tuple(loss.server for loss in request.losses) for request in suspects]
        alike = Counter(before)
        for request, servers in zip(suspects, before, strict=True):
            self.lost(request, Loss(view.instance, alike[servers]))
        for request in held[len(suspects) :]:
            self.lost(request)

    @_fails_its_request
    def lost(self, request: InferenceRequest, loss: Loss | None = None, *, lambda_refused: bool = False) -> None:
        """Dispatch again a request whose server was lost, while the model, the tries and the time allow it.

        loss: given where the server may have been working on it. lambda_refused: Lambda is not asked again.
        """
        now = time.monotonic()
        if request.trace is not None:
            request.trace.returned("lost", now)
        if loss is not None:
            request.losses += (loss,)
            if self.version_tally is not None:  # who answers in its place is none of its merit
                self.version_tally.failed()
        again = after_loss(
            allowed=self.served.model.redispatch,
            losses=len(request.losses),
            waited_s=now - request.arrived_at,
            give_up_s=self._policy.give_up_s,
        )
        if again is AfterLoss.FORBIDDEN:
            self._fail_counted(request, 502, "the server was lost; the model does not allow an automatic retry")
        elif again is AfterLoss.GIVEN_UP:
            self._give_up(request)
        elif again is AfterLoss.EXPIRED:
            (self.expire if loss is None else self.time_out)(request)  # one failure, however it came
        else:
            self.tally.redispatched += 1
            request.share, request.is_forced = None, False
            if self.held is not None and self.held.put_back(request, now):
                return
            if now > request.deadline_at or lambda_refused:
                self.bounced(request, now, lambda_refused=lambda_refused)
            else:
                self.offer(request, now)

    def _give_up(self, request: InferenceRequest) -> None:
        """Answer 502: every server that ran it was lost, so it may be what ends them (query of death)."""
        losses = request.losses
        others = losses[-1].suspects - 1
        shared = f"as were {others} others" if others else "and is the only request of which that is so"
        fields = {
            "model": self.name,
            "request_id": request.request_id.decode("latin-1"),
            "lost": [loss.server for loss in losses],
            "others": others,
        }
        log.warning("request given up: it was on each of the servers that were lost, %s", shared, extra=fields)
        text = f"{len(losses)} servers were lost while they worked on this request; no further retry"
        self._fail_counted(request, 502, text)

    @_fails_its_request
    def expire(self, request: InferenceRequest) -> None:
        """Answer 504: this version had the request until the service's own time-out."""
        if self.version_tally is not None:
            self.version_tally.failed()
        self.time_out(request)

    @_fails_its_request
    def time_out(self, request: InferenceRequest) -> None:
        """Answer 504: the service's own time-out has passed, and which version had the request is not known."""
        self._fail_counted(request, 504, f"not answered within {self._policy.give_up_s:g} s")

    @property
    def give_up_s(self) -> float:
        """The service's own time-out."""
        return self._policy.give_up_s

    def answer(self, request: InferenceRequest, response: Response, by: Server, now: float) -> None:
        """Answer with a model's response, and count it."""
        variant = response.details.variant
        try:
            request.answer(
                response.status,
                response.content_type,
                response.header_length,
                response.body,
                BY[by],
                variant,
                self.version,
            )
        except Exception as error:  # noqa: BLE001 - as in `offer`
            self.fail_unexpected(request, error)
            return
        client = request.client
        if client is not None and not client.is_load:
            self._served_idle(client, request, response)
        elif response.status < CLIENT_ERROR:
            latency_s = now - request.arrived_at
            self.tally.answered(by, latency_s, self.objective_s)
            if self.version_tally is not None:
                self.version_tally.answered(latency_s, self.objective_s)
            if variant in self.accuracy_of:
                self.tally.answered_with(variant, self.accuracy_of[variant])
            if client is not None:
                client.served(request.size, late=latency_s > self.objective_s)
        else:
            self._refused(request, response)
        request.client = None
        if request.idempotency is not None and response.status == TIMED_OUT:
            self.idempotency.discard(
                request.idempotency, TIMED_OUT, "not answered in time; retry with the same id"
            )
        elif request.idempotency is not None:
            stored = StoredResponse(
                response.status,
                response.content_type,
                response.header_length,
                response.body,
                BY[by],
                variant,
                self.version,
            )
            self.idempotency.complete(request.idempotency, stored, keep=not self.is_aborted)
        if self.shadows is not None and response.status != TIMED_OUT and not self.streams:
            self.shadows.copy(request, response, now - request.arrived_at, now)

    def _refused(self, request: InferenceRequest, response: Response) -> None:
        """Count an answer that serves nobody."""
        self.tally.refused(response.status, request.size, request.arrived_at, response.body)
        if is_rejection(response.status):
            self.tally.gave_back(request)  # it is nobody's load
        elif self.version_tally is not None:
            self.version_tally.failed()
        if request.client is not None:
            request.client.refused(response.status)

    @staticmethod
    def _served_idle(client: ClientUse | HeldUse, request: InferenceRequest, response: Response) -> None:
        """Count an answer that idle capacity gave: for its client alone."""
        if response.status < CLIENT_ERROR:
            client.served(request.size, late=False)
        else:
            client.refused(response.status)

    def streamed(self, request: InferenceRequest, by: Server, first_s: float, whole_s: float) -> None:
        """Count an answer that streamed and is whole."""
        slo = self.served.slo
        judged_s = whole_s if slo.first_byte_s is None else first_s
        late = judged_s > slo.judged_s
        self.tally.streamed(by, first_s, whole_s, late=late)
        if self.version_tally is not None:
            self.version_tally.answered(judged_s, slo.judged_s)
        if request.client is not None:
            request.client.served(request.size, late=late)
            request.client = None

    def cut_short(self, request: InferenceRequest, error: str) -> None:
        """Count a stream that ended with an error after its first part."""
        self.tally.failed += 1
        self.tally.cut_short += 1
        self.tally.says_failed(error)
        if self.version_tally is not None:
            self.version_tally.failed()
        if request.client is not None:
            request.client.refused(500)
            request.client = None

    def left(self, request: InferenceRequest, first_s: float | None, now: float) -> None:
        """Count a request whose client left before its end: as failed where the objective was missed by then.

        first_s: seconds to the first part of a stream; None where none had come.
        """
        slo = self.served.slo
        waited_s = now - request.arrived_at
        judged_s = first_s if slo.first_byte_s is not None and first_s is not None else waited_s
        missed = judged_s > slo.judged_s
        self.tally.left += 1
        self.tally.failed += missed and _is_load(request)
        if request.client is not None:
            request.client.refused(504 if missed else CLIENT_GONE)
            request.client = None

    def _fail_counted(self, request: InferenceRequest, status: int, text: str) -> None:
        """Answer with an error of the service, which counts as a failure of the model."""
        self.tally.failed += _is_load(request)
        self.tally.says_failed(text)
        self.fail(request, status, text)

    def forget(self, request: InferenceRequest) -> None:
        """Count a request that nobody waits for; whoever had it does so no more."""
        self.left(request, None, time.monotonic())
        self.fail(request, CLIENT_GONE, "the client has closed its connection")

    def fail(self, request: InferenceRequest, status: int, text: str) -> None:
        """Answer with an error of the service."""
        request.fail(status, text)
        if request.client is not None:
            request.client.refused(status)
            request.client = None
        if request.idempotency is not None:
            self.idempotency.discard(request.idempotency, status, text)

    def fail_unexpected(
        self, request: InferenceRequest, error: BaseException, status: int = 500, text: str = INTERNAL_ERROR
    ) -> None:
        """Log an unexpected exception and answer its request with an error."""
        self.unexpected.note(error, model=self.name, request_id=request.request_id.decode("latin-1"))
        self.tally.failed += _is_load(request)
        self.tally.says_failed(f"internal error: {type(error).__name__}: {error}")
        self.fail(request, status, text)

    def _choose(self, request: InferenceRequest, now: float) -> Agent | None:
        """The agent that a new request is sent to: on a shared instance within its share, else one of its own.

        As a replay does (simulator/engine/kernel_devices.py).
        """
        view = self.view
        if not view.shared:
            return self._route(request, now, view.rows)
        return self._share_or_own(request, now)

    def _share_or_own(self, request: InferenceRequest, now: float) -> Agent | None:
        """A shared instance within the share; else the model's own, or the shared one where it alone admits it."""
        view = self.view
        shared = self._route(request, now, view.shared)
        if shared is not None and self._is_for_share(shared, request, now):
            return shared
        own = self._in_time(request, now, view.near_own) if self.crosses else None
        if own is None:
            own = self._route(request, now, view.own)
            if own is None or shared is None:
                return own or shared
            if not self._admits(own, request, now) and self._admits(shared, request, now):
                return shared
        self._spare_own(shared, request, now)
        return own

    def _spare_own(self, shared: Agent | None, request: InferenceRequest, now: float) -> None:
        """Count what the model's own gets as taken by a shared instance, where that would likely be in time."""
        if shared is None or self._has_backup or request.losses or not _is_load(request):
            return
        view, due_at = shared.view, request.deadline_at
        if view.device is None or view.device.likely_finish_at(view, now, due_at) > due_at:
            return
        if request.share is not None or self._takes_share(view, request, now):
            self.tally.took_shared(request)

    def takes_share(self, request: InferenceRequest, now: float) -> bool:
        """True where a shared instance may take one more of its share, which is counted as if it took this one."""
        shared = self._route(request, now, self.view.shared)
        return shared is not None and self._takes_share(shared.view, request, now)

    def _is_for_share(self, shared: Agent, request: InferenceRequest, now: float) -> bool:
        """True where a shared instance is to take a request of its share, which is counted.

        Not what it would bounce, where the model has instances of its own.
        """
        if self.view.own and not self._admits(shared, request, now):
            return False
        return self._takes_share(shared.view, request, now)

    @staticmethod
    def _takes_share(view: AgentView, request: InferenceRequest, now: float) -> bool:
        """True where a shared instance may take one more of its share, which is counted."""
        if not has_share(now, view):
            return False
        view.share_left -= 1.0
        request.share = view
        return True

    def spares_own(self, view: AgentView, request: InferenceRequest, now: float) -> bool:
        """True where what a shared instance takes is no load of the model's own fleet; its share is counted."""
        if not _is_load(request):
            return False
        in_share = request.share is not None or (not self._has_backup and self._takes_share(view, request, now))
        return spares_own(in_share, self._has_backup)

    def gave_back(self, request: InferenceRequest) -> None:
        """Count a request that was not admitted as taken by a shared instance no more, nor of its share."""
        self.tally.gave_back(request)
        if request.share is not None:
            request.share.share_left += 1.0
            request.share = None

    def _offer_by_zone(self, request: InferenceRequest, now: float) -> None:
        """Offer a request to the agents of this zone while they are in time, then as `_choose` does.

        In the order of a replay's (simulator/engine/kernel_devices.py). One whose server was lost goes to another
        zone first: a zone may be lost as a whole, and tries are few.
        """
        view, agent = self.view, None
        if request.losses:
            agent = self._in_time(request, now, view.far_own) or self._choose(request, now)
            if agent is not None:
                agent.send(request, now, forced=False)
                return
        if len(view.near_shared) < len(view.shared):
            agent = self._in_time(request, now, view.near_shared)
            agent = agent if agent is not None and self._takes_share(agent.view, request, now) else None
        if agent is None and self._lambda_first:
            agent = self._in_time(request, now, view.near_own)
            if agent is None and self._calls_in_time(request, now):
                return
        agent = agent or self._share_or_own(request, now)
        if agent is None:
            self.bounced(request, now)
        else:
            agent.send(request, now, forced=False)

    def _in_time(self, request: InferenceRequest, now: float, rows: Sequence[int]) -> Agent | None:
        """The agent that a request is routed to among these, where it is expected to admit it."""
        agent = self._route(request, now, rows)
        return agent if agent is not None and self._admits(agent, request, now) else None

    def _admits(self, agent: Agent, request: InferenceRequest, now: float) -> bool:
        """True where an agent is expected to admit a request, by what is known of its queue here."""
        view, at, due_at = agent.view, request.arrived_at, request.deadline_at
        finish_at = view.finish_at(now, request.size, due_at)
        return stays(finish_at, finish_at, view.terminates_at, at, due_at, self._factor)

    def _calls_in_time(self, request: InferenceRequest, now: float) -> bool:
        """Call Lambda where it is in time; False where it was not called."""
        calls = self.overflow
        if calls is None or not self._lambda_is_in_time(request, now):
            return False
        calls.call(self, request)
        return True

    def _route(self, request: InferenceRequest, now: float, rows: Sequence[int]) -> Agent | None:
        view = self.view
        if not rows:
            return None
        if self._policy.routing is Routing.LEAST_FINISH:
            row = self._least_finish(request, now, rows)
            return None if row == NONE else self._agents[row]
        if self._policy.routing is Routing.WEIGHTED:
            row = weighted(rows, view.agents)
        else:
            row = least_outstanding(rows, view.agents)
        if row == NONE:
            return None
        agent = self._agents[row]
        finish_at = agent.view.finish_at(now, request.size, request.deadline_at)
        return agent if finish_at <= agent.view.terminates_at else None

    def _first_to_finish(self, request: InferenceRequest, now: float) -> tuple[Agent | None, float]:
        if not self._agents:
            return None, math.inf
        row = self._least_finish(request, now, self.view.rows)
        if row == NONE:
            return None, math.inf
        return self._agents[row], self._agents[row].view.finish_at(now, request.size, request.deadline_at)

    def _least_finish(self, request: InferenceRequest, now: float, rows: Sequence[int]) -> int:
        view = self.view
        if request.size != 1:
            return least_finish_of_size(now, request.size, rows, view.agents, view.profiles_s)
        if view.shared and (rows is view.rows or view.agents[rows[0]].is_shared):
            return least_finish_on_devices(now, request.deadline_at, rows, view.agents)
        return least_finish(now, rows, view.agents)

    def _lambda_takes(self, request: InferenceRequest) -> bool:
        """True where Lambda may be called for a request."""
        # Lambda's profiles are of one item: a replay with sizes has no overflow either.
        is_pinned = bool(self.accuracy_of and request.variant)  # Lambda's answers name no variant
        return request.size == 1 and not is_pinned and self._lambda_open(len(request.body))

    def _lambda_is_in_time(self, request: InferenceRequest, now: float) -> bool:
        calls = self.overflow
        return calls is not None and self._lambda_takes(request) and calls.finish_at(now) <= request.deadline_at

    def _lambda_open(self, body_bytes: int, beside: int = 0) -> bool:
        if self.overflow is None or self._policy.bounced is Bounced.NOWHERE:
            return False
        return self.overflow.takes(body_bytes, beside)

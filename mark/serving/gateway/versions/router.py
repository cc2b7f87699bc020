"""Routing among the agents of one version of a model that is not the stable one.

During a rollout the model's router hands the candidate its share of the requests, chosen by their ids, and those
that name it. What the candidate's agents do not admit goes to its version of the Lambda function, where that is in
time. The rest, and what they lose or fail, goes back to the model's router, as if it had never been here; only a
request that names the version stays. Before that it may get copies of requests (`shadow.py`), whose answers nobody
gets. Where the model has a central queue, the requests of both versions wait in it, each for an agent of its own
(`central_router.py`). A version that was replaced or aborted has a router of this kind, too: it gets no request,
and its agents answer what they have, or give it back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mark.dispatch.versions import in_share
from mark.domain.load.traffic import SERVER_ERROR
from mark.protocols.frames import Response
from mark.serving.gateway.agent import Agent
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.model_router import GONE, TIMED_OUT, ModelRouter
from mark.serving.gateway.request import InferenceRequest, Loss
from mark.serving.gateway.versions.shadow import ShadowRequest, Shadows

if TYPE_CHECKING:
    from mark.domain.models.versions import ModelVersions
    from mark.serving.gateway.lambda_overflow import LambdaCalls
    from mark.serving.gateway.telemetry.traffic_tally import Server


class VersionRouter(ModelRouter):
    """A version's agents. stable: the model's router; it counts for both."""

    def __init__(self, stable: ModelRouter, version: str) -> None:
        super().__init__(
            stable.served,
            overflow=None,
            idempotency=stable.idempotency,
            unexpected=stable.unexpected,
            tally=stable.tally,
        )
        self._stable, self.held = stable, stable.held
        self.decides_late = stable.decides_late
        self.version = version.encode()
        self._shadows: Shadows | None = None

    def begin_shadow(self, versions: ModelVersions) -> Shadows:
        """Copies for this version, by the rollout's policy."""
        assert versions.rollout is not None, "only a rollout has a shadow"
        if self._shadows is None:
            self._shadows = Shadows(
                self.version,
                self.tally.of_version(versions.candidate),
                self,
                self.unexpected,
                objective_s=self.objective_s,
            )
        self._shadows.share, self._shadows.tolerance = versions.shadow, versions.rollout.policy.tolerance
        return self._shadows

    def send_shadow(self, shadow: ShadowRequest, now: float) -> bool:
        """Send a copy to an agent that answers in time; False where there is none."""
        agent, finish_at = self._first_to_finish(shadow, now)
        if agent is None or finish_at > min(shadow.deadline_at, agent.view.terminates_at):
            return False
        agent.send_shadow(shadow, now)
        return True

    def takes(self, request: InferenceRequest) -> bool:
        """True for a request that this version is to answer: it names it, or its id is in the share.

        One that it failed comes again where the stable version loses it, or puts it back.
        """
        if request.version:
            return request.version == self.version
        if request.failed_by == self.version:
            return False
        return self.agent_count > 0 and in_share(request.request_id, self.version, self.weight)

    def set_agents(self, agents: list[Agent]) -> None:
        """Replace the agents that accept requests."""
        super().set_agents(agents)
        self._stable.candidate_changed()

    def agent_changed(self, view: AgentView) -> None:
        """Tell the model's queue, where it has one."""
        self._stable.agent_changed(view)

    def offer_here(self, request: InferenceRequest, now: float) -> None:
        """Route a request among these agents, by the model's queue where it has one.

        What it takes off shared instances comes back to them: the model's own fleet is not planned for it.
        """
        if self._stable.queues_candidate:
            self._stable.queue_for_candidate(request, now)
            return
        if self._stable.takes_share(request, now):
            self.tally.took_shared(request)
        super().offer_here(request, now)

    def answer(self, request: InferenceRequest, response: Response, by: Server, now: float) -> None:
        """Answer with a model's response, unless the stable version is to be asked in its place.

        It is where this version failed, and where its function answers after an abort, as long as the model allows
        that a request is executed twice. Its agent may have the next request.
        """
        if self._fails(request, response):
            if self.version_tally is not None:  # who answers in its place is none of its merit
                self.version_tally.failed()
            request.failed_by = self.version
            if request.trace is not None:
                request.trace.returned("failed", now)
            self.take_back(request)
            return
        if self.is_aborted and by == "lambda" and self.served.model.redispatch:
            self.take_back(request)
            return
        super().answer(request, response, by, now)
        self._stable.settle(request)

    def fail(self, request: InferenceRequest, status: int, text: str) -> None:
        """Answer with an error of the service."""
        super().fail(request, status, text)
        self._stable.settle(request)

    def bounced(self, request: InferenceRequest, now: float, *, lambda_refused: bool = False) -> None:
        """Route a request that was not admitted here: to this version's function where that is in time.

        Else to the stable version, unless the request names this one.
        """
        self._stable.settle(request)
        self.gave_back(request)
        is_late = lambda_refused or not self._lambda_is_in_time(request, now)
        if request.version == self.version or not is_late:
            super().bounced(request, now, lambda_refused=lambda_refused)
        else:
            self._stable.offer_here(request, now)

    def lost(self, request: InferenceRequest, loss: Loss | None = None, *, lambda_refused: bool = False) -> None:
        """Dispatch again a request whose agent was lost."""
        self._stable.settle(request)
        super().lost(request, loss, lambda_refused=lambda_refused)

    def offer(self, request: InferenceRequest, now: float) -> None:
        """Route a request whose agent was lost: one that may have ended it to the stable version.

        Its tries are few, and a version that ends with each request costs none then.
        """
        if request.version == self.version:
            if self._stable.candidate is self:
                self._stable.offer(request, now)
            else:
                self.fail(request, 503, GONE)
        elif request.losses:
            self._stable.offer_here(request, now)
        else:
            self._stable.offer(request, now)

    def _fails(self, request: InferenceRequest, response: Response) -> bool:
        """True where an answer is an error of this version's alone, as far as anybody knows, and there is time."""
        is_error = response.status >= SERVER_ERROR and response.status != TIMED_OUT
        return is_error and self.served.model.redispatch and request.version != self.version

    def take_back(self, request: InferenceRequest) -> None:
        """Answer a request of an aborted version elsewhere."""
        self._stable.settle(request)
        self.gave_back(request)
        if request.version == self.version:
            self.fail(request, 503, GONE)
        else:
            self._stable.offer_here(request, time.monotonic())


class VersionRouters:
    """The routers of a model's versions: the model's own for the stable one, others as they come."""

    def __init__(self, stable: ModelRouter) -> None:
        self.stable = stable
        self._others: dict[str, VersionRouter] = {}
        self._versions: ModelVersions | None = None
        self._function = stable.overflow
        self._calls: dict[tuple[str, str], LambdaCalls] = {}

    def take(self, versions: ModelVersions) -> None:
        """Route by these versions from now on."""
        before, self._versions, stable = self._versions, versions, self.stable
        stable.version = versions.stable.encode()
        stable.overflow = self._calls_of(versions.stable) or stable.overflow
        for name, other in self._others.items():
            self._note_abort(other, name, "" if before is None else before.candidate)
        stable.candidate = stable.version_tally = stable.shadows = None
        if versions.candidate:
            candidate = self._other(versions.candidate)
            candidate.weight = versions.weight
            candidate.overflow = self._calls_of(versions.candidate)
            stable.candidate = candidate
            stable.version_tally = stable.tally.of_version(versions.stable)
            candidate.version_tally = stable.tally.of_version(versions.candidate)
            if versions.shadow:
                stable.shadows = candidate.begin_shadow(versions)

    def _note_abort(self, other: VersionRouter, name: str, last: str) -> None:
        """Keep no answer of a version once it is aborted. last: the candidate until now.

        A candidate in whose place another came was aborted where this gateway did not see it.
        """
        versions = self._versions
        assert versions is not None
        rollout = versions.rollout
        is_unseen = name == last and rollout is not None and rollout.candidate != name
        was, is_gone = other.is_aborted, versions.is_retired(name)
        other.is_aborted = is_gone and (was or is_unseen or versions.is_aborted(name))
        if other.is_aborted and not was:
            self.stable.idempotency.forget_version(name.encode())

    def of(self, version: str) -> ModelRouter:
        """The router of an agent of that version."""
        if self._versions is None or self._versions.is_stable(version):
            return self.stable
        return self._other(version)

    @property
    def all(self) -> tuple[ModelRouter, ...]:
        """Every router, the model's own first."""
        return (self.stable, *self._others.values())

    def _calls_of(self, version: str) -> LambdaCalls | None:
        """Calls of the function that answers as a version; None where functions know no versions."""
        served, versions = self.stable.served, self._versions
        if self._function is None or versions is None or not served.function_versions or not version:
            return None
        function = versions.function_of(version, served.function)
        if (version, function) not in self._calls:
            self._calls[version, function] = self._function.of_version(version, function)
        return self._calls[version, function]

    def _other(self, version: str) -> VersionRouter:
        if version not in self._others:
            self._others[version] = VersionRouter(self.stable, version)
        return self._others[version]

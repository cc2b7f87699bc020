"""Routing among the agents of one version of a model that is not the stable one.

During a rollout the model's router hands the candidate its share of the requests, chosen by their ids, and those
that name it. What the candidate's agents do not admit, or lose, goes back to the model's router, as if it had
never been here; only a request that names the version stays. A version that was replaced or aborted has a router
of this kind, too: it gets no request, and its agents answer what they have, or give it back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mark.dispatch.versions import in_share
from mark.serving.gateway.model_router import ModelRouter
from mark.serving.gateway.request import InferenceRequest

if TYPE_CHECKING:
    from mark.domain.versions import ModelVersions

GONE = "the version that the path names was aborted or replaced"


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
        self._stable = stable
        self.version = version.encode()
        self.weight = 0.0

    def takes(self, request: InferenceRequest) -> bool:
        """True for a request that this version is to answer: it names it, or its id is in the share."""
        if request.version:
            return request.version == self.version
        return self.agent_count > 0 and in_share(request.request_id, self.version, self.weight)

    def bounced(self, request: InferenceRequest, now: float, *, lambda_refused: bool = False) -> None:
        """Route a request that was not admitted here: to the stable version, unless it names this one."""
        if request.version == self.version:
            super().bounced(request, now, lambda_refused=lambda_refused)
        else:
            self._stable.offer_here(request, now)

    def offer(self, request: InferenceRequest, now: float) -> None:
        """Route a request whose agent was lost, as the model's router does: to a version that takes it now."""
        if self._stable.candidate is not self and request.version == self.version:
            self.fail(request, 503, GONE)
        else:
            self._stable.offer(request, now)

    def take_back(self, request: InferenceRequest) -> None:
        """Answer a request of an aborted version elsewhere."""
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

    def take(self, versions: ModelVersions) -> None:
        """Route by these versions from now on."""
        self._versions, stable = versions, self.stable
        stable.version = versions.stable.encode()
        stable.candidate = stable.version_tally = None
        if versions.candidate:
            candidate = self._other(versions.candidate)
            candidate.weight = versions.weight
            stable.candidate = candidate
            stable.version_tally = stable.tally.of_version(versions.stable)
            candidate.version_tally = stable.tally.of_version(versions.candidate)

    def of(self, version: str) -> ModelRouter:
        """The router of an agent of that version."""
        if self._versions is None or self._versions.is_stable(version):
            return self.stable
        return self._other(version)

    @property
    def all(self) -> tuple[ModelRouter, ...]:
        """Every router, the model's own first."""
        return (self.stable, *self._others.values())

    def _other(self, version: str) -> VersionRouter:
        if version not in self._others:
            self._others[version] = VersionRouter(self.stable, version)
        return self._others[version]

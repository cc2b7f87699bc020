"""The device of an instance that several models share, as one gateway sees it.

A tenant's agent answers for its own queue alone. What neighbours have before a request stands in the views of
their agents, and in what this gateway has sent to them. So a request goes to the instance that is free. The rules
are those of the instance (`dispatch/instance/device.py`), which alone knows how times vary, and when requests of
other gateways are due. Requests of several items are sent without a look at neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from mark.dispatch.instance.device import ENDLESS, keeps_promises, likely_finish_at, shared_finish_at
from mark.dispatch.routing import NONE, OVERDUE_SHARE
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.request import InferenceRequest

OVERDUE_BATCHES = 2.0
"""A batch that ends no sooner than so many of the longest hangs: neighbours run beside it (`agent/device.py`)."""


def least_finish_on_devices(now: float, due_at: float, rows: Sequence[int], views: Sequence[AgentView]) -> int:
    """`routing.least_finish` where some of the instances are shared."""
    best, best_at = NONE, math.inf
    for row in rows:
        view = views[row]
        at = view.finish_at(now, 1, due_at)
        if view.device is not None:
            at += view.device.overdue_s(now)
        elif view.in_service > 0 and view.free_at < now:
            at += OVERDUE_SHARE * view.full_batch_s
        if at < best_at and at <= view.terminates_at:
            best, best_at = row, at
    return best


class Tenant(Protocol):
    """The connection to one tenant's agent."""

    view: AgentView
    in_flight: dict[int, InferenceRequest]


class SharedDevice:
    """Tenants of one instance that this gateway is connected to."""

    def __init__(self) -> None:
        self._views: list[AgentView] = []
        self._rings: list[_Deadlines] = []
        self._tenants: list[Tenant] = []

    def join(self, tenant: Tenant) -> None:
        """Count what it has."""
        self._set([*self._tenants, tenant])
        tenant.view.device = self

    def leave(self, tenant: Tenant) -> bool:
        """Count it no more. Returns True where it was the last one."""
        self._set([other for other in self._tenants if other is not tenant])
        tenant.view.device = None
        return not self._tenants

    def finish_at(self, view: AgentView, now: float, due_at: float) -> float:
        """The expected finish of a request, due at `due_at`, that this tenant gets now."""
        views, working = self._views, self._working(now)
        row = views.index(view)
        if not working or working == [row] or (row not in working and view.in_service):
            return view.alone_finish_at(now)
        return shared_finish_at(now, row, due_at, working, views, self._rings)

    def harms_nobody(self, view: AgentView, now: float, due_at: float) -> bool:
        """True where a request, due at `due_at`, that this tenant gets now is expected to make no other late.

        False where other gateways' requests wait at a neighbour: when these are due is not known here.
        """
        row, working = self._views.index(view), self._working(now)
        if any(self._rings[other].unknown > self._views[other].in_service for other in working if other != row):
            return False
        return keeps_promises(now, row, due_at, working, self._views, self._rings, 0.0)

    def likely_finish_at(self, view: AgentView, now: float, due_at: float) -> float:
        """The same as `finish_at`, if no batch gets fuller than it is."""
        row, working = self._views.index(view), self._working(now)
        if row not in working and view.in_service:
            return view.alone_finish_at(now)
        return likely_finish_at(now, row, due_at, working, self._views, self._rings)

    def overdue_s(self, now: float) -> float:
        """Seconds that what is in service is expected to take beyond what it should have."""
        overdue = (view.full_batch_s for view in self._views if view.in_service and view.free_at < now)
        return OVERDUE_SHARE * sum(overdue)

    def is_busy(self, now: float) -> bool:
        """True while a tenant has something to do."""
        return any(_works(view, now) for view in self._views)

    def _working(self, now: float) -> list[int]:
        """Tenants that have something to do; of those whose batch seems to run, the one that ends last first.

        Until an agent says that its neighbour's batch runs, its own seems to.
        """
        working = [row for row, one in enumerate(self._views) if _works(one, now)]
        working.sort(key=lambda row: -self._views[row].free_at)
        return working

    def _set(self, tenants: list[Tenant]) -> None:
        self._tenants = tenants
        self._views = [tenant.view for tenant in tenants]
        self._rings = [_Deadlines(tenant) for tenant in tenants]


def _works(view: AgentView, now: float) -> bool:
    """True where a tenant has something to do, and its batch does not hang."""
    if not view.in_service and not view.waiting:
        return False
    batches_s = (view.free_at - now) / OVERDUE_BATCHES
    return batches_s <= view.full_batch_s or batches_s <= view.alone_s(len(view.profile_s) - 1)


class _Deadlines:
    """Deadlines of a tenant's requests by place, those in service first.

    Of other gateways' requests nothing is known: they come first, and are due at once.
    """

    __slots__ = ("_tenant",)

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, place: int) -> float:
        """Deadline of the request at this place; infinite beyond the last."""
        place -= self.unknown
        if place < 0:
            return 0.0
        sent = self._tenant.in_flight.values()
        return next((request.deadline_at for request in islice(sent, place, None)), math.inf)

    @property
    def unknown(self) -> int:
        """Requests of other gateways."""
        view = self._tenant.view
        return max(0, view.in_service + view.waiting - len(self._tenant.in_flight))

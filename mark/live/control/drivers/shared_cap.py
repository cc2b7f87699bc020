"""A service's cap in the running service: the division of a replay, for drivers that each have a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from mark.config.settings import Settings
from mark.controller.hosts.sharing import Sharer, within_cap
from mark.controller.limits.service_cap import CapDivider, Divide, used_by
from mark.domain.demand import Demand
from mark.domain.fleet.instances import FleetView
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Plan, PlanRequest
from mark.planner.shared.packing import Packing


class SharedCap:
    """The cap that all models of a service plan under."""

    def __init__(self, divider: CapDivider) -> None:
        self._divider, self._lock = divider, Lock()

    def divide(self, model: str) -> Divide:
        """What becomes of a model's plans."""

        def divided(request: PlanRequest, plan: Plan) -> Plan:
            with self._lock:
                return self._divider.divide(model, request, plan)

        return divided

    def within(
        self,
        packing: Packing,
        sharers: Sequence[Sharer],
        histories: Sequence[Demand],
        fleet: FleetView,
        offerings: Mapping[str, Offering],
    ) -> Packing:
        """What the cap leaves of a decision on shared instances. fleet: those that there are."""
        with self._lock:
            return within_cap(packing, sharers, histories, self._divider, used_by(fleet, offerings))

    @property
    def shared_count(self) -> float:
        """Shared instances that there may be; infinite while everything fits."""
        with self._lock:
            return self._divider.shared_count


def shared_cap(settings: Settings) -> SharedCap | None:
    """The cap that the settings put on all models; None where they put none."""
    cap, weights = settings.service.aws.cap, {one.model: one.weight for one in settings.service.serve}
    return SharedCap(CapDivider(cap, weights)) if cap else None

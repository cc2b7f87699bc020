"""A service's cap in a replay: its division among the models, and the guardrail of all their clouds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mark.cloudmodel.world import World
from mark.controller.limits.service_cap import CapDivider, used_by
from mark.domain.offerings.offering import Offering
from mark.domain.plans.service_cap import NOTHING, ServiceCap, Takes, takes_of
from mark.simulator.cloud import SimulatedCloud


class CappedService:
    """The cap of a service, with the clouds that rent under it. weights: of its models, by name."""

    def __init__(self, cap: ServiceCap, weights: Mapping[str, float]) -> None:
        self.divider = CapDivider(cap, weights)
        self._clouds: list[tuple[SimulatedCloud, Mapping[str, Offering]]] = []

    def watch(self, cloud: SimulatedCloud, offerings: Mapping[str, Offering]) -> None:
        """Limit a cloud, and count what it rents of these offerings."""
        cloud.room = self.room
        self._clouds.append((cloud, offerings))

    def room(self, offerings: Sequence[Offering], count: int) -> int:
        """Of so many instances, each of one of these offerings, those that fit beside all that there is."""
        taken, one = NOTHING, NOTHING
        for cloud, known in self._clouds:
            taken = taken.plus(used_by(cloud.observe(), known))
        for offering in offerings:
            one = one.largest(takes_of(offering))
        return self.divider.cap.fitting(one, count, taken)

    def taken(self, cloud: SimulatedCloud) -> Takes:
        """What one of the clouds rents."""
        return next(used_by(one.observe(), known) for one, known in self._clouds if one is cloud)


def capped(world: World, weights: Mapping[str, float]) -> CappedService | None:
    """The cap of a world; None where it has none."""
    return CappedService(world.cap, weights) if world.cap else None

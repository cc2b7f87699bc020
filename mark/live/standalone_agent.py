"""An agent by itself: it serves one model on an instance that belongs to no fleet, until that expires.

It announces itself to nobody, so nothing is sent to it but what `mark profile --on` sends to its own HTTP port;
and it takes everything, whatever the objective.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from mark.aws.ec2.tags import EXPIRES, OFFERING, PROFILE_OF
from mark.domain.clock import ClockAnchor
from mark.domain.fleet.member import Member
from mark.domain.models.profile import Evidence, LatencyPoint, Profile, Provenance
from mark.domain.offerings.offering import BatchPolicy, Market, Offering
from mark.ports import AgentLink
from mark.service_spec import ServedModel

LARGEST = 256
"""Batches that are measured are no larger."""


def is_standalone(tags: Mapping[str, str]) -> bool:
    """True where the instance is rented to be measured."""
    return PROFILE_OF in tags


def standalone_model(served: ServedModel) -> ServedModel:
    """The model, admitting everything; one with variants answers with the most accurate."""
    return replace(served, dispatch=replace(served.dispatch, admission_factor=None), variant_serving=None)


def standalone_offering(served: ServedModel, tags: Mapping[str, str]) -> Offering:
    """The instance as an offering without measured times."""
    from mark.catalog.load import load_prices  # noqa: PLC0415 - 10 MiB that agents of a fleet do not need

    item = load_prices().instance_type(tags[OFFERING].partition(":")[0])
    unknown = Provenance(
        evidence=Evidence.ASSUMED, source="not measured yet", formula="a second whatever the batch"
    )
    points = (LatencyPoint(batch=1, latency_s=1.0), LatencyPoint(batch=LARGEST, latency_s=1.0))
    profile = Profile(model=served.name, instance_type=item.name, points=points, provenance=unknown)
    return Offering(
        instance_type=item,
        market=Market.ON_DEMAND,
        usd_per_hour=item.on_demand_usd_per_hour,
        profile=profile,
        batch=BatchPolicy(max_batch=LARGEST, max_wait_s=0.0),
        capacity_rps=1.0,
        boot_s=0.0,
        launch_usd=0.0,
    )


class StandaloneLink(AgentLink):
    """Tells nobody that the agent is there, and asks it to leave when its time is over."""

    def __init__(self, link: AgentLink, tags: Mapping[str, str]) -> None:
        self._link = link
        self._expires_at = float(tags[EXPIRES])

    async def announce(self, member: Member) -> bool:  # noqa: ARG002 - the port's signature
        """Answer of the link: whether to drain, and then to power off."""
        return time.time() >= self._expires_at

    async def leave(self, name: str) -> None:
        """Nobody knows of it."""

    async def host(self, instance: str) -> None:
        """It has one model."""

    async def clock(self) -> ClockAnchor:
        """The service's clock."""
        return await self._link.clock()

    async def acted_at(self) -> float | None:
        """The last sign of a controller that acts."""
        return await self._link.acted_at()

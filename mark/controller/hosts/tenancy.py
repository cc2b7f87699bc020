"""Tenancy: what a decision about shared instances means for each of its models, in shares and waits.

A model on several instances fills them in their order, as the planner does. Waits are those behind one batch: a
device runs one at a time, and admits no request that would be late behind all that is due before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mark.controller.hosts.sharing import (
    BLOCK_UNITS,
    Sharer,
    expected_rates,
    memory_gib,
    share_rps,
    shared_offerings,
    usd_per_hour_alone,
)
from mark.domain.demand import Demand
from mark.domain.fleet.placement import Host, Tenant
from mark.domain.offerings.offering import Offering
from mark.planner.shared.packing import Packing


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUse:
    """One model on a shared instance."""

    model: str
    #: Planned for it there, requests/s.
    capacity_rps: float
    #: Share of the device's time that its load takes, in the mean over the hours that the decision is for.
    busy: float
    #: The same in its own busiest minutes (BLOCK_UNITS).
    busy_peak: float
    #: What it pays of the rent, by that share, USD an hour.
    usd_per_hour: float
    memory_gib: float
    #: Its longest batch there, seconds.
    batch_s: float
    #: The longest batch of a neighbour, behind which a request may have to wait, seconds.
    wait_s: float
    #: Load that it may take there, requests/s; 0 in journals that do not say.
    share_rps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """One shared instance. name: that of one that is there, empty for one to launch."""

    offering: str
    name: str
    usd_per_hour: float
    #: For models.
    memory_gib: float
    #: Busy share of the busiest minutes (BLOCK_UNITS).
    busy_peak: float
    tenants: tuple[TenantUse, ...]

    @property
    def busy(self) -> float:
        """Share of the device's time that is taken, in the mean."""
        return sum(tenant.busy for tenant in self.tenants)

    @property
    def busy_if_together(self) -> float:
        """Busy share if all tenants had their busiest minutes at once."""
        return sum(tenant.busy_peak for tenant in self.tenants)

    @property
    def memory_used_gib(self) -> float:
        """Memory of all tenants."""
        return sum(tenant.memory_gib for tenant in self.tenants)

    @property
    def placed(self) -> tuple[Tenant, ...]:
        """Its tenants as they are placed."""
        return tuple(Tenant(model=one.model, capacity_rps=one.capacity_rps) for one in self.tenants)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLoad:
    """One model's load as the decision expects it."""

    model: str
    mean_rps: float
    #: In its busiest minutes (BLOCK_UNITS), and when those begin, epoch seconds.
    peak_rps: float
    peak_at: float
    #: What it costs where it shares nothing, by instances of its own, Lambda, or both.
    usd_per_hour_alone: float


def expected_loads(
    sharers: Sequence[Sharer], histories: Sequence[Demand], *, now: float
) -> tuple[ExpectedLoad, ...]:
    """The loads that a decision of now expects, in the models' order."""
    found = []
    for sharer, history in zip(sharers, histories, strict=True):
        rates = expected_rates(sharer, history)
        busiest = int(np.argmax(rates)) if rates.size else 0
        found.append(
            ExpectedLoad(
                model=sharer.model.name,
                mean_rps=float(rates.mean()) if rates.size else 0.0,
                peak_rps=float(rates.max(initial=0.0)),
                peak_at=now + busiest * BLOCK_UNITS * history.unit_s,
                usd_per_hour_alone=usd_per_hour_alone(sharer, rates) if rates.any() else 0.0,
            )
        )
    return tuple(found)


def host_uses(packing: Packing, sharers: Sequence[Sharer], histories: Sequence[Demand]) -> tuple[HostUse, ...]:
    """The use of each shared instance by the load that the decision expects."""
    models = {sharer.model.name: sharer for sharer in sharers}
    rates = {
        sharer.model.name: expected_rates(sharer, history)
        for sharer, history in zip(sharers, histories, strict=True)
    }
    parts = {sharer.model.name: {item.name: item for item in shared_offerings(sharer)} for sharer in sharers}
    filled = dict.fromkeys(models, 0.0)
    found = []
    for host in packing.hosts:
        offerings = [parts[tenant.model][host.offering] for tenant in host.tenants]
        busy = []
        for tenant, offering in zip(host.tenants, offerings, strict=True):
            above = np.clip(rates[tenant.model] - filled[tenant.model], 0.0, tenant.capacity_rps)
            busy.append(above / offering.capacity_rps)
            filled[tenant.model] += tenant.capacity_rps
        found.append(_host_use(host, [models[tenant.model] for tenant in host.tenants], offerings, busy))
    return tuple(found)


def _host_use(
    host: Host, sharers: Sequence[Sharer], offerings: Sequence[Offering], busy: Sequence[np.ndarray]
) -> HostUse:
    """busy: share of the device's time that each tenant takes, by block."""
    means = [float(shares.mean()) if shares.size else 0.0 for shares in busy]
    total = sum(means)
    rent = offerings[0].usd_per_hour
    batches = [offering.latency_s for offering in offerings]
    known = {sharer.model.name: sharer for sharer in sharers}
    tenants = tuple(
        TenantUse(
            model=tenant.model,
            capacity_rps=tenant.capacity_rps,
            busy=means[n],
            busy_peak=float(busy[n].max(initial=0.0)),
            usd_per_hour=rent * (means[n] / total if total > 0.0 else 1.0 / len(means)),
            memory_gib=sharers[n].model.memory_gib,
            batch_s=batches[n],
            wait_s=max((batches[m] for m in range(len(batches)) if m != n), default=0.0),
            share_rps=share_rps(tenant.model, host.tenants, known),
        )
        for n, tenant in enumerate(host.tenants)
    )
    return HostUse(
        offering=host.offering,
        name=host.name,
        usd_per_hour=rent,
        memory_gib=memory_gib(offerings[0].instance_type),
        busy_peak=float(np.sum(busy, axis=0).max(initial=0.0)),
        tenants=tenants,
    )

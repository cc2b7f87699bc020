"""Orders of a decision about shared instances: what must change so that tenants are where it wants them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from mark.controller.hosts.tenancy import ExpectedLoad, HostUse, TenantUse
from mark.domain.figures import figure, plural, share_words
from mark.domain.fleet.placement import Evict, Place, Placement, Tenant


def launch_reason(host: HostUse) -> str:
    """Why an instance is rented."""
    return (
        f"{plural(len(host.tenants), 'model')} on it: busy {share_words(host.busy)} in the mean, "
        f"{share_words(host.busy_peak)} at most, {share_words(host.busy_if_together)} if their peaks met"
    )


def tenant_orders(
    before: Placement, hosts: Sequence[HostUse], loads: Sequence[ExpectedLoad], *, tokens: Iterator[str]
) -> Iterator[Place | Evict]:
    """Orders that give these hosts, which have names, their tenants. Instances of no host keep theirs."""
    wanted = {host.name: host.placed for host in hosts}
    alone = {load.model: load.usd_per_hour_alone for load in loads}
    for host in hosts:
        there = {tenant.model: tenant for tenant in before.get(host.name, ())}
        for model in sorted(there.keys() - {tenant.model for tenant in host.tenants}):
            reason = _evict_reason(model, before, wanted, alone)
            yield Evict(token=next(tokens), reason=reason, instance=host.name, model=model)
        for tenant, use in zip(host.placed, host.tenants, strict=True):
            if there.get(tenant.model) == tenant:
                continue
            reason = _place_reason(use, there.get(tenant.model), _left(tenant.model, before, wanted), alone)
            yield Place(token=next(tokens), reason=reason, instance=host.name, tenant=tenant)


def eviction_orders(before: Placement, instances: Collection[str], *, tokens: Iterator[str]) -> Iterator[Evict]:
    """Orders that empty these instances, which are to be drained."""
    for name in instances:
        for tenant in before.get(name, ()):
            yield Evict(token=next(tokens), reason="the instance is given up", instance=name, model=tenant.model)


def _evict_reason(model: str, before: Placement, wanted: Placement, alone: Mapping[str, float]) -> str:
    if moved_to := _left(model, wanted, before):
        return f"moves to {', '.join(sorted(moved_to))}"
    if kept := _places(model, wanted):
        return f"stays on {', '.join(sorted(kept))} only"
    return f"shares no longer; {_apart(model, alone)}"


def _place_reason(use: TenantUse, before: Tenant | None, left: Collection[str], alone: Mapping[str, float]) -> str:
    planned = f"{figure(use.capacity_rps, digits=3)} requests/s"
    if before is not None:
        return f"{planned} instead of {figure(before.capacity_rps, digits=3)}"
    moved = f"moves from {', '.join(sorted(left))}; " if left else ""
    pays = f"{figure(use.usd_per_hour, digits=3)} USD/h of the rent"
    return f"{moved}{planned}, {pays}; {_apart(use.model, alone)}"


def _apart(model: str, alone: Mapping[str, float]) -> str:
    return f"all of it takes {figure(alone.get(model, 0.0), digits=3)} USD/h without sharing"


def _places(model: str, placement: Placement) -> set[str]:
    """Instances that are to hold a model."""
    return {name for name, tenants in placement.items() if any(one.model == model for one in tenants)}


def _left(model: str, before: Placement, after: Placement) -> set[str]:
    """Instances that hold a model in one placement and do not in the other."""
    return _places(model, before) - _places(model, after)

"""Sharing: the gain of each model of a service by shared instances, from its load to the planner's words.

A model is expected to have the load that it had a day before, for the hours that a decision is for; a model that
is younger, what it had in its last hours. Capacity up to a level saves its part of what the model costs without
sharing, by instances of its own, Lambda, or both (`planner/shared/mixed_cost.py`). Who shares gets smaller batches
than on an instance of its own, because a neighbour waits for them.

A model that Lambda cannot answer in time has nobody to answer what shared instances do not: it shares on-demand
instances only, and is expected to have more load where the last hour had more than that of a day before. Capacity
for a part of its load saves little, because a fleet of its own must then serve the rest.

An instance that would hold one model alone is not shared: that model's own plan rents it, or something better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.controller.limits.quotas import QuotaLimits
from mark.controller.limits.service_cap import CapDivider
from mark.domain.commitments.applied import apply
from mark.domain.commitments.eligible import running_hour
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import Demand
from mark.domain.fleet.placement import Host, Tenant
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.offerings.offering import InstanceType, LambdaOffering, Market, Offering, as_tenant
from mark.domain.plans.service_cap import Takes, takes_of
from mark.planner.shared.cap_division import CapStep
from mark.planner.shared.mixed_cost import mixed_usd_per_hour
from mark.planner.shared.packing import Covered, Fit, HostType, Need, Packing, none_covered, pack

PACK_EVERY_S = 3600.0
"""Sharing is decided anew so often, and when a shared instance is lost."""
PLAN_HOURS = 3.0
"""A decision is for so many hours: some more than until the next, so that launches pay."""
DAY_UNITS = 1440
HISTORY_UNITS = DAY_UNITS + 60
"""Minutes that a decision looks back: the last hour is compared with that of a day before."""
BLOCK_UNITS = 5
"""Loads are compared in blocks of so many minutes: tenants' peaks of minutes are what waits are for."""
MOST_BUSY = 0.6
"""Share of a shared device's time that is given away: the rest keeps waits short."""
MOST_BUSY_BACKED = 0.8
"""The same on demand where Lambda answers for all tenants: idle time is dear there, and a wait is one call."""
OWN_BUSY = 0.7
"""The same of a fleet of the model's own without Lambda, as far as its cost is guessed here."""
BATCH_SHARE = 0.25
"""Of the objective: a batch on a shared device takes no longer, so that neighbours find room behind it."""
LOAD_S = 30.0
"""Loading a model on an instance that runs."""
RESERVED_GIB = 1.0
"""Memory of an instance that its system and the agent keep."""
LEVELS = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharer:
    """One model that may share instances, with what it could rent alone."""

    model: ModelSpec
    slo: Slo
    offerings: tuple[Offering, ...]
    #: None without Lambda.
    overflow: LambdaOffering | None
    #: With whom it shares: models of the same team.
    team: str = ""
    #: It shares with no other model.
    alone: bool = False
    #: What a request costs that an instance in another zone answers than it came in, USD.
    crossing_usd: float = 0.0

    @property
    def has_backup(self) -> bool:
        """Lambda answers in time what shared instances do not admit."""
        return self.overflow is not None and self.overflow.is_backup(self.slo.latency_s)

    @property
    def most_busy(self) -> float:
        """Share of the time of a device with it that is given away."""
        is_dear = all(item.market is Market.ON_DEMAND for item in self.offerings)
        return MOST_BUSY_BACKED if is_dear and self.has_backup else MOST_BUSY

    def may_use(self, offering: Offering) -> bool:
        """True where it may share such an instance: it fits, and what happens when that is lost is covered.

        Requests of unlike sizes have no time that neighbours could be told. By what it sustains, a type with CPU
        credits costs more than one without (docs/decisions/0044-shared-instances.md).
        """
        kind = offering.instance_type
        is_even = kind.credits is None and self.model.sizes is None
        fits = is_even and self.model.memory_gib <= memory_gib(kind)
        return fits and not self.alone and (self.has_backup or offering.market is Market.ON_DEMAND)


def shared_offering(offering: Offering, slo: Slo) -> Offering | None:
    """A model's part of a shared instance, as one replica: a device runs one batch at a time.

    None where nobody measured one replica, or where its smallest batch takes too long for a neighbour.
    """
    profile, most_s = offering.profile.of_one_replica, BATCH_SHARE * slo.latency_s
    if profile is None:
        return None
    batch = min(offering.batch.max_batch, profile.max_batch)
    while batch > 1 and profile.latency_s(batch) > most_s:
        batch -= 1
    if 2.0 * profile.latency_s(batch) > slo.latency_s:
        return None
    return as_tenant(offering, batch)


def shared_offerings(sharer: Sharer) -> tuple[Offering, ...]:
    """The same of all shared instances that it may use."""
    found = [shared_offering(item, sharer.slo) for item in sharer.offerings if sharer.may_use(item)]
    return tuple(item for item in found if item is not None)


def need_of(sharer: Sharer, history: Demand) -> Need:
    """The model's need of shared capacity, by the load that it is expected to have."""
    rates = expected_rates(sharer, history)
    levels = np.linspace(0.0, rates.max(initial=0.0) or 1.0, LEVELS)
    shared = shared_offerings(sharer)
    return Need(
        model=sharer.model.name,
        slo=sharer.slo,
        memory_gib=sharer.model.memory_gib,
        levels=levels,
        saved_usd_per_hour=saved_usd_per_hour(sharer, rates, levels),
        load_rps=rates,
        fits=tuple(
            Fit(offering=item.name, capacity_rps=item.capacity_rps, full_batch_s=item.latency_s) for item in shared
        ),
        most_busy=sharer.most_busy,
        team=sharer.team,
        alone=sharer.alone,
        load_usd=min((LOAD_S / 3600.0 * item.usd_per_hour for item in shared), default=0.0),
    )


def in_blocks(rates: np.ndarray) -> np.ndarray:
    """Mean rates of each BLOCK_UNITS; what is over at the end is left out, unless nothing else is there."""
    whole = rates[: rates.size - rates.size % BLOCK_UNITS]
    return whole.reshape(-1, BLOCK_UNITS).mean(axis=1) if whole.size else rates


def share_rps(model: str, tenants: Sequence[Tenant], sharers: Mapping[str, Sharer]) -> float:
    """Load that a model may take on an instance that these tenants fill, requests/s."""
    most_busy = min((sharers[one.model].most_busy for one in tenants if one.model in sharers), default=1.0)
    return sum(one.capacity_rps for one in tenants if one.model == model) / most_busy


def taken_rps(history: Demand, planned_rps: float) -> float:
    """Part of the last minute's load that shared instances which take so much would have taken, requests/s."""
    return min(planned_rps, history.mean_rps[-1]) if len(history) else 0.0


def own_history(history: Demand, planned_rps: float) -> Demand:
    """The part of a load that is left for the model's own fleet where shared instances are to take so much.

    Where they carry all that is expected now, they are taken to have carried all that came before, at each hour
    with the capacity that its own decision would have given. A later decision is about all of it (`Demand.whole`).
    """
    rates = in_blocks(np.array(expected_load(history).mean_rps, np.float64))
    taken_rps = math.inf if rates.max(initial=0.0) <= planned_rps else planned_rps
    return replace(
        history,
        mean_rps=tuple(max(0.0, rate - taken_rps) for rate in history.mean_rps),
        max_rps=tuple(max(0.0, rate - taken_rps) for rate in history.max_rps),
        shared_rps=tuple(min(rate, taken_rps) for rate in history.mean_rps) if taken_rps else (),
    )


def expected_load(history: Demand, *, rising: bool = False) -> Demand:
    """The load of the hours to come: that of a day before, or of the last hours where less than a day is known.

    rising: it is as many times more as the last hour had more than the same hour of the day before.
    """
    units = round(PLAN_HOURS * 3600.0 / history.unit_s)
    last = history.last(HISTORY_UNITS)
    if len(last) < DAY_UNITS:
        return history.last(units)
    before = len(last) - DAY_UNITS
    now_rps, then_rps = (sum(part) for part in (last.mean_rps[-before:], last.mean_rps[:before]))
    more = max(1.0, now_rps / then_rps) if rising and before and then_rps > 0 else 1.0
    mean_rps, max_rps = (rates[before : before + units] for rates in (last.mean_rps, last.max_rps))
    return replace(
        last, mean_rps=tuple(more * rate for rate in mean_rps), max_rps=tuple(more * rate for rate in max_rps)
    )


def expected_rates(sharer: Sharer, history: Demand) -> np.ndarray:
    """The mean rate of each block that a decision on this model expects, requests/s."""
    expected = expected_load(history, rising=not sharer.has_backup)
    return in_blocks(np.array(expected.mean_rps, np.float64))


def saved_usd_per_hour(sharer: Sharer, rates: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Savings of capacity up to each level, shape of `levels`. rates: the load in each block, requests/s."""
    alone = usd_per_hour_alone(sharer, rates)
    if not rates.any():  # whom Lambda does not answer rents an instance all the same
        return np.where(levels > 0.0, 0.0 if sharer.has_backup else alone, 0.0)
    if not sharer.has_backup:
        rests = [np.maximum(rates - level, 0.0) for level in levels]
        left = np.array([usd_per_hour_alone(sharer, rest) if rest.any() else 0.0 for rest in rests])
        return np.maximum.accumulate(np.maximum(0.0, alone - left))
    carried = np.minimum(rates[None, :], levels[:, None]).mean(axis=1)
    saved: np.ndarray = carried * alone / rates.mean()
    return saved


def usd_per_hour_alone(sharer: Sharer, rates: np.ndarray) -> float:
    """Cost of serving these rates without sharing, USD an hour: by instances, by Lambda, or by both.

    rates: requests/s by block.
    """
    if not len(rates):
        return 0.0
    usual_rps = float(np.quantile(rates, sharer.slo.target))
    found = [
        max(1, math.ceil(usual_rps / (OWN_BUSY * item.capacity_rps))) * item.usd_per_hour
        for item in sharer.offerings
    ]
    if sharer.overflow is not None and sharer.has_backup:
        usd = sharer.overflow.usd_per_warm_request
        found.append(mixed_usd_per_hour(sharer.offerings, sharer.slo, rates, usd))
    return min(found, default=0.0)


def host_types(sharers: Iterable[Sharer], refused: Iterable[str] = ()) -> tuple[HostType, ...]:
    """Instances that several models could share."""
    found: dict[str, list[Offering]] = {}
    for sharer in sharers:
        for item in shared_offerings(sharer):
            found.setdefault(item.name, []).append(item)
    barred = frozenset(refused)
    return tuple(
        HostType(
            offering=name,
            usd_per_hour=items[0].usd_per_hour,
            launch_usd=math.inf if name in barred else max(item.launch_usd for item in items),
            memory_gib=memory_gib(items[0].instance_type),
        )
        for name, items in sorted(found.items())
        if len(items) > 1
    )


def covered_rents(owned: Commitments, types: Sequence[HostType]) -> Covered:
    """The part of the rents of so many of these instances that commitments pay: they cost the same unused."""
    prices = {item.offering: item.usd_per_hour for item in types}

    def covered(counts: Mapping[str, int]) -> float:
        return apply(
            owned, running_hour((name, prices[name]) for name, count in counts.items() for _ in range(count))
        ).covered_usd

    return covered if owned else none_covered


def memory_gib(item: InstanceType) -> float:
    """Memory for models: that of its accelerator, 0 where nobody knows it, else what the system leaves, GiB."""
    if item.accelerator:
        return item.accelerator_memory_gib or 0.0
    return max(0.0, item.memory_gib - RESERVED_GIB)


def share_instances(
    sharers: Sequence[Sharer],
    histories: Sequence[Demand],
    *,
    there: Sequence[Host] = (),
    refused: Iterable[str] = (),
    owned: Commitments = NO_COMMITMENTS,
) -> Packing:
    """Which models share which instances now.

    histories: the load of each. there: shared instances that exist. owned: commitments that shared instances may
    use, before the models' own.
    """
    types = host_types(sharers, refused)
    if not types:
        return Packing(hosts=(), worth_usd_per_hour=0.0)
    needs = [need_of(sharer, history) for sharer, history in zip(sharers, histories, strict=True)]
    packing = pack(needs, types, there=there, hours=PLAN_HOURS, covered=covered_rents(owned, types))
    shared = tuple(
        host for host in packing.hosts if host.name or len({tenant.model for tenant in host.tenants}) > 1
    )
    return replace(packing, hosts=shared)


def within_cap(
    packing: Packing, sharers: Sequence[Sharer], histories: Sequence[Demand], divider: CapDivider, there: Takes
) -> Packing:
    """The instances of a decision that the service's cap leaves it. there: what runs of shared instances now."""
    offerings = {item.name: item for sharer in sharers for item in sharer.offerings}
    needs = {
        sharer.model.name: need_of(sharer, history) for sharer, history in zip(sharers, histories, strict=True)
    }
    reached = dict.fromkeys(needs, 0.0)
    steps = []
    for host in packing.hosts:
        saves = 0.0
        for tenant in host.tenants:
            need, low = needs[tenant.model], reached[tenant.model]
            reached[tenant.model] = high = low + tenant.capacity_rps
            saved = np.interp((low, high), need.levels, need.saved_usd_per_hour)
            saves += divider.weight(tenant.model) * float(saved[1] - saved[0])
        offering = offerings[host.offering]
        steps.append(CapStep(takes=takes_of(offering), saves=saves, costs=offering.usd_per_hour))
    return replace(packing, hosts=tuple(packing.hosts[number] for number in divider.divide_shared(steps, there)))


def within_quotas(packing: Packing, limits: QuotaLimits) -> Packing:
    """The instances of a decision that are there, and of the others those that the account's quotas leave."""
    hosts = []
    for host in packing.hosts:
        if not host.name:
            if limits.left(host.offering) < 1:
                continue
            limits.reserve(host.offering, 1)
        hosts.append(host)
    return replace(packing, hosts=tuple(hosts))

"""Offerings: what can be rented for a model, and an Excuse for each type that cannot serve it.

A type serves when somebody profiled the model on it, it holds the model, the market sells it, and the tuner
finds a batch that keeps the objective, in the share of cases that is the target where its time varies. Burstable
types serve only when they are named: they run at full speed for about half an hour (MArk section 4.5), which is
what a standby needs and a fleet cannot live on. Retired types serve only when they, or a set that has them, are
named. Where the world says which kinds of machines can be launched, no other serves.
"""

from __future__ import annotations

from mark.catalog.load import PriceSnapshot, ProfileSet
from mark.catalog.machines import unlaunchable_reason
from mark.catalog.type_sets import check_types, outside_reason, split_types
from mark.cloudmodel.noise import noise_quantile, second_quantile
from mark.cloudmodel.world import IDEAL, World
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.models.profile import Profile
from mark.domain.offerings.offering import (
    LAMBDA_PAYLOAD_MIB,
    LAMBDA_PROFILED_GIB,
    BatchPolicy,
    InstanceType,
    LambdaOffering,
    Market,
    Offering,
)
from mark.domain.plan import Excuse
from mark.domain.plans.service_cap import Takes
from mark.planner.batching import TunedBatch, capacity_rps, tune_batching

LAMBDA_MEMORY_GIB = 10.0
"""The largest Lambda function (Lambda quotas: 10,240 MB)."""
SECONDS_PER_HOUR = 3600.0


def make_offerings(
    model: ModelSpec,
    *,
    slo: Slo,
    prices: PriceSnapshot,
    profiles: ProfileSet,
    market: Market,
    types: tuple[str, ...] = (),
    world: World = IDEAL,
) -> tuple[tuple[Offering, ...], tuple[Excuse, ...]]:
    """Offerings of the types that `types` names, and why the others serve nothing.

    A named type must exist and be profiled: Misconfigured says which is not. A named set chooses among the
    profiled types; where nothing is named it is the current ones. Both results are sorted by name.
    """
    check_types(types, prices)
    sets, named = split_types(types)
    for name in named:
        profiles.of(name)
    priced = {item.name: item for item in prices.types}
    offerings: list[Offering] = []
    excuses: list[Excuse] = []
    for name in sorted({*named, *(profiles.instance_types if sets else ())}):
        if name not in priced:
            reason: str | None = f"no price in the snapshot of {prices.region}, {prices.date}"
        else:
            unasked = None if name in named else _unasked(priced[name], sets)
            reason = unasked or _unfit(model, priced[name], market, world)
            reason = reason or _replicas_unfit(model, priced[name], profiles.of(name))
        found = reason or _offer(
            slo, priced[name], profile=profiles.of(name), market=market, world=world, sizes=model.sizes
        )
        if isinstance(found, Offering):
            offerings.append(found)
        else:
            excuses.append(Excuse(offering=f"{name}:{market.value}", reason=found))
    return tuple(offerings), tuple(excuses)


def standby_offering(
    model: ModelSpec,
    *,
    slo: Slo,
    prices: PriceSnapshot,
    profiles: ProfileSet,
    instance_type: str,
    world: World = IDEAL,
) -> Offering:
    """An on-demand offering that wakes from stopped; a type that cannot serve the model is Misconfigured."""
    item = prices.instance_type(instance_type)
    profile = profiles.of(instance_type)
    reason = _unfit(model, item, Market.ON_DEMAND, world) or _replicas_unfit(model, item, profile)
    found = reason or _offer(
        slo,
        item,
        profile=profile,
        market=Market.ON_DEMAND,
        world=world,
        sizes=model.sizes,
        boot_s=world.times.wake_of(item).median_s,
    )
    if isinstance(found, Offering):
        return found
    raise Misconfigured(f"{instance_type} cannot stand by for {model.name}: {found}; name another type")


def make_lambda(model: ModelSpec, profiles: ProfileSet, slo: Slo) -> tuple[LambdaOffering | None, Excuse | None]:
    """Lambda for the model, or None; the Excuse says why not, or that it answers beyond the objective.

    A Lambda too slow for the objective stays an offering: it answers what nobody else can, late.
    """
    profile = profiles.lambda_
    if model.memory_gib > LAMBDA_MEMORY_GIB:
        reason = f"needs {model.memory_gib:g} GiB of memory, Lambda has {LAMBDA_MEMORY_GIB:g} at most"
    elif model.payload_mib > LAMBDA_PAYLOAD_MIB:
        reason = f"a request has {model.payload_mib:g} MiB, Lambda takes {LAMBDA_PAYLOAD_MIB:g} at most"
    elif not model.cpu:
        reason = "needs an accelerator, Lambda has none"
    elif profile is None:
        reason = f"no profile of {model.name} on lambda; `mark profile --as lambda` measures it"
    elif model.sizes is not None and model.sizes.largest > 1:
        reason = f"its profile is of one item, a request has up to {model.sizes.largest}"
    else:
        offering = LambdaOffering(
            latency_s=profile.latency_s(1),
            provenance=profile.provenance,
            memory_gib=max(LAMBDA_PROFILED_GIB, model.memory_gib),
        )
        return offering, overflow_excuse(offering, slo)
    return None, Excuse(offering="lambda", reason=reason)


def overflow_excuse(offering: LambdaOffering, slo: Slo) -> Excuse | None:
    """Says that Lambda answers beyond the objective; None when it is in time."""
    if offering.latency_s <= slo.latency_s:
        return None
    return Excuse(
        offering="lambda",
        reason=f"takes {offering.latency_s * 1000:.4g} ms, beyond the objective of {slo.latency_s * 1000:.4g} ms: "
        "what overflows is late",
    )


def _unasked(item: InstanceType, sets: tuple[str, ...]) -> str | None:
    """Reason for which a type serves nothing that only a set could bring in; None where one does."""
    return outside_reason(item, sets) or ("burstable: stands by only" if item.credits else None)


def _unfit(model: ModelSpec, item: InstanceType, market: Market, world: World) -> str | None:
    """Reason for which the type cannot hold the model, be launched or be bought there; None when it can."""
    return _cannot_hold(model, item) or unlaunchable_reason(item, world.machines) or _unsold(item, market, world)


def _cannot_hold(model: ModelSpec, item: InstanceType) -> str | None:
    if model.memory_gib > item.memory_gib:
        return f"{item.memory_gib:g} GiB of memory, the model needs {model.memory_gib:g}"
    if item.architecture not in model.architectures:
        return f"{item.architecture}, the model runs on {' and '.join(model.architectures)}"
    if item.accelerator and item.accelerator not in model.accelerators:
        return f"the model does not use the {item.accelerator}"
    if not item.accelerator and not model.cpu:
        return "no accelerator, the model needs one"
    return None


def _replicas_unfit(model: ModelSpec, item: InstanceType, profile: Profile) -> str | None:
    """Reason for which the type cannot run the profile's replicas. Misconfigured for too few processors."""
    parallelism = profile.parallelism
    if parallelism.processors > item.vcpus:
        raise Misconfigured(
            f"profile of {profile.model} on {item.name}: {parallelism} (replicas x threads) needs "
            f"{parallelism.processors} processors, {item.name} has {item.vcpus}"
        )
    if parallelism.replicas == 1:
        return None
    if model.sizes is not None and model.sizes.largest > 1:
        return (
            f"its profile is of {parallelism.replicas} replicas, which divide a batch of single items, and a "
            f"request has up to {model.sizes.largest}; measure one: `mark profile --parallelism 1x{item.vcpus}`"
        )
    needed_gib = parallelism.replicas * model.memory_gib
    if needed_gib > item.memory_gib:
        return (
            f"{item.memory_gib:g} GiB of memory, {parallelism.replicas} replicas of the model need {needed_gib:g}"
        )
    return None


def _unsold(item: InstanceType, market: Market, world: World) -> str | None:
    if market is Market.SPOT and item.spot_usd_per_hour is None:
        return "no spot price in the snapshot"
    quota = world.quota_of(item, market)
    if item.vcpus > quota:
        return f"{item.vcpus} vCPU, a quota of the account is {quota:g}"
    price = item.usd_per_hour_on(market)
    one = Takes(price or 0.0, item.vcpus, item.accelerator_count)
    return None if world.cap.holds(one) else f"one is more than the service's cap: {world.cap.words}"


def _only_idle(tuned: TunedBatch | None, profile: Profile, sizes: SizeDistribution | None) -> TunedBatch | None:
    """An instance that is in time only for what finds it idle: no batch forms on it."""
    if tuned is None:
        return None
    single = BatchPolicy(max_batch=1, max_wait_s=0.0)
    return TunedBatch(batch=single, capacity_rps=capacity_rps(profile, 1, sizes))


def _too_large(sizes: SizeDistribution, profile: Profile, slo: Slo, late: float) -> str | None:
    """Reason for which requests of these sizes are beyond the type: any of them may be sent to it."""
    if sizes.largest > profile.max_batch:
        return f"a request has up to {sizes.largest} items, its profile ends at {profile.max_batch}"
    size = sizes.quantile(slo.target)
    takes_s = profile.latency_s(size) * late
    if takes_s <= slo.latency_s:
        return None
    return (
        f"a request of {size} items, which {slo.target:.4g} of them do not exceed, takes {takes_s * 1000:.4g} ms, "
        f"beyond the objective of {slo.latency_s * 1000:.4g} ms"
    )


def _offer(
    slo: Slo,
    item: InstanceType,
    *,
    profile: Profile,
    market: Market,
    world: World,
    sizes: SizeDistribution | None,
    boot_s: float | None = None,
) -> Offering | str:
    """The offering under its tuned batch, or why no batch keeps the objective."""
    cv = world.cv_of(profile.cv)
    late = noise_quantile(cv, slo.target)
    too_large = _too_large(sizes, profile, slo, late) if sizes else None
    if too_large:
        return too_large
    # What comes while a batch runs waits for one uncertain time and takes another.
    tuned = tune_batching(profile, slo.latency_s / second_quantile(cv, slo.target), sizes)
    tuned = tuned or _only_idle(tune_batching(profile, slo.latency_s / late), profile, sizes)
    if tuned is None:
        first = profile.points[0]
        tail = f", and {late:.2f} times as long at the target of {slo.target:.4g}" if late > 1.0 else ""
        return (
            f"no batch keeps the objective of {slo.latency_s * 1000:.4g} ms: "
            f"the smallest, of {first.batch}, takes {first.latency_s * 1000:.4g} ms{tail}"
        )
    price = item.usd_per_hour_on(market)
    if price is None:
        return "no spot price in the snapshot"
    ready_s = world.times.launch.median_s if boot_s is None else boot_s
    return Offering(
        instance_type=item,
        market=market,
        usd_per_hour=price,
        profile=profile,
        batch=tuned.batch,
        capacity_rps=tuned.capacity_rps,
        boot_s=ready_s,
        launch_usd=price / SECONDS_PER_HOUR * max(0.0, ready_s - world.times.pending_s),
        cv=cv,
    )

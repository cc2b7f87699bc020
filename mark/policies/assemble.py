"""Assembly: from what is asked of a model's policies to bundles that run. Replays and the live service ask here.

The one place where prices, profiles and policies are put together. It knows no load but the history that policies
look back on: a replay cuts that from its trace, a live service has its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TypedDict

from mark.catalog.billing import crossing_usd, disk_usd
from mark.catalog.commitment_bill import left_by_standing
from mark.catalog.load import ProfileSet, load_prices, load_profiles, load_variants
from mark.catalog.offerings import make_offerings, standby_offering
from mark.catalog.standbys import Surges, cheapest_standby, within_credits
from mark.cloudmodel.noise import noise_quantile, second_quantile
from mark.controller.policy import StandbyPolicy
from mark.dispatch.variants.qos import HARD_S, SOFT_S, QosRule
from mark.dispatch.variants.qos_policy import network_text
from mark.dispatch.variants.serving import QualityDeadlines, VariantDispatch, VariantServing
from mark.domain.billing.service_prices import ServiceItem
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.domain.load.announced_events import on_clock
from mark.domain.load.sizes import sizes_from_formula
from mark.domain.models.variants import VariantTable
from mark.domain.offerings.offering import Market, Offering
from mark.domain.plans.pool_policy import PoolPolicy
from mark.planner.batching import tune_batching
from mark.policies.bundles import (
    STATIC_PEAK,
    WEEK_UNITS,
    Ingredients,
    PolicyBundle,
    make_bundle,
    unbatched,
)
from mark.policies.overrides import tuned, tuning_notes
from mark.policies.spec import Overrides, PolicySpec, VariantWishes
from mark.policies.supply import NothingServes, Supply, find_supply, priced


class Assembly:
    """The supply for a spec, and the policies made of it. Misconfigured as `find_supply`."""

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.prices = spec.prices or load_prices()
        self._profiles, self.variants = profiles_and_variants(spec)
        self.supply = self._supply(self._profiles)
        self.standby = self._standby() if spec.standby_share > 0 and spec.market is Market.SPOT else None

    def _supply(self, profiles: ProfileSet) -> Supply:
        spec = self.spec
        supply = find_supply(
            spec.model,
            slo=spec.slo,
            market=spec.market,
            prices=self.prices,
            profiles=profiles,
            types=spec.types,
            world=spec.world,
            limits=spec.overflow_limits if spec.overflow else None,
        )
        overflow = supply.overflow and priced(supply.overflow, spec.footprint.prices)
        return replace(supply, overflow=overflow)

    def ingredients(self, history: Demand) -> Ingredients:
        """The ingredients of policies, where `history` came before."""
        spec, supply = self.spec, self.supply
        return Ingredients(
            slo=supply.slo,
            market=spec.market,
            offerings=supply.offerings,
            on_demand=supply.on_demand,
            overflow=supply.overflow,
            standby=self.standby,
            surge_standby=self._surge_standby(history),
            spot_zones=spec.world.zones,
            history=history,
            late=spec.late,
            managed_cpu_factor=spec.managed_cpu_factor,
            managed_gpu_factor=spec.managed_gpu_factor,
            sizes=spec.model.sizes,
            memory_gib=spec.model.memory_gib,
            pool=self._pool,
            pool_offerings=self._pool_offerings() if self._pool is not None else (),
        )

    @property
    def _pool(self) -> PoolPolicy | None:
        """The pool's budget and sizes; requests without sizes are of one item."""
        budget, sizes = self.spec.budget_usd_per_hour, self.spec.model.sizes
        if budget is None:
            return None
        return PoolPolicy(
            budget_usd_per_hour=budget,
            sizes=sizes or sizes_from_formula("constant:1"),
            size_window=self.spec.size_window,
        )

    def _pool_offerings(self) -> tuple[Offering, ...]:
        """Types of a pool, which serve one request at a time: also those that serve small sizes only."""
        spec = self.spec
        sizes = spec.model.sizes
        found, _ = make_offerings(
            replace(spec.model, sizes=None),
            slo=spec.slo,
            prices=self.prices,
            profiles=self._profiles,
            market=spec.market,
            types=spec.types,
            world=spec.world,
        )
        largest = 1 if sizes is None else sizes.largest
        return tuple(unbatched(item, sizes) for item in found if item.profile.max_batch >= largest)

    def bundle(self, policy: str, given: Ingredients, overrides: Overrides | None = None) -> PolicyBundle:
        """The policy of that name, made of `given`."""
        changed = overrides or Overrides()
        if policy == STATIC_PEAK and self.variants is not None:
            given = self._for_best_variant(given)
        bundle = tuned(make_bundle(policy, given, changed.setting), self.spec.tuning, self.spec.market)
        if bundle.is_packed and self.variants is not None:
            raise Misconfigured(
                f"{self.spec.model.name} has variants, of which {policy} packs no pods: leave it out"
            )
        bundle = replace(bundle, variants=self.variants)
        pays = bundle.overhead and self.spec.overhead  # for what crosses between zones
        controlled = replace(
            bundle.controller,
            zones=tuple(filter(None, self.spec.world.zones)) if pays else (),
            crossing_usd=crossing_usd(self.spec.footprint, self.spec.model.payload_mib) if pays else 0.0,
            quotas=() if bundle.is_packed else self.spec.world.quotas,  # those are of nodes
            capacity=self.spec.capacity,
            clock_at=self.spec.clock_at,
            commitments=left_by_standing(self.spec.footprint.commitments, self.spec.footprint),
        )
        bundle = replace(bundle, controller=controlled)
        if changed.forecaster is not None and not bundle.uses_truth:
            bundle = replace(bundle, forecaster=changed.forecaster, uses_truth=changed.uses_truth)
        events = on_clock(self.spec.events, self.spec.clock_at)
        if not bundle.uses_truth:  # who knows the load to come knows what events bring
            bundle = replace(bundle, controller=replace(bundle.controller, events=events))
        if changed.routing is not None:
            bundle = replace(bundle, dispatch=replace(bundle.dispatch, routing=changed.routing))
        if self.spec.overhead:
            return bundle
        charges = tuple(item for item in bundle.charges if item is not ServiceItem.SAGEMAKER_BYTES)
        return replace(bundle, overhead=False, charges=charges)

    def _for_best_variant(self, given: Ingredients) -> Ingredients:
        """For a fleet that is sized once: every request at its busiest gets the most accurate answer.

        Of the variants that keep the objective: those that plans count on do, one more accurate may be too slow.
        """
        supply = self._supply_on(self.most_accurate) or self.supply
        return replace(given, offerings=supply.offerings, on_demand=supply.on_demand, slo=supply.slo)

    @cached_property
    def most_accurate(self) -> str:
        """The most accurate variant that may answer and keeps the objective; of models with variants alone."""
        names = self._most_accurate_first
        return next((name for name in names if self._supply_on(name) is not None), names[-1])

    @property
    def _most_accurate_first(self) -> tuple[str, ...]:
        """The variants that may answer."""
        assert self.variants is not None, "asked of models with variants alone"
        fixed, names = self.variants.dispatch.variant, self.variants.table.names[self.variants.floor :]
        return names[::-1] if fixed is None else (fixed,)

    def _supply_on(self, variant: str) -> Supply | None:
        """The offerings that serve that variant within the objective; None where none does."""
        try:
            return self._supply(_on_variant(self.spec, variant))
        except NothingServes:
            return None

    def changes(self, policy: str, given: Ingredients) -> tuple[str, ...]:
        """The changes by the spec's tuning in that policy, one note a setting."""
        own = make_bundle(policy, given)
        return tuning_notes(own, tuned(own, self.spec.tuning, self.spec.market))

    @property
    def standby_types(self) -> tuple[Offering, ...]:
        """Every type that some policy may stop and wake, whatever its settings; none where standbys are off."""
        named = self.spec.standby_type
        if self.spec.standby_share <= 0:
            return ()
        able = (*self.supply.on_demand, *self._burstable(), *([self._standby_offering(named)] if named else []))
        return tuple({item.name: item for item in able}.values())

    def _standby(self) -> StandbyPolicy:
        spec = self.spec
        offering = self._standby_offering(spec.standby_type or self._cheapest_standby())
        return StandbyPolicy(offering=offering, cover_share=spec.standby_share)

    def _standby_offering(self, name: str) -> Offering:
        spec = self.spec
        return standby_offering(
            spec.model,
            slo=spec.slo,
            prices=self.prices,
            profiles=self._profiles,
            instance_type=name,
            world=spec.world,
        )

    def _surge_standby(self, history: Demand) -> StandbyPolicy | None:
        """The type that carries a surge for least, asleep between surges; None where standbys are switched off.

        Burstable types take part where they are named: their credits are for few starts a day, surges are many.
        """
        spec = self.spec
        if spec.standby_share <= 0:
            return None
        surges = Surges.of(history.last(WEEK_UNITS))
        if spec.standby_type is not None:
            offering = within_credits(self._standby_offering(spec.standby_type), surges)
        else:
            offering = cheapest_standby(self.supply.on_demand, surges, self._disk_usd_per_hour)
        return StandbyPolicy(
            offering=offering,
            surges=True,
            wake_s=spec.world.times.wake_of(offering.instance_type).mean_s,
            wake_refused=spec.world.wake_refused_of(offering.instance_type),
            asleep_usd_per_hour=self._disk_usd_per_hour,
        )

    @property
    def _disk_usd_per_hour(self) -> float:
        """Cost of a standby that sleeps."""
        footprint = self.spec.footprint
        return disk_usd(footprint.disk_gib, 3600.0, footprint.disk_usd_per_gib_month)

    def _cheapest_standby(self) -> str:
        """The cheapest per request of the burstable types that can serve, or of all where none can."""
        choice = self._burstable() or self.supply.on_demand
        return min(choice, key=lambda o: (o.usd_per_hour / o.capacity_rps, o.name)).instance_type.name

    def _burstable(self) -> tuple[Offering, ...]:
        """The burstable types that can serve."""
        spec = self.spec
        profiled = set(self._profiles.instance_types)
        names = tuple(item.name for item in self.prices.types if item.credits and item.name in profiled)
        if not names:
            return ()
        able, _ = make_offerings(
            spec.model,
            slo=spec.slo,
            prices=self.prices,
            profiles=self._profiles,
            market=Market.ON_DEMAND,
            types=names,
            world=spec.world,
        )
        return able


def profiles_and_variants(spec: PolicySpec) -> tuple[ProfileSet, VariantServing | None]:
    """The profiles that plans count on, and how variants are served where the model has some.

    Misconfigured where variants are asked of a model without any, or where no variant keeps the accuracy floor.
    """
    wishes = spec.variants
    table = load_variants(spec.model.name, spec.profile_sets) if wishes is not None else None
    if wishes is None or table is None:
        if wishes is not None and (wishes.dispatch is not None or wishes.accuracy_floor is not None):
            with_floor = "the accuracy floor (--accuracy-floor, objective.accuracy_floor)"
            asked = with_floor if wishes.dispatch is None else f"the dispatch rule {wishes.dispatch}"
            raise Misconfigured(
                f"{spec.model.name} has no variants, which {asked} is about: a profile of it needs several, each "
                "with its accuracy (docs/papers.md)"
            )
        return load_profiles(spec.model.name, spec.profile_sets), None
    if spec.model.sizes is not None and spec.model.sizes.largest > 1:
        raise Misconfigured(f"{spec.model.name} has variants: its requests are of one item, leave the sizes out")
    dispatch = wishes.dispatch or VariantDispatch()
    floor = 0 if wishes.accuracy_floor is None else table.floor_number(wishes.accuracy_floor)
    counted = table.names[-1 if wishes.accuracy_floor is None else floor]
    soft_s = spec.slo.latency_s if wishes.soft_s is None else wishes.soft_s
    serving = VariantServing(
        table=table,
        dispatch=dispatch,
        floor=floor,
        deadlines=QualityDeadlines(
            soft_s=soft_s, hard_s=HARD_S / SOFT_S * soft_s if wishes.hard_s is None else wishes.hard_s
        ),
        **_batches(spec, table, dispatch, floor),
    )
    if dispatch.rule is QosRule.LEARNED:
        serving = replace(serving, weights=_learned(wishes, serving))
    return _on_variant(spec, dispatch.variant or counted), serving


def _learned(wishes: VariantWishes, serving: VariantServing) -> str:
    if wishes.read_policy is None:
        raise Misconfigured(
            f"the dispatch rule {QosRule.LEARNED} needs a policy, which `mark simulate` and `mark up` read: name "
            f"{QosRule.HEURISTIC}"
        )
    return network_text(wishes.read_policy(serving.learned_pool()))


def _on_variant(spec: PolicySpec, variant: str) -> ProfileSet:
    return load_profiles(spec.model.name, spec.profile_sets, variant=variant)


class _Batches(TypedDict):
    max_batch: dict[str, int]
    late: dict[str, float]


def _batches(spec: PolicySpec, table: VariantTable, dispatch: VariantDispatch, floor: int) -> _Batches:
    """The largest batch of each type, as the tuner finds it for the variants that may answer, and its lateness."""
    only = None if dispatch.variant is None else table.number(dispatch.variant)
    names = table.names[floor:] if only is None else (table.names[only],)
    found: _Batches = {"max_batch": {}, "late": {}}
    for name in names:
        for profile in _on_variant(spec, name).profiles:
            kind, cv = profile.instance_type, spec.world.cv_of(profile.cv)
            tuned_ = tune_batching(profile, spec.slo.latency_s / second_quantile(cv, spec.slo.target), None)
            most = 1 if tuned_ is None else min(tuned_.batch.max_batch, table.max_batch)
            found["max_batch"][kind] = max(most, found["max_batch"].get(kind, 1))
            found["late"][kind] = max(noise_quantile(cv, spec.slo.target), found["late"].get(kind, 1.0))
    return found

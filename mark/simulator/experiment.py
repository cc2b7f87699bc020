"""An experiment: a model, an objective and a workload, on which any policy can be run and both bounds computed.

The one place where catalogue, policies and simulator are put together; the command line and the studies both use
it. Forecasters come in through `build_forecaster`, because they are loaded by name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from mark.catalog.billing import ROOT_DISK_GIB, disk_usd
from mark.catalog.load import PriceSnapshot, load_prices, load_profiles
from mark.catalog.offerings import make_offerings, standby_offering
from mark.catalog.standbys import Surges, cheapest_bridge, within_credits
from mark.controller.journal import Header
from mark.controller.plan_request import tail
from mark.controller.policy import StandbyPolicy
from mark.controller.runner import KEEP_HISTORY, Journal
from mark.controller.state import Decision, Observation
from mark.dispatch.policy import Late, Routing
from mark.domain.demand import HORIZON, UNIT_S, Demand
from mark.domain.errors import PlanInfeasible
from mark.domain.fleet import FleetView
from mark.domain.objective import ModelSpec, Slo
from mark.domain.offering import Market, Offering
from mark.domain.times import CloudTimes
from mark.planner.bound import BoundInput, bound_usd, floor_usd
from mark.policies.bundles import WEEK_UNITS, Ingredients, PolicyBundle, make_bundle
from mark.policies.overrides import Tuning, tuned, tuning_notes
from mark.policies.supply import USUAL_LIMITS, OverflowLimits, find_supply
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript
from mark.simulator.limits import LimitWatch, limit_notes
from mark.simulator.replay import Scenario, replay
from mark.simulator.results import RunResult
from mark.simulator.workload import Workload

BuildForecaster = Callable[[str, ForecasterSetup], Forecaster]
OpenJournal = Callable[[Header], AbstractContextManager[Journal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpec:
    """What is asked. `types` limits the offerings; `profile_sets` names further profile files or assumed sets.

    `standby_type` None takes the cheapest burstable type that is profiled and meets the objective, or else the
    cheapest type; `standby_share` is how much of the planned capacity standbys can bridge, 0 for none. `tuning`
    changes our own policies, `overflow_limits` the Lambda that all policies share.
    """

    model: ModelSpec
    slo: Slo
    market: Market
    workload: Workload
    types: tuple[str, ...] = ()
    profile_sets: tuple[str | Path, ...] = ()
    standby_type: str | None = None
    standby_share: float = 0.5
    overflow: bool = True
    late: Late = Late.SERVE
    times: CloudTimes = field(default_factory=CloudTimes)
    faults: FaultScript = field(default_factory=FaultScript)
    managed_cpu_factor: float = 1.2
    managed_gpu_factor: float = 1.4
    tuning: Tuning = field(default_factory=Tuning)
    overflow_limits: OverflowLimits = USUAL_LIMITS
    overhead: bool = True
    prices: PriceSnapshot | None = None
    cache_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Parts of a policy that are replaced for one run.

    `uses_truth`: whether that forecaster knows the load to come. A policy that does by itself keeps its own.
    """

    forecaster: str | None = None
    uses_truth: bool = False
    routing: Routing | None = None


class Experiment:
    """Offerings, standbys and overflow for a spec, and the runs on it."""

    def __init__(self, spec: ExperimentSpec, *, kernel: Kernel, build_forecaster: BuildForecaster) -> None:
        self.spec = spec
        self._kernel = kernel
        self._build = build_forecaster
        self.prices = spec.prices or load_prices()
        self._profiles = load_profiles(spec.model.name, spec.profile_sets)
        self.supply = find_supply(
            spec.model,
            slo=spec.slo,
            market=spec.market,
            prices=self.prices,
            profiles=self._profiles,
            types=spec.types,
            times=spec.times,
            limits=spec.overflow_limits if spec.overflow else None,
        )
        self.slo, self.offerings, self.on_demand = self.supply.slo, self.supply.offerings, self.supply.on_demand
        self.excuses, self.warnings = self.supply.excuses, self.supply.warnings
        self.overflow, self.overflow_excuse = self.supply.overflow, self.supply.overflow_excuse
        self.standby = self._standby() if spec.standby_share > 0 and spec.market is Market.SPOT else None

    @property
    def assumed(self) -> tuple[str, ...]:
        """Assumed profiles that take part."""
        return self.supply.assumed

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Profiles that take part and were measured on another machine than their type."""
        return self.supply.stand_ins

    @cached_property
    def ingredients(self) -> Ingredients:
        """What policies are made of."""
        spec = self.spec
        return Ingredients(
            slo=self.slo,
            market=spec.market,
            offerings=self.offerings,
            on_demand=self.on_demand,
            overflow=self.overflow,
            standby=self.standby,
            surge_standby=self._surge_standby(),
            history=self.setup(seed=0).history,
            late=spec.late,
            managed_cpu_factor=spec.managed_cpu_factor,
            managed_gpu_factor=spec.managed_gpu_factor,
        )

    def setup(self, seed: int, progress: Callable[[str, float], None] | None = None) -> ForecasterSetup:
        """What forecasters are built from: the load before the run."""
        return ForecasterSetup(
            history=self.spec.workload.history(self._scenario.start_s, KEEP_HISTORY),
            seed=seed,
            cache_dir=self.spec.cache_dir,
            progress=progress,
        )

    @property
    def truth(self) -> Demand:
        """The load to come, as an oracle knows it."""
        workload = self.spec.workload
        known_until = min(workload.trace.duration_s, workload.end_s + HORIZON * UNIT_S)
        return workload.demand(self._scenario.start_s, known_until)

    def bundle(self, policy: str, overrides: Overrides | None = None) -> PolicyBundle:
        """The policy of that name for this experiment."""
        bundle = tuned(make_bundle(policy, self.ingredients), self.spec.tuning, self.spec.market)
        changed = overrides or Overrides()
        if changed.forecaster is not None and not bundle.uses_truth:
            bundle = replace(bundle, forecaster=changed.forecaster, uses_truth=changed.uses_truth)
        if changed.routing is not None:
            bundle = replace(bundle, dispatch=replace(bundle.dispatch, routing=changed.routing))
        return bundle if self.spec.overhead else replace(bundle, overhead=False)

    def changes(self, policy: str) -> tuple[str, ...]:
        """What the spec's tuning changes in that policy, one note a setting."""
        own = make_bundle(policy, self.ingredients)
        return tuning_notes(own, tuned(own, self.spec.tuning, self.spec.market))

    def run(
        self,
        policy: str,
        *,
        overrides: Overrides | None = None,
        open_journal: OpenJournal | None = None,
        progress: Callable[[str, float], None] = lambda _label, _share: None,
    ) -> RunResult:
        """Replay one policy. `progress` is called with what is done and the share of it."""
        bundle = self.bundle(policy, overrides)
        setup = self.setup(self.spec.workload.seed, progress)
        forecaster = self._build(bundle.forecaster, setup.with_truth(self.truth) if bundle.uses_truth else setup)
        fallback = self._build("last-value", setup)
        header = Header(
            policy=bundle.controller,
            catalogue=f"{self.prices.region} {self.prices.date}",
            seed=self.spec.workload.seed,
            history=tail(setup.history, bundle.controller.history_units),
            dispatch=bundle.dispatch,
            forecaster=bundle.forecaster,
            model=self.spec.model.name,
            trace=self.spec.workload.trace.name,
            market=self.spec.market.value,
        )
        opened = open_journal(header) if open_journal else nullcontext(_Unwritten())
        with opened as journal:
            watch = LimitWatch(journal)
            result = replay(
                self._scenario,
                bundle,
                kernel=self._kernel,
                forecaster=forecaster,
                fallback=fallback,
                journal=watch,
                progress=lambda share: progress(f"replaying {policy}", share),
            )
        return replace(result, notes=(*result.notes, *limit_notes(result, bundle.controller, watch)))

    def bounds(self) -> tuple[float | None, float | None]:
        """Bound and floor, USD; None where no fleet with perfect knowledge could serve (no overflow in time)."""
        scenario = self._scenario
        load = self.spec.workload.at_trace_speed  # a rehearsal stands for all of the trace's requests
        counts = load.second_counts(scenario.start_s, scenario.start_s + scenario.duration_s)
        given = BoundInput(
            arrivals=counts.astype(np.float64),
            offerings=self.offerings,
            overflow=self.overflow,
            slo=self.slo,
            times=self.spec.times,
            standbys=(self.standby.offering,) if self.standby else (),
        )
        found: list[float | None] = []
        for solve in (bound_usd, floor_usd):
            try:
                found.append(solve(given))
            except PlanInfeasible:
                found.append(None)
        return found[0], found[1]

    @cached_property
    def _scenario(self) -> Scenario:
        spec = self.spec
        return Scenario(
            workload=spec.workload,
            model=spec.model,
            market=spec.market.value,
            times=spec.times,
            faults=spec.faults,
            assumed=self.assumed,
            stand_ins=self.stand_ins,
        )

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
            times=spec.times,
        )

    def _surge_standby(self) -> StandbyPolicy | None:
        """The type that carries a surge for least, asleep between surges; None where standbys are switched off.

        Burstable types take part where they are named: their credits are for few starts a day, surges are many.
        """
        spec = self.spec
        if spec.standby_share <= 0:
            return None
        surges = Surges.of(tail(self.setup(seed=0).history, WEEK_UNITS))
        if spec.standby_type is not None:
            offering = within_credits(self._standby_offering(spec.standby_type), surges)
        else:
            offering = cheapest_bridge(self.on_demand, surges)
        return StandbyPolicy(
            offering=offering,
            surges=True,
            wake_s=spec.times.wake.mean_s,
            asleep_usd_per_hour=disk_usd(ROOT_DISK_GIB, 3600.0),
        )

    def _cheapest_standby(self) -> str:
        """The cheapest per request of the burstable types that can serve, or of all where none can."""
        choice = self._burstable() or self.on_demand
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
            times=spec.times,
        )
        return able


class _Unwritten:
    """A journal that nobody asked for."""

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Forget one tick."""

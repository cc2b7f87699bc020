"""An experiment: a model, an objective and a workload, on which any policy can be run and its yardsticks computed.

The one place where policies and simulator are put together; the command line and the studies both use it.
Forecasters come in through `build_forecaster`, because they are loaded by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from mark.cloudmodel.spot_prices import SpotPrices
from mark.controller.journal import Header
from mark.controller.runner import Journal
from mark.controller.state import Decision, Observation
from mark.dispatch.variants.serving import VariantDispatch
from mark.dispatch.variants.slackfit import VariantRule
from mark.domain.billing.service_prices import ServiceItem
from mark.domain.demand import HORIZON, KEEP_HISTORY, UNIT_S, Demand
from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.fleet.instances import FleetView
from mark.domain.offerings.offering import Offering
from mark.planner.yardsticks import YardstickInput, floor_usd, reference_usd
from mark.policies.assemble import Assembly
from mark.policies.bundles import PACKED, PREDICTIVE_SCALING, Ingredients, PolicyBundle, tuning_grid
from mark.policies.spec import Overrides, PolicySpec, VariantWishes
from mark.policies.tuning import DAY_S, Setting, Trial, TunedSetting, choose
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.engine.central_plane import CentralServing
from mark.simulator.engine.compiled import Kernel
from mark.simulator.faults import FaultScript
from mark.simulator.forecast_ahead import asked_ahead
from mark.simulator.limits import LimitWatch, limit_notes
from mark.simulator.reference_total import reference_total_usd
from mark.simulator.replay import Forecasters, Scenario, replay
from mark.simulator.results import RunResult
from mark.simulator.workload import Workload

HOUR_S = 3600.0
Progress = Callable[[str, float], None]
"""Called with what is done and the share of it."""
BuildForecaster = Callable[[str, ForecasterSetup], Forecaster]
Given = TypeVar("Given", YardstickInput, Sequence[YardstickInput])
OpenJournal = Callable[[Header], AbstractContextManager[Journal]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSpec(PolicySpec):
    """Settings of an experiment: those of policies, and the load and the faults that they meet."""

    workload: Workload
    faults: FaultScript = field(default_factory=FaultScript)
    #: Of spot prices and refusals; None for that of the workload.
    market_seed: int | None = None
    #: Where forecasters keep what they learned; None for nowhere.
    cache_dir: Path | None = None


class Yardsticks(NamedTuple):
    """Costs of a load with perfect knowledge of it, USD of serving (`mark.planner.yardsticks`).

    None where no fleet could serve it: no overflow in time. `reference_total_usd` is the reference's whole
    bill, None where bills leave out the overhead.
    """

    reference_usd: float | None
    floor_usd: float | None
    reference_total_usd: float | None = None


class Ready(NamedTuple):
    """A policy as it runs, and what it was tuned to; None where it is not tuned."""

    bundle: PolicyBundle
    tuned: TunedSetting | None


class Experiment:
    """The policies of a spec, and the runs of them on its load."""

    def __init__(self, spec: ExperimentSpec, *, kernel: Kernel, build_forecaster: BuildForecaster) -> None:
        self.spec = spec
        self._kernel = kernel
        self._build = build_forecaster
        self.assembly = Assembly(spec)
        self.supply, self.prices = self.assembly.supply, self.assembly.prices
        self._tuned: dict[tuple[str, Overrides, tuple[Setting, ...]], TunedSetting] = {}

    @cached_property
    def ingredients(self) -> Ingredients:
        """Ingredients of policies, the load before the run included."""
        return self.assembly.ingredients(self.history)

    @cached_property
    def history(self) -> Demand:
        """The load before the run."""
        return self.spec.workload.history(self.scenario.start_s, KEEP_HISTORY)

    def setup(self, seed: int, progress: Callable[[str, float], None] | None = None) -> ForecasterSetup:
        """Setup of forecasters: the load before the run."""
        return ForecasterSetup(
            history=self.history,
            seed=seed,
            cache_dir=self.spec.cache_dir,
            progress=progress,
        )

    @property
    def truth(self) -> Demand:
        """The load to come, as an oracle knows it."""
        workload = self.spec.workload
        known_until = min(workload.trace.duration_s, workload.end_s + HORIZON * UNIT_S)
        return workload.demand(self.scenario.start_s, known_until)

    @cached_property
    def _planned_load(self) -> Demand:
        """The load of the run that a plan of it knows: all but its last unit."""
        scenario = self.scenario
        units = math.ceil(scenario.duration_s / UNIT_S) - 1
        return self.spec.workload.demand(scenario.start_s, scenario.start_s + units * UNIT_S)

    def bundle(self, policy: str, overrides: Overrides | None = None) -> PolicyBundle:
        """The policy of that name for this experiment; Misconfigured where it has to be tuned and cannot be.

        One that is tuned has what the real thing documents, unless `overrides` have what it was tuned to.
        """
        if tuning_grid(policy) and (overrides is None or overrides.setting is None):
            self._before(policy)
        return self.assembly.bundle(policy, self.ingredients, overrides)

    def changes(self, policy: str) -> tuple[str, ...]:
        """Changes of the spec's tuning to that policy, one note a setting."""
        return self.assembly.changes(policy, self.ingredients)

    def run(
        self,
        policy: str,
        *,
        overrides: Overrides | None = None,
        open_journal: OpenJournal | None = None,
        progress: Progress = lambda _label, _share: None,
        grid: Sequence[Setting] | None = None,
        central: CentralServing | None = None,
        on_nodes: bool = True,
    ) -> RunResult:
        """Replay one policy, tuned before where its users would: among `grid`, or all settings there are.

        central: the queue that requests wait in, of a policy without Lambda; None binds them when they arrive.
        on_nodes: whether pods run on nodes, which are billed; without, each costs its share of one.
        """
        ready = self.ready(policy, overrides=overrides, progress=progress, grid=grid)
        if not on_nodes:
            ready = ready._replace(bundle=replace(ready.bundle, pods=None))
        forecasters = self.forecasters(ready.bundle, self.history, progress)
        header = self.header(ready.bundle, self.history)
        opened = open_journal(header) if open_journal else nullcontext(Unwritten())
        with opened as journal:
            watch = LimitWatch(journal)
            result = replay(
                replace(self.scenario, explained=open_journal is not None),
                ready.bundle,
                kernel=self._kernel,
                forecasters=forecasters,
                history=self.history,
                journal=watch,
                progress=lambda share: progress(f"replaying {policy}", share),
                central=central,
            )
        return self.noted(result, ready, watch)

    def ready(
        self,
        policy: str,
        *,
        overrides: Overrides | None = None,
        progress: Progress = lambda _label, _share: None,
        grid: Sequence[Setting] | None = None,
    ) -> Ready:
        """The policy as it runs, tuned before where its users would."""
        found = self.tuned(policy, overrides or Overrides(), progress, grid)
        if found is not None:
            overrides = replace(overrides or Overrides(), setting=found.trial.setting)
        return Ready(self.bundle(policy, overrides), found)

    def forecasters(
        self, bundle: PolicyBundle, history: Demand, progress: Progress = lambda _label, _share: None
    ) -> Forecasters:
        """The policy's forecaster, trained on this load before the run, and what stands in for it."""
        setup = replace(self.setup(self.spec.workload.seed, progress), history=history)
        told = setup.with_truth(self.truth) if bundle.uses_truth else setup
        asked = asked_ahead(self._build(bundle.forecaster, told), self._planned_load, bundle.controller.period_s)
        return Forecasters(asked, self._build("last-value", setup))

    @property
    def catalogue(self) -> str:
        """Region and date of the prices."""
        return f"{self.prices.region} {self.prices.date}"

    def header(self, bundle: PolicyBundle, history: Demand) -> Header:
        """Head of the journal of a run."""
        return Header(
            policy=bundle.controller,
            catalogue=self.catalogue,
            seed=self.spec.workload.seed,
            history=history.last(bundle.controller.history_units),
            dispatch=bundle.dispatch,
            forecaster=bundle.forecaster,
            model=self.spec.model.name,
            trace=self.spec.workload.trace.name,
            market=self.spec.market.value,
        )

    def noted(self, result: RunResult, ready: Ready, watch: LimitWatch) -> RunResult:
        """The result with the caveats of this experiment."""
        chosen = (ready.tuned.sentence,) if ready.tuned else ()
        limits = limit_notes(result, ready.bundle.controller, watch, self.spec.footprint.gateways)
        early = _unforecast(ready.bundle, self.history, self.scenario.duration_s)
        return replace(result, tuned=ready.tuned, notes=(*chosen, *early, *result.notes, *limits))

    def with_most_accurate(self) -> tuple[str, Experiment]:
        """The same experiment with one variant alone, the most accurate that keeps the objective, and its name.

        Only for a model with variants.
        """
        name = self.assembly.most_accurate
        alone = VariantDispatch(VariantRule.FIXED, name)
        wishes = replace(self.spec.variants or VariantWishes(), dispatch=alone, accuracy_floor=None)
        spec = replace(self.spec, variants=wishes)
        return name, Experiment(spec, kernel=self._kernel, build_forecaster=self._build)

    def tuned(
        self,
        policy: str,
        overrides: Overrides,
        progress: Progress = lambda _label, _share: None,
        grid: Sequence[Setting] | None = None,
    ) -> TunedSetting | None:
        """The setting that does best on the load before the run; None where a policy is not tuned, or is already.

        It is found once: each setting is replayed on the last day before the run, or all of it. Pods cost their
        share of a node there: other models' pods fill the rest.
        """
        settings = tuning_grid(policy) if grid is None else tuple(grid)
        if not settings or overrides.setting is not None:
            return None
        key = policy, overrides, settings
        if key not in self._tuned:
            past = self.before(policy)
            plain = replace(overrides, forecaster=None)  # no autoscaler looks ahead, and some take long to train
            trials: list[Trial] = []
            of_one: dict[Setting, Trial] = {}  # by the setting without its utilisation
            for number, setting in enumerate(settings):
                if (same := of_one.get(replace(setting, utilisation=1.0))) is not None:
                    trials.append(replace(same, setting=setting))
                    continue

                def report(_label: str, share: float, done: int = number) -> None:
                    progress(f"tuning {policy} on the load before the run", (done + share) / len(settings))

                given = replace(plain, setting=setting)
                result = past.run(policy, overrides=given, progress=report, on_nodes=False)
                # what is around the fleets of a service is there, whatever one of its models does
                cost_usd = result.cost.serving if policy in PACKED else result.cost.total
                trials.append(Trial(setting=setting, cost_usd=cost_usd, attained=result.attained))
                if result.launches == 1 and result.minutes.ready.sum(axis=1).max() <= 1:
                    # one instance is the least there is: a higher utilisation asks for no more
                    of_one[replace(setting, utilisation=1.0)] = trials[-1]
            best = choose(trials, self.spec.slo.target)
            self._tuned[key] = TunedSetting(trial=best, replays=len(trials), load_s=past.scenario.duration_s)
        return self._tuned[key]

    def before(self, policy: str) -> Experiment:
        """The same on the load that a policy is tuned on."""
        faults = FaultScript(stress=self.spec.faults.stress)  # scripted ones are of the run
        spec = replace(self.spec, workload=self._before(policy), faults=faults)
        return Experiment(spec, kernel=self._kernel, build_forecaster=self._build)

    def _before(self, policy: str) -> Workload:
        """The load that a policy is tuned on: the day before the run, without the minute that opens the trace."""
        end_s, load = self.scenario.start_s, self.spec.workload.at_trace_speed
        begin_s = max(UNIT_S, end_s - DAY_S)
        if end_s - begin_s < UNIT_S:
            raise Misconfigured(
                f"{policy} is tuned on the load before the run, two minutes at least: give a --start-s of "
                f"{2 * UNIT_S:g} or more, or a longer trace"
            )
        return load.at_full_speed(begin_s, end_s - begin_s)

    def yardsticks(self) -> Yardsticks:
        """Reference and floor of the load: what the best fleet with perfect knowledge of it costs."""
        spec, given = self.spec, self.yardstick_input
        known = Yardsticks(*(feasible_usd(solve, given) for solve in (reference_usd, floor_usd)))
        if not spec.overhead:
            return known
        whole = partial(reference_total_usd, footprint=spec.footprint, payload_mib=spec.model.payload_mib)
        return known._replace(reference_total_usd=feasible_usd(whole, given))

    @cached_property
    def yardstick_input(self) -> YardstickInput:
        """What the yardsticks look at. Spot instances cost what their cheapest zone does in its cheapest hour."""
        scenario, supply = self.scenario, self.supply
        load = self.spec.workload.at_trace_speed  # a rehearsal stands for all of the trace's requests
        counts = load.second_counts(scenario.start_s, scenario.start_s + scenario.duration_s)
        return YardstickInput(
            arrivals=counts.astype(np.float64),
            offerings=tuple(self._at_best_price(item) for item in supply.offerings),
            fallbacks=supply.on_demand,
            standbys=self.assembly.standby_types,
            overflow=supply.overflow,
            provisioned_usd_per_gib_s=self.spec.footprint.prices.price(ServiceItem.LAMBDA_PROVISIONED_DURATION),
            slo=supply.slo,
            times=self.spec.world.times,
        )

    def _at_best_price(self, item: Offering) -> Offering:
        """The offering at the lowest price that it has anywhere in the run."""
        scenario = self.scenario
        if scenario.world.pools_for(item) == ("",):
            return item
        begin_s, end_s = scenario.start_s, scenario.start_s + scenario.duration_s
        seed = self.spec.workload.seed if scenario.market_seed is None else scenario.market_seed
        prices = SpotPrices(scenario.world, seed, start_at=begin_s)
        return item.at_price(prices.lowest_usd_per_hour(item.instance_type, begin_s, end_s))

    @cached_property
    def scenario(self) -> Scenario:
        """The input of any policy's replay."""
        spec = self.spec
        return Scenario(
            workload=spec.workload,
            model=spec.model,
            market=spec.market.value,
            world=spec.world,
            faults=spec.faults,
            footprint=spec.footprint,
            market_seed=spec.market_seed,
            assumed=self.supply.assumed,
            stand_ins=self.supply.stand_ins,
            lambda_guess=self.supply.lambda_guess,
        )


def feasible_usd(solve: Callable[[Given], float], given: Given) -> float | None:
    """A yardstick; None where no fleet could serve the load."""
    try:
        return solve(given)
    except PlanInfeasible:
        return None


def _unforecast(bundle: PolicyBundle, history: Demand, duration_s: float) -> tuple[str, ...]:
    """A note where EC2's forecast has not begun with the run: it takes a day of load."""
    known_s = len(history) * history.unit_s
    if bundle.controller.planner != PREDICTIVE_SCALING or known_s >= DAY_S:
        return ()
    lacking_s = DAY_S - known_s
    until = f"for {lacking_s / HOUR_S:.3g} h" if lacking_s < duration_s else "all the time"
    known = f"{known_s / HOUR_S:.3g} h came before the run"
    alone = f"here target tracking decided alone {until}"
    return (f"EC2 forecasts nothing before it knows a day of load, and {known}: {alone}",)


class Unwritten:
    """A journal that is dropped."""

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Forget one tick."""

"""One policy on one workload: the production controller on a simulated cloud, from tick to tick.

The loop moves the engine to the next thing that happens (a tick, an event of the cloud, a missed window of the SLO
monitor), lets it happen, and asks the controller. The fleet of the first plan is there when the run starts, as it
would be had the service been running before; the load before the run is the history.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from mark.catalog.billing import (
    Load,
    bill_fleet,
    bill_managed,
    bill_scheduled,
    cost_of,
    crossing_usd,
    gateway_count,
)
from mark.catalog.commitment_bill import HourlyUsage, bill_commitments, commitment_words
from mark.cloudmodel.world import World
from mark.controller.demand_units import counted_unit, recent_windows, window_rates
from mark.controller.runner import Controller, Journal, no_new_commitments, no_shared_boots, no_shared_rps
from mark.controller.state import Decision, Observation
from mark.controller.zones import pulls_of
from mark.dispatch.variants.qos import QosRule
from mark.domain.billing.costs import BillLine, FleetUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.owned import CapacityReservation, Commitments
from mark.domain.demand import UNIT_S, WINDOW_S, Demand, DemandUnit
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import FleetView, InstanceState
from mark.domain.front import Front, steered_shares
from mark.domain.load.outcomes import NO_OUTCOMES
from mark.domain.load.size_window import SizeCounts, add_sizes, size_bin
from mark.domain.models.objective import ModelSpec, SloWindow
from mark.domain.models.variants import AccuracyTotal
from mark.domain.offerings.offering import LambdaGuess, Market, Offering
from mark.domain.plan import Plan, PlanRequest
from mark.policies.bundles import PolicyBundle
from mark.policies.own_policy import own_planner
from mark.ports import Forecaster
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.commitment_bill import replayed_usage
from mark.simulator.engine.central_plane import CentralEngine, CentralServing
from mark.simulator.engine.compiled import Kernel
from mark.simulator.engine.data_plane import Engine, EngineSetup
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript
from mark.simulator.results import MinuteSeries, RunResult
from mark.simulator.rng import stream
from mark.simulator.services.account_quotas import AccountQuotas
from mark.simulator.services.pod_nodes import PodCloud, PodNodes
from mark.simulator.services.service_cap import CappedService, capped
from mark.simulator.workload import Ints, Workload

MOST_FAILURES = 5
"""Failures that the notes tell one by one: a text with a figure in it may differ at each tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Input of a replay, apart from the policy."""

    workload: Workload
    model: ModelSpec
    market: str
    world: World
    faults: FaultScript
    footprint: Footprint
    #: Of spot prices and refusals, which all that rent in an account meet; None for that of the workload.
    market_seed: int | None = None
    #: Instance types that take part with an assumed profile.
    assumed: tuple[str, ...] = ()
    #: Instance types that take part with a profile measured on another machine.
    stand_ins: tuple[str, ...] = ()
    #: Lambda where only its profile is missing; None elsewhere.
    lambda_guess: LambdaGuess | None = None
    #: Whether somebody reads the journal: else plans lack the figures of their excuses.
    explained: bool = True

    @property
    def entry_zones(self) -> tuple[str, ...]:
        """Zones in which requests come in: those with gateways."""
        return self.world.zones[: self.footprint.entry_zones]

    @property
    def start_s(self) -> float:
        """First second of the run."""
        return self.workload.whole_seconds[0]

    @property
    def duration_s(self) -> float:
        """Whole seconds of the run."""
        start_s, end_s = self.workload.whole_seconds
        return end_s - start_s


class Forecasters(NamedTuple):
    """A policy's forecaster, and what stands in where it fails."""

    forecaster: Forecaster
    fallback: Forecaster


def replay(
    scenario: Scenario,
    bundle: PolicyBundle,
    *,
    kernel: Kernel,
    forecasters: Forecasters,
    history: Demand,
    journal: Journal,
    progress: Callable[[float], None],
    central: CentralServing | None = None,
) -> RunResult:
    """Run `bundle` on `scenario`. `progress` is called with the share done, in [0, 1].

    history: the load before the run, as the controller knows it.
    central: the queue that requests wait in; None binds each to an instance when it arrives.
    """
    if bundle.endpoint is not None:
        raise Misconfigured(f"{bundle.name} is an endpoint of several models: for one, sagemaker-tuned is")
    began = time.perf_counter()
    given = engine_setup(scenario, bundle, kernel)
    engine = Engine(given)
    if central is not None:
        engine = CentralEngine(central, bundle.controller.known_offerings, given)
    nodes = nodes_of(engine, [scenario], [bundle])
    cap = capped(scenario.world, {})
    run = ModelReplay(scenario, bundle, engine, forecasters, history, journal, nodes=nodes)
    if cap is not None and nodes is None:
        run.limit(cap)
    run.begin()
    if nodes is not None:
        nodes.begin()
    while engine.now < run.end_s:
        if run.note_minute(engine.now):
            if is_steered(engine, scenario.footprint):
                engine.let_in(steered_shares(run.pulls, scenario.entry_zones))
            progress((engine.now - scenario.start_s) / scenario.duration_s)
        stop = run.next_at() if nodes is None else min(run.next_at(), nodes.next_at())
        if any(engine.run_until(at) < at for at in run.stops_until(stop)):
            run.missed()
            continue
        if nodes is not None:
            nodes.reach(stop)
        run.reach(stop)
    run.end()
    progress(1.0)
    shared = nodes.end().bill(scenario.footprint) if nodes is not None else ()
    return run.result(time.perf_counter() - began, shared=shared)


def nodes_of(
    plane: Engine | SharedPlane, scenarios: Sequence[Scenario], bundles: Sequence[PolicyBundle]
) -> PodNodes | None:
    """The nodes of models whose controllers plan pods; None where none does."""
    pods = [bundle.pods for bundle in bundles if bundle.pods is not None]
    if not pods:
        return None
    first = scenarios[0]
    return PodNodes(
        plane,
        pods,
        world=first.world,
        faults=first.faults,
        seed=first.workload.seed if first.market_seed is None else first.market_seed,
        entry=first.entry_zones,
        end_s=first.start_s + first.duration_s,
    )


class _Plane:
    """The DataPlane port over the engine, and the Clock.

    sizes: items of the requests of an interval; None where no policy asks for them.
    """

    def __init__(
        self, engine: Engine, start_s: float, speed: float, sizes: Callable[[float, float], Ints] | None
    ) -> None:
        self._engine = engine
        self._sizes = sizes
        self._speed = speed
        self._start_s = start_s
        self._unit_end = start_s + UNIT_S
        self._window_at = -math.inf
        self._accuracy = AccuracyTotal()
        self._outcomes = NO_OUTCOMES

    def now(self) -> float:
        return self._engine.now

    def next_unit(self) -> DemandUnit | None:
        if self._engine.now < self._unit_end:
            return None
        start_at, self._unit_end = self._unit_end - UNIT_S, self._unit_end + UNIT_S
        unit = counted_unit(start_at, *self._counts(start_at, start_at + UNIT_S))
        before, self._accuracy = self._accuracy, self._engine.accuracy_total()
        earlier, self._outcomes = self._outcomes, self._engine.outcomes()
        return replace(
            unit,
            accuracy=self._accuracy.since(before),
            sizes=self._counted_sizes(start_at),
            outcomes=self._outcomes.since(earlier),
        )

    def _counted_sizes(self, start_at: float) -> SizeCounts:
        """Requests of the unit by size."""
        if self._sizes is None:
            return ()
        found, counts = np.unique(self._sizes(start_at, start_at + UNIT_S), return_counts=True)
        pairs = zip(found.tolist(), counts.tolist(), strict=True)
        return add_sizes((size_bin(size), count) for size, count in pairs)

    def take_slo_window(self) -> SloWindow | None:
        window = self._engine.slo_window()
        if window is None or window.closed_at == self._window_at:
            return None
        self._window_at = window.closed_at
        return window

    def lambda_warm(self) -> int:
        return self._engine.lambda_warm()

    def recent_rps(self) -> tuple[float, ...]:
        windows = recent_windows(self._engine.now - self._start_s, 0.0)
        first_s, end_s = (self._start_s + WINDOW_S * edge for edge in (windows.start, windows.stop))
        return window_rates(*self._counts(first_s, end_s))

    def _counts(self, from_s: float, to_s: float) -> tuple[list[int], list[float]]:
        """Arrivals of each window, and the clock's speed in each."""
        counts: list[int] = self._engine.window_counts(from_s, to_s).tolist()
        return counts, [self._speed] * len(counts)


class _Recorder:
    """Passes ticks on to the journal and keeps what the plots need."""

    def __init__(self, journal: Journal, minutes: int, start_s: float, lead_units: int) -> None:
        self._journal = journal
        self._start_s = start_s
        self._lead = lead_units
        self.forecast = np.full(minutes, np.nan)
        self.failures: dict[str, int] = {}
        self.forecasts = self.fallback_forecasts = 0

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        self._journal.append(before, seen, decision)
        for fact in seen.facts:
            if fact.kind in ("forecast-failed", "plan-failed"):
                text = f"{fact.kind}: {fact.error}"
                self.failures[text] = self.failures.get(text, 0) + 1
                self.fallback_forecasts += fact.kind == "forecast-failed"
        if seen.forecast is None:
            return
        self.forecasts += 1
        lead = min(self._lead, len(seen.forecast) - 1)
        minute = round((seen.forecast.start_at - self._start_s) / UNIT_S) + lead
        if 0 <= minute < self.forecast.size:
            self.forecast[minute] = seen.forecast.max_in(lead, 0.5)


def front_of(engine: Engine, footprint: Footprint, beside: Mapping[str, float]) -> Front | None:
    """Where requests come in; None where zones are not told apart. beside: what others pull, by zone."""
    shares = tuple(engine.entry.items())
    if not shares:
        return None
    return Front(shares=shares, is_steered=is_steered(engine, footprint), beside=tuple(sorted(beside.items())))


def is_steered(engine: Engine, footprint: Footprint) -> bool:
    """True where requests are let in where instances are: gateways that keep central queues need them evenly."""
    return footprint.is_steered and not engine.has_central_queue


def engine_setup(scenario: Scenario, bundle: PolicyBundle, kernel: Kernel) -> EngineSetup:
    """The scenario and the policy as the engine takes them."""
    workload = scenario.workload
    end_s = scenario.start_s + scenario.duration_s
    return EngineSetup(
        kernel=kernel,
        arrivals=lambda from_s, to_s: workload.arrivals(from_s, min(to_s, end_s)),
        slo=bundle.controller.slo,
        dispatch=bundle.dispatch,
        overflow=bundle.controller.overflow,
        start_at=scenario.start_s,
        duration_s=scenario.duration_s,
        rng=stream(workload.seed, "lambda"),
        noise=stream(workload.seed, "service times"),
        network_s=scenario.world.network_s,
        monitor=bundle.controller.monitor,
        speed=workload.speed,
        sizes=None if workload.sizes is None else lambda from_s, to_s: workload.items(from_s, min(to_s, end_s)),
        largest=1 if workload.sizes is None else workload.sizes.largest,
        variants=bundle.variants,
        zones=scenario.world.zones,
        entry=scenario.entry_zones,
        crossing_usd=crossing_usd(scenario.footprint, scenario.model.payload_mib),
    )


class ModelReplay:
    """One model in a replay: its controller, its instances and its engine, moved from event to event."""

    def __init__(  # noqa: PLR0913 it is given every port
        self,
        scenario: Scenario,
        bundle: PolicyBundle,
        engine: Engine,
        forecasters: Forecasters,
        history: Demand,
        journal: Journal,
        *,
        shared_rps: Callable[[], float | None] = no_shared_rps,
        shared_boots: Callable[[], bool] = no_shared_boots,
        commitments: Callable[[], Commitments | None] = no_new_commitments,
        nodes: PodNodes | None = None,
        beside: Callable[[], Mapping[str, float]] = dict,
        quotas: AccountQuotas | None = None,
    ) -> None:
        """quotas: the account's, that all models of the service share; its own where it is alone."""
        policy, workload = bundle.controller, scenario.workload
        self._scenario, self._bundle = scenario, bundle
        self._cap: CappedService | None = None
        self._history = history
        self._start_s = scenario.start_s
        self.end_s = self._end_s = scenario.start_s + scenario.duration_s
        self._engine, self._beside = engine, beside
        self._offerings: dict[str, Offering] = {item.name: item for item in policy.known_offerings}
        quotas = quotas or AccountQuotas(policy.quotas, self._offerings)
        name, shared = scenario.model.name, quotas.shared
        redispatch = scenario.model.redispatch
        self._cloud: SimulatedCloud | PodCloud
        if nodes is not None and bundle.pods is not None:
            self._cloud = nodes.cloud(engine, bundle.pods.size, redispatch=redispatch)
        else:
            self._cloud = SimulatedCloud(
                engine=self._engine,
                offerings=self._offerings,
                world=scenario.world,
                faults=scenario.faults,
                seed=workload.seed,
                market_seed=scenario.market_seed,
                start_at=self._start_s,
                redispatch=redispatch,
            )

            def reserved() -> Sequence[CapacityReservation]:
                left = commitments()
                return (scenario.footprint.commitments if left is None else left).capacity_reservations

            if policy.quotas:
                quotas.watch(self._cloud)
            if bundle.cpu_price_factor == bundle.gpu_price_factor == 1.0:  # no managed service's instances
                self._cloud.reserved = reserved
        sizes = workload.items if workload.sizes is not None and policy.pool is not None else None
        plane = _Plane(self._engine, self._start_s, workload.speed, sizes)
        self._minutes = math.ceil(scenario.duration_s / UNIT_S)
        self._recorder = _Recorder(journal, self._minutes, self._start_s, policy.lead_units)
        self._own = own_planner(policy)
        self._controller = Controller(
            policy=policy,
            clock=plane,
            cloud=self._cloud,
            data_plane=plane,
            forecaster=forecasters.forecaster,
            fallback=forecasters.fallback,
            journal=self._recorder,
            history=history,
            shared_rps=shared_rps,
            front=self._front,
            shared_boots=shared_boots,
            quotas=lambda: shared.left_for(name, policy.quotas),
            took=partial(shared.note, name),
            commitments=commitments,
            explained=scenario.explained,
            divide=self._divided,
            own=self._own,
        )
        self._names = tuple(sorted(self._offerings))
        self._ready = np.zeros((self._minutes, len(self._names)), np.int64)
        self._next_tick = self._start_s + policy.period_s
        self._next_minute, self._minute = self._start_s, 0
        self._next_watch = self._start_s + self._controller.watch_s

    def limit(self, cap: CappedService) -> None:
        """Put its plans and launches under a cap, before the run; the cap hears of the first plan at once."""
        assert isinstance(self._cloud, SimulatedCloud), "pods are under no cap"
        cap.watch(self._cloud, self._offerings)
        self._cap = cap
        self._controller.claim()

    def _divided(self, request: PlanRequest, plan: Plan) -> Plan:
        return plan if self._cap is None else self._cap.divider.divide(self._scenario.model.name, request, plan)

    def begin(self) -> None:
        """The first fleet is there when the run starts."""
        self._cloud.prewarmed = True
        self._tick()
        self._engine.begin_warm(self._left_warm())
        self._cloud.prewarmed = False

    def next_at(self) -> float:
        """When something happens next that the engine must be run to."""
        watch_at = self._next_watch if self._controller.has_standbys else math.inf
        return min(self._next_tick, self._next_minute, watch_at, self._cloud.next_at(), self._end_s)

    @property
    def watch_at(self) -> float:
        """When its controller would be polled next, had it standbys."""
        return self._next_watch

    def stops_until(self, at: float) -> Iterator[float]:
        """The instants of polls before `at`, and `at`: the engine stops at each, as its draws follow stops."""
        watch_at = self._next_watch
        while watch_at < at:
            yield watch_at
            watch_at += self._controller.watch_s
        yield at

    def missed(self) -> None:
        """The window of the SLO monitor missed: the controller looks at once."""
        self._tick()

    def reach(self, now: float) -> None:
        """Let happen what is due by now, to which the engine was run."""
        urgent = self._cloud.fire(now)
        if now >= self._next_tick:
            self._next_tick += self._bundle.controller.period_s
            urgent = True
        if now >= self._next_watch:
            while self._next_watch <= now:  # nobody stopped for those without standbys
                self._next_watch += self._controller.watch_s
            urgent = urgent or self._controller.is_surging()
        if urgent and now < self._end_s:
            self._tick()

    def end(self) -> None:
        """Bill what still runs to the end."""
        self._cloud.close(self._end_s)
        self._engine.close()
        if self._own is not None:
            self._own.close()

    def note_minute(self, now: float) -> bool:
        """Note what serves, once a minute; whether it was time to."""
        if now < self._next_minute:
            return False
        self._note_ready(self._minute)
        self._minute, self._next_minute = self._minute + 1, self._next_minute + UNIT_S
        return True

    @property
    def pulls(self) -> dict[str, float]:
        """What its instances pull that serve, by zone, USD an hour."""
        serving = (item for item in self._cloud.observe() if item.state is InstanceState.READY)
        return pulls_of(serving, self._bundle.controller)

    def _front(self) -> Front | None:
        return front_of(self._engine, self._scenario.footprint, self._beside())

    def _left_warm(self) -> int:
        """Lambda's environments that the load before the run left warm, where no instance answers any of it."""
        overflow = self._bundle.controller.overflow
        if overflow is None or self._cloud.ready():
            return 0
        recent = self._history.last(math.floor(overflow.idle_min_s / UNIT_S))
        return math.ceil(max(recent.max_rps, default=0.0) * overflow.latency_s)

    def result(self, wall_s: float, *, shared: Sequence[BillLine] = ()) -> RunResult:
        """The figures of the run. shared: lines of its bill beside its own cloud's."""
        scenario, bundle, engine, cloud = self._scenario, self._bundle, self._engine, self._cloud
        load = self._load()
        used = replayed_usage(bundle, cloud.usages, self._prices, engine, self._start_s)
        hours = used.hours()
        bill = (*shared, *self._bill(load), *self._bill_commitments(used, load))
        invocations, cold = engine.invocations()
        capacity = np.array([self._offerings[name].capacity_rps for name in self._names])
        return RunResult(
            policy=bundle.name,
            market=scenario.market,
            model=scenario.model.name,
            trace=scenario.workload.trace.name,
            speed=scenario.workload.speed,
            world=scenario.world.name,
            seed=scenario.workload.seed,
            start_at=self._start_s,
            duration_s=scenario.duration_s,
            slo=bundle.controller.slo,
            served=engine.served(),
            attained=engine.attained(),
            accuracy=engine.accuracy(),
            quality=engine.quality(),
            latency=engine.latency(),
            cost=cost_of(bill),
            bill=bill,
            usage=hours,
            gateways=gateway_count(scenario.footprint, load.peak_rps, load.mib_per_s) if bundle.overhead else None,
            load=load,
            cold_starts=cold,
            lambda_invocations=invocations,
            throttled=engine.throttled(),
            assumed_profiles=scenario.assumed,
            stand_in_profiles=scenario.stand_ins,
            lambda_guess=scenario.lambda_guess,
            launches=cloud.launches,
            refusals=cloud.refusals,
            interruptions=cloud.interruptions,
            wakes=cloud.wakes,
            wall_s=wall_s,
            seconds=engine.seconds(),
            minutes=MinuteSeries(
                offerings=self._names,
                ready=self._ready,
                capacity_rps=self._ready * capacity,
                forecast_max_rps=self._recorder.forecast,
            ),
            notes=(*self._notes(), *filter(None, (commitment_words(bill),))),
            forecasts=self._recorder.forecasts,
            fallback_forecasts=self._recorder.fallback_forecasts,
            uses_truth=bundle.uses_truth,
        )

    def _notes(self) -> tuple[str, ...]:
        """Caveats for a reader of the figures."""
        policy = self._bundle.controller
        failures = list({**self._recorder.failures, **self._engine.decision_failures()}.items())
        notes = [f"{text} ({count} times)" for text, count in failures[:MOST_FAILURES]]
        if others := sum(count for _, count in failures[MOST_FAILURES:]):
            notes.append(f"forecasts, plans or decisions failed {others:,} times more, in other ways")
        spot = self._scenario.market == Market.SPOT.value
        if spot and policy.offerings and not any(o.market is Market.SPOT for o in policy.offerings):
            notes.append("rents on demand in either market: the real thing does not use spot instances")
        if fallbacks := self._engine.fallback_decisions():
            notes.append(
                f"{fallbacks:,} of {self._engine.batches():,} batches were chosen by {QosRule.HEURISTIC}: the "
                "policy gave no number"
            )
        served = self._engine.served()
        if served.total == served.in_flight + served.shed:
            notes.append("no request was answered: there is no latency, and nothing to attain")
        if self._start_s < UNIT_S:
            notes.append("no load is known before the run: nothing is running when it starts")
        return tuple(notes)

    def _tick(self) -> None:
        decision = self._controller.tick()
        if self._bundle.controller.monitor is not None:
            self._engine.quiet_until(decision.state.monitor_quiet_until)

    def _note_ready(self, minute: int) -> None:
        ready = self._cloud.ready()
        self._ready[minute] = [ready.get(name, 0) for name in self._names]

    def _load(self) -> Load:
        """The load as the overhead is billed by it."""
        crossed = self._engine.crossed()
        return Load(
            duration_s=self._scenario.duration_s,
            peak_rps=self._peak_rps(),
            requests=round(self._scenario.workload.speed * self._engine.served().total),
            lambda_requests=self._engine.lambda_usage().requests,
            payload_mib=self._scenario.model.payload_mib,
            crossed=None if crossed is None else round(self._scenario.workload.speed * crossed),
        )

    @property
    def _prices(self) -> dict[str, float]:
        """USD an hour by offering; of a managed service AWS's list price with its premium."""
        cpu, gpu = self._bundle.cpu_price_factor, self._bundle.gpu_price_factor
        if cpu == gpu == 1.0:
            return {name: offering.usd_per_hour for name, offering in self._offerings.items()}
        kinds = {name: offering.instance_type for name, offering in self._offerings.items()}
        return {
            name: kind.listed_usd_per_hour * (gpu if kind.accelerator else cpu) for name, kind in kinds.items()
        }

    def running(self) -> Iterator[tuple[str, float]]:
        """Instances that are billed now: the offering of each, and its price, USD an hour."""
        prices = self._prices
        for name, count in self._cloud.observe().awake.items():
            yield from [(name, prices[name])] * count

    def _bill(self, load: Load) -> tuple[BillLine, ...]:
        bundle, cloud, footprint = self._bundle, self._cloud, self._scenario.footprint
        fleet = bill_fleet(
            FleetUsage(usages=tuple(cloud.usages), asleep_s=cloud.asleep_s, running_s=cloud.running_s),
            self._prices,
            self._offerings.values(),
            overflow=bundle.controller.overflow,
            lambda_usage=self._engine.lambda_usage(),
            footprint=footprint,
            load=load,
            overhead=bundle.overhead,
        )
        managed = bill_managed(bundle.charges, footprint.prices, load)
        return fleet + self._bill_scheduled() + managed

    def _bill_commitments(self, used: HourlyUsage, load: Load) -> tuple[BillLine, ...]:
        """The commitments of a model that has the account for itself."""
        footprint = self._scenario.footprint
        if not footprint.commitments:
            return ()
        if self._bundle.overhead:
            gateways = gateway_count(footprint, load.peak_rps, load.mib_per_s)
            used.add_footprint(footprint, self._start_s, self._end_s, gateways=gateways)
        return bill_commitments(footprint.commitments, used.hours(), self._start_s, self._end_s)

    def _bill_scheduled(self) -> tuple[BillLine, ...]:
        """Lambda's environments that are provisioned by the hour; of a second's calls so many as fit find one."""
        policy, speed = self._bundle.controller, self._scenario.workload.speed
        overflow = policy.overflow
        if overflow is None or not policy.provisioned_by_hour:
            return ()
        calls = self._engine.seconds().to_lambda * speed
        there = np.array([policy.provisioned_at(self._start_s + second) for second in range(calls.size)])
        answered = np.minimum(calls, there / overflow.latency_s).sum()
        return bill_scheduled(
            overflow,
            self._scenario.footprint.prices,
            provisioned_s=float(there.sum()),
            answered=float(answered),
        )

    def _peak_rps(self) -> float:
        """Arrivals of the busiest real second, which is as many of the trace's as the speed says."""
        counts = self._engine.seconds().arrivals
        per = max(1, round(self._scenario.workload.speed))
        sums = np.add.reduceat(counts, np.arange(0, counts.size, per)) if counts.size else counts
        return float(sums.max(initial=0)) * self._scenario.workload.speed / per

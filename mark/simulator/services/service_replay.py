"""All models of a service in one run: each with its controller and its fleet, some on instances that they share.

Shared instances are the service's (`shared_hosts.py`). What they take of a model's load is none of its own
fleet's: its controller sees, and plans for, what is left. A model alone is replayed as `replay.py` does it.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

from mark.controller.hosts.placement_journal import PlacementHeader, PlacementJournal
from mark.controller.hosts.sharing import Sharer, own_history
from mark.controller.journal import Header
from mark.controller.runner import Journal
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import UNIT_S, Demand
from mark.domain.errors import Misconfigured
from mark.domain.front import steered_shares
from mark.policies.bundles import ENDPOINT_GRID, MULTI_MODEL, PolicyBundle
from mark.policies.spec import Overrides
from mark.policies.tuning import Trial, TunedSetting, choose
from mark.simulator.engine.compiled import DeviceKernel, Kernel
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.experiment import Experiment, OpenJournal, Progress, Ready, Unwritten
from mark.simulator.limits import LimitWatch
from mark.simulator.replay import Forecasters, ModelReplay, Scenario, engine_setup, front_of, nodes_of
from mark.simulator.results import RunResult
from mark.simulator.services.account_quotas import AccountQuotas
from mark.simulator.services.model_endpoint import ModelEndpoint
from mark.simulator.services.pod_nodes import PodNodes
from mark.simulator.services.service_cap import capped
from mark.simulator.services.service_commitments import OwnedService, running_by_name
from mark.simulator.services.shared_hosts import SharedFleet, SharedHosts

NOTHING_LEFT = "last-value"
"""Forecaster of a model of whose load shared instances took all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A model of the service, and with whom it may share instances."""

    experiment: Experiment
    #: Models of the same team share; empty for those of none.
    team: str = ""
    alone: bool = False
    #: Multiplies what its instances save, where models compete for the service's cap.
    weight: float = 1.0

    @property
    def shares(self) -> bool:
        """False where it keeps a fleet of its own: it is told to, or has variants or requests of many sizes."""
        spec = self.experiment.spec.model
        return not self.alone and spec.sizes is None and self.experiment.assembly.variants is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReplay:
    """Results of a service's models, in their order.

    shared: the instances that several shared; None where none could. on_shared: requests that those took, by
    model. packed: the shared instances are nodes with pods, or those of a multi-model endpoint.
    """

    results: tuple[RunResult, ...]
    shared: SharedFleet | None = None
    on_shared: tuple[int, ...] = ()
    packed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceJournals:
    """Where a run of a service is written: the ticks of each model, and the placements of all."""

    open_model: OpenJournal = lambda _: nullcontext(Unwritten())
    open_placements: Callable[[PlacementHeader], AbstractContextManager[PlacementJournal | None]] = lambda _: (
        nullcontext(None)
    )


NOWHERE = ServiceJournals()


def replay_service(
    members: Sequence[Member],
    policy: str,
    *,
    kernels: tuple[Kernel, DeviceKernel],
    overrides: Overrides | None = None,
    owned: Commitments = NO_COMMITMENTS,
    journals: ServiceJournals = NOWHERE,
    progress: Progress = lambda _label, _share: None,
) -> ServiceReplay:
    """Replay all models under one policy. `progress` is told the model that it is about, and the share of all.

    owned: the account's commitments that what stands around the fleets leaves.
    """
    tuned = None
    if policy == MULTI_MODEL and (overrides is None or overrides.setting is None):
        tuned = _tuned_endpoint(members, kernels, overrides or Overrides(), progress)
        overrides = replace(overrides or Overrides(), setting=tuned.trial.setting)
    ready = []
    for place, member in enumerate(members):
        told = _part_of(progress, f"preparing {member.experiment.spec.model.name}", place, len(members))
        ready.append(member.experiment.ready(policy, overrides=overrides, progress=told))
    ready = [one._replace(tuned=tuned or one.tuned) for one in ready]
    if members[0].experiment.scenario.world.cap and any(one.bundle.is_packed for one in ready):
        raise Misconfigured(
            f"{policy} packs models, which the cap over all (service.aws) does not limit: leave one out"
        )
    with journals.open_placements(_placement_header(members, policy)) as placements:
        together = _Together(members, ready, kernels, placements, owned)
        return together.run(journals.open_model, progress)


def _tuned_endpoint(
    members: Sequence[Member], kernels: tuple[Kernel, DeviceKernel], overrides: Overrides, progress: Progress
) -> TunedSetting:
    """The setting that did best on the load before the run: one attains what its worst model does."""
    past = [replace(member, experiment=member.experiment.before(MULTI_MODEL)) for member in members]
    trials = []
    for place, setting in enumerate(ENDPOINT_GRID):
        told = _part_of(progress, f"tuning {MULTI_MODEL} on the load before the run", place, len(ENDPOINT_GRID))
        given = replace(overrides, setting=setting)
        run = replay_service(past, MULTI_MODEL, kernels=kernels, overrides=given, progress=told)
        assert run.shared is not None
        cost_usd = sum(line.usd for line in run.shared.bill(past[0].experiment.scenario.footprint))
        attained = min(result.attained for result in run.results)
        trials.append(Trial(setting=setting, cost_usd=cost_usd, attained=attained))
    best = choose(trials, max(member.experiment.supply.slo.target for member in members))
    return TunedSetting(trial=best, replays=len(trials), load_s=past[0].experiment.scenario.duration_s)


def _placement_header(members: Sequence[Member], policy: str) -> PlacementHeader:
    first = members[0].experiment
    return PlacementHeader(
        policy=policy,
        models=tuple(member.experiment.spec.model.name for member in members),
        market=first.spec.market.value,
        catalogue=first.catalogue,
        seed=_market_seed(first.scenario),
        start_at=first.scenario.start_s,
        end_at=first.scenario.start_s + first.scenario.duration_s,
    )


def _market_seed(scenario: Scenario) -> int:
    return scenario.workload.seed if scenario.market_seed is None else scenario.market_seed


def _part_of(progress: Progress, doing: str, place: int, parts: int) -> Progress:
    """Progress of one of so many equal parts."""
    return lambda _doing, share: progress(doing, (place + share) / parts)


class _Together:
    """Models whose clocks move together."""

    def __init__(
        self,
        members: Sequence[Member],
        ready: Sequence[Ready],
        kernels: tuple[Kernel, DeviceKernel],
        placements: PlacementJournal | None,
        owned: Commitments,
    ) -> None:
        self._models = [member.experiment for member in members]
        self._ready = ready
        self._loads: dict[int, tuple[Demand, Demand]] = {}
        self._commitments, self._owned = owned, OwnedService(owned, {})
        scenarios = [model.scenario for model in self._models]
        plain, shared = kernels
        self._footprint, self._entry_zones = scenarios[0].footprint, scenarios[0].entry_zones
        #: What instances pull, by zone: each model's own, those of all, and the shared ones too.
        self._pulls_of: list[dict[str, float]] = [{} for _ in scenarios]
        self._own_pulls: Counter[str] = Counter()
        self._pulls: Counter[str] = Counter()
        self._plane = SharedPlane(
            shared,
            [engine_setup(scenario, one.bundle, plain) for scenario, one in zip(scenarios, ready, strict=True)],
        )
        weights = {
            model.spec.model.name: member.weight for model, member in zip(self._models, members, strict=True)
        }
        self._cap = capped(scenarios[0].world, weights)
        offerings = {
            item.name: item
            for model, one in zip(self._models, ready, strict=True)
            for item in (*model.supply.offerings, *one.bundle.controller.known_offerings)
        }
        self._quotas = AccountQuotas(scenarios[0].world.quotas, offerings)
        self._engines = [self._plane.apart.get(number, one) for number, one in enumerate(self._plane.engines)]
        self._start_s, self._end_s = scenarios[0].start_s, scenarios[0].start_s + scenarios[0].duration_s
        self._hosts = SharedHosts(
            self._plane,
            sharers_of(members, ready),
            history=self._history,
            world=scenarios[0].world,
            faults=scenarios[0].faults,
            seed=_market_seed(scenarios[0]),
            end_s=self._end_s,
            journal=placements,
            cap=self._cap,
            quotas=self._quotas,
            front=lambda: front_of(self._plane.engines[0], self._footprint, self._own_pulls),
            owned=owned,
        )
        self._nodes = nodes_of(self._plane, scenarios, [one.bundle for one in ready]) or self._endpoint_of(ready)

    def _endpoint_of(self, ready: Sequence[Ready]) -> ModelEndpoint | None:
        served = [
            (model.spec.model, one.bundle.endpoint)
            for model, one in zip(self._models, ready, strict=True)
            if one.bundle.endpoint is not None
        ]
        if not served:
            return None
        if self._plane.apart:
            raise Misconfigured(
                f"{MULTI_MODEL} serves requests of one item, of models without variants: leave it out, or them"
            )
        first = self._models[0]
        return ModelEndpoint(
            self._plane,
            served,
            slo=first.supply.slo,
            history=self._history,
            world=first.scenario.world,
            faults=first.scenario.faults,
            seed=_market_seed(first.scenario),
            end_s=self._end_s,
        )

    def _history(self, number: int, at: float, units: int) -> Demand:
        """Load of a model in the units that have ended by then: those before the run, and those of the run."""
        if number not in self._loads:
            workload = self._models[number].spec.workload
            self._loads[number] = (
                workload.history(self._start_s, sys.maxsize),
                workload.demand(self._start_s, self._end_s),
            )
        (past, run), ended = self._loads[number], math.floor((at - self._start_s) / UNIT_S)
        return Demand(
            end_at=self._start_s + ended * UNIT_S,
            mean_rps=(*past.mean_rps, *run.mean_rps[:ended])[-units:],
            max_rps=(*past.max_rps, *run.max_rps[:ended])[-units:],
        )

    def run(self, open_journal: OpenJournal, progress: Progress) -> ServiceReplay:
        """From the first fleet to the end."""
        with ExitStack() as journals:
            return self._run(lambda header: journals.enter_context(open_journal(header)), progress)

    def _run(self, journal_of: Callable[[Header], Journal], progress: Progress) -> ServiceReplay:
        began = time.perf_counter()
        self._hosts.begin()
        parts, watches = [], []
        for number, (model, one) in enumerate(zip(self._models, self._ready, strict=True)):
            own = own_part(model, one.bundle, self._hosts.planned_rps(number), progress)
            journal = journal_of(model.header(own.bundle, own.history))
            watches.append(LimitWatch(journal))
            parts.append(self._part(number, own, watches[-1], explained=not isinstance(journal, Unwritten)))
        if self._cap is not None:
            for part in parts:  # all before the first plans, or that would find the cap empty
                part.limit(self._cap)
        names = [model.spec.model.name for model in self._models]
        by_name = dict(zip(names, parts, strict=True))
        running = {name: part.running for name, part in by_name.items()}
        self._owned = OwnedService(self._commitments, running_by_name(self._hosts.running, running))
        for name in sorted(names) if self._commitments else names:  # who begins sees what those before it took
            by_name[name].begin()
        if self._nodes is not None:
            self._nodes.begin()
        self._go(parts, lambda share: progress("all models", share))
        for part in parts:
            part.end()
        shared = self._hosts.end() if self._nodes is None else self._nodes.end()
        wall_s = time.perf_counter() - began
        results = [
            model.noted(part.result(wall_s), one, watch)
            for model, part, one, watch in zip(self._models, parts, self._ready, watches, strict=True)
        ]
        on_shared = [engine.on_shared() for engine in self._plane.engines]
        if self._nodes is not None:
            on_shared = [result.served.instance for result in results]
        return ServiceReplay(
            results=tuple(results), shared=shared, on_shared=tuple(on_shared), packed=self._nodes is not None
        )

    def _part(self, number: int, part: OwnPart, watch: LimitWatch, *, explained: bool) -> ModelReplay:
        """One model's controller and fleet, for the load that shared instances leave."""
        name = self._models[number].spec.model.name
        return ModelReplay(
            replace(self._models[number].scenario, explained=explained),
            part.bundle,
            self._engines[number],
            part.forecasters,
            part.history,
            watch,
            nodes=self._nodes if isinstance(self._nodes, PodNodes) else None,
            shared_rps=lambda: self._hosts.shared_rps(number),
            beside=lambda: self._pulls_beside(number),
            quotas=self._quotas,
            shared_boots=lambda: self._hosts.is_booting(number),
            commitments=lambda: self._owned.left_for(name) if self._commitments and self._nodes is None else None,
        )

    def _go(self, parts: Sequence[ModelReplay], progress: Callable[[float], None]) -> None:
        plane = self._plane
        hosts = self._hosts if self._nodes is None else self._nodes
        while plane.now < self._end_s:
            minutes = [part.note_minute(plane.now) for part in parts]
            if any(minutes):
                self._steer(parts)
                progress((plane.now - self._start_s) / (self._end_s - self._start_s))
            stop = min(hosts.next_at(), *(part.next_at() for part in parts))
            watching = min(parts, key=lambda part: part.watch_at)
            if not self._hosts.is_settled:
                stop = min(stop, watching.watch_at)
            missed = next(
                (one for at in watching.stops_until(stop) if (one := plane.run_until(at)) is not None), None
            )
            if missed is not None:
                parts[missed].missed()
                continue
            hosts.reach(stop)
            for part in parts:
                part.reach(stop)
        progress(1.0)

    def _steer(self, parts: Sequence[ModelReplay]) -> None:
        """Let requests in where the instances are."""
        self._pulls_of, self._own_pulls = [part.pulls for part in parts], Counter()
        for pulls in self._pulls_of:
            self._own_pulls.update(pulls)
        self._pulls = self._own_pulls.copy()
        self._pulls.update(self._hosts.pulls)
        if self._footprint.is_steered:
            self._plane.engines[0].let_in(steered_shares(self._pulls, self._entry_zones))

    def _pulls_beside(self, number: int) -> dict[str, float]:
        """What all instances pull but a model's own, by zone."""
        own = self._pulls_of[number]
        return {zone: usd - own.get(zone, 0.0) for zone, usd in self._pulls.items()}


class OwnPart(NamedTuple):
    """The rest for a model's own fleet: the policy, its forecasters, and the load before."""

    bundle: PolicyBundle
    forecasters: Forecasters
    history: Demand


def own_part(model: Experiment, bundle: PolicyBundle, shared_rps: float, progress: Progress) -> OwnPart:
    """The part of a model's load that shared instances of that capacity leave, and who forecasts it."""
    left = own_history(model.history, shared_rps)
    if not any(left.max_rps):  # nothing to learn from
        bundle = replace(bundle, forecaster=NOTHING_LEFT)
    return OwnPart(bundle, model.forecasters(bundle, left, progress), left)


def sharers_of(members: Sequence[Member], ready: Sequence[Ready]) -> tuple[Sharer, ...]:
    """The models as they may share instances; none where the policy shares none."""
    able = all(one.bundle.shares and not one.bundle.uses_truth for one in ready)
    return tuple(_sharer(member, one) for member, one in zip(members, ready, strict=True)) if able else ()


def _sharer(member: Member, ready: Ready) -> Sharer:
    experiment = member.experiment
    return Sharer(
        model=experiment.spec.model,
        slo=experiment.supply.slo,
        offerings=experiment.supply.offerings,
        overflow=ready.bundle.controller.overflow,
        team=member.team,
        alone=not member.shares,
        crossing_usd=ready.bundle.controller.crossing_usd,
    )

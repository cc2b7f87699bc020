"""A fixed cluster of GPUs that several models share: requests, instances and an autoscaler in virtual time.

The smallest world of HetSev's experiments; no cloud, no Lambda, no controller. A request is one batch. The
requests of a model wait in one queue, first come, first served, and the instance that has been idle longest takes
the next. Loads are open (Poisson) or closed: so many clients, each with one request at a time.

A batch takes its time alone x (1 + the slowdowns beside the neighbours that are busy as it starts) x the sum of
the busy tenants' demands where that is above 1: a GPU does no more than it can. A demand is the rate of an
instance that is always busy over the model's best rate on that GPU. The decisions are `mark.planner`'s.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mark.catalog.pairs import Pairs
from mark.domain.models.objective import Slo
from mark.planner.hetsev.gpu_placement import Cluster, Instance, Needs, PlacementPolicy, able_gpus, place
from mark.planner.hetsev.scaling import Kind, ScalerPolicy, ScalerState, Scaling, grow, scale, scale_kubernetes
from mark.simulator.rng import stream

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A model alone on one type of GPU: seconds of a batch, those of the GPU in it, and its best rate, items/s."""

    service_s: float
    gpu_s: float
    best_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedModel:
    """A model, served in batches of one size; times by type of GPU."""

    name: str
    batch: int
    slo: Slo
    needs: Needs
    times: Mapping[str, Times]

    def capacity_rps(self, kind: str) -> float:
        """Items/s of one instance."""
        return self.batch / self.times[kind].service_s

    def demand(self, kind: str) -> float:
        """Share of the GPU that an instance takes while it is busy."""
        return min(1.0, self.capacity_rps(kind) / self.times[kind].best_rps)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLoad:
    """Items/s by interval of the autoscaler, shape (intervals,); closed: as many clients as would send them."""

    rates_rps: Floats
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRules:
    """The deciding rules.

    by_cost: HetSev chooses the type; else Kubernetes counts instances, and their types are drawn.
    """

    by_cost: bool
    placement: PlacementPolicy
    scaler: ScalerPolicy = field(default_factory=ScalerPolicy)
    #: Of all models together.
    most_instances: int | None = None
    launch_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrices:
    """By type of GPU: the paper's cost of a GB for a second, and the rent of an instance with one, USD/h."""

    cost_gb_s: Mapping[str, float]
    usd_per_hour: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """One model's outcome. arrived_s, response_s: shape (requests,); what was never answered is infinite."""

    arrived_s: Floats
    response_s: Floats
    attained: float
    slo_s: float
    #: Instances by interval, ready or not.
    instances: tuple[int, ...]
    #: The published accounting: used memory where GPUs are shared, else all of the GPU's.
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """Outcome of a run. busy: shape (intervals,), share of the cluster's GPU time that computed."""

    models: Mapping[str, ModelRun]
    busy: Floats
    rented_usd: float
    gpu_hours: Mapping[str, float]


class _Server:
    """An instance on its GPU, ready or starting."""

    __slots__ = ("busy", "demand", "gpu", "instance", "leaving", "placed_s", "service")

    def __init__(self, instance: Instance, gpu: str, service: _Service, now: float, demand: float) -> None:
        self.instance, self.gpu, self.service, self.placed_s, self.demand = instance, gpu, service, now, demand
        self.busy = self.leaving = False


class _Service:
    """A model with its queue, its instances and its autoscaler."""

    def __init__(self, model: SharedModel, load: SharedLoad) -> None:
        self.model, self.load = model, load
        self.state = ScalerState()
        self.queue: deque[float] = deque()
        self.idle: deque[_Server] = deque()
        self.servers: list[_Server] = []
        self.pending: list[Instance] = []
        self.arrivals: list[float] = []
        self.next_arrival = 0
        self.clients = self.wanted_clients = 0
        self.arrived = 0
        self.arrived_s: list[float] = []
        self.response_s: list[float] = []
        self.instances: list[int] = []
        self.cost = 0.0

    def running(self) -> Counter[str]:
        """Instances by type of GPU that were asked for and do not leave."""
        there = [server.instance.kind for server in self.servers if not server.leaving]
        return Counter([*there, *(item.kind for item in self.pending)])


_ARRIVAL, _DONE, _READY, _TICK = range(4)


class SharedGpus:
    """One run: `run()` once."""

    def __init__(
        self,
        cluster: Cluster,
        models: Sequence[tuple[SharedModel, SharedLoad]],
        rules: SharingRules,
        *,
        pairs: Pairs,
        prices: GpuPrices,
        seed: int,
    ) -> None:
        self._cluster, self._rules, self._pairs, self._prices = cluster, rules, pairs, prices
        self._services = [_Service(model, load) for model, load in models]
        self._kinds = sorted({gpu.kind for gpu in cluster.gpus.values()})
        self._intervals = min(len(load.rates_rps) for _, load in models)
        self._step_s = rules.scaler.interval_s
        self._rng = stream(seed, "shared GPUs: types")
        self._on: dict[str, list[_Server]] = {name: [] for name in cluster.gpus}
        self._busy_s = np.zeros(self._intervals + 1)
        self._occupied: dict[str, float] = {}
        self._rented_s = dict.fromkeys(self._kinds, 0.0)
        self._launched = 0
        self._events: list[tuple[float, int, int, _Service | _Server | None]] = []
        self._order = 0
        for service in self._services:
            if not service.load.closed:
                self._draw(service, seed)

    def run(self) -> SharedRun:
        """Serve the loads to their end."""
        end_s = self._intervals * self._step_s
        for service in self._services:
            self._start(service)
        self._push(0.0, _TICK, None)
        while self._events:
            now, _, what, about = heapq.heappop(self._events)
            if now >= end_s:
                break
            if isinstance(about, _Server):
                self._done(about, now) if what == _DONE else self._is_ready(about, now)
            elif about is not None:
                self._arrive(about, now)
                self._next_arrival(about)
            else:
                self._tick(now)
        for service in self._services:
            for server in list(service.servers):
                self._remove(server, end_s)
        return self._outcome(end_s)

    def _draw(self, service: _Service, seed: int) -> None:
        """Poisson arrivals of an open load, in batches."""
        rng = stream(seed, f"shared GPUs: arrivals of {service.model.name}")
        means = service.load.rates_rps[: self._intervals] * self._step_s / service.model.batch
        starts = np.repeat(np.arange(self._intervals) * self._step_s, rng.poisson(means))
        service.arrivals = np.sort(starts + rng.random(starts.size) * self._step_s).tolist()
        self._next_arrival(service)

    def _push(self, at: float, what: int, about: _Service | _Server | None) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, what, about))

    def _next_arrival(self, service: _Service) -> None:
        if service.next_arrival < len(service.arrivals):
            self._push(service.arrivals[service.next_arrival], _ARRIVAL, service)
            service.next_arrival += 1

    def _arrive(self, service: _Service, now: float) -> None:
        service.arrived += 1
        service.queue.append(now)
        self._dispatch(service, now)

    def _dispatch(self, service: _Service, now: float) -> None:
        while service.queue and service.idle:
            server = service.idle.popleft()
            if server.leaving:
                continue
            arrived = service.queue.popleft()
            server.busy = True
            times = service.model.times[server.instance.kind]
            done = now + times.service_s * self._factor(server)
            self._busy_s[int(now / self._step_s)] += times.gpu_s
            service.arrived_s.append(arrived)
            service.response_s.append(done - arrived)
            self._push(done, _DONE, server)

    def _factor(self, server: _Server) -> float:
        """Slowdown of a batch that starts now, over its time alone."""
        tenants = self._on[server.gpu]
        if len(tenants) == 1:
            return 1.0
        slower, demand = 1.0, server.demand
        for other in tenants:
            if other.busy and other is not server:
                slower += self._pairs.slowdown(server.instance.model, other.instance.model)
                demand += other.demand
        return slower * max(1.0, demand)

    def _done(self, server: _Server, now: float) -> None:
        service = server.service
        server.busy = False
        if server.leaving:
            self._remove(server, now)
        else:
            service.idle.append(server)
        if service.load.closed:
            if service.clients > service.wanted_clients:
                service.clients -= 1
            else:
                self._arrive(service, now)
        self._dispatch(service, now)

    def _is_ready(self, server: _Server, now: float) -> None:
        if server in self._on[server.gpu]:
            server.service.idle.append(server)
            self._dispatch(server.service, now)

    def _tick(self, now: float) -> None:
        interval = round(now / self._step_s)
        for service in self._services:
            if interval:
                self._scale(service, now)
            if service.load.closed:
                self._set_clients(service, float(service.load.rates_rps[interval]), now)
        self._place(now, ready_s=self._rules.launch_s if interval else 0.0)
        for service in self._services:
            service.instances.append(service.running().total())
        if interval + 1 < self._intervals:
            self._push(now + self._step_s, _TICK, None)

    def _set_clients(self, service: _Service, rate_rps: float, now: float) -> None:
        """As many as send this rate when nobody waits: rate x mean time alone."""
        alone_s = math.fsum(service.model.times[kind].service_s for kind in self._kinds) / len(self._kinds)
        service.wanted_clients = max(1, round(rate_rps / service.model.batch * alone_s))
        while service.clients < service.wanted_clients:
            service.clients += 1
            self._arrive(service, now)

    def _seen(self, service: _Service, rate_rps: float) -> Scaling:
        """Input of the autoscaler of a model."""
        rules, cluster, model = self._rules, self._cluster, service.model
        running = service.running()
        pending = service.pending if rules.placement.share else [p for s in self._services for p in s.pending]
        left: dict[str, float] = {}
        kinds = []
        for kind in self._kinds:
            gpus = [gpu for gpu in cluster.gpus.values() if gpu.kind == kind]
            able = able_gpus(cluster, self._instance(service, kind, 0.0), rules.placement)
            left[f"{kind} GPUs"] = len(able) - sum(item.kind == kind for item in pending)
            left[f"{kind} memory"] = math.fsum(cluster.free_gb(gpu.name) for gpu in gpus)
            kinds.append(
                Kind(
                    name=kind,
                    cost=self._cost_s(model, kind),
                    capacity_rps=model.capacity_rps(kind),
                    launch_s=rules.launch_s,
                    latency_s=model.times[kind].service_s,
                    running=running[kind],
                    needs={f"{kind} GPUs": 1.0, f"{kind} memory": model.needs.gpu_gb, "instances": 1.0},
                )
            )
        everyone = sum(other.running().total() for other in self._services)
        most = len(cluster.gpus) * len(self._services) if rules.most_instances is None else rules.most_instances
        left["instances"] = most - everyone
        return Scaling(
            kinds=tuple(kinds),
            left=left,
            rate_rps=rate_rps,
            slo_s=model.slo.latency_s,
            launch_weight=rules.scaler.launch_weight,
        )

    def _cost_s(self, model: SharedModel, kind: str) -> float:
        """Published accounting of one instance, for a second."""
        size = next(gpu.gpu_gb for gpu in self._cluster.gpus.values() if gpu.kind == kind)
        return self._prices.cost_gb_s[kind] * (model.needs.gpu_gb if self._rules.placement.share else size)

    def _start(self, service: _Service) -> None:
        """The instances that the first rate needs, ready at once."""
        rate_rps = float(service.load.rates_rps[0]) / self._rules.scaler.threshold
        while not (seen := self._seen(service, rate_rps)).carries({}):
            actions = grow(seen) if self._rules.by_cost else self._drawn(seen, 1)
            if not actions:
                break
            self._ask(service, actions, 0.0)

    def _scale(self, service: _Service, now: float) -> None:
        rate_rps = service.arrived * service.model.batch / self._step_s
        service.arrived = 0
        seen = self._seen(service, rate_rps)
        if self._rules.by_cost:
            service.state, actions = scale(service.state, now, seen, self._rules.scaler)
            self._ask(service, actions, now)
            return
        service.state, more = scale_kubernetes(service.state, now, seen, self._rules.scaler)
        self._ask(service, self._drawn(seen, more), now)
        for _ in range(-more):
            self._let_go(service, None, now)

    def _drawn(self, seen: Scaling, more: int) -> dict[str, int]:
        """Types of so many instances, drawn among those with room."""
        actions: Counter[str] = Counter()
        free = {kind.name: seen.room(kind) for kind in seen.kinds}
        for _ in range(min(max(0, more), int(seen.left["instances"]))):
            able = [name for name, room in free.items() if room > actions[name]]
            if not able:
                break
            actions[able[int(self._rng.integers(len(able)))]] += 1
        return dict(actions)

    def _instance(self, service: _Service, kind: str, now: float) -> Instance:
        model = service.model
        name = f"{model.name} {self._launched:04d}"
        return Instance(name=name, model=model.name, kind=kind, needs=model.needs, since_s=now)

    def _ask(self, service: _Service, actions: Mapping[str, int], now: float) -> None:
        for kind, x in actions.items():
            for _ in range(x):
                self._launched += 1
                service.pending.append(self._instance(service, kind, now))
            for _ in range(-x):
                self._let_go(service, kind, now)

    def _let_go(self, service: _Service, kind: str | None, now: float) -> None:
        """The newest instance leaves: one that still waits for a GPU first."""
        for item in reversed(service.pending):
            if kind in (None, item.kind):
                service.pending.remove(item)
                return
        for server in reversed(service.servers):
            if not server.leaving and kind in (None, server.instance.kind):
                server.leaving = True
                if not server.busy:
                    self._remove(server, now)
                return

    def _place(self, now: float, *, ready_s: float) -> None:
        pending = {item.name: (item, service) for service in self._services for item in service.pending}
        if not pending:
            return
        waiting = [item for item, _ in pending.values()]
        for name, gpu in place(waiting, self._cluster, now, self._rules.placement).items():
            item, service = pending[name]
            kind = self._cluster.gpus[gpu].kind
            placed = replace(item, kind=kind)
            server = _Server(placed, gpu, service, now, service.model.demand(kind))
            self._cluster = self._cluster.with_tenant(gpu, placed)
            if not self._on[gpu]:
                self._occupied[gpu] = now
            self._on[gpu].append(server)
            service.servers.append(server)
            service.pending.remove(item)
            self._push(now + ready_s, _READY, server)

    def _remove(self, server: _Server, now: float) -> None:
        service, gpu = server.service, server.gpu
        service.cost += (now - server.placed_s) * self._cost_s(service.model, server.instance.kind)
        service.servers.remove(server)
        self._on[gpu].remove(server)
        self._cluster = self._cluster.without(gpu, server.instance.name)
        if not self._on[gpu]:
            self._rented_s[self._cluster.gpus[gpu].kind] += now - self._occupied.pop(gpu)

    def _outcome(self, end_s: float) -> SharedRun:
        hours = {kind: self._rented_s[kind] / 3600 for kind in self._kinds}
        return SharedRun(
            models={service.model.name: _model_run(service, end_s) for service in self._services},
            busy=self._busy_s[: self._intervals] / (self._step_s * len(self._cluster.gpus)),
            rented_usd=math.fsum(hours[kind] * self._prices.usd_per_hour[kind] for kind in self._kinds),
            gpu_hours=hours,
        )


def _model_run(service: _Service, end_s: float) -> ModelRun:
    """What was asked and was not answered by the end is late only if it waited longer than the objective."""
    slo = service.model.slo
    late = [at for at in service.queue if end_s - at > slo.latency_s]
    arrived_s = np.array([*service.arrived_s, *late])
    response_s = np.array([*service.response_s, *(math.inf for _ in late)])
    return ModelRun(
        arrived_s=arrived_s,
        response_s=response_s,
        attained=float((response_s <= slo.latency_s).mean()) if response_s.size else 1.0,
        slo_s=slo.latency_s,
        instances=tuple(service.instances),
        cost=service.cost,
    )

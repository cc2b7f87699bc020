"""A multi-model endpoint in virtual time: its instances, and the models that their requests load and unload.

It is scaled as an endpoint of one model is, by target tracking on invocations an instance; invocations of all
models count alike. Instances are those of a simulated cloud, and devices that models share; what they hold is
`planner/rivals/endpoint.py`'s. A request that finds its model nowhere is refused, which is a miss: a load takes
longer than objectives allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mark.cloudmodel.world import World
from mark.controller.hosts.sharing import LOAD_S, memory_gib
from mark.domain.demand import UNIT_S, Demand, point_forecast
from mark.domain.fleet.orders import Drain, Launch
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.plan import PlanRequest
from mark.planner.baselines import TargetTracking, target_tracking
from mark.planner.rivals.endpoint import EndpointModel, Holding, endpoint_offering, to_evict, where_to_load
from mark.policies.bundles import Endpoint
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.host_plane import HostPlane
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript
from mark.simulator.services.shared_hosts import SharedFleet

LOOK_S = 10.0
"""What has to be loaded is looked for so often: a load takes longer, and counts from the first request on."""
ALL_RPS = 1e9
"""Of a model's requests/s an instance takes all: it has no others."""
SCALING_UNITS = 30
"""Minutes that target tracking looks back on, and some."""


class ModelEndpoint:
    """The endpoint of a service. models: each with what it may be served on, in the order of the plane's engines.

    history: the load of each until an instant.
    """

    def __init__(
        self,
        plane: SharedPlane,
        models: Sequence[tuple[ModelSpec, Endpoint]],
        *,
        slo: Slo,
        history: Callable[[int, float, int], Demand],
        world: World,
        faults: FaultScript,
        seed: int,
        end_s: float,
    ) -> None:
        self._start_s, self._end_s, self._slo, self._history = plane.now, end_s, slo, history
        self._names = [spec.name for spec, _ in models]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._memory_gib = {spec.name: spec.memory_gib for spec, _ in models}
        known = [
            EndpointModel(
                name=spec.name,
                memory_gib=spec.memory_gib,
                usual_rps=endpoint.usual_rps,
                offerings=endpoint.offerings,
            )
            for spec, endpoint in models
        ]
        self._offering = endpoint_offering(known, memory_gib)
        self._served_on = [
            next(item for item in model.offerings if item.name == self._offering.name) for model in known
        ]
        self._usual_rps = {model.name: model.usual_rps for model in known}
        self._engines = plane.engines
        self._plane = HostPlane(plane, [spec.redispatch for spec, _ in models])
        self._offerings = {self._offering.name: self._offering}
        self._cloud = SimulatedCloud(
            engine=self._plane,
            offerings=self._offerings,
            world=world,
            faults=faults,
            seed=seed,
            start_at=plane.now,
            redispatch=True,
        )
        self._plan = target_tracking(TargetTracking(utilisation=models[0][1].utilisation))
        self._orders = 0
        self._scale_at = self._start_s + UNIT_S
        self._looked_at, self._look_at = self._start_s, self._start_s + LOOK_S
        self._ready: list[int] = []
        self._used_at: dict[str, float] = {}
        #: Models on their way, by instance and model, with when they are there.
        self._loading: dict[tuple[str, str], float] = {}
        #: Models that answer their last requests, by instance and model.
        self._leaving: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """The first instances are there when the run starts, with the models that are used most."""
        self._cloud.prewarmed = True
        self._scale(self._plane.now)
        self._cloud.prewarmed = False
        for model in sorted(self._names, key=lambda name: (-self._usual_rps[name], name)):
            for instance in self._holdings():
                if self._memory_gib[model] <= instance.free_gib:
                    self._place(instance.name, model)

    def next_at(self) -> float:
        """When something happens next."""
        loaded_at = min(self._loading.values(), default=self._end_s)
        return min(self._cloud.next_at(), loaded_at, self._look_at, self._scale_at, self._end_s)

    def reach(self, now: float) -> None:
        """Let happen what is due by now."""
        self._cloud.fire(now)
        self._see_loaded(now)
        if now >= self._look_at:
            self._look(now)
        if now >= self._scale_at:
            self._ready.append(len(self._cloud.slots()))
            self._scale(now)
            self._scale_at = now + UNIT_S

    def end(self) -> SharedFleet:
        """Bill what still runs to the end: the price of an instance contains what runs beside it."""
        self._cloud.close(self._end_s)
        duration_s = self._end_s - self._start_s
        return SharedFleet.of(self._cloud, self._offerings, duration_s=duration_s, overhead=False)

    def tenants(self) -> dict[str, frozenset[str]]:
        """Models on each instance that serves, by its id; those that answer their last requests too."""
        return {
            name: frozenset(self._names[number] for number in self._plane.tenants(slot))
            for name, slot in self._staying().items()
        }

    def _staying(self) -> dict[str, int]:
        slots, fleet = self._cloud.slots(), self._cloud.observe()
        return {item.id: slots[item.id] for item in fleet if item.stays and item.id in slots}

    def _holdings(self) -> list[Holding]:
        room_gib, found = memory_gib(self._offering.instance_type), []
        for name, there in self.tenants().items():
            models = there | {model for at, model in self._loading if at == name}
            free_gib = room_gib - sum(self._memory_gib[model] for model in models)
            found.append(Holding(name=name, models=models, free_gib=free_gib))
        return found

    def _place(self, instance: str, model: str) -> None:
        number = self._numbers[model]
        self._plane.place(self._cloud.slots()[instance], number, self._served_on[number], ALL_RPS)

    def _see_loaded(self, now: float) -> None:
        staying = self._staying()
        self._loading = {key: at for key, at in self._loading.items() if key[0] in staying}
        for (instance, model), at in sorted(self._loading.items()):
            if at <= now:
                del self._loading[instance, model]
                self._place(instance, model)

    def _look(self, now: float) -> None:
        """Load what was asked for and is nowhere, and what was refused where it is."""
        seconds = slice(int(self._looked_at - self._start_s), int(now - self._start_s))
        self._looked_at, self._look_at = now, now + LOOK_S
        staying = self._staying()
        self._leaving = {key for key in self._leaving if key[0] in staying and not self._unload(*key)}
        for model, number in self._numbers.items():
            counts = self._engines[number].tally.seconds[seconds]
            if not counts.arrivals.any():
                continue
            self._used_at[model] = now
            instances = self._holdings()
            there = [one for one in instances if model in one.models]
            asked = counts.missed if there else counts.arrivals
            first_at = now - counts.size + int(np.argmax(asked > 0))
            is_loading = any(name == model for _, name in self._loading)
            if not there or (counts.missed.any() and not is_loading):
                self._load(model, where_to_load(model, instances), first_at)

    def _load(self, model: str, instance: Holding | None, asked_at: float) -> None:
        """Have the model loaded there once there is room: what answers its last requests leaves first."""
        if instance is None:
            return
        missing_gib = self._memory_gib[model] - instance.free_gib
        held = {name: self._memory_gib[name] for name in self.tenants()[instance.name]}
        leave = to_evict(held, self._used_at, missing_gib)
        if sum(held[name] for name in leave) < missing_gib:  # what is being loaded has the rest
            return
        still = {(instance.name, name) for name in leave if not self._unload(instance.name, name)}
        self._leaving |= still
        if not still:
            self._loading[instance.name, model] = asked_at + LOAD_S

    def _unload(self, instance: str, model: str) -> bool:
        return self._plane.evict(self._cloud.slots()[instance], self._numbers[model])

    def _scale(self, now: float) -> None:
        """Have as many instances as target tracking plans for the invocations of all models."""
        loads = [self._history(number, now, SCALING_UNITS) for number in self._numbers.values()]
        rates = tuple(sum(minute) for minute in zip(*(load.mean_rps for load in loads), strict=True))
        fleet = self._cloud.observe()
        running = [item for item in fleet if item.stays]
        name = self._offering.name
        request = PlanRequest(
            now=now,
            history=Demand(end_at=now, mean_rps=rates, max_rps=rates),
            forecast=point_forecast(now, mean_rps=rates[-1:], max_rps=rates[-1:], source="last minute"),
            offerings=(self._offering,),
            running=((name, len(running)),),
            slo=self._slo,
            ready_history=tuple(self._ready[-SCALING_UNITS:]),
        )
        missing = sum(item.count for item in self._plan(request).counts) - len(running)
        self._orders += 1
        token = f"e{self._orders}"
        if missing > 0:
            self._cloud.submit(Launch(token=token, reason="target tracking", offering=name, count=missing))
        elif missing < 0:
            newest = tuple(item.id for item in running[missing:])
            self._cloud.submit(Drain(token=token, reason="target tracking", instances=newest))

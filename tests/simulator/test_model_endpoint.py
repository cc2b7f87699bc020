"""A multi-model endpoint in virtual time: what its requests load and unload, and how many instances there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.controller.hosts.sharing import LOAD_S, memory_gib
from mark.domain.demand import UNIT_S, Demand
from mark.domain.models.objective import ModelSpec, Slo
from mark.policies.bundles import QUEUE_LIMIT, Endpoint
from mark.simulator.engine.compiled import DeviceKernel, plain_kernel
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.faults import FaultScript
from mark.simulator.services.model_endpoint import LOOK_S, ModelEndpoint
from tests.planner.builders import offering
from tests.scenarios.builders import FIXED, FIXED_WORLD
from tests.simulator.engines import engine_setup

SLO = Slo(latency_s=0.6, target=0.98)
END_S = 3600.0
TYPE = offering("c5.large", rps=20.0)
ROOM_GIB = memory_gib(TYPE.instance_type)


class Endpoints:
    """Models on one endpoint; each takes half of an instance's memory, if nothing else is said."""

    def __init__(
        self, kernel: DeviceKernel, arrivals: Sequence[Sequence[float]], *, gib: float = ROOM_GIB / 2
    ) -> None:
        given = [engine_setup(plain_kernel(), one, dispatch=QUEUE_LIMIT, duration_s=END_S) for one in arrivals]
        self.plane = SharedPlane(kernel, given)
        self.arrivals = [np.array(one) for one in arrivals]
        models = [
            (
                ModelSpec(name=f"m{number}", slo=SLO, memory_gib=gib),
                Endpoint(offerings=(TYPE,), usual_rps=0.0 if number else 1.0),
            )
            for number in range(len(arrivals))
        ]
        self.endpoint = ModelEndpoint(
            self.plane,
            models,
            slo=SLO,
            history=self._history,
            world=FIXED_WORLD,
            faults=FaultScript(stress=0.0),
            seed=1,
            end_s=END_S,
        )
        self.endpoint.begin()

    def _history(self, number: int, at: float, units: int) -> Demand:
        edges = at + UNIT_S * np.arange(-units, 1)
        counts, _ = np.histogram(self.arrivals[number], edges)
        rates = tuple((counts / UNIT_S).tolist())
        return Demand(end_at=at, mean_rps=rates, max_rps=rates)

    def go(self, until: float) -> None:
        while self.plane.now < until:
            stop = min(until, self.endpoint.next_at())
            assert self.plane.run_until(stop) is None
            self.endpoint.reach(stop)

    def held(self) -> list[set[str]]:
        return [set(models) for models in self.endpoint.tenants().values()]

    def shed(self, model: int) -> int:
        return int(self.plane.engines[model].tally.seconds.missed.sum())


def test_the_first_request_for_a_model_loads_it_and_the_least_recently_used_leaves(
    device_kernel: DeviceKernel,
) -> None:
    """Two fit: those with the most load are there at first."""
    endpoint = Endpoints(device_kernel, [[5.0, 200.0], [50.0], [100.0, 150.0]])
    assert endpoint.held() == [{"m0", "m1"}]
    endpoint.go(100.0 + LOAD_S - 1.0)
    assert "m2" not in endpoint.held()[0]
    endpoint.go(100.0 + LOAD_S + 1.0)
    assert endpoint.held() == [{"m1", "m2"}]
    endpoint.go(200.0 + LOAD_S + 1.0)
    assert endpoint.held() == [{"m0", "m2"}]
    assert [endpoint.shed(model) for model in range(3)] == [1, 0, 1]


def test_invocations_of_all_models_scale_it_out_and_what_is_refused_is_loaded_there(
    device_kernel: DeviceKernel,
) -> None:
    busy = [number / 19.0 for number in range(19 * 120, 19 * 900)]  # 19/s from two minutes on, and of another
    endpoint = Endpoints(device_kernel, [busy, busy], gib=0.5)
    endpoint.go(240.0)
    assert endpoint.held() == [{"m0", "m1"}]
    scaled_at = 120.0 + 3 * UNIT_S + FIXED.launch.median_s + LOOK_S + LOAD_S
    endpoint.go(scaled_at + 2 * UNIT_S)
    assert len(endpoint.held()) == 4, "38 a second over half of 20 an instance"
    assert any("m1" in models for models in endpoint.held()[1:]), "its requests come behind those of m0"
    found = endpoint.endpoint.end()
    assert {usage.offering for usage in found.usage.usages} == {TYPE.name}
    assert not found.overhead


@settings(max_examples=25, deadline=None)
@given(
    arrivals=st.lists(
        st.lists(st.floats(0.0, 1500.0), min_size=1, max_size=30).map(sorted), min_size=2, max_size=5
    ),
    gib=st.sampled_from([ROOM_GIB, ROOM_GIB / 2, ROOM_GIB / 3]),
)
def test_memory_is_never_over_committed_and_who_was_asked_for_last_is_there(
    device_kernel: DeviceKernel, arrivals: list[list[float]], gib: float
) -> None:
    endpoint = Endpoints(device_kernel, arrivals, gib=gib)
    for until in range(100, 1700, 100):
        endpoint.go(float(until))
        assert all(len(models) * gib <= ROOM_GIB + 1e-9 for models in endpoint.held())
    *before, latest = sorted((at, number) for number, times in enumerate(arrivals) for at in times)
    if not before or before[-1][0] < latest[0] - 2 * (LOAD_S + LOOK_S):  # nothing else is on its way then
        assert any(f"m{latest[1]}" in models for models in endpoint.held())

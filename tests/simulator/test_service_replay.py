"""A model that shares nothing moves on the clock of those that do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.controller.policy import MonitorPolicy
from mark.domain.errors import Misconfigured
from mark.domain.objective import Slo
from mark.offline.service_members import service_members
from mark.policies.spec import Overrides
from mark.policies.tuning import Setting
from mark.simulator.engine.compiled import DeviceKernel, Kernel, plain_kernel
from mark.simulator.engine.data_plane import Engine, EngineSetup
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.services.service_replay import replay_service
from tests.planner.builders import offering
from tests.simulator.engines import engine_setup, lambda_offering, poisson
from tests.simulator.test_service_bound import SMALL, service

PLAIN = Overrides(forecaster="last-value")
SIZED = {"file": "a.csv", "sizes": "lognormal:0.5,0.5,1,4"}


def test_a_model_with_sizes_costs_what_it_does_alone_and_the_others_share(
    kernel: Kernel, device_kernel: DeviceKernel, tmp_path: Path
) -> None:
    members = service_members(service(str(tmp_path), SMALL, trace=SIZED))
    together = replay_service(members, "hedged", kernels=(kernel, device_kernel), overrides=PLAIN)
    alone = members[0].experiment.run("hedged", overrides=PLAIN)
    assert (together.results[0].bill, together.results[0].served) == (alone.bill, alone.served)
    assert together.shared is not None
    assert together.shared.instances > 0.0
    assert [count > 0 for count in together.on_shared] == [False, True, True]


def test_its_pods_are_on_the_nodes_of_all_and_a_multi_model_endpoint_refuses_it(
    kernel: Kernel, device_kernel: DeviceKernel, tmp_path: Path
) -> None:
    members = service_members(service(str(tmp_path), SMALL, trace=SIZED))
    packed = Overrides(setting=Setting(rule="pod-autoscaler", utilisation=0.7))
    found = replay_service(members, "kubernetes-packed", kernels=(kernel, device_kernel), overrides=packed)
    assert found.packed
    assert all(result.served.instance > 0 for result in found.results)
    tracked = Overrides(setting=Setting(rule="target-tracking", utilisation=0.5))
    with pytest.raises(Misconfigured, match="of one item"):
        replay_service(members, "sagemaker-mme", kernels=(kernel, device_kernel), overrides=tracked)


def test_it_shares_the_accounts_calls_of_lambda(device_kernel: DeviceKernel) -> None:
    """Six at once, where each of two models has four in the mean."""
    given = [
        engine_setup(
            plain_kernel(),
            arrivals := poisson(8.0, 60.0, seed),
            overflow=replace(lambda_offering(latency_s=0.5), concurrency=6),
            duration_s=60.0,
            seed=seed,
            sizes=np.ones(arrivals.size, int).tolist() if sized else None,
        )
        for seed, sized in ((1, False), (2, True))
    ]
    plane = SharedPlane(device_kernel, given)
    engines = [plane.engines[0], plane.apart[1]]
    for until in range(1, 61):
        assert plane.run_until(float(until)) is None
        assert sum(engine.calls for engine in engines) <= 6
    alone = Engine(given[1])
    alone.run_until(60.0)
    assert engines[1].throttled() > 2 * alone.throttled()


def test_windows_that_missed_stop_all_in_the_order_of_time(device_kernel: DeviceKernel) -> None:
    """Each model has nobody but a slow instance: its monitor stops the run again and again."""

    def setup(seed: int, *, sized: bool) -> EngineSetup:
        arrivals = poisson(4.0, 60.0, seed)
        return engine_setup(
            plain_kernel(),
            arrivals,
            overflow=lambda_offering(latency_s=0.5),
            slo=Slo(latency_s=0.4, target=0.98),
            monitor=MonitorPolicy(offering="T", requests=10, seconds=5.0),
            duration_s=60.0,
            seed=seed,
            sizes=np.ones(arrivals.size, int).tolist() if sized else None,
        )

    def stops_alone(engine: Engine) -> list[float]:
        found = []
        while engine.run_until(60.0) < 60.0:
            found.append(engine.now)
            engine.quiet_until(engine.now + 3.0)
        return found

    plane = SharedPlane(device_kernel, [setup(1, sized=False), setup(2, sized=True), setup(3, sized=True)])
    engines = [plane.engines[0], plane.apart[1], plane.apart[2]]
    for engine in engines:
        engine.add(offering(rps=1.0), standby=False)
    stops: list[tuple[float, int]] = []
    for until in (20.0, 60.0):
        while (missed := plane.run_until(until)) is not None:
            stops.append((plane.now, missed))
            engines[missed].quiet_until(plane.now + 3.0)
        assert plane.now == until
    assert [at for at, _ in stops] == sorted(at for at, _ in stops)
    assert {number for _, number in stops} == {0, 1, 2}
    for number, alone in ((1, Engine(setup(2, sized=True))), (2, Engine(setup(3, sized=True)))):
        alone.add(offering(rps=1.0), standby=False)
        assert [at for at, one in stops if one == number] == stops_alone(alone)
        assert engines[number].served() == alone.served()

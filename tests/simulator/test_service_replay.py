"""A model that shares nothing moves on the clock of those that do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from mark.controller.journal import Header
from mark.controller.policy import MonitorPolicy
from mark.controller.runner import Journal
from mark.controller.state import Decision, Observation, State
from mark.controller.step import step
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import FleetView
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import STANDARD, Quotas, VcpuQuota
from mark.offline.service_members import service_members
from mark.plugins.load import build_forecaster
from mark.policies.spec import Overrides
from mark.policies.tuning import Setting
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.compiled import DeviceKernel, Kernel, plain_kernel
from mark.simulator.engine.data_plane import Engine, EngineSetup
from mark.simulator.engine.shared_plane import SharedPlane
from mark.simulator.experiment import Experiment
from mark.simulator.services.account_quotas import AccountQuotas
from mark.simulator.services.service_replay import Member, ServiceJournals, ServiceReplay, replay_service
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


@pytest.mark.parametrize("policy", ["hedged", "fleet-per-model"])
def test_all_models_together_stay_within_the_quotas_of_one_account(
    kernel: Kernel, device_kernel: DeviceKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """On an instance that they share, or all apart: Lambda serves what does not fit, and the journals replay."""
    watch, clouds = AccountQuotas.watch, list[SimulatedCloud]()
    headers, most = list[Header](), list[float]()
    ticks = list[tuple[int, Observation, Decision]]()

    def watched(account: AccountQuotas, cloud: SimulatedCloud) -> None:
        clouds.append(cloud)
        watch(account, cloud)

    monkeypatch.setattr(AccountQuotas, "watch", watched)

    @contextmanager
    def opened(header: Header) -> Iterator[Journal]:
        number = len(headers)
        headers.append(header)

        def append(_before: FleetView, seen: Observation, decision: Decision) -> None:
            ticks.append((number, seen, decision))
            taken = Counter[Market]()
            for name, count in chain.from_iterable(cloud.observe().awake.items() for cloud in clouds):
                item = next(one for one in header.policy.known_offerings if one.name == name)
                taken[item.market] += count * item.instance_type.vcpus
            most.append(max(taken.values(), default=0))

        yield cast("Journal", SimpleNamespace(append=append))

    def replayed(vcpus: float) -> ServiceReplay:
        for kept in (clouds, headers, most, ticks):
            kept.clear()
        quotas = tuple(VcpuQuota(family=STANDARD, market=market, vcpus=vcpus) for market in Market)
        big = [replace(model, peak_rps=3.0 * model.peak_rps) for model in SMALL]
        members = [_under(quotas, member) for member in service_members(service(str(tmp_path), big))]
        journals = ServiceJournals(open_model=opened)
        kernels = kernel, device_kernel
        return replay_service(members, policy, kernels=kernels, overrides=PLAIN, journals=journals)

    replayed(1000.0)
    vcpus = max(most) // 4 * 2
    bound = replayed(vcpus)
    assert 0.7 * vcpus < max(most) <= vcpus
    assert bound.shared is not None
    assert (bound.shared.instances > 0.0) == (policy == "hedged")
    for result in bound.results:
        assert result.served.lambda_ > 0
        assert result.served.shed < 0.01 * result.requests
        assert result.refusals == 0, "no plan counted on what was not there"
    states = dict.fromkeys(range(len(headers)), State())
    for number, seen, decision in ticks:
        assert step(states[number], seen, headers[number].policy) == decision
        states[number] = decision.state
    assert any(seen.quotas is not None for _, seen, _ in ticks)


def _under(quotas: Quotas, member: Member) -> Member:
    """The member in an account with these quotas."""
    spec = member.experiment.spec
    spec = replace(spec, world=replace(spec.world, quotas=quotas))
    return replace(member, experiment=Experiment(spec, kernel=plain_kernel(), build_forecaster=build_forecaster))

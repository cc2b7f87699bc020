"""Requests that come in by zone: near instances first, and what crosses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.models.objective import Slo
from mark.simulator.engine.compiled import DeviceKernel, Kernel
from mark.simulator.engine.data_plane import Engine
from mark.simulator.engine.host_plane import HostPlane
from mark.simulator.engine.shared_plane import SharedPlane
from tests.simulator.engines import batching, engine_setup, lambda_offering, poisson

ZONES = ("a", "b", "c")
QUICK = batching(1, 0.05, 0.05)


def run(
    kernel: Kernel | DeviceKernel,
    plain: Kernel,
    zones: str,
    *,
    rps: float = 20.0,
    entry: tuple[str, ...] = ("a", "b"),
    crossing_usd: float = 0.0,
) -> Engine:
    warm = lambda_offering(concurrency=500, burst=500, latency_s=0.1, idle_min_s=1e3, idle_max_s=2e3)
    given = engine_setup(plain, poisson(rps, 60.0, 3), overflow=warm)
    given = replace(given, zones=ZONES, entry=entry, crossing_usd=crossing_usd)
    made = SharedPlane(kernel, [given]).engines[0] if isinstance(kernel, DeviceKernel) else Engine(given)
    for zone in zones:
        made.add(QUICK, standby=False, zone=zone)
    made.warm(20, are_there=True)
    made.run_until(70.0)
    return made


@pytest.fixture(params=["alone", "shared"])
def either(request: pytest.FixtureRequest, kernel: Kernel, device_kernel: DeviceKernel) -> Kernel | DeviceKernel:
    return kernel if request.param == "alone" else device_kernel


def test_requests_stay_in_their_zone_while_its_instances_are_in_time(
    either: Kernel | DeviceKernel, kernel: Kernel
) -> None:
    assert run(either, kernel, "ab").crossed() == 0
    assert run(either, kernel, "ab").served().instance > 1000


def test_a_zone_that_is_full_or_has_no_instance_gives_way_to_another_before_lambda(
    either: Kernel | DeviceKernel, kernel: Kernel
) -> None:
    lone = run(either, kernel, "a", rps=10.0)
    assert lone.served().lambda_ == 0
    assert lone.crossed() == pytest.approx(lone.served().instance / 2, rel=0.2)
    full = run(either, kernel, "abbb", rps=45.0)
    assert full.served().lambda_ < 0.02 * full.served().instance
    assert 0 < (full.crossed() or 0) < 0.2 * full.served().instance
    assert full.attained() == 1.0


def test_requests_come_in_where_they_are_let_in(either: Kernel | DeviceKernel, kernel: Kernel) -> None:
    made = run(either, kernel, "a", entry=("a",))
    assert made.crossed() == 0
    assert made.entry == {"a": 1.0}
    made.let_in({"b": 1.0})
    assert made.entry == {"b": 1.0}


def test_lambda_comes_before_a_crossing_that_costs_more(either: Kernel | DeviceKernel, kernel: Kernel) -> None:
    cheap = run(either, kernel, "a", rps=10.0)
    dear = run(either, kernel, "a", rps=10.0, crossing_usd=1.0)
    assert cheap.served().lambda_ == 0
    assert dear.served().lambda_ == pytest.approx(dear.served().total / 2, rel=0.2)
    assert dear.attained() >= cheap.attained() - 0.05


def test_without_zones_nobody_counts_what_crosses(kernel: Kernel) -> None:
    given = engine_setup(kernel, [1.0], overflow=lambda_offering())
    assert Engine(given).crossed() is None
    assert Engine(given).entry == {}


@pytest.mark.parametrize("own", ["a", "ab"])
def test_what_spares_the_own_fleet_is_the_same_whichever_zone_answers(
    device_kernel: DeviceKernel, kernel: Kernel, own: str
) -> None:
    """Of two at once a shared instance admits one; a full batch, as it counts the other, would be late."""
    load, short = [float(n // 2) for n in range(20)], Slo(latency_s=0.15, target=0.98)
    given = replace(engine_setup(kernel, load, slo=short), zones=ZONES, entry=("a",))
    made = SharedPlane(device_kernel, [given])
    hosts, (engine,), item = HostPlane(made, [True]), made.engines, batching(4, 0.05, 0.12)
    hosts.place(hosts.add(item, standby=False, zone="a"), 0, item, 1e6)
    for zone in own:
        engine.add(QUICK, standby=False, zone=zone)
    made.run_until(20.0)
    assert (engine.on_shared(), engine.served().instance) == (10, 20)
    assert engine.window_counts(0.0, 20.0).sum() == 0

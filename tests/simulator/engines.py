"""Engines on given arrivals, with defaults for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mark.controller.policy import MonitorPolicy
from mark.dispatch.policy import DispatchPolicy
from mark.dispatch.variants.serving import VariantServing
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import BurstCredits, LambdaOffering, Offering
from mark.simulator.engine.compiled import DeviceKernel, Kernel, plain_kernel
from mark.simulator.engine.data_plane import Engine, EngineSetup
from mark.simulator.engine.shared_plane import SharedPlane
from tests.planner.builders import KNOWN, SLO, offering

Floats = NDArray[np.float64]


def poisson(rps: float, duration_s: float, seed: int) -> Floats:
    """Poisson arrivals in [0, duration_s), rising."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0.0, duration_s, rng.poisson(rps * duration_s)))


def engine(
    kernel: Kernel | DeviceKernel,
    arrivals: Floats | Sequence[float],
    *,
    dispatch: DispatchPolicy | None = None,
    overflow: LambdaOffering | None = None,
    slo: Slo = SLO,
    duration_s: float | None = None,
    monitor: MonitorPolicy | None = None,
    seed: int = 5,
    start_at: float = 0.0,
    network_s: float = 0.0,
    sizes: Sequence[int] | None = None,
    variants: VariantServing | None = None,
) -> Engine:
    """An engine before its first arrival, without instances. sizes: items of each arrival.

    With a kernel of shared devices it is the one model of a shared plane.
    """
    given = engine_setup(
        kernel=plain_kernel() if isinstance(kernel, DeviceKernel) else kernel,
        arrivals=arrivals,
        dispatch=dispatch,
        overflow=overflow,
        slo=slo,
        duration_s=duration_s,
        monitor=monitor,
        seed=seed,
        start_at=start_at,
        network_s=network_s,
        sizes=sizes,
        variants=variants,
    )
    return SharedPlane(kernel, [given]).engines[0] if isinstance(kernel, DeviceKernel) else Engine(given)


def engine_setup(
    kernel: Kernel,
    arrivals: Floats | Sequence[float],
    *,
    dispatch: DispatchPolicy | None = None,
    overflow: LambdaOffering | None = None,
    slo: Slo = SLO,
    duration_s: float | None = None,
    monitor: MonitorPolicy | None = None,
    seed: int = 5,
    start_at: float = 0.0,
    network_s: float = 0.0,
    sizes: Sequence[int] | None = None,
    variants: VariantServing | None = None,
) -> EngineSetup:
    """What `engine` makes its engine of."""
    instants = np.asarray(arrivals, dtype=np.float64)
    items = None if sizes is None else np.asarray(sizes, dtype=np.int64)
    length_s = duration_s or float(np.ceil(instants.max(initial=0.0))) + 1.0
    return EngineSetup(
        kernel=kernel,
        arrivals=lambda from_s, to_s: instants[(instants >= from_s) & (instants < to_s)],
        slo=slo,
        dispatch=dispatch or DispatchPolicy(),
        overflow=overflow,
        start_at=start_at,
        duration_s=length_s,
        rng=np.random.default_rng(seed),
        noise=np.random.default_rng(seed + 1),
        network_s=network_s,
        monitor=monitor,
        sizes=None if items is None else lambda from_s, to_s: items[(instants >= from_s) & (instants < to_s)],
        largest=1 if items is None else int(items.max(initial=1)),
        variants=variants,
    )


def batching(batch: int, single_s: float, full_batch_s: float, rps: float | None = None) -> Offering:
    """A type whose batches take from `single_s` to `full_batch_s`, linear in between."""
    step_s = (full_batch_s - single_s) / max(1, batch - 1)
    points = {size: single_s + (size - 1) * step_s for size in range(1, batch + 1)}
    return offering(rps=rps or batch / full_batch_s, batch=batch, points=points)


def burstable(service_s: float, *, credits_: float = 0.0, unlimited: bool = False) -> Offering:
    """A type of one vCPU that slows to a tenth when its credits are used up."""
    plain = offering("t2.micro", rps=1.0 / service_s)
    credit = BurstCredits(
        vcpus=1, earn_per_hour=6.0, max_balance=144.0, baseline=0.1, launch_credits=credits_, unlimited=unlimited
    )
    return replace(plain, instance_type=replace(plain.instance_type, credits=credit))


def lambda_offering(**fields: float) -> LambdaOffering:
    """Lambda with short lives and low limits, so that all of them matter within seconds."""
    given: dict[str, float] = {
        "latency_s": 0.3,
        "cold_start_s": 1.0,
        "idle_min_s": 4.0,
        "idle_max_s": 8.0,
        "concurrency": 20,
        "burst": 6,
        "burst_window_s": 3.0,
    } | fields
    return LambdaOffering(provenance=KNOWN, **given)  # type: ignore[arg-type]

"""Random small services to pack."""

from __future__ import annotations

import numpy as np

from mark.domain.models.objective import Slo
from mark.planner.shared.packing import Fit, HostType, Need

MOST_BUSY, HOURS = 0.7, 1.0
UNITS = 12
"""Units of the plan, as many as hours of half a day."""


def some_types(count: int) -> list[HostType]:
    """Types of twice the size each, at nearly twice the price."""
    return [
        HostType(
            offering=f"size{i}",
            usd_per_hour=0.05 * 1.9**i,
            launch_usd=0.05 * 1.9**i / 30,
            memory_gib=2.0 * 2**i,
        )
        for i in range(count)
    ]


def some_needs(rng: np.random.Generator, count: int, types: int, *, points: int = 8) -> list[Need]:
    """Models with unlike peaks, a few of them heavy; each curve is what its load would cost on Lambda."""
    return [_some_need(rng, f"m{i:04d}", types, points) for i in range(count)]


def _some_need(rng: np.random.Generator, name: str, types: int, points: int) -> Need:
    service_s = float(np.exp(rng.uniform(np.log(0.01), np.log(0.3))))
    rps = float(np.exp(rng.uniform(np.log(0.03), np.log(1.5)))) / service_s
    wave = 1.0 + 0.9 * np.sin(2 * np.pi * (np.arange(UNITS) / UNITS + rng.random()))
    load = rps * wave
    levels = np.linspace(0.0, 1.3 * load.max(), points)
    usd = service_s * 3 * 1.67e-5 * float(rng.uniform(1.0, 4.0)) + 2e-7
    # Lambda's bill for what a capacity leaves, at rates that vary exponentially about the load
    saved = 3600 * usd * (load * (1.0 - np.exp(-levels[:, None] / load))).mean(axis=1)
    latency_s = float(rng.uniform(4.0, 20.0)) * service_s
    fits = tuple(
        Fit(
            offering=f"size{i}",
            capacity_rps=1.0 * 2**i / service_s * float(rng.uniform(0.8, 1.2)),
            full_batch_s=1.5 * service_s,
        )
        for i in range(types)
        if rng.random() < 0.9
    )
    return Need(
        model=name,
        slo=Slo(latency_s=latency_s, target=0.98),
        memory_gib=float(rng.uniform(0.2, 1.8)),
        levels=levels,
        saved_usd_per_hour=saved,
        load_rps=load,
        fits=fits,
        most_busy=MOST_BUSY,
        load_usd=float(rng.uniform(0.0, 0.002)),
    )

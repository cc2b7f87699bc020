"""Builders with defaults for the planner's tests."""

from __future__ import annotations

from mark.domain.demand import Demand, Forecast, point_forecast
from mark.domain.models.objective import Slo
from mark.domain.models.profile import Evidence, LatencyPoint, Profile, Provenance
from mark.domain.offerings.offering import BatchPolicy, InstanceType, LambdaOffering, Market, Offering
from mark.domain.plan import PlanRequest

SLO = Slo(latency_s=0.6, target=0.98)
KNOWN = Provenance(evidence=Evidence.MEASURED, source="test")


def profile(points: dict[int, float], name: str = "c5.large") -> Profile:
    rows = tuple(LatencyPoint(batch=batch, latency_s=latency) for batch, latency in points.items())
    return Profile(model="m", instance_type=name, points=rows, provenance=KNOWN)


def offering(
    name: str = "c5.large",
    *,
    rps: float = 10.0,
    usd_per_hour: float = 0.36,
    batch: int = 1,
    latency_s: float | None = None,
    launch_usd: float = 0.0,
    points: dict[int, float] | None = None,
) -> Offering:
    """An offering that carries `rps` with batches of `batch`; `latency_s` overrides what that implies."""
    full_s = batch / rps if latency_s is None else latency_s
    known = points or ({batch: full_s} if batch == 1 else {1: full_s / batch, batch: full_s})
    kind = InstanceType(
        name=name, vcpus=2, memory_gib=4.0, architecture="amd64", on_demand_usd_per_hour=usd_per_hour
    )
    return Offering(
        instance_type=kind,
        market=Market.ON_DEMAND,
        usd_per_hour=usd_per_hour,
        profile=profile(known, name),
        batch=BatchPolicy(max_batch=batch, max_wait_s=0.0),
        capacity_rps=rps,
        boot_s=150.0,
        launch_usd=launch_usd,
    )


def overflow(latency_s: float = 0.38) -> LambdaOffering:
    return LambdaOffering(latency_s=latency_s, provenance=KNOWN)


def forecast(rates: list[float] | tuple[float, ...]) -> Forecast:
    values = tuple(rates)
    return point_forecast(0.0, mean_rps=values, max_rps=values, source="test")


def demand(mean_rps: tuple[float, ...]) -> Demand:
    return Demand(end_at=0.0, mean_rps=mean_rps, max_rps=mean_rps)


def request(
    rates: list[float] | tuple[float, ...],
    offerings: tuple[Offering, ...],
    *,
    running: dict[str, int] | None = None,
    slo: Slo = SLO,
    lead_units: int = 2,
    history: tuple[float, ...] = (),
    ready_history: tuple[int, ...] = (),
    recent_rps: tuple[float, ...] = (),
) -> PlanRequest:
    return PlanRequest(
        now=0.0,
        history=demand(history),
        forecast=forecast(rates),
        offerings=offerings,
        running=tuple(sorted((running or {}).items())),
        slo=slo,
        lead_units=lead_units,
        ready_history=ready_history,
        recent_rps=recent_rps,
    )

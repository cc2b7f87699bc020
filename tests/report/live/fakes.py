"""Live statuses: of a service that is empty, busy, or being interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mark.accounting.client_totals import ClientAnswers
from mark.domain.fleet.instances import Role
from mark.domain.load.traffic import FailureKind
from mark.report.live.overview import make_overview
from mark.report.live.service_status import (
    AnswerCounts,
    ArrivalRates,
    ControllerStatus,
    FleetStatus,
    GatewayShare,
    HourlyStatus,
    LambdaStatus,
    LatencyStatus,
    ModelStatus,
    ObjectiveStatus,
    ObservedInstance,
    OfferingCapacity,
    OverheadStatus,
    ServiceStatus,
    SharedInstanceStatus,
    SharedStatus,
    SpentStatus,
    TenancyStatus,
    TenantStatus,
)
from mark.store.published_status import LoadSeries, OrderStatus, PlanStatus, PoolStatus

NOW = 1_770_000_030.0
UNIT_S = 60
OFFERINGS = {"c5.large:spot": (2.4, 0.035), "c5.xlarge:spot": (4.8, 0.07), "t3.xlarge:spot": (4.4, 0.05)}


def empty_model(name: str = "inception-v3") -> ModelStatus:
    """A model that nobody has asked yet and no controller has planned."""
    return ModelStatus(name=name, objective=ObjectiveStatus(latency_ms=600.0, target=0.98))


def busy_model(name: str = "inception-v3") -> ModelStatus:
    """An hour of load that rises and surges, seven instances, a forecast of 20 minutes."""
    mean = [28 + 9 * ((7 * n) % 5 - 2) / 5 + n * 0.2 + (16 if 38 <= n <= 46 else 0) for n in range(60)]
    start_at = NOW // UNIT_S * UNIT_S - 60 * UNIT_S
    observed = [instance(n, "c5.large:spot") for n in range(9)]
    observed += [instance(20 + n, "c5.xlarge:spot", state="pending" if n > 7 else "ready") for n in range(9)]
    observed += [instance(40, "t3.xlarge:spot", role=Role.STANDBY, state="stopped", credits=144.0)]
    return ModelStatus(
        name=name,
        policy="mark",
        market="spot",
        objective=ObjectiveStatus(
            latency_ms=600.0, target=0.98, answered=123_456, late=402, shed=17, attained=123_054 / 123_476
        ),
        rates=ArrivalRates(now_rps=41.2, last_minute_rps=40.1, max_rps=55.0),
        series=LoadSeries(
            start_at=start_at,
            unit_s=UNIT_S,
            mean_rps=tuple(mean),
            max_rps=tuple(rate * 1.25 for rate in mean),
            capacity_rps=(None, *(48.0 if n < 40 else 67.2 for n in range(1, 60))),
            forecast_start_at=start_at + 60 * UNIT_S,
            forecast_max_rps=tuple(50 + n * 0.3 for n in range(20)),
            fan_levels=(0.1, 0.25, 0.75, 0.9),
            fan_max_rps=tuple(
                tuple(share * (50 + n * 0.3) for n in range(20)) for share in (0.75, 0.9, 1.12, 1.3)
            ),
            forecaster="lstm-vanilla: under a day of history, last hour's maximum",
        ),
        latency_ms=LatencyStatus(mean=212.4, p50=190.0, p95=404.0, p98=512.0, p99=571.0),
        by=AnswerCounts(instance=118_330, standby=2_100, lambda_=3_026, shed=17),
        failed=3,
        failures=(FailureKind(text="the model failed: ValueError: row 3", count=3, since=NOW - 600, at=NOW - 30),),
        rejected=4,
        clients=(
            ClientAnswers(client="(token)", requests=5, answered=5, attained=1.0, cost_usd=0.001),
            ClientAnswers(
                client="shop", requests=1_300, answered=1_200, late=6, limited=100, attained=0.995, cost_usd=0.25
            ),
        ),
        redispatched=12,
        lambda_=LambdaStatus(in_flight=2, warm=5, invocations=3_104, cold=7),
        fleet=FleetStatus(
            planned={"c5.large:spot": 10, "c5.xlarge:spot": 9},
            requested={"c5.large:spot": 1},
            observed=tuple(observed),
        ),
        capacity=capacity_rows(observed),
        cost_usd=SpentStatus(
            instances=1.8342, standby=0.0121, lambda_=0.1034, serving=1.9497, overhead=0.412, total=2.3617
        ),
        usd_per_hour=0.987,
        usd_per_hour_by=HourlyStatus(instances=0.795, lambda_=0.122, overhead=0.07, mean_over_s=7500.0),
        plan=PlanStatus(
            at=NOW + 270,
            made_at=NOW - 30,
            required_rps=55.4,
            capacity_rps=67.2,
            usd_per_hour=0.98,
            reason="the highest minute within the lead of 5 minutes, 55.4 requests/s",
        ),
        decisions=(
            OrderStatus(
                at=NOW - 30,
                kind="launch",
                what="1 c5.large:spot",
                reason="55.4 requests/s are expected at 02:42, the fleet carries 52.8",
            ),
            OrderStatus(at=NOW - 400, kind="warm-lambda", what="5 environments", reason="a surge of 12/s"),
            OrderStatus(
                at=NOW - 1000, kind="terminate", what="i-0000000000000000c", reason="not needed for 10 minutes"
            ),
        ),
        notes=("profile of t3.xlarge is assumed: nobody measured it", "backend is emulated: it answers zeros"),
    )


def instance(number: int, offering: str, **changed: Any) -> ObservedInstance:
    """One observed instance, serving and ready unless changed."""
    row = ObservedInstance(id=f"i-{number:017x}", offering=offering, role=Role.SERVING, state="ready")
    return replace(row, **changed)


def capacity_rows(observed: Sequence[ObservedInstance]) -> tuple[OfferingCapacity, ...]:
    """What the view makes of the instances."""
    rows = []
    for offering, (rps, usd) in OFFERINGS.items():
        states = [row.state for row in observed if row.offering == offering]
        counts = {state: states.count(state) for state in ("ready", "pending", "draining", "stopped")}
        rows.append(
            OfferingCapacity(
                offering=offering,
                **counts,
                rps=counts["ready"] * rps,
                usd_per_hour=(len(states) - counts["stopped"]) * usd,
            )
        )
    return tuple(rows)


def interrupted_model(name: str = "inception-v3") -> ModelStatus:
    """Four spot instances have their notice, a standby wakes, the objective is missed."""
    model = busy_model(name)
    observed = [
        replace(row, gone_in_s=80.0 + n) if n in (1, 2, 4, 6) else row
        for n, row in enumerate(model.fleet.observed)
    ]
    observed[-1] = replace(observed[-1], state="pending")
    observed[5] = replace(observed[5], state="draining")
    return replace(
        model,
        objective=replace(model.objective, late=3_100, attained=120_356 / 123_476),
        latency_ms=LatencyStatus(mean=312.4, p50=290.0, p95=584.0, p98=812.0, p99=1171.0),
        fleet=replace(model.fleet, requested={"c5.large:spot": 5}, observed=tuple(observed)),
        capacity=capacity_rows(observed),
    )


def status(*models: ModelStatus, **changed: Any) -> ServiceStatus:
    """A service of these models, its controller at work."""
    controller = ControllerStatus(holder="controller-0", silent_s=4.2)
    overhead = OverheadStatus(usd=0.31, usd_per_hour=0.149)
    told = ServiceStatus(
        service="mark",
        now=NOW,
        behind_wall_s=3.0,
        controller=controller,
        overhead=overhead,
        models=models,
    )
    told = replace(told, **changed)
    return replace(told, overview=make_overview(models, told.overhead, told.shared))


def sharing_model(name: str = "digits") -> ModelStatus:
    """A model without instances of its own, on a shared one."""
    return replace(
        empty_model(name),
        plan=PlanStatus(at=NOW, made_at=NOW, required_rps=0.0),
        shared=(
            TenancyStatus(
                instance=SHARED.instances[0].id,
                offering="c5.large:on-demand",
                state="ready",
                share_rps=35.2,
                beside=("rm2",),
            ),
        ),
        capacity=(OfferingCapacity(offering="c5.large:on-demand", shared=1, rps=35.2),),
    )


def shared_instance(number: int, *tenants: TenantStatus, **changed: Any) -> SharedInstanceStatus:
    """One that is ready unless changed."""
    row = SharedInstanceStatus(
        id=f"i-{number:017x}",
        offering="c5.large:on-demand",
        zone="us-east-1b",
        role=Role.SERVING,
        state="ready",
        usd_per_hour=0.085,
        tenants=tenants,
    )
    return replace(row, **changed)


SHARED = SharedStatus(
    instances=(
        shared_instance(
            60,
            TenantStatus(model="digits", state="ready", share_rps=35.2, busy=0.2),
            TenantStatus(model="rm2", state="ready", share_rps=8.1, busy=0.7),
        ),
        shared_instance(
            61,
            TenantStatus(model="digits", state="pending"),
            TenantStatus(model="inception-v3", state="broken", share_rps=1.0, busy=0.1),
            TenantStatus(model="rm2", state="ready", share_rps=4.0, busy=0.3, wanted=False),
            gone_in_s=80.0,
        ),
        shared_instance(62, state="pending"),
    ),
    cost_usd=SpentStatus(instances=12.3, serving=12.3, overhead=0.1, total=12.4),
    usd_per_hour=0.27,
    idle_usd=4.4,
    idle_usd_per_hour=0.27,
)
"""Two instances with models, one of them about to be lost, and one that boots."""


def rolled_out_model(name: str = "inception-v3") -> ModelStatus:
    """Two versions over three zones, while spot instances are taken away."""
    model = interrupted_model(name)
    observed = tuple(
        replace(row, zone=f"us-east-1{'abc'[n % 3]}", version="3f9a12cd0b77" if n % 4 else "91bd03aa5c10")
        for n, row in enumerate(model.fleet.observed)
    )
    return replace(model, fleet=replace(model.fleet, observed=observed))


def pooled_model(name: str = "rm2") -> ModelStatus:
    """A pool of two unlike types within a budget, shared by two gateways."""
    return replace(
        busy_model(name),
        policy="kairos",
        pool=PoolStatus(
            budget_usd_per_hour=0.85,
            usd_per_hour=0.824,
            sizes="measured",
            measured=12_345,
            mean_items=241.26,
            target_items=912,
            largest_items=992,
        ),
        gateways=(
            GatewayShare(gateway="gateway-0", agents={"g4dn.xlarge:on-demand": 1, "r5n.large:on-demand": 1}),
            GatewayShare(gateway="gateway-1", agents={}),
        ),
    )

"""The bill: what was used, times what it costs. Pure; every price that is not in the snapshot stands here.

An instance is billed per second while it is in state running (booting and draining included, pending and
stopped not), rounded up to whole seconds, for 60 s at least each time it starts. A stopped standby pays for its
disk. Lambda bills each invocation and its GiB seconds. The overhead is what stands around a fleet of ours:
gateways, load balancer, store, controllers, and the disks of what runs. A spot instance that EC2 takes back
within its first hour is free of charge; we bill it all the same, which errs on the dear side.

`bill_*` return lines, `cost_of` adds lines to the cost words.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mark.domain.costs import BillLine, CostUsd, FleetUsage, InstanceUsage, LambdaUsage
from mark.domain.errors import Misconfigured, unknown
from mark.domain.fleet import Role
from mark.domain.offering import SURPLUS_USD_PER_VCPU_HOUR, LambdaOffering, Offering

SECONDS_PER_HOUR = 3600.0
MINIMUM_BILLED_S = 60
"""EC2 Linux: per second, one minute at least per start (EC2 on-demand pricing; MArk section 3)."""
ROUNDING_S = 1e-6
"""Float noise in a duration that must not round up to another second."""

GP3_USD_PER_GIB_MONTH = 0.08
"""EBS gp3 storage, us-east-1 (EBS pricing)."""
HOURS_PER_MONTH = 730.0
"""A month in AWS prices."""
ROOT_DISK_GIB = 20.0
"""Root disk of an instance: system, serving stack and model. A rule of ours, not a measurement."""

GATEWAY_RPS_PER_CORE = 20_000.0
"""Under a third of the 68,100 requests/s a core that the gateway's prototype was measured at on 2 kB JSON."""
GATEWAY_MINIMUM = 2
"""Two, so that one may be lost."""
GATEWAY_USD_PER_HOUR = 0.034
"""c6g.medium, one core, us-east-1 on demand (price snapshot)."""
BALANCER_USD_PER_HOUR = 0.0225
"""Network load balancer, us-east-1 (Elastic Load Balancing pricing)."""
BALANCER_USD_PER_LCU_HOUR = 0.006
"""Its capacity unit (Elastic Load Balancing pricing)."""
BALANCER_GIB_PER_LCU_HOUR = 1.0
"""Traffic of a unit in an hour over TCP; with kept-alive connections the bytes count."""
STORE_USD_PER_HOUR = 0.032
"""ElastiCache cache.t4g.small, Redis OSS, us-east-1 on demand (ElastiCache pricing)."""
CONTROLLER_COUNT = 2
"""One acts, one waits for the lease."""
CONTROLLER_USD_PER_HOUR = 0.0168
"""t4g.small, us-east-1 on demand (price snapshot)."""

PROVISIONED_USD_PER_GIB_S = 4.1667e-6
"""A Lambda environment kept provisioned, x86, us-east-1 (AWS Lambda pricing, provisioned concurrency)."""
PROVISIONED_DURATION_USD_PER_GIB_S = 9.7222e-6
"""A GiB second of a call that such an environment answers (AWS Lambda pricing, provisioned concurrency)."""
PROVISIONED_STEP_S = 300.0
"""It is billed for each five minutes begun (AWS Lambda pricing)."""

COMPONENTS = ("instances", "standby", "lambda", "overhead")
_COMPONENT = {Role.SERVING: "instances", Role.STANDBY: "standby"}


def billed_s(usage: InstanceUsage) -> int:
    """Whole seconds billed for one stretch in state running: rounded up, 60 at least."""
    duration_s = usage.ended_at - usage.started_at
    if not (math.isfinite(duration_s) and duration_s >= 0):
        raise Misconfigured(f"instance {usage.instance} ended before it started: {duration_s} s")
    return max(MINIMUM_BILLED_S, math.ceil(duration_s - ROUNDING_S))


def bill_instances(
    usages: Sequence[InstanceUsage],
    usd_per_hour: Mapping[str, float],
    *,
    surplus_usd_per_vcpu_hour: Mapping[str, float] | None = None,
) -> tuple[BillLine, ...]:
    """Lines of instance hours, and of surplus vCPU hours, by role and offering, in that order.

    `usd_per_hour` is by offering name, a managed service's premium in it; a usage that bears its own price is
    billed at that. Surplus credits cost `surplus_usd_per_vcpu_hour` of the offering, 0.05 where it is not given.
    """
    surplus_prices = surplus_usd_per_vcpu_hour or {}
    running_s: defaultdict[tuple[str, str], Counter[float]] = defaultdict(Counter)
    surplus_s: defaultdict[tuple[str, str], float] = defaultdict(float)
    for usage in usages:
        price = usage.usd_per_hour
        if price is None:
            if usage.offering not in usd_per_hour:
                raise unknown("offering", usage.offering, usd_per_hour)
            price = usd_per_hour[usage.offering]
        key = (_COMPONENT[usage.role], usage.offering)
        running_s[key][price] += billed_s(usage)
        surplus_s[key] += usage.surplus_vcpu_s
    lines: list[BillLine] = []
    for (component, offering), seconds in sorted(running_s.items()):
        lines.append(_instance_line(component, offering, seconds))
        surplus_hours = surplus_s[component, offering] / SECONDS_PER_HOUR
        if surplus_hours > 0:
            surplus_price = surplus_prices.get(offering, SURPLUS_USD_PER_VCPU_HOUR)
            item = f"{offering} surplus credits"
            lines.append(_line(component, item, surplus_hours, "vCPU-hours", surplus_price))
    return tuple(lines)


def bill_lambda(usage: LambdaUsage, offering: LambdaOffering) -> tuple[BillLine, ...]:
    """Invocations and GiB seconds; the cold starts' durations are inside `usage.gib_s`."""
    return (
        _line("lambda", "invocations", usage.requests, "requests", offering.usd_per_request),
        _line("lambda", "duration", usage.gib_s, "GiB-s", offering.usd_per_gib_s),
    )


def bill_provisioned(offering: LambdaOffering, duration_s: float) -> tuple[BillLine, ...]:
    """Lambda environments kept provisioned for so long; no line where there are none.

    Calls that they answer are billed less for their duration (9.7222e-6 USD a GiB second). Which those are nobody
    tells, so `bill_lambda` takes the full price for all: it errs on the dear side.
    """
    if not offering.provisioned:
        return ()
    billed = math.ceil((duration_s - ROUNDING_S) / PROVISIONED_STEP_S) * PROVISIONED_STEP_S
    gib_s = offering.provisioned * offering.memory_gib * max(0.0, billed)
    return (_line("lambda", "provisioned", gib_s, "GiB-s", PROVISIONED_USD_PER_GIB_S),)


def bill_scheduled(offering: LambdaOffering, *, provisioned_s: float, answered: float) -> tuple[BillLine, ...]:
    """Environments provisioned by the hour, for `provisioned_s` in all, and what their calls are cheaper.

    `answered`: calls that found one of them free; `bill_lambda` took the full price of a duration for all.
    """
    cheaper = PROVISIONED_DURATION_USD_PER_GIB_S - offering.usd_per_gib_s
    gib_s = answered * offering.latency_s * offering.memory_gib
    lines = (
        _line("lambda", "provisioned", provisioned_s * offering.memory_gib, "GiB-s", PROVISIONED_USD_PER_GIB_S),
        _line("lambda", "duration on provisioned", gib_s, "GiB-s", cheaper),
    )
    return tuple(line for line in lines if line.quantity > 0)


def disk_usd(gib: float, seconds: float) -> float:
    """A gp3 disk of `gib` kept for `seconds`."""
    return gib * seconds / SECONDS_PER_HOUR / HOURS_PER_MONTH * GP3_USD_PER_GIB_MONTH


def bill_disks(*, asleep_s: float, running_s: float, gib: float = ROOT_DISK_GIB) -> tuple[BillLine, ...]:
    """Root disks: instance seconds `asleep_s` are the standbys', `running_s` are overhead."""
    wanted = (("standby", "disks asleep", asleep_s), ("overhead", "disks", running_s))
    return tuple(
        BillLine(
            component=component,
            item=item,
            quantity=gib * seconds / SECONDS_PER_HOUR / HOURS_PER_MONTH,
            unit="GiB-months",
            usd=disk_usd(gib, seconds),
        )
        for component, item, seconds in wanted
        if seconds > 0
    )


def gateway_count(peak_rps: float) -> int:
    """One-core gateways for a peak: by the requests/s that a core was measured to pass on, two at least."""
    return max(GATEWAY_MINIMUM, math.ceil(peak_rps / GATEWAY_RPS_PER_CORE))


def bill_overhead(
    peak_rps: float, duration_s: float, *, requests: int = 0, payload_mib: float = 0.0
) -> tuple[BillLine, ...]:
    """Gateways for the peak all the time, load balancer with the bytes of `requests`, store, controllers.

    `payload_mib` is the size of a request with its answer. Traffic between zones is not counted.
    """
    hours = duration_s / SECONDS_PER_HOUR
    lcu_hours = requests * payload_mib / 1024 / BALANCER_GIB_PER_LCU_HOUR
    gateway_hours = gateway_count(peak_rps) * hours
    controller_hours = CONTROLLER_COUNT * hours
    return (
        _line("overhead", "gateways", gateway_hours, "instance-hours", GATEWAY_USD_PER_HOUR),
        _line("overhead", "load balancer", hours, "hours", BALANCER_USD_PER_HOUR),
        _line("overhead", "load balancer traffic", lcu_hours, "LCU-hours", BALANCER_USD_PER_LCU_HOUR),
        _line("overhead", "store", hours, "node-hours", STORE_USD_PER_HOUR),
        _line("overhead", "controllers", controller_hours, "instance-hours", CONTROLLER_USD_PER_HOUR),
    )


def bill_managed(
    *, usd_per_request: float, usd_per_gib: float, requests: int, payload_mib: float
) -> tuple[BillLine, ...]:
    """Requests, and their bytes with their answers', where a managed service charges for them."""
    lines = (
        _line("lambda", "requests", requests, "requests", usd_per_request),
        _line("overhead", "data processed", requests * payload_mib / 1024, "GiB", usd_per_gib),
    )
    return tuple(line for line in lines if line.usd > 0)


def bill_fleet(
    fleet: FleetUsage,
    usd_per_hour: Mapping[str, float],
    offerings: Iterable[Offering],
    *,
    overflow: LambdaOffering | None,
    lambda_usage: LambdaUsage,
    duration_s: float,
    overhead: tuple[BillLine, ...],
) -> tuple[BillLine, ...]:
    """The whole bill of a fleet, replayed or live; `overhead` is empty where a managed price contains it.

    `usd_per_hour` is by offering name; what is surplus of CPU credits has its price from `offerings`.
    """
    surplus = {
        item.name: item.instance_type.credits.surplus_usd_per_vcpu_hour
        for item in offerings
        if item.instance_type.credits
    }
    lines = bill_instances(fleet.usages, usd_per_hour, surplus_usd_per_vcpu_hour=surplus)
    if overflow is not None:
        lines += bill_lambda(lambda_usage, overflow) + bill_provisioned(overflow, duration_s)
    disks = bill_disks(asleep_s=fleet.asleep_s, running_s=fleet.running_s if overhead else 0.0)
    return (*lines, *disks, *overhead)


def cost_of(lines: Iterable[BillLine]) -> CostUsd:
    """The cost words of a bill."""
    usd = dict.fromkeys(COMPONENTS, 0.0)
    for line in lines:
        if line.component not in usd:
            raise unknown("bill component", line.component, COMPONENTS)
        usd[line.component] += line.usd
    return CostUsd(
        instances=usd["instances"], standby=usd["standby"], lambda_=usd["lambda"], overhead=usd["overhead"]
    )


def _instance_line(component: str, offering: str, seconds: Mapping[float, int]) -> BillLine:
    """Hours of one offering, whatever their prices were. seconds: billed, by USD an hour."""
    priced = [(total / SECONDS_PER_HOUR, price) for price, total in sorted(seconds.items())]
    return BillLine(
        component=component,
        item=offering,
        quantity=sum(hours for hours, _ in priced),
        unit="instance-hours",
        usd=sum(hours * price for hours, price in priced),
    )


def _line(component: str, item: str, quantity: float, unit: str, price_usd: float) -> BillLine:
    return BillLine(component=component, item=item, quantity=quantity, unit=unit, usd=quantity * price_usd)

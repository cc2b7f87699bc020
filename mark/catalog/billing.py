"""The bill: what was used, times what it costs. Pure; prices come in with offerings and the footprint.

An instance is billed per second while it is in state running (booting and draining included, pending and
stopped not), rounded up to whole seconds, for 60 s at least each time it starts. A stopped standby pays for its
disk. Lambda bills each invocation and its GiB seconds. The overhead is what stands around a fleet of ours, by the
footprint of the service: gateways, load balancer, store, controllers, monitoring; the bytes of requests; and disks
and public addresses of what runs. A spot instance that EC2 takes back
within its first hour is free of charge; we bill it all the same, which errs on the dear side.

`bill_*` return lines, `cost_of` adds lines to the cost words.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mark.domain.billing.costs import BillLine, CostUsd, FleetUsage, InstanceUsage, LambdaUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.billing.service_prices import ServiceItem, ServicePrices
from mark.domain.errors import Misconfigured, unknown
from mark.domain.fleet.instances import Role
from mark.domain.offerings.offering import SURPLUS_USD_PER_VCPU_HOUR, LambdaOffering, Offering

SECONDS_PER_HOUR = 3600.0
MINIMUM_BILLED_S = 60
"""EC2 Linux: per second, one minute at least per start (EC2 on-demand pricing; MArk section 3)."""
ROUNDING_S = 1e-6
"""Float noise in a duration that must not round up to another second."""

HOURS_PER_MONTH = 730.0
"""A month in AWS prices."""
DAYS_PER_MONTH = HOURS_PER_MONTH / 24.0

BALANCER_GIB_PER_LCU_HOUR = 1.0
"""Traffic of a unit in an hour, over TLS as over TCP; with kept-alive connections the bytes count."""
MIB_PER_GIB, BYTES_PER_GIB = 1024.0, 1024.0**3
DIRECTIONS = 2
"""AWS bills what crosses between zones where it leaves and where it arrives."""
LAMBDA_LOG_GIB = 300.0 / BYTES_PER_GIB
"""Lambda's lines START, END and REPORT of a call (wallstrdev.de on what REPORT lines cost, read 2026-11-22)."""
PROVISIONED_STEP_S = 300.0
"""It is billed for each five minutes begun (AWS Lambda pricing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load within a time, as the overhead is billed by it."""

    duration_s: float
    peak_rps: float = 0.0
    requests: int = 0
    #: Of them, those that Lambda answered.
    lambda_requests: int = 0
    #: Size of a request with its answer.
    payload_mib: float = 0.0
    #: Requests that crossed from a gateway to an instance in another zone; None where nobody told zones apart.
    crossed: int | None = None

    @property
    def mib_per_s(self) -> float:
        """Mean of the bytes of requests and answers."""
        return self.requests * self.payload_mib / self.duration_s if self.duration_s > 0 else 0.0


COMPONENTS = ("instances", "standby", "lambda", "overhead", "commitments")
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
    return (_line("lambda", "provisioned", gib_s, "GiB-s", offering.usd_per_provisioned_gib_s),)


def bill_scheduled(
    offering: LambdaOffering, prices: ServicePrices, *, provisioned_s: float, answered: float
) -> tuple[BillLine, ...]:
    """Environments provisioned by the hour, for `provisioned_s` in all, and what their calls are cheaper.

    `answered`: calls that found one of them free; `bill_lambda` took the full price of a duration for all.
    """
    cheaper = prices.price(ServiceItem.LAMBDA_PROVISIONED_DURATION) - offering.usd_per_gib_s
    kept, gib_s = provisioned_s * offering.memory_gib, answered * offering.latency_s * offering.memory_gib
    lines = (
        _line("lambda", "provisioned", kept, "GiB-s", offering.usd_per_provisioned_gib_s),
        _line("lambda", "duration on provisioned", gib_s, "GiB-s", cheaper),
    )
    return tuple(line for line in lines if line.quantity > 0)


def disk_usd(gib: float, seconds: float, usd_per_gib_month: float) -> float:
    """A disk of `gib` kept for `seconds`."""
    return _gib_months(gib, seconds) * usd_per_gib_month


def bill_asleep(footprint: Footprint, asleep_s: float) -> tuple[BillLine, ...]:
    """Disks of standbys for `asleep_s` instance seconds; a stopped instance has no public address."""
    if asleep_s <= 0:
        return ()
    gib_months = _gib_months(footprint.disk_gib, asleep_s)
    return (_line("standby", "disks asleep", gib_months, "GiB-months", footprint.prices.price(ServiceItem.DISK)),)


def bill_running(footprint: Footprint, running_s: float) -> tuple[BillLine, ...]:
    """Disks and public addresses of rented instances for `running_s` instance seconds."""
    if running_s <= 0:
        return ()
    price, hours = footprint.prices.price, running_s / SECONDS_PER_HOUR
    gib_months = _gib_months(footprint.disk_gib, running_s)
    disks = _line("overhead", "disks", gib_months, "GiB-months", price(ServiceItem.DISK))
    addresses = _line("overhead", "addresses", hours, "address-hours", price(ServiceItem.ADDRESS))
    return (disks, addresses) if footprint.public_instances else (disks,)


def bill_traffic(footprint: Footprint, load: Load) -> tuple[BillLine, ...]:
    """Bytes of requests and answers: through the balancer, and between zones; and Lambda's own log of its calls.

    A balancer sends to any zone where one has no gateway: of `zones` all but one are others. So it is behind
    gateways where nobody counted what crossed; what Lambda answers then counts like what instances do, which errs
    on the dear side. What leaves AWS, or a client's own zone, is not counted.
    """
    price, gib = footprint.prices.price, load.requests * load.payload_mib / MIB_PER_GIB
    anywhere = gib * (footprint.zones - 1) / footprint.zones
    to_instances = anywhere if load.crossed is None else load.crossed * load.payload_mib / MIB_PER_GIB
    crossing = DIRECTIONS * (to_instances + footprint.crosses_to_gateways * anywhere)
    lines = [_line("overhead", "traffic between zones", crossing, "GiB", price(ServiceItem.CROSS_ZONE_BYTES))]
    if footprint.balanced:
        units = gib / BALANCER_GIB_PER_LCU_HOUR
        balancer = _line("overhead", "load balancer traffic", units, "LCU-hours", price(ServiceItem.BALANCER_UNIT))
        lines.insert(0, balancer)
    if footprint.lambda_through_endpoint:
        through = load.lambda_requests * load.payload_mib / MIB_PER_GIB
        lines.append(_line("overhead", "endpoint traffic", through, "GiB", price(ServiceItem.ENDPOINT_BYTES)))
    if load.lambda_requests:
        logged = load.lambda_requests * LAMBDA_LOG_GIB
        lines.append(_line("overhead", "Lambda's logs", logged, "GiB", _log_usd(footprint)))
    return tuple(lines)


def lambda_logs_usd(footprint: Footprint, requests: float) -> float:
    """The price of what Lambda logs of so many calls."""
    return requests * LAMBDA_LOG_GIB * _log_usd(footprint)


def _log_usd(footprint: Footprint) -> float:
    """USD for a GiB of logs, kept as long as is set. AWS keeps it compressed, we bill it as it came: dearer."""
    price, months = footprint.prices.price, footprint.monitoring.keep_logs_days / DAYS_PER_MONTH
    return price(ServiceItem.LOGS_INGESTED) + price(ServiceItem.LOGS_STORED) * months


def crossing_usd(footprint: Footprint, payload_mib: float) -> float:
    """The price of a request, with its answer, that crosses between two zones."""
    return DIRECTIONS * payload_mib / MIB_PER_GIB * footprint.prices.price(ServiceItem.CROSS_ZONE_BYTES)


def gateway_count(footprint: Footprint, peak_rps: float, mib_per_s: float = 0.0) -> int:
    """Gateways for a peak of requests and a mean of their bytes: as many as are deployed at least."""
    return max(footprint.gateways.count, footprint.gateways.needed(peak_rps, mib_per_s))


def bill_shared(
    footprint: Footprint, peak_rps: float, duration_s: float, *, mib_per_s: float = 0.0
) -> tuple[BillLine, ...]:
    """Lines for what is there whatever comes: gateways for the load all the time, and all that stands around them.

    Free tiers are an account's, and others may have used them: none is taken off.
    """
    hours = duration_s / SECONDS_PER_HOUR
    price, watched = footprint.prices.price, footprint.monitoring
    gateways = gateway_count(footprint, peak_rps, mib_per_s)
    tasks = footprint.controllers.count if footprint.controllers else 0
    addresses = footprint.public * (gateways + tasks) + footprint.internet_facing * footprint.zones
    month, name = hours / HOURS_PER_MONTH, footprint.gateways.name
    wanted = (
        (name, gateways * hours, "instance-hours", footprint.gateways.usd_per_hour),
        (f"{name}' disks", gateways * footprint.gateways.disk_gib * month, "GiB-months", price(ServiceItem.DISK)),
        ("load balancer", footprint.balanced * hours, "hours", price(ServiceItem.BALANCER)),
        *_store(footprint, hours),
        *_controllers(footprint, hours),
        ("service's addresses", addresses * hours, "address-hours", price(ServiceItem.ADDRESS)),
        ("endpoints", footprint.endpoints * hours, "endpoint-hours", price(ServiceItem.ENDPOINT)),
        ("hosted zones", footprint.hosted_zones * month, "zone-months", price(ServiceItem.HOSTED_ZONE)),
        ("secrets", footprint.secrets * month, "secret-months", price(ServiceItem.SECRET)),
        ("alarms", watched.alarms * month, "alarm-months", price(ServiceItem.ALARM)),
        ("dashboards", watched.dashboards * month, "dashboard-months", price(ServiceItem.DASHBOARD)),
        ("metrics", watched.metrics * month, "metric-months", price(ServiceItem.METRIC)),
        (
            "container insights",
            watched.insights_metrics * month,
            "metric-months",
            price(ServiceItem.INSIGHTS_METRIC),
        ),
        ("logs", watched.log_gib_per_hour * hours, "GiB", _log_usd(footprint)),
        (
            "training",
            footprint.training_gib_s_per_hour * hours,
            "GiB-s",
            price(ServiceItem.LAMBDA_DURATION),
        ),
        ("queues", footprint.queue_requests_per_hour * hours, "requests", price(ServiceItem.QUEUE_REQUEST)),
    )
    return tuple(
        _line("overhead", item, quantity, unit, usd) for item, quantity, unit, usd in wanted if quantity > 0
    )


def _store(footprint: Footprint, hours: float) -> tuple[tuple[str, float, str, float], ...]:
    """Quantities and prices of the store, or of what the lease is kept in where gateways hold the store."""
    price, store, table = footprint.prices.price, footprint.store, footprint.lease_table
    lines: list[tuple[str, float, str, float]] = []
    if store is not None:
        item = ServiceItem.VALKEY_NODE if store.engine == "valkey" else ServiceItem.REDIS_NODE
        lines.append(("store", store.count * hours, "node-hours", price(item, store.node_type)))
    if table is not None:
        writes, reads = table.writes_per_hour * hours, table.reads_per_hour * hours
        lines.append(("lease table's writes", writes, "request units", price(ServiceItem.TABLE_WRITE)))
        lines.append(("lease table's reads", reads, "request units", price(ServiceItem.TABLE_READ)))
    return tuple(lines)


def _controllers(footprint: Footprint, hours: float) -> tuple[tuple[str, float, str, float], ...]:
    """Quantities and prices of the controllers' tasks."""
    price, tasks = footprint.prices.price, footprint.controllers
    if tasks is None:
        return ()
    cpus, memory = tasks.count * tasks.vcpus * hours, tasks.count * tasks.memory_gib * hours
    return (
        ("controllers' CPUs", cpus, "vCPU-hours", price(ServiceItem.FARGATE_VCPU, tasks.architecture)),
        ("controllers' memory", memory, "GiB-hours", price(ServiceItem.FARGATE_MEMORY, tasks.architecture)),
    )


def bill_overhead(footprint: Footprint, load: Load) -> tuple[BillLine, ...]:
    """All that stands around a fleet, but for disks and addresses of the fleet itself."""
    shared = bill_shared(footprint, load.peak_rps, load.duration_s, mib_per_s=load.mib_per_s)
    return (*shared, *bill_traffic(footprint, load))


def bill_managed(charges: Collection[ServiceItem], prices: ServicePrices, load: Load) -> tuple[BillLine, ...]:
    """Charges of a managed service for each request, and for its bytes with its answer's."""
    gib = load.requests * load.payload_mib / MIB_PER_GIB
    known = {
        ServiceItem.LAMBDA_REQUEST: ("lambda", "requests", load.requests, "requests"),
        ServiceItem.SAGEMAKER_BYTES: ("overhead", "data processed", gib, "GiB"),
    }
    return tuple(_line(*known[item], prices.price(item)) for item in charges if known[item][2] > 0)


def bill_fleet(
    fleet: FleetUsage,
    usd_per_hour: Mapping[str, float],
    offerings: Iterable[Offering],
    *,
    overflow: LambdaOffering | None,
    lambda_usage: LambdaUsage,
    footprint: Footprint | None,
    load: Load,
    overhead: bool = True,
) -> tuple[BillLine, ...]:
    """The whole bill of a fleet, replayed or live; without `overhead` where a managed price contains it.

    `usd_per_hour` is by offering name; what is surplus of CPU credits has its price from `offerings`. Without a
    footprint nothing is billed beside instances and Lambda.
    """
    surplus = {
        item.name: item.instance_type.credits.surplus_usd_per_vcpu_hour
        for item in offerings
        if item.instance_type.credits
    }
    lines = bill_instances(fleet.usages, usd_per_hour, surplus_usd_per_vcpu_hour=surplus)
    if overflow is not None:
        lines += bill_lambda(lambda_usage, overflow) + bill_provisioned(overflow, load.duration_s)
    if footprint is None:
        return lines
    lines += bill_asleep(footprint, fleet.asleep_s)
    if not overhead:
        return lines
    return (*lines, *bill_running(footprint, fleet.running_s), *bill_overhead(footprint, load))


def cost_of(lines: Iterable[BillLine]) -> CostUsd:
    """The cost words of a bill."""
    usd = dict.fromkeys(COMPONENTS, 0.0)
    for line in lines:
        if line.component not in usd:
            raise unknown("bill component", line.component, COMPONENTS)
        usd[line.component] += line.usd
    return CostUsd(
        instances=usd["instances"],
        standby=usd["standby"],
        lambda_=usd["lambda"],
        overhead=usd["overhead"],
        commitments=usd["commitments"],
    )


def _gib_months(gib: float, seconds: float) -> float:
    return gib * seconds / SECONDS_PER_HOUR / HOURS_PER_MONTH


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

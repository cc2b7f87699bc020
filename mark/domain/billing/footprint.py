"""Footprint of a service: all that `mark deploy` makes and AWS bills beside instances of the fleet and Lambda."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.billing.service_prices import ServiceItem, ServicePrices
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """Instances that clients' requests come through."""

    #: Of their lines in the bill.
    name: str
    instance_type: str
    usd_per_hour: float
    #: Deployed at least; more where the peak asks for them.
    count: int
    #: Requests/s that one is planned to pass on.
    capacity_rps: float
    #: Requests and answers that it is planned to pass on for long, MiB/s.
    capacity_mib_per_s: float
    #: Beside those that the load takes: so many may be lost.
    spare: int
    #: The load that they are made for, as a multiple of the expected one.
    headroom: float
    #: Deployed at most; None without a limit.
    most: int | None
    #: Root disk of one, GiB.
    disk_gib: float

    def needed(self, rps: float, mib_per_s: float) -> int:
        """Number that carries so many requests/s and their bytes, the spare ones included."""
        busy = max(rps / self.capacity_rps, mib_per_s / self.capacity_mib_per_s)
        return self.spare + max(1, math.ceil(self.headroom * busy))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreNodes:
    """Nodes of the store, copies included."""

    engine: str
    node_type: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTasks:
    """Fargate tasks of the controllers."""

    count: int
    vcpus: float
    memory_gib: float
    architecture: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTable:
    """Requests to the table that holds the lease and the journal's tail, in units that DynamoDB bills."""

    writes_per_hour: float
    reads_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """Alarms, dashboards, metrics and logs that CloudWatch keeps."""

    alarms: int
    dashboards: int
    #: Custom metrics.
    metrics: int
    insights_metrics: int
    log_gib_per_hour: float
    keep_logs_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Resources around a fleet, of a rollout's settings, and the prices that they are billed at."""

    gateways: Gateways
    #: None where gateways hold the store.
    store: StoreNodes | None
    #: None where controllers run on the gateways.
    controllers: ControllerTasks | None
    #: None where the store holds the lease.
    lease_table: LeaseTable | None
    #: True where a load balancer stands before the gateways.
    balanced: bool
    hosted_zones: int
    monitoring: Monitoring
    #: Availability zones that gateways, instances and the balancer are spread over.
    zones: int
    #: True where gateways and controllers have public addresses.
    public: bool
    #: True where instances have.
    public_instances: bool
    #: True where the balancer has an address in each zone.
    internet_facing: bool
    #: Root disk of an instance of the first kind, GiB; others' rents are so much higher that theirs tell little.
    disk_gib: float
    #: Interface endpoints, each zone's counted.
    endpoints: int
    #: True where calls of Lambda go through an endpoint, which bills their bytes.
    lambda_through_endpoint: bool
    secrets: int
    #: Lambda's memory time of the function that trains forecasters, at most; 0 without one.
    training_gib_s_per_hour: float
    #: Requests to SQS while nothing happens.
    queue_requests_per_hour: float
    prices: ServicePrices
    #: Savings Plans and reservations of the account, as far as they may be counted for the service.
    commitments: Commitments = NO_COMMITMENTS

    @property
    def entry_zones(self) -> int:
        """Zones that have a gateway."""
        return min(self.zones, self.gateways.count)

    @property
    def crosses_to_gateways(self) -> bool:
        """True where the balancer sends to gateways of any zone: some zone of its own may have none."""
        return self.balanced and self.entry_zones < self.zones

    @property
    def is_steered(self) -> bool:
        """True where clients call a name that points at gateways: requests can be let in where instances are."""
        return not self.balanced

    @property
    def disk_usd_per_gib_month(self) -> float:
        """Price of the disks."""
        return self.prices.price(ServiceItem.DISK)

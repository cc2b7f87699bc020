"""Prices of AWS's services beside instances: what stands around a fleet is billed at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mark.domain.errors import Misconfigured


class ServiceItem(StrEnum):
    """Billed items of AWS's services. Some come in variants: an architecture, a node type."""

    DISK = "ebs-gp3"
    ADDRESS = "public-ipv4"
    BALANCER = "nlb"
    BALANCER_UNIT = "nlb-capacity-unit"
    #: Variant: architecture.
    FARGATE_VCPU = "fargate-vcpu"
    #: Variant: architecture.
    FARGATE_MEMORY = "fargate-memory"
    #: Variant: node type.
    VALKEY_NODE = "elasticache-valkey"
    #: Variant: node type.
    REDIS_NODE = "elasticache-redis"
    ENDPOINT = "interface-endpoint"
    ENDPOINT_BYTES = "interface-endpoint-bytes"
    NAT = "nat-gateway"
    NAT_BYTES = "nat-gateway-bytes"
    LOGS_INGESTED = "logs-ingested"
    LOGS_STORED = "logs-stored"
    METRIC = "custom-metric"
    INSIGHTS_METRIC = "container-insights-metric"
    ALARM = "alarm"
    DASHBOARD = "dashboard"
    SECRET = "secret"  # noqa: S105 - an item of the bill
    SECRET_CALL = "secret-call"  # noqa: S105 - an item of the bill
    CROSS_ZONE_BYTES = "cross-zone-bytes"
    INTERNET_BYTES = "internet-bytes"
    LAMBDA_REQUEST = "lambda-request"
    LAMBDA_DURATION = "lambda-duration"
    LAMBDA_PROVISIONED = "lambda-provisioned"
    LAMBDA_PROVISIONED_DURATION = "lambda-provisioned-duration"
    SAGEMAKER_BYTES = "sagemaker-bytes"
    QUEUE_REQUEST = "sqs-request"
    EVENT = "eventbridge-event"
    OBJECTS_STORED = "s3-stored"
    OBJECT_PUT = "s3-put"
    OBJECT_GET = "s3-get"
    IMAGES_STORED = "ecr-stored"
    TABLE_WRITE = "dynamodb-write"
    TABLE_READ = "dynamodb-read"
    HOSTED_ZONE = "hosted-zone"


UNITS: Mapping[ServiceItem, str] = {
    ServiceItem.DISK: "GiB-month",
    ServiceItem.ADDRESS: "hour",
    ServiceItem.BALANCER: "hour",
    ServiceItem.BALANCER_UNIT: "LCU-hour",
    ServiceItem.FARGATE_VCPU: "vCPU-hour",
    ServiceItem.FARGATE_MEMORY: "GiB-hour",
    ServiceItem.VALKEY_NODE: "node-hour",
    ServiceItem.REDIS_NODE: "node-hour",
    ServiceItem.ENDPOINT: "endpoint-hour",
    ServiceItem.ENDPOINT_BYTES: "GiB",
    ServiceItem.NAT: "hour",
    ServiceItem.NAT_BYTES: "GiB",
    ServiceItem.LOGS_INGESTED: "GiB",
    ServiceItem.LOGS_STORED: "GiB-month",
    ServiceItem.METRIC: "metric-month",
    ServiceItem.INSIGHTS_METRIC: "metric-month",
    ServiceItem.ALARM: "alarm-month",
    ServiceItem.DASHBOARD: "dashboard-month",
    ServiceItem.SECRET: "secret-month",
    ServiceItem.SECRET_CALL: "call",
    ServiceItem.CROSS_ZONE_BYTES: "GiB",
    ServiceItem.INTERNET_BYTES: "GiB",
    ServiceItem.LAMBDA_REQUEST: "request",
    ServiceItem.LAMBDA_DURATION: "GiB-s",
    ServiceItem.LAMBDA_PROVISIONED: "GiB-s",
    ServiceItem.LAMBDA_PROVISIONED_DURATION: "GiB-s",
    ServiceItem.SAGEMAKER_BYTES: "GiB",
    ServiceItem.QUEUE_REQUEST: "request",
    ServiceItem.EVENT: "event",
    ServiceItem.OBJECTS_STORED: "GiB-month",
    ServiceItem.OBJECT_PUT: "request",
    ServiceItem.OBJECT_GET: "request",
    ServiceItem.IMAGES_STORED: "GiB-month",
    ServiceItem.TABLE_WRITE: "request unit",
    ServiceItem.TABLE_READ: "request unit",
    ServiceItem.HOSTED_ZONE: "zone-month",
}
"""Unit of each price. AWS writes GB where it bills GiB (2^30 bytes). CROSS_ZONE_BYTES and SAGEMAKER_BYTES are
billed in each direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePrices:
    """Prices of one region on a day."""

    region: str
    date: str
    #: USD by `item`, or `item variant`.
    usd: Mapping[str, float]

    def price(self, item: ServiceItem, variant: str = "") -> float:
        """USD for a unit of the item. Misconfigured where the table has none."""
        key = price_key(item, variant)
        if key not in self.usd:
            raise Misconfigured(
                f"no price of {key} in {self.region}: add it, in USD per {UNITS[item]}, to a copy of the table of "
                "service prices, and name that as `service_prices` (docs/costs.md)"
            )
        return self.usd[key]


def price_key(item: ServiceItem, variant: str) -> str:
    """The name under which a price is kept."""
    return f"{item.value} {variant}" if variant else item.value

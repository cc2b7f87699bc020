"""Current prices and properties of instance types on AWS, in the settings' region."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mark.aws.errors import translated
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeInfoTypeDef
    from mypy_boto3_pricing.type_defs import FilterTypeDef

LINUX = "Linux/UNIX"
AT_ONCE = 100
"""Types that are asked for in one call."""
MIB_PER_GIB = 1024
_PLAIN = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
"""The filter for plain Linux among the products of a type."""
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFacts:
    """The properties of a type as AWS has them. `architectures` in our words."""

    name: str
    vcpus: int
    memory_gib: float
    architectures: tuple[str, ...]
    #: Devices that the machine has: one that has a part of a GPU (g6f) has 1.
    accelerator_count: int
    #: Memory of one of them; 0 without any.
    accelerator_memory_gib: float


def spot_usd_per_hour(aws: Aws, types: Collection[str], now: float) -> dict[str, float]:
    """The spot price of each type that has one at `now`: the median of its zones."""
    zones = spot_usd_per_hour_by_zone(aws, types, now)
    return {name: statistics.median(prices.values()) for name, prices in zones.items()}


def spot_usd_per_hour_by_zone(aws: Aws, types: Collection[str], now: float) -> dict[str, dict[str, float]]:
    """The spot prices at `now` of each type that has one, by availability zone."""
    found: defaultdict[str, dict[str, tuple[datetime, float]]] = defaultdict(dict)
    at = datetime.fromtimestamp(now, UTC)
    for some in _slices(sorted(types)):
        with translated():
            pages = aws.ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=some,  # type: ignore[arg-type]
                ProductDescriptions=[LINUX],
                StartTime=at,
                EndTime=at,
            )
            for entry in (entry for page in pages for entry in page["SpotPriceHistory"]):
                zones, zone = found[entry["InstanceType"]], entry["AvailabilityZone"]
                if zone not in zones or zones[zone][0] < entry["Timestamp"]:
                    zones[zone] = (entry["Timestamp"], float(entry["SpotPrice"]))
    return {name: {zone: price for zone, (_, price) in zones.items()} for name, zones in sorted(found.items())}


def on_demand_usd_per_hour(aws: Aws, types: Collection[str]) -> dict[str, float]:
    """The list price of each of these types that is sold in the region."""
    wanted = {"regionCode": aws.settings.region, **_PLAIN}
    filters: list[FilterTypeDef] = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()
    ]
    found: dict[str, float] = {}
    with translated():
        pages = aws.prices.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)
        for text in (text for page in pages for text in page["PriceList"]):
            name, price = _product(json.loads(text))
            if name in types and price > 0:
                found[name] = price
    return dict(sorted(found.items()))


def type_facts(aws: Aws, types: Collection[str]) -> dict[str, TypeFacts]:
    """Read the properties of these types; one that the region does not know is not in the answer."""
    found: dict[str, TypeFacts] = {}
    for some in _slices(sorted(types)):
        with translated():
            pages = aws.ec2.get_paginator("describe_instance_types").paginate(
                Filters=[{"Name": "instance-type", "Values": some}]
            )
            facts = [_facts(info) for page in pages for info in page["InstanceTypes"]]
        found |= {item.name: item for item in facts}
    return found


def free_plan_types(aws: Aws) -> frozenset[str]:
    """The types that an account on AWS's Free plan may launch in the region."""
    with translated():
        pages = aws.ec2.get_paginator("describe_instance_types").paginate(
            Filters=[{"Name": "free-tier-eligible", "Values": ["true"]}]
        )
        return frozenset(str(info["InstanceType"]) for page in pages for info in page["InstanceTypes"])


def zones_by_type(aws: Aws, types: Collection[str]) -> dict[str, frozenset[str]]:
    """The availability zones that sell each of these types; none for one that the region does not know."""
    found: dict[str, set[str]] = {name: set() for name in types}
    for some in _slices(sorted(types)):
        with translated():
            pages = aws.ec2.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": some}]
            )
            for one in (one for page in pages for one in page["InstanceTypeOfferings"]):
                found[one["InstanceType"]].add(one["Location"])
    return {name: frozenset(zones) for name, zones in found.items()}


def _facts(info: InstanceTypeInfoTypeDef) -> TypeFacts:
    kinds = info["ProcessorInfo"].get("SupportedArchitectures", [])
    gpus = info.get("GpuInfo", {}).get("Gpus", [])
    others = info.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
    devices: list[Mapping[str, Any]] = [*gpus, *others]
    return TypeFacts(
        name=info["InstanceType"],
        vcpus=info["VCpuInfo"]["DefaultVCpus"],
        memory_gib=info["MemoryInfo"]["SizeInMiB"] / MIB_PER_GIB,
        architectures=tuple(sorted(ARCHITECTURES[kind] for kind in kinds if kind in ARCHITECTURES)),
        # `Count` is 0 where GPUs are divided (aws/aws-cli #9659)
        accelerator_count=sum(item.get("LogicalGpuCount") or item.get("Count", 0) for item in devices),
        accelerator_memory_gib=max((item["MemoryInfo"]["SizeInMiB"] for item in devices), default=0) / MIB_PER_GIB,
    )


def _product(product: dict[str, Any]) -> tuple[str, float]:
    """Type and USD an hour of an entry of the price list."""
    try:
        name = str(product["product"]["attributes"]["instanceType"])
        (term,) = product["terms"]["OnDemand"].values()
        prices = [
            float(dimension["pricePerUnit"]["USD"])
            for dimension in term["priceDimensions"].values()
            if dimension["unit"] == "Hrs"
        ]
        return name, max(prices)
    except (KeyError, ValueError, TypeError) as error:
        raise Misconfigured(f"the price list has an entry that cannot be read: {error!r}") from error


def _slices(names: Sequence[str]) -> list[list[str]]:
    return [list(names[start : start + AT_ONCE]) for start in range(0, len(names), AT_ONCE)]

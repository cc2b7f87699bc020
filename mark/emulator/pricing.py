"""A stand-in for the Price List Query API: on-demand prices of the instance types that exist."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mark.domain.offerings.offering import InstanceType
from mark.emulator.config import REGION
from mark.emulator.errors import ApiError, not_emulated
from mark.emulator.paging import page_of

PAGE = 50
"""Products of a page; AWS gives up to 100."""
FIXED = {
    "servicecode": "AmazonEC2",
    "regionCode": REGION,
    "location": "US East (N. Virginia)",
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "productFamily": "Compute Instance",
}


class Pricing:
    """GetProducts of AmazonEC2."""

    def __init__(self, types: Mapping[str, InstanceType]) -> None:
        self._types = types

    def answer(self, action: str, body: bytes) -> dict[str, Any]:
        """The reply to one call."""
        if action != "GetProducts":
            raise not_emulated(f"pricing:{action}")
        request = json.loads(body)
        if request.get("ServiceCode") != "AmazonEC2":
            raise not_emulated(f"prices of {request.get('ServiceCode')}")
        filters = {entry["Field"]: entry["Value"] for entry in request.get("Filters", ())}
        wanted = filters.pop("instanceType", None)
        unknown = set(filters) - set(FIXED)
        if unknown:
            raise ApiError("InvalidParameterException", f"unknown field {', '.join(sorted(unknown))}")
        if any(FIXED[name] != value for name, value in filters.items()):
            return {"FormatVersion": "aws_v1", "PriceList": []}
        types = [self._types[name] for name in sorted(self._types) if wanted in (None, name)]
        shown, following = page_of(types, request.get("NextToken"), request.get("MaxResults"), most=PAGE)
        more = {"NextToken": following} if following else {}
        return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(_product(one)) for one in shown], **more}


def _product(found: InstanceType) -> dict[str, Any]:
    attributes = {
        **FIXED,
        "instanceType": found.name,
        "vcpu": str(found.vcpus),
        "memory": f"{found.memory_gib:g} GiB",
    }
    family = attributes.pop("productFamily")
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{found.on_demand_usd_per_hour:.10f}"}}
    return {
        "product": {"productFamily": family, "sku": found.name, "attributes": attributes},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {found.name: {"priceDimensions": {found.name: dimension}, "sku": found.name}}},
    }

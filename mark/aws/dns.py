"""The name that clients call, where no load balancer stands: an A record of Route 53 with the nodes' addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mark.aws.errors import translated

TTL_S = 10
"""For so long clients go on calling an address that is gone; each then tries the other one."""


def put_addresses(names: Any, zone: str, host: str, addresses: Sequence[str]) -> None:
    """Have the name mean these addresses. names: boto3's client of Route 53."""
    _change(names, zone, "UPSERT", _record(host, addresses))


def remove_addresses(names: Any, zone: str, host: str) -> bool:
    """Remove the name; whether it was there. One that means something else by now, an alias or a CNAME, stays."""
    with translated():
        page = names.list_resource_record_sets(
            HostedZoneId=zone, StartRecordName=host, StartRecordType="A", MaxItems="1"
        )
    found = [
        one
        for one in page["ResourceRecordSets"]
        if (one["Name"], one["Type"]) == (f"{host}.", "A") and "AliasTarget" not in one
    ]
    for one in found:
        _change(names, zone, "DELETE", one)
    return bool(found)


def remove_all_addresses(names: Any, zone: str) -> None:
    """Remove every A record of a zone that goes with its service, whatever name it was deployed under."""
    with translated():
        pages = list(names.get_paginator("list_resource_record_sets").paginate(HostedZoneId=zone))
    for one in (record for page in pages for record in page["ResourceRecordSets"]):
        if one["Type"] == "A":
            _change(names, zone, "DELETE", one)


def _record(host: str, addresses: Sequence[str]) -> dict[str, Any]:
    return {
        "Name": f"{host}.",
        "Type": "A",
        "TTL": TTL_S,
        "ResourceRecords": [{"Value": address} for address in sorted(addresses)],
    }


def _change(names: Any, zone: str, action: str, record: dict[str, Any]) -> None:
    with translated():
        names.change_resource_record_sets(
            HostedZoneId=zone, ChangeBatch={"Changes": [{"Action": action, "ResourceRecordSet": record}]}
        )

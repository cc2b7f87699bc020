"""The name that clients call, where no load balancer stands: A records of Route 53 with the nodes' addresses.

One record has all addresses where clients are to get them alike. Else each address has one of its own, and clients
get them by their weights: Route 53 takes no name that has records of both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mark.aws.errors import translated

TTL_S = 10
"""For so long clients go on calling an address that is gone; those that got others too try them at once."""


def put_addresses(names: Any, zone: str, host: str, weights: Mapping[str, int]) -> None:
    """Have the name mean these addresses, by their weights. names: boto3's client of Route 53."""
    wanted = _records(host, weights)
    identifiers = {one.get("SetIdentifier") for one in wanted}
    gone = [one for one in _there(names, zone, host) if one.get("SetIdentifier") not in identifiers]
    _change(names, zone, [("DELETE", one) for one in gone] + [("UPSERT", one) for one in wanted])


def remove_addresses(names: Any, zone: str, host: str) -> bool:
    """Remove the name; whether it was there. One that means something else by now, an alias or a CNAME, stays."""
    found = [one for one in _there(names, zone, host) if "AliasTarget" not in one]
    _change(names, zone, [("DELETE", one) for one in found])
    return bool(found)


def _there(names: Any, zone: str, host: str) -> list[dict[str, Any]]:
    with translated():
        page = names.list_resource_record_sets(HostedZoneId=zone, StartRecordName=host, StartRecordType="A")
    return [one for one in page["ResourceRecordSets"] if (one["Name"], one["Type"]) == (f"{host}.", "A")]


def remove_all_addresses(names: Any, zone: str) -> None:
    """Remove every A record of a zone that goes with its service, whatever name it was deployed under."""
    with translated():
        pages = list(names.get_paginator("list_resource_record_sets").paginate(HostedZoneId=zone))
    for one in (record for page in pages for record in page["ResourceRecordSets"]):
        if one["Type"] == "A":
            _change(names, zone, [("DELETE", one)])


def _records(host: str, weights: Mapping[str, int]) -> list[dict[str, Any]]:
    if len(set(weights.values())) <= 1:
        return [_record(host, sorted(weights))]
    return [
        _record(host, [address]) | {"SetIdentifier": address, "Weight": weight}
        for address, weight in sorted(weights.items())
    ]


def _record(host: str, addresses: Sequence[str]) -> dict[str, Any]:
    values = [{"Value": address} for address in addresses]
    return {"Name": f"{host}.", "Type": "A", "TTL": TTL_S, "ResourceRecords": values}


def _change(names: Any, zone: str, changes: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Make these changes at once, or none of them."""
    batch = [{"Action": action, "ResourceRecordSet": record} for action, record in changes]
    if batch:
        with translated():
            names.change_resource_record_sets(HostedZoneId=zone, ChangeBatch={"Changes": batch})

"""The lease's table in moto, with a clock that a test moves."""

from __future__ import annotations

from typing import Any

from mark.aws.lease_table import LeaseTable

TABLE = "mark-shop-lease"


class Hand:
    """A monotonic clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_table(tables: Any) -> None:
    tables.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("part", "place")],
        KeySchema=[{"AttributeName": "part", "KeyType": "HASH"}, {"AttributeName": "place", "KeyType": "RANGE"}],
    )


def lease_table(tables: Any, clock: Hand, address: str = "") -> LeaseTable:
    return LeaseTable(tables, TABLE, address=address, monotonic=clock)

"""The lease of a service, the tail of its journals and its clients in a DynamoDB table, by conditional writes.

Three kinds of items, by `part` and `place`: `lease`, one item (`mark.domain.fleet.lease`); `clients`, one item;
and `journal/MODEL`, a line each, compressed, which DynamoDB removes KEEP_S after it was written. A line is written
in a transaction with a check that the lease is still the writer's: who lost it can write no line, and who cannot
write does not order. Whatever else DynamoDB refuses is RetryLater: a candidate goes on asking, a holder's term
ends.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

from botocore.exceptions import ClientError

from mark.aws.errors import refused_is_later
from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import (
    TABLE_LEASE,
    Lease,
    LeaseItem,
    LeaseLost,
    LeaseTimes,
    LeaseWatch,
    given_back,
    renewed,
    taken,
)
from mark.ports import TailLine


class Attribute(TypedDict, total=False):
    """An attribute of an item: a text, a number as text, bytes, or a truth value."""

    S: str
    N: str
    B: bytes
    BOOL: bool


Item = Mapping[str, Attribute]
LEASE: Item = {"part": {"S": "lease"}, "place": {"S": "lease"}}
CLIENTS: Item = {"part": {"S": "clients"}, "place": {"S": "clients"}}
SAME = "epoch = :epoch AND renewal = :renewal"
OURS = "epoch = :epoch AND given_back = :no"
REFUSED = "ConditionalCheckFailed"
KEEP_S = 86_400
"""For how long a line is kept: replicas lag by seconds, and a journal's segment is a day's at most."""
PART_BYTES = 350_000
"""An item has 400 KB at most (DynamoDB quotas)."""
TRIES, PAUSE_S = 5, 0.02
"""A transaction that meets a renewal of the lease is refused, and repeated."""
FRESH_S = 0.5
"""A reading of the lease this young need not be repeated by who only wants to know the holder."""


class LeaseTable:
    """The table; `tables` is boto3's client. Safe to share between threads. `address`: where this process is."""

    times: LeaseTimes = TABLE_LEASE

    def __init__(
        self, tables: Any, name: str, *, address: str = "", monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._tables, self._name, self._address, self._monotonic = tables, name, address, monotonic
        self._watch = LeaseWatch()
        self._seen: LeaseItem | None = None
        self._seen_at = float("-inf")

    def acquire(self, holder: str, ttl_s: float) -> Lease | None:
        """Acquire the lease; None while another holds it, or where somebody else was faster."""
        before = self._read()
        own = before is not None and before.holder == holder
        if not (own or self._watch.may_take(before, self._monotonic())):
            return None
        item = taken(before, holder, ttl_s, self._address)
        if not self._swap(item, before):
            return None
        return Lease(holder=holder, epoch=item.epoch, ttl_s=ttl_s)

    def renew(self, lease: Lease) -> None:
        """Hold it for another `ttl_s`. LeaseLost where another has taken it since."""
        item = self._own(lease)
        if item is None or not self._swap(renewed(item), item):
            raise _lost(lease)

    def release(self, lease: Lease) -> None:
        """Let the next one have it at once; who has lost it already releases nothing."""
        item = self._own(lease)
        if item is not None:
            self._swap(given_back(item), item)

    def held_by(self) -> str | None:
        """The holder of the lease; None where nobody has it, or it gave it back."""
        item = self._lately()
        return None if item is None or item.free else item.holder

    def leader(self) -> str:
        """Address of the node that leads, of the last one while there is none. RetryLater before the first."""
        item = self._read()
        if item is None:
            raise RetryLater(f"no controller has led yet: {self._name} holds no lease")
        return item.address

    # Tail.

    def put(self, lease: Lease, model: str, line: TailLine) -> None:
        """Write a line. LeaseLost where another has the lease."""
        packed = zlib.compress(line.line)
        parts = [packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES)]
        self._write_fenced(
            lease, [self._item(model, line, number, part, len(parts)) for number, part in enumerate(parts)]
        )

    def lines(self, model: str, *, segment: int, place: int) -> Iterator[TailLine]:
        """The lines that are kept from that place on, in order."""
        parts: list[bytes] = []
        for item in self._query(model, _place(segment, place, 0)):
            number = int(item["number"]["N"])
            parts = [*parts, item["line"]["B"]] if number == len(parts) else []
            if number + 1 == int(item["parts"]["N"]) and parts:
                at = item["place"]["S"].split("/")
                yield TailLine(int(at[0]), int(at[1]), zlib.decompress(b"".join(parts)))
                parts = []

    def put_clients(self, lease: Lease, directory: bytes) -> None:
        """Keep the clients. LeaseLost where another has the lease."""
        self._write_fenced(lease, [{**CLIENTS, "directory": {"B": zlib.compress(directory)}}])

    def clients(self) -> bytes | None:
        """The clients as they were kept last; None before the first."""
        with refused_is_later():
            found = self._tables.get_item(TableName=self._name, Key=CLIENTS, ConsistentRead=True).get("Item")
        return None if found is None else zlib.decompress(found["directory"]["B"])

    def _write_fenced(self, lease: Lease, items: Sequence[Item]) -> None:
        """Put items while the lease is held. LeaseLost where another has it."""
        check = {
            "ConditionCheck": {
                "TableName": self._name,
                "Key": LEASE,
                "ConditionExpression": OURS,
                "ExpressionAttributeValues": {":epoch": _number(lease.epoch), ":no": {"BOOL": False}},
            }
        }
        puts = [{"Put": {"TableName": self._name, "Item": item}} for item in items]
        if not self._write(lambda: self._tables.transact_write_items(TransactItems=[check, *puts])):
            raise _lost(lease)

    def _query(self, model: str, first: str) -> Iterator[Item]:
        after: dict[str, Any] = {}
        while True:
            with refused_is_later():
                page = self._tables.query(
                    TableName=self._name,
                    ConsistentRead=True,
                    KeyConditionExpression="part = :part AND place >= :first",
                    ExpressionAttributeValues={":part": {"S": f"journal/{model}"}, ":first": {"S": first}},
                    **after,
                )
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            after = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _item(self, model: str, line: TailLine, number: int, part: bytes, parts: int) -> Item:
        return {
            "part": {"S": f"journal/{model}"},
            "place": {"S": _place(line.segment, line.place, number)},
            "number": _number(number),
            "parts": _number(parts),
            "line": {"B": part},
            "expires": _number(int(time.time()) + KEEP_S),
        }

    # Lease.

    def _own(self, lease: Lease) -> LeaseItem | None:
        """The item where it is still that of `lease`; what its holder knows of it need not be read."""
        item = self._seen if self._seen is not None and self._seen.epoch == lease.epoch else self._read()
        return item if item is not None and item.epoch == lease.epoch and not item.free else None

    def _lately(self) -> LeaseItem | None:
        return self._seen if self._monotonic() - self._seen_at < FRESH_S else self._read()

    def _read(self) -> LeaseItem | None:
        with refused_is_later():
            found = self._tables.get_item(TableName=self._name, Key=LEASE, ConsistentRead=True).get("Item")
        return self._saw(None if found is None else _lease_of(found))

    def _swap(self, item: LeaseItem, before: LeaseItem | None) -> bool:
        """Put the item where the table still holds the one before; whether it did."""
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(part)"}
        if before is not None:
            values = {":epoch": _number(before.epoch), ":renewal": _number(before.renewal)}
            condition = {"ConditionExpression": SAME, "ExpressionAttributeValues": values}
        fields = _fields(item)
        put = lambda: self._tables.put_item(TableName=self._name, Item={**LEASE, **fields}, **condition)  # noqa: E731
        if self._write(put):
            self._saw(item)
            return True
        # the answer of a first try may have been lost: then the item is ours already
        return self._read() == item

    def _saw(self, item: LeaseItem | None) -> LeaseItem | None:
        self._seen, self._seen_at = item, self._monotonic()
        return item

    def _write(self, write: Callable[[], object]) -> bool:
        """Write; whether the conditions held. RetryLater where it conflicts with another write for long."""
        for _ in range(TRIES):
            try:
                with refused_is_later():
                    _conditional(write)
            except _ConditionFailed:
                return False
            except _Conflict:
                time.sleep(PAUSE_S)
            else:
                return True
        raise RetryLater(f"the table {self._name} was busy with other writes")


class _ConditionFailed(Exception):
    """A condition of a write did not hold."""


class _Conflict(Exception):
    """Another write was under way."""


def _conditional(write: Callable[[], object]) -> None:
    try:
        write()
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        reasons: Sequence[Mapping[str, str]] = error.response.get("CancellationReasons", ())  # type: ignore[assignment]
        codes = {code, *(str(reason.get("Code")) for reason in reasons)}
        if codes & {REFUSED, f"{REFUSED}Exception"}:
            raise _ConditionFailed from error
        if codes & {"TransactionConflict", "TransactionConflictException", "TransactionInProgressException"}:
            raise _Conflict from error
        raise


def _fields(item: LeaseItem) -> Item:
    return {
        "holder": {"S": item.holder},
        "epoch": _number(item.epoch),
        "renewal": _number(item.renewal),
        "ttl_s": {"N": repr(item.ttl_s)},
        "address": {"S": item.address},
        "given_back": {"BOOL": item.free},
    }


def _lease_of(found: Item) -> LeaseItem:
    return LeaseItem(
        holder=found["holder"]["S"],
        epoch=int(found["epoch"]["N"]),
        renewal=int(found["renewal"]["N"]),
        ttl_s=float(found["ttl_s"]["N"]),
        address=found["address"]["S"],
        free=found["given_back"]["BOOL"],
    )


def _place(segment: int, place: int, part: int) -> str:
    return f"{segment:010d}/{place:010d}/{part:04d}"


def _number(value: int) -> Attribute:
    return {"N": str(value)}


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"{lease.holder} no longer holds the lease (epoch {lease.epoch})")

"""The lease on a service: several controllers run, one acts. Its epoch shuts out what an earlier holder writes.

Where the lease is an item of a table that knows no time (DynamoDB), `LeaseWatch` decides when it may be taken:
nobody compares clocks. A holder holds it until `ttl_s` after it *began* its last renewal. A candidate takes it
when it has seen the same renewal for `ttl_s` on its own clock, which is later, and the table swaps the item only
where it is still the one that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mark.domain.errors import RetryLater


class LeaseLost(RetryLater):
    """Another controller acts: stop acting, and take the lease again when it can be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Held by `holder` for `ttl_s` wall seconds after each renewal; `epoch` is above that of all before it."""

    holder: str
    epoch: int
    ttl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Pace of a lease, in wall seconds."""

    #: Without a renewal for so long the lease is lost.
    ttl_s: float
    #: Between two renewals of the holder.
    renew_s: float
    #: Between two tries of who waits.
    retry_s: float


STORE_LEASE = LeaseTimes(ttl_s=3.0, renew_s=0.75, retry_s=0.25)
"""In the store, whose calls cost nothing."""
TABLE_LEASE = LeaseTimes(ttl_s=10.0, renew_s=2.5, retry_s=1.0)
"""In a table, where each call is billed: a dollar a month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseItem:
    """The lease as a table holds it. `renewal` rises with each renewal of an epoch; `address`: the holder's."""

    holder: str
    epoch: int
    renewal: int
    ttl_s: float
    address: str
    #: True where its holder gave it back.
    free: bool = False


class LeaseWatch:
    """A candidate's view of the lease, on its own monotonic clock."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._since = 0.0

    def may_take(self, item: LeaseItem | None, now: float) -> bool:
        """True where nobody holds `item`, which was read before `now`."""
        if item is None or item.free:
            return True
        if (item.epoch, item.renewal) != self._seen:
            self._seen, self._since = (item.epoch, item.renewal), now
        return now - self._since >= item.ttl_s


def taken(before: LeaseItem | None, holder: str, ttl_s: float, address: str) -> LeaseItem:
    """The item of the next holder."""
    epoch = 1 if before is None else before.epoch + 1
    return LeaseItem(holder=holder, epoch=epoch, renewal=0, ttl_s=ttl_s, address=address)


def renewed(item: LeaseItem) -> LeaseItem:
    """The item after its holder's next renewal."""
    return replace(item, renewal=item.renewal + 1)


def given_back(item: LeaseItem) -> LeaseItem:
    """The item once its holder gave it back: the epoch rises, so that who released writes no more."""
    return replace(item, epoch=item.epoch + 1, free=True)

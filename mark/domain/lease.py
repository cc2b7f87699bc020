"""The lease on a service: several controllers run, one acts. Its epoch shuts out what an earlier holder writes."""

from __future__ import annotations

from dataclasses import dataclass

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

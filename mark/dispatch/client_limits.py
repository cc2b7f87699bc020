"""Limits of a client at one gateway: rate with bursts (token bucket), requests in flight, priority class.

The bucket is kept as one instant, when it would be full again (generic cell rate algorithm, the form of the leaky
bucket in ITU-T I.371): a request is admitted where that instant, with this request, is no more than a bucket's
filling away. So in any `t` seconds no more than `rate * t + burst` requests are admitted, and of one that is
refused it is known when the next would be.

Several gateways share a client's limits in equal parts, without asking each other.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from mark.domain.clients import Client, Limits, Priority

UNAUTHORIZED, FORBIDDEN, TOO_MANY = 401, 403, 429
"""HTTP statuses of refusals."""
BUSY_RETRY_S = 1.0
"""Retry-After of a client that has too many requests in flight: when one ends nobody knows."""
_RANK = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2, Priority.ASYNC: 3}


def access_status(client: Client | None, model: str) -> int:
    """The status that refuses a caller for this model: 401 for one who is unknown, 403; 0 where it may use it.

    model: empty for what is no model's.
    """
    if client is None or client.is_revoked:
        return UNAUTHORIZED
    return 0 if not model or client.may_use(model) else FORBIDDEN


class TokenBucket:
    """Rate limit with bursts. `rate_rps`: above 0. `burst`: at least 1, not always whole: a share of one."""

    __slots__ = ("_ahead_s", "_each_s", "_full_at")

    def __init__(self, rate_rps: float, burst: float) -> None:
        self._full_at = -math.inf
        self._set(rate_rps, burst)

    def take(self, now: float) -> float:
        """Take one request; 0.0 where it is admitted, else seconds until the next would be."""
        full_at = self._full_at
        if full_at <= now:
            self._full_at = now + self._each_s
            return 0.0
        wait_s = full_at - self._ahead_s - now
        if wait_s > 0.0:
            return wait_s
        self._full_at = full_at + self._each_s
        return 0.0

    def resize(self, rate_rps: float, burst: float, now: float) -> None:
        """Go on with another rate and burst; requests that were taken stay taken."""
        taken = max(0.0, self._full_at - now) / self._each_s
        self._set(rate_rps, burst)
        self._full_at = now + taken * self._each_s

    def _set(self, rate_rps: float, burst: float) -> None:
        self._each_s = 1.0 / rate_rps
        self._ahead_s = (burst - 1.0) * self._each_s


class ClientLimits:
    """The part of one client's limits that this gateway keeps. `now`: seconds of a clock that never goes back."""

    __slots__ = ("_bucket", "_limits", "_most", "in_flight")

    def __init__(self, limits: Limits, *, gateways: int, now: float) -> None:
        self.in_flight = 0
        self._bucket: TokenBucket | None = None
        self.share(limits, gateways=gateways, now=now)

    def share(self, limits: Limits, *, gateways: int, now: float) -> None:
        """Keep these limits from now on, one of so many gateways that are up."""
        self._limits = limits
        self._most = math.inf if limits.concurrency is None else max(1, -(-limits.concurrency // gateways))
        if limits.rate_rps is None:
            self._bucket = None
            return
        rate_rps, burst = limits.rate_rps / gateways, max(1.0, limits.burst / gateways)
        if self._bucket is None:
            self._bucket = TokenBucket(rate_rps, burst)
        else:
            self._bucket.resize(rate_rps, burst, now)

    def admit(self, now: float) -> float:
        """Admit a request, which is in flight until `end`; 0.0, or the seconds of Retry-After (429)."""
        if self.in_flight >= self._most:
            return BUSY_RETRY_S
        if self._bucket is not None:
            wait_s = self._bucket.take(now)
            if wait_s:
                return wait_s
        self.in_flight += 1
        return 0.0

    def end(self) -> None:
        """A request that was admitted is answered."""
        self.in_flight -= 1


def queue_share(priority: Priority, present: Collection[Priority]) -> float:
    """The share of the time for waiting that a class may use, in (0, 1]: half of it for each higher class present.

    So a class that is alone loses nothing, and as the queue grows the lowest is refused first.
    """
    higher = sum(1 for other in set(present) if _RANK[other] < _RANK[priority])
    return 0.5**higher


def may_wait(wait_s: float, slack_s: float, share: float) -> bool:
    """True where a request may join the queue. `slack_s`: how long it can wait and still be in time."""
    return wait_s <= 0.0 or wait_s <= share * slack_s

"""Overflow to Lambda: when a bounced request goes there, and how many environments are believed warm.

Nobody outside AWS sees the pool of environments. The sender knows how many of its own calls are in flight, and
that an environment stays warm for at least 45 minutes: the largest number in flight within that time is what is
believed warm. The belief is kept as the maximum per bucket of time, in arrays that the caller owns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

WARM_S = 45 * 60.0
"""An idle environment is kept at least this long (MArk section 4.5: recycled after 45 to 60 minutes)."""
BUCKETS = 30
BUCKET_S = WARM_S / BUCKETS

EXACT = 1e-9
"""Most that rounding takes from a whole number of environments."""

TO_LAMBDA, TO_INSTANCE, SHED = range(3)
"""Decisions on a bounced request: numbers, because compiled code has no enumerations."""


def note_in_flight(belief: Ints, now: float, in_flight: int) -> None:
    """Remember that `in_flight` calls were under way.

    belief: shape (2, BUCKETS), zeros at first; row 0 holds the bucket's number, row 1 its maximum.
    """
    stamp = int(now // BUCKET_S)
    slot = stamp % BUCKETS
    if belief[0, slot] != stamp:
        belief[0, slot] = stamp
        belief[1, slot] = 0
    belief[1, slot] = max(belief[1, slot], in_flight)


def believed_warm(belief: Ints, now: float) -> int:
    """Environments believed warm: the largest number in flight within WARM_S. belief: shape (2, BUCKETS)."""
    oldest = int(now // BUCKET_S) - BUCKETS
    warm = 0
    for slot in range(BUCKETS):
        if belief[0, slot] > oldest and belief[1, slot] > warm:
            warm = belief[1, slot]
    return int(warm)


def warm_for_all(warm: Iterable[tuple[int, float]]) -> int:
    """Environments that versions of a function are as good as: what the one with the fewest of its share allows.

    warm: of each version, its warm environments and its share of the requests, in (0, 1].
    """
    return min(int(count / share + EXACT) for count, share in warm)


def environments_for(rps: float, latency_s: float, cold_share: float, most: int) -> int:
    """Environments with which a load starts no more than that share of its calls cold; `most` at most.

    Calls arrive at random, so more are under way at times than rps x latency: Erlang's B formula says which share
    finds all of so many busy. cold_share: in (0, 1).
    """
    busy, blocked, count = rps * latency_s, 1.0, 0
    while count < most and busy > 0.0 and blocked > cold_share:
        count += 1
        blocked = busy * blocked / (count + busy * blocked)
    return count


def lambda_finish_at(now: float, in_flight: int, warm: int, latency_s: float, cold_start_s: float) -> float:
    """The predicted finish on Lambda: a call beyond the warm environments starts cold."""
    return now + latency_s if in_flight < warm else now + latency_s + cold_start_s


def warms_one_more(now: float, deadline_at: float, latency_s: float, in_flight: int, concurrency: int) -> bool:
    """True where a request that is shed because Lambda is cold starts an environment; else none would be warm.

    Only where a warm one would have answered in time, and Lambda has room.
    """
    return now + latency_s <= deadline_at and in_flight < concurrency


def comes_before_crossing(lambda_usd: float, crossing_usd: float) -> bool:
    """True where a warm call of Lambda costs less than a crossing to an instance in another zone.

    Lambda is then asked, if it is in time, before instances in other zones are. Prices of one request.
    """
    return lambda_usd < crossing_usd


def after_bounce(
    lambda_open: bool,
    shed_late: bool,
    lambda_at: float,
    instance_at: float,
    arrived_at: float,
    deadline_at: float,
    give_up_s: float,
) -> int:
    """Decide on a request that its instance did not admit: TO_LAMBDA, TO_INSTANCE or SHED (load shedding).

    Lambda takes it where it can, as in MArk as published, even where an instance would be sooner: a late request
    that stays makes those behind it late. `lambda_open` says that there is a Lambda and the policy sends bounced
    requests there; a sender whose call was refused asks again without it. `lambda_at`, `instance_at`: when either
    is predicted to answer, `instance_at` at the instance that finishes first, infinite where none can take it.
    `shed_late` sheds what nobody answers in time, and whatever would wait longer than `give_up_s` is shed anyhow.
    """
    if lambda_open and not (shed_late and lambda_at > deadline_at):
        return TO_LAMBDA
    if instance_at == np.inf or (shed_late and instance_at > deadline_at):
        return SHED
    if instance_at - arrived_at > give_up_s:
        return SHED
    return TO_INSTANCE

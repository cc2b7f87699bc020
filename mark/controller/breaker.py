"""The circuit breaker of spot pools: a pool that is taken away in bulk is left, and entered again slowly.

A pool is one offering (a type in a zone or region on spot). When so many of its instances are given notice within
`window_s` that it counts as volatile, nothing more is launched in it for `open_s`, twice as long each time in a
row; what runs there may stay. After that one instance a tick may be launched for as long again; a pool that stays
calm through that is trusted as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mark.domain.fleet import FleetView, Role
from mark.domain.orders import Fact, SpotWarned

PRIOR_HOURS = 2.0
"""Instance-hours that the catalogue's hazard weighs: some minutes of a fleet outweigh a monthly average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """A pool is volatile when `share` of its instances, and `count` of them at least, get notice in `window_s`."""

    share: float = 0.25
    count: int = 2
    window_s: float = 600.0
    open_s: float = 1800.0
    longest_s: float = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPool:
    """What is remembered of one pool: notices within the window, and the breaker's state (0: never opened)."""

    offering: str
    notices: tuple[float, ...] = ()
    opened_at: float = float("-inf")
    open_s: float = 0.0

    def is_open(self, now: float) -> bool:
        """Whether nothing may be launched in it."""
        return now < self.opened_at + self.open_s

    def is_returning(self, now: float) -> bool:
        """Whether it is entered again, slowly."""
        return not self.is_open(now) and now < self.opened_at + 2.0 * self.open_s


def note_interruptions(
    pools: tuple[SpotPool, ...], facts: Iterable[Fact], fleet: FleetView, now: float, policy: BreakerPolicy
) -> tuple[SpotPool, ...]:
    """The pools after what was seen; a pool without notices that is closed again is forgotten."""
    offering_of = {instance.id: instance.offering for instance in fleet}
    known = {pool.offering: pool for pool in pools}
    for fact in facts:
        name = offering_of.get(fact.instance) if isinstance(fact, SpotWarned) else None
        if name is not None:
            pool = known.get(name, SpotPool(offering=name))
            known[name] = replace(pool, notices=(*pool.notices, now))
    size = Counter(instance.offering for instance in fleet if instance.role is Role.SERVING)
    found = (_settled(pool, size[pool.offering], now, policy) for _, pool in sorted(known.items()))
    return tuple(pool for pool in found if pool.notices or now < pool.opened_at + 2.0 * pool.open_s)


def hazards_seen(
    pools: tuple[SpotPool, ...],
    policy: BreakerPolicy,
    prior_per_hour: Mapping[str, float],
    running: Mapping[str, int],
) -> tuple[tuple[str, float], ...]:
    """Interruptions per instance-hour of pools with notices: the catalogue's, corrected by what was seen.

    The catalogue's figure counts as PRIOR_HOURS instance-hours of experience.
    """
    hours = policy.window_s / 3600.0
    return tuple(
        (
            pool.offering,
            (prior_per_hour.get(pool.offering, 0.0) * PRIOR_HOURS + len(pool.notices))
            / (PRIOR_HOURS + hours * (running.get(pool.offering, 0) + len(pool.notices))),
        )
        for pool in pools
        if pool.notices
    )


def _settled(pool: SpotPool, size: int, now: float, policy: BreakerPolicy) -> SpotPool:
    recent = tuple(at for at in pool.notices if at > now - policy.window_s)
    if pool.is_open(now) or len(recent) < max(policy.count, policy.share * size):
        return replace(pool, notices=recent)
    again = pool.is_returning(now)
    open_s = min(policy.longest_s, 2.0 * pool.open_s) if again else policy.open_s
    return replace(pool, notices=recent, opened_at=now, open_s=open_s)

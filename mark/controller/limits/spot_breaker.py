"""The circuit breaker of spot pools: open after a bulk interruption, half-open for a while, then closed.

A pool is one offering (a type in a zone or region on spot). When so many of its instances are given notice within
`window_s` that it counts as volatile, nothing more is launched in it for `open_s`, twice as long each time in a
row; what runs there may stay. After that one instance a tick may be launched for as long again; a pool that stays
calm through that is trusted as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mark.domain.fleet.instances import FleetView, Role
from mark.domain.fleet.orders import Fact, SpotWarned

PRIOR_HOURS = 2.0
"""Instance-hours that the catalogue's hazard weighs: some minutes of a fleet outweigh a monthly average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """Thresholds of a volatile spot pool, and the times that it is left."""

    #: Share of its instances that get notice within the window, ...
    share: float = 0.25
    #: ... and so many of them at least.
    count: int = 2
    #: Length of the window, seconds.
    window_s: float = 600.0
    #: Seconds that nothing is launched in it then; twice as long each time in a row, ...
    open_s: float = 1800.0
    #: ... so long at most.
    longest_s: float = 6 * 3600.0
    #: Where fewer pools than these would be left to launch in, all are trusted again.
    least_closed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPool:
    """One spot pool: its notices within the window, and the state of its breaker."""

    #: The spot offering that is the pool.
    offering: str
    #: When its notices of the last `window_s` came, epoch seconds.
    notices: tuple[float, ...] = ()
    #: When the breaker last opened, epoch seconds.
    opened_at: float = float("-inf")
    #: Seconds that it stays open then; 0: it never opened.
    open_s: float = 0.0

    def is_open(self, now: float) -> bool:
        """True while the breaker is open: nothing may be launched in the pool."""
        return now < self.opened_at + self.open_s

    def is_returning(self, now: float) -> bool:
        """True while the breaker is half-open: one instance a tick may be launched."""
        return not self.is_open(now) and now < self.opened_at + 2.0 * self.open_s


def note_interruptions(
    pools: tuple[SpotPool, ...], facts: Iterable[Fact], fleet: FleetView, now: float, policy: BreakerPolicy
) -> tuple[SpotPool, ...]:
    """Fold the notices of a tick into the pools; a pool without notices whose breaker is closed is forgotten."""
    warned = [fact for fact in facts if isinstance(fact, SpotWarned)]
    if not pools and not warned:
        return ()
    offering_of = {instance.id: instance.offering for instance in fleet}
    known = {pool.offering: pool for pool in pools}
    for fact in warned:
        name = offering_of.get(fact.instance)
        if name is not None:
            pool = known.get(name, SpotPool(offering=name))
            known[name] = replace(pool, notices=(*pool.notices, now))
    size = Counter(instance.offering for instance in fleet if instance.role is Role.SERVING)
    found = (_after_notices(pool, size[pool.offering], now, policy) for _, pool in sorted(known.items()))
    return tuple(pool for pool in found if pool.notices or now < pool.opened_at + 2.0 * pool.open_s)


def trusted_again(
    pools: tuple[SpotPool, ...], names: Iterable[str], now: float, policy: BreakerPolicy
) -> tuple[SpotPool, ...]:
    """The pools, or none where too few of all those `names` are left to launch in: their past is forgotten."""
    lost = {pool.offering for pool in pools if pool.is_open(now)}
    left = sum(name not in lost for name in names)
    return () if lost and left < policy.least_closed else pools


def observed_hazards(
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


def _after_notices(pool: SpotPool, size: int, now: float, policy: BreakerPolicy) -> SpotPool:
    recent = tuple(at for at in pool.notices if at > now - policy.window_s)
    if pool.is_open(now) or len(recent) < max(policy.count, policy.share * size):
        return replace(pool, notices=recent)
    again = pool.is_returning(now)
    open_s = min(policy.longest_s, 2.0 * pool.open_s) if again else policy.open_s
    return replace(pool, notices=recent, opened_at=now, open_s=open_s)

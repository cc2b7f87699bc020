"""The dead man's switch: instances of a fleet end where nobody controls them and nobody uses them.

Two look, and neither needs the other. An agent, from within: it powers its machine off once no controller has
acted and no gateway has sent anything for ORPHAN_AFTER_S. A function on a schedule, from outside the service's
network: it sees no traffic, but standbys that are stopped and agents that do not start. So it says first what it
found, and ends it when as much time has passed again. Controllers say that they act (`acted_at`) each BEAT_S. All
times are of the service's clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

ORPHAN_AFTER_S = 6 * 3600.0
"""Longer than most repairs take, and than a night without requests matters: a controller that lives needs none."""
BEAT_S = 600.0
"""Between two signs of a controller that acts; in the bucket they cost two cents a month."""
LONGEST_STEP_S = 900.0
"""A clock that jumps counts for no more: nobody could have seen a controller meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """An agent's view of who owns its instance, as of `at`."""

    at: float
    #: The last sign of a controller that acts; -inf before the first.
    acted_at: float = -math.inf
    #: For how long there has been neither a newer sign nor traffic.
    alone_s: float = 0.0

    @property
    def is_orphan(self) -> bool:
        """True where the instance is to end."""
        return self.alone_s >= ORPHAN_AFTER_S

    def at_look(self, now: float, *, acted_at: float | None, is_used: bool) -> Ownership:
        """The view at the next look. acted_at: None where it cannot be read; is_used: requests came since."""
        seen = self.acted_at if acted_at is None else max(acted_at, self.acted_at)
        is_owned = is_used or seen > self.acted_at
        step_s = min(max(now - self.at, 0.0), LONGEST_STEP_S)
        return Ownership(at=now, acted_at=seen, alone_s=0.0 if is_owned else self.alone_s + step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Notice of orphans: of which last sign of a controller, None before any; and when, by instance."""

    acted_at: float | None
    told_at: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Instances that no controller owns, as seen from outside. `ended`: those whose time is over."""

    found: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    notice: Notice | None = None


def find_orphans(
    now: float,
    *,
    launched_at: Mapping[str, float],
    acted_at: float | None,
    notice: Notice | None,
    ends_at: float = math.inf,
) -> Orphans:
    """The orphans among a fleet's instances, each by when it was launched: somebody controlled it then.

    notice: what was said before; of an earlier outage it does not count. ends_at: the whole service's end, which
    needs no notice.
    """
    if now >= ends_at:
        every = tuple(sorted(launched_at))
        return Orphans(found=every, ended=every)
    acted = -math.inf if acted_at is None else acted_at
    found = tuple(sorted(name for name, at in launched_at.items() if now - max(acted, at) >= ORPHAN_AFTER_S))
    if not found:
        return Orphans()
    before = notice.told_at if notice is not None and notice.acted_at == acted_at else {}
    told_at = {name: min(now, before.get(name, now)) for name in found}
    ended = tuple(name for name in found if now - told_at[name] >= ORPHAN_AFTER_S)
    return Orphans(found=found, ended=ended, notice=Notice(acted_at=acted_at, told_at=told_at))

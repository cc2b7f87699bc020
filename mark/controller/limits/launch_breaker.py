"""The launch breaker: an offering whose instances never become ready is not bought again and again. Pure.

A wrong image, an expired secret or a key that the role may not use lets EC2 launch instances that end before they
serve, each at its price. When `failures` of the last `of` launches of an offering failed so, nothing of it is
launched for `open_s`, twice as long each time in a row. After that one instance is tried at a time: one that
becomes ready closes the breaker, one that does not opens it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.orders import Fact, LaunchFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBreakerPolicy:
    """Thresholds of an offering whose launches fail, and the times that it is left."""

    #: So many failures ...
    failures: int = 3
    #: ... among so many launches that became ready or failed.
    of: int = 4
    #: Seconds that nothing of it is launched then; twice as long each time in a row, ...
    open_s: float = 600.0
    #: ... so long at most.
    longest_s: float = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """Outcomes of the last launches of an offering, and the state of its breaker."""

    offering: str
    #: Whether each of the last launches became ready, oldest first.
    outcomes: tuple[bool, ...] = ()
    #: When the youngest instance that counts as ready was launched, epoch seconds.
    ready_until: float = float("-inf")
    #: AWS's reason for the last failure.
    why: str = ""
    #: When the breaker last opened, epoch seconds.
    opened_at: float = float("-inf")
    #: Seconds that it stays open then; 0: it never opened.
    open_s: float = 0.0

    @property
    def closes_at(self) -> float:
        """When one instance may be tried again, epoch seconds."""
        return self.opened_at + self.open_s

    def is_open(self, now: float) -> bool:
        """True while nothing of it may be launched."""
        return now < self.closes_at

    def is_trying(self, now: float) -> bool:
        """True while one instance at a time may be launched, until one is ready."""
        return self.open_s > 0 and not self.is_open(now)


def note_launches(
    records: tuple[LaunchRecord, ...],
    facts: Iterable[Fact],
    fleet: FleetView,
    now: float,
    policy: LaunchBreakerPolicy,
) -> tuple[LaunchRecord, ...]:
    """Fold what became of launches into the records; one without a failure is forgotten."""
    failed = defaultdict[str, list[LaunchFailed]](list)
    for fact in facts:
        if isinstance(fact, LaunchFailed):
            failed[fact.offering].append(fact)
    if not records and not failed:
        return ()
    ready_at = defaultdict[str, list[float]](list)
    for instance in fleet:
        if (
            instance.state is InstanceState.READY and instance.role is Role.SERVING
        ):  # one that wakes proves no launch
            ready_at[instance.offering].append(instance.launched_at)
    known = {record.offering: record for record in records}
    for name in failed.keys() - known.keys():
        known[name] = LaunchRecord(offering=name, ready_until=max(ready_at[name], default=float("-inf")))
    found = (_after(record, ready_at[name], failed[name], now, policy) for name, record in sorted(known.items()))
    return tuple(record for record in found if not all(record.outcomes))


def _after(
    record: LaunchRecord,
    ready_at: list[float],
    failed: list[LaunchFailed],
    now: float,
    policy: LaunchBreakerPolicy,
) -> LaunchRecord:
    since = max(record.ready_until, record.opened_at)  # of what was launched before it opened nothing was tried
    ready = [at for at in ready_at if at > since]
    if ready and record.open_s > 0:  # what was tried serves: closed, and as if nothing had been
        record = LaunchRecord(offering=record.offering)
    outcomes = (*record.outcomes, *(True for _ in ready), *(False for _ in failed))[-policy.of :]
    record = replace(
        record,
        outcomes=outcomes,
        ready_until=max([*ready, record.ready_until]),
        why=failed[-1].why if failed else record.why,
    )
    if not failed or record.is_open(now) or outcomes.count(False) < policy.failures:
        return record
    return replace(record, opened_at=now, open_s=min(policy.longest_s, 2.0 * record.open_s or policy.open_s))

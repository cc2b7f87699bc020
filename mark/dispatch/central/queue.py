"""A central queue as a gateway keeps it: queries and instances by name, come and go in any order.

The decisions are those of `central_decisions.py`, which replays compile as well. A query waits until an instance
is idle, and is gone from here once it starts. Latency is learned: what instances of a type took for queries of a
size replaces what their profile says (`instance/measured.py`). Where the pool changes, everything that waits joins
anew; but what is held where others are handed on stays held: it was handed on, and was not taken.

All instants are ms of one clock. A query with a deadline of its own counts as if it had come one objective before
that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.central.decisions import (
    CANDIDATE,
    DROPPED,
    HELD,
    HELD_FIRST,
    IDLE,
    MATCHED,
    PARTITIONED,
    STABLE,
    STARTED,
    VERSIONS,
    Floats,
    Line,
    Pool,
    Records,
    Rules,
    Scratch,
    decide,
    hold,
    join,
    leave,
    make_line,
    make_scratch,
    open_line,
    rules_of,
)
from mark.dispatch.central.kairos import Timing, heterogeneity_weights
from mark.dispatch.central.policy import CentralPolicy, TooLate
from mark.dispatch.instance.measured import MeasuredTimes

Query = TypeVar("Query", bound=Hashable)
FIRST_ROOM = 64
"""Queries that there is room for at first; it doubles."""
MOST_LEARNED = 64
"""Times of a type that one refresh takes in, the last ones: estimates hardly know older ones."""


class Join(Protocol):
    """`central_decisions.join`, plain or compiled."""

    def __call__(self, now: float, query: int, latency_ms: Floats, rules: Rules, line: Line, /) -> None:
        """A query arrives."""


class Decide(Protocol):
    """`central_decisions.decide`, plain or compiled."""

    def __call__(self, now: float, pool: Pool, rules: Rules, line: Line, scratch: Scratch, /) -> None:
        """Start what is to start now."""


class Leave(Protocol):
    """`central_decisions.leave`, plain or compiled."""

    def __call__(self, rules: Rules, line: Line, /) -> None:
        """Remove the queries that are marked as gone."""


class CentralCode(NamedTuple):
    """The decisions as they are run: compiled ones are some hundred times as fast, and take the same."""

    join: Join = join
    decide: Decide = decide
    leave: Leave = leave


PLAIN = CentralCode()


class Instance(NamedTuple):
    """An instance of the pool. busy_until_ms: predicted end of what it serves; None where it is idle.

    is_candidate: it serves the version that is rolled out.
    """

    name: str
    kind: str
    busy_until_ms: float | None = None
    is_candidate: bool = False


class Decided(NamedTuple, Generic[Query]):
    """Outcome of a decision: what starts and where, and what can no longer be in time and is handed on.

    spilled: what the candidate's instances cannot answer in time any more; the stable version's may.
    """

    started: list[tuple[Query, str]]
    handed_on: list[Query]
    spilled: list[Query]


def base_first(profiles_s: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """The same in the queue's order of types: the base, which takes least for the largest query, then by name."""
    base = min(profiles_s, key=lambda kind: (profiles_s[kind][-1], kind))
    return {kind: profiles_s[kind] for kind in (base, *sorted(set(profiles_s) - {base}))}


class CentralQueue(Generic[Query]):
    """Waiting queries and the instances that serve them, one at a time each.

    profiles_s: predicted seconds of 1, 2, ... items by type, equally many; the first type is the base. Sizes are
    of so many items at most. code: compiled decisions.
    """

    def __init__(
        self,
        policy: CentralPolicy,
        *,
        slo_ms: float,
        profiles_s: Mapping[str, Sequence[float]],
        code: CentralCode = PLAIN,
    ) -> None:
        self._policy, self._slo_ms, self._code = policy, slo_ms, code
        self._kinds = {kind: number for number, kind in enumerate(profiles_s)}
        self._measured = [MeasuredTimes(times[:1], beyond_s=times[1:]) for times in profiles_s.values()]
        self._sizes = min(len(times) for times in profiles_s.values())
        self._latency_ms = np.empty((len(self._kinds), self._sizes))
        self._took: list[deque[tuple[int, float]]] = [deque(maxlen=MOST_LEARNED) for _ in self._kinds]
        self._is_news = True
        self._names: list[str] = []
        self._number_of: dict[str, int] = {}
        self._slot_of: dict[Query, int] = {}
        self._scratch = make_scratch()
        self._matched = self._partitioned = 0
        self._queries: list[Query | None] = [None] * FIRST_ROOM
        self._free = list(range(FIRST_ROOM))
        nobody = np.zeros(0, np.int64)
        self._lay_out(nobody, nobody, make_line(FIRST_ROOM, nobody).queries)
        self.refresh()

    def __len__(self) -> int:
        """Queries that wait."""
        return len(self._slot_of)

    @property
    def idle(self) -> int:
        """Idle instances."""
        return self._counts.item(IDLE)

    @property
    def latency_ms(self) -> Floats:
        """Predictions now. shape (types, sizes)."""
        return self._latency_ms

    @property
    def instances(self) -> Sequence[str]:
        """Names of the instances."""
        return self._names

    def set_pool(self, now_ms: float, instances: Iterable[Instance]) -> None:
        """Replace the instances. One that was there keeps what is known of it.

        Queries whose version has no instance any more are not to wait here (`waiting_for`).
        """
        self._matched, self._partitioned = self.matched, self.partitioned
        before = {name: self._line.machines[number] for name, number in self._number_of.items()}
        stays_held = set(self._held_slots()) if self._policy.too_late is TooLate.OVERFLOW else ()
        ordered = sorted(instances, key=lambda one: (self._kinds[one.kind], one.name))
        self._names = [one.name for one in ordered]
        self._number_of = {name: number for number, name in enumerate(self._names)}
        self._lay_out(
            np.array([self._kinds[one.kind] for one in ordered], np.int64),
            np.array([one.is_candidate for one in ordered], np.int64),
            self._line.queries,
        )
        for number, one in enumerate(ordered):
            known = before.get(one.name)
            until_ms = one.busy_until_ms
            if known is not None:
                until_ms = None if known["idle"] else float(known["free_ms"])
            if until_ms is not None:
                self._idle[number] = 0
                self._counts[IDLE] -= 1
                self._line.machines["free_ms"][number] = until_ms
        self._is_news = True
        self.refresh()
        for slot in self._slot_of.values():
            if slot in stays_held:
                hold(slot, self._line)
            else:
                self._code.join(now_ms, slot, self._latency_ms, self._rules, self._line)

    def add(
        self, now_ms: float, query: Query, *, size: int, deadline_ms: float, is_candidate: bool = False
    ) -> None:
        """A query of `size` items joins. is_candidate: only the candidate's instances may serve it."""
        slot = self._slot(query, size, deadline_ms, is_candidate=is_candidate)
        self._code.join(now_ms, slot, self._latency_ms, self._rules, self._line)

    def hold(self, query: Query, *, size: int, deadline_ms: float, is_candidate: bool = False) -> None:
        """A query joins those that can no longer be in time: it starts when an instance would idle."""
        hold(self._slot(query, size, deadline_ms, is_candidate=is_candidate), self._line)

    def remove(self, query: Query) -> bool:
        """Withdraw a query; False where it does not wait here."""
        return bool(self.remove_all((query,)))

    def remove_all(self, queries: Iterable[Query]) -> list[Query]:
        """Withdraw queries, all of them in one pass; those that waited here."""
        slots = {slot: query for query in queries if (slot := self._slot_of.get(query)) is not None}
        if slots:
            for slot in slots:
                self._gone[slot] = 1
            self._code.leave(self._rules, self._line)
        return [self._release(slot) for slot in slots]

    def __contains__(self, query: Query) -> bool:
        """True for a query that waits here."""
        return query in self._slot_of

    def waiting(self) -> list[Query]:
        """Queries that wait, the oldest first."""
        return list(self._slot_of)

    def waiting_for(self, *, is_candidate: bool) -> list[Query]:
        """Those of them that wait for instances of that version."""
        version = CANDIDATE if is_candidate else STABLE
        return [query for query, slot in self._slot_of.items() if self._version[slot] == version]

    def not_held(self) -> list[Query]:
        """Those of them that are not held, the oldest first."""
        held = set(self._held_slots())
        return [query for query, slot in self._slot_of.items() if slot not in held]

    def _held_slots(self) -> list[int]:
        first, ring = self._counts.item(HELD_FIRST), self._line.places["held"]
        slots: list[int] = ring[(first + np.arange(self.held)) % ring.size].tolist()
        return slots

    def best_ms(self, size: int) -> float:
        """Least predicted time of a query of that size on any instance of the stable version."""
        return self._pool.best_ms.item(STABLE, size - 1)

    def expected_ms(self, now_ms: float, ahead: int, size: int) -> float:
        """When a query with so many ahead of it is expected to be answered, if each takes the next idle instance.

        Infinite where there are as many ahead as instances: that it starts in time would be a guess.
        """
        machines = self._line.machines
        if ahead >= machines.size:
            return np.inf
        next_idle = np.argsort(np.where(machines["idle"] == 1, now_ms, machines["free_ms"]), kind="stable")[ahead]
        start_ms = now_ms if machines["idle"][next_idle] else max(now_ms, machines["free_ms"][next_idle])
        return float(start_ms + self._latency_ms[machines["kind"][next_idle], size - 1])

    def set_idle(self, instance: str) -> None:
        """An instance has answered what it had; nothing where it was idle, or is not in the pool."""
        number = self._number_of.get(instance)
        if number is not None and not self._idle[number]:
            self._idle[number] = 1
            self._counts[IDLE] += 1

    def learn(self, kind: str, size: int, took_s: float) -> None:
        """Take in what an instance of a type took; it counts from the next `refresh` on."""
        self._took[self._kinds[kind]].append((size, took_s))

    def refresh(self) -> None:
        """Predict by what was learned since the last call, and by the types that the pool has now."""
        if not self._is_news and not any(self._took):
            return
        self._is_news = False
        for measured, took in zip(self._measured, self._took, strict=True):
            for size, took_s in took:
                measured.note(size, took_s)
            took.clear()
        for measured, row in zip(self._measured, self._latency_ms, strict=True):
            row[:] = [1000 * measured.items_s(size) for size in range(1, self._sizes + 1)]
        kinds, versions = self._line.machines["kind"], self._line.machines["version"]
        present = [np.unique(kinds[versions == version]) for version in range(VERSIONS)]
        best_ms = np.array([self._latency_ms[some if some.size else ...].min(axis=0) for some in present])
        timing = Timing(self._latency_ms, heterogeneity_weights(self._latency_ms, self._sizes - 1))
        self._pool = Pool(timing, best_ms)

    def decide(self, now_ms: float) -> Decided[Query]:
        """Requests that start now, and those that are handed on."""
        self._code.decide(now_ms, self._pool, self._rules, self._line, self._scratch)
        counts, names, release = self._counts, self._names, self._release
        queries, machines = self._started, self._started_at
        started = []
        for pair in range(counts.item(STARTED)):
            started.append((release(queries.item(pair)), names[machines.item(pair)]))  # noqa: PERF401 hot: no frame
        if not counts.item(DROPPED):
            return Decided(started, [], [])
        dropped = self._line.places["dropped"][: counts[DROPPED]]
        counts[DROPPED] = 0
        is_new = self._version[dropped] == CANDIDATE
        handed_on, spilled = dropped[~is_new].tolist(), dropped[is_new].tolist()
        return Decided(started, [release(slot) for slot in handed_on], [release(slot) for slot in spilled])

    @property
    def matched(self) -> int:
        """Matchings so far."""
        return self._matched + int(self._counts[MATCHED])

    @property
    def partitioned(self) -> int:
        """Those of them that were done in parts, because too many waited for one."""
        return self._partitioned + int(self._counts[PARTITIONED])

    @property
    def held(self) -> int:
        """Queries that wait for an instance to be idle otherwise: none answers them in time any more."""
        return int(self._counts[HELD])

    def _lay_out(self, kinds: NDArray[np.int64], versions: NDArray[np.int64], queries: Records) -> None:
        """A line for these instances, in which nobody stands yet. kinds, versions: shape (instances,)."""
        stable, new = kinds[versions == STABLE], kinds[versions == CANDIDATE]
        threshold = self._policy.threshold
        self._rules = rules_of(
            self._policy,
            slo_ms=self._slo_ms,
            threshold_row=None if threshold is None else threshold - 1,
            base=int((stable == 0).sum()),
            others=int((stable > 0).sum()),
            candidates=(int((new == 0).sum()), int((new > 0).sum())),
        )
        line = make_line(len(self._queries), kinds, versions)
        line.queries[:] = queries
        self._use(line)
        open_line(self._rules, self._line)

    def _use(self, line: Line) -> None:
        """Let this be the line. Plain Python reads a column five times faster than a record's field."""
        self._line, self._counts = line, line.counts
        self._idle = line.machines["idle"]
        self._row, self._arrived_ms = line.queries["row"], line.queries["arrived_ms"]
        self._gone, self._version = line.queries["gone"], line.queries["version"]
        self._started, self._started_at = line.places["query"], line.places["machine"]

    def _grow(self) -> None:
        """Twice the room; the ring of held queries begins at its first place then."""
        before, room = self._line, len(self._queries)
        line = make_line(2 * room, before.machines["kind"], before.machines["version"])
        line.counts[:], line.machines[:], line.lanes[:] = before.counts, before.machines, before.lanes
        line.queries[:room], line.places[:room] = before.queries, before.places
        line.places["held"][:room] = np.roll(before.places["held"], -before.counts[HELD_FIRST])
        line.counts[HELD_FIRST] = 0
        self._use(line)
        self._free = list(range(room, 2 * room))
        self._queries += [None] * room

    def _slot(self, query: Query, size: int, deadline_ms: float, *, is_candidate: bool) -> int:
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self._queries[slot] = query
        self._slot_of[query] = slot
        self._row[slot], self._gone[slot] = size - 1, 0
        self._version[slot] = CANDIDATE if is_candidate else STABLE
        self._arrived_ms[slot] = deadline_ms - self._slo_ms
        return slot

    def _release(self, slot: int) -> Query:
        query = self._queries[slot]
        assert query is not None, "a slot in use has its query"
        self._queries[slot] = None
        del self._slot_of[query]
        self._free.append(slot)
        return query

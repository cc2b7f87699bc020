"""A central queue of a model with variants: batches in the order of their deadlines, each answered by one variant.

Its decisions are those of a replay (`simulator/engine/kernel_deadlines.py`), by the same functions of
`variants/slackfit.py`: an idle instance takes as many as they say. Here requests may have deadlines, floors and
variants of their own. A floor lifts its batch; a batch ends before the first request that another variant would
have to answer. While a version is rolled out, each has its own instances and requests.

Times are those of the profile, as much slower as the instance says that it is. All instants are ms of one clock.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from mark.dispatch.central.queue import Instance
from mark.dispatch.variants.serving import VariantServing, Waiting, answered_together
from mark.dispatch.variants.slackfit import Floats, Shared, choose_shared, held_go_first, needed_s

Query = TypeVar("Query", bound=Hashable)


class Batch(NamedTuple, Generic[Query]):
    """Queries that an instance answers together with one variant."""

    queries: list[Query]
    instance: str
    variant: str


class Formed(NamedTuple, Generic[Query]):
    """Outcome of a decision: batches that start, and as of a CentralQueue what is handed on."""

    batches: list[Batch[Query]]
    handed_on: list[Query]
    spilled: list[Query]


class _Kind(NamedTuple):
    """Knowledge of a type: its decisions, and seconds by variant and items."""

    shared: Shared
    latency_s: Floats
    max_batch: int

    @property
    def full_s(self) -> float:
        """Seconds of a full batch of the fastest variant."""
        return float(self.latency_s[self.shared.fastest[0], self.max_batch])


@dataclass(slots=True)
class _Machine:
    """An instance. slower: times its profile that it takes."""

    kind: _Kind
    busy_until_ms: float | None
    slower: float = 1.0


@dataclass(slots=True)
class _Line(Generic[Query]):
    """Instances of one version and who waits for them; `order` also has some that do not wait any more."""

    machines: dict[str, _Machine] = field(default_factory=dict)
    order: list[tuple[float, int, Query]] = field(default_factory=list)
    #: place in the order, and what may answer it
    waiting: dict[Query, tuple[int, Waiting]] = field(default_factory=dict)
    #: late already, the oldest first
    held: dict[Query, Waiting] = field(default_factory=dict)

    def head(self) -> tuple[float, Query]:
        """Deadline of the most urgent, and who it is; one has to wait."""
        while True:
            deadline_ms, number, query = self.order[0]
            if self.waiting.get(query, (None,))[0] == number:
                return deadline_ms, query
            heapq.heappop(self.order)

    def leave(self, query: Query) -> bool:
        """True for one that waited here, and does so no more."""
        return self.waiting.pop(query, None) is not None or self.held.pop(query, None) is not None


class DeadlineQueue(Generic[Query]):
    """Waiting queries of one item each, and the instances of these types that serve them.

    horizon_s: the objective. give_up_s: the time-out. wish: the least variant that may answer a query, and whether
    no other one may. holds: what is late stays until its turn comes; else it is handed on.
    """

    def __init__(
        self,
        serving: VariantServing,
        types: Iterable[str],
        *,
        horizon_s: float,
        give_up_s: float,
        wish: Callable[[Query], tuple[int, bool]],
        holds: bool,
    ) -> None:
        self._serving, self._wish, self._holds = serving, wish, holds
        self._horizon_s, self._give_up_s = horizon_s, give_up_s
        # at the start: tables of decisions take a second or two, which nobody has while requests wait
        self._kinds = {name: _kind(serving.on(name), horizon_s) for name in types if name in serving.types}
        self._lines: tuple[_Line[Query], _Line[Query]] = (_Line(), _Line())
        self._numbers = itertools.count()
        #: batches so far
        self.batches = 0

    def __len__(self) -> int:
        """Queries that wait."""
        return sum(len(line.waiting) + len(line.held) for line in self._lines)

    def __contains__(self, query: Query) -> bool:
        """True for a query that waits here."""
        return any(query in line.waiting or query in line.held for line in self._lines)

    @property
    def held(self) -> int:
        """Queries that are late already."""
        return sum(len(line.held) for line in self._lines)

    @property
    def idle(self) -> int:
        """Idle instances."""
        return sum(one.busy_until_ms is None for line in self._lines for one in line.machines.values())

    def set_pool(self, _: float, instances: Iterable[Instance]) -> None:
        """Replace the instances. One that was there keeps what is known of it."""
        known = {name: one for line in self._lines for name, one in line.machines.items()}
        ordered = sorted(instances, key=lambda one: (one.kind, one.name))
        for is_candidate, line in enumerate(self._lines):
            line.machines = {
                one.name: known.get(one.name) or _Machine(self._kinds[one.kind], one.busy_until_ms)
                for one in ordered
                if one.is_candidate == is_candidate
            }

    def set_pace(self, instance: str, full_batch_s: float) -> None:
        """Take an instance's word for how long a full batch of the fastest variant takes there now."""
        for line in self._lines:
            if (machine := line.machines.get(instance)) is not None:
                machine.slower = full_batch_s / machine.kind.full_s

    def add(self, _: float, query: Query, *, size: int, deadline_ms: float, is_candidate: bool = False) -> None:
        """A query joins. is_candidate: only the candidate's instances may serve it."""
        assert size == 1, "a request of a model with variants has one item"
        line, number = self._lines[is_candidate], next(self._numbers)
        line.waiting[query] = number, Waiting(deadline_ms, *self._wish(query))
        heapq.heappush(line.order, (deadline_ms, number, query))

    def hold(self, query: Query, *, size: int, deadline_ms: float, is_candidate: bool = False) -> None:
        """A query joins those that are late already."""
        assert size == 1, "a request of a model with variants has one item"
        self._lines[is_candidate].held[query] = Waiting(deadline_ms, *self._wish(query))

    def remove_all(self, queries: Iterable[Query]) -> list[Query]:
        """Withdraw queries; those that waited here."""
        return [query for query in queries if any(line.leave(query) for line in self._lines)]

    def waiting(self) -> list[Query]:
        """Queries that wait."""
        return [query for line in self._lines for query in (*line.held, *line.waiting)]

    def waiting_for(self, *, is_candidate: bool) -> list[Query]:
        """Those of them that wait for instances of that version."""
        line = self._lines[is_candidate]
        return [*line.held, *line.waiting]

    def not_held(self) -> list[Query]:
        """Those of them that are not late already."""
        return [query for line in self._lines for query in line.waiting]

    def best_ms(self, size: int) -> float:
        """Least predicted time of a query on any instance of the stable version; 0 without one."""
        machines = self._lines[0].machines.values()
        return 1000 * min((_needed_s(one, size, plain=True) for one in machines), default=0.0)

    def set_idle(self, instance: str) -> None:
        """An instance has answered what it had."""
        for line in self._lines:
            if instance in line.machines:
                line.machines[instance].busy_until_ms = None

    def decide(self, now_ms: float) -> Formed[Query]:
        """Batches that start now, and who is handed on: from the candidate's instances to the stable ones."""
        batches: list[Batch[Query]] = []
        stable, new = self._lines
        left: list[list[Query]] = [[], []]
        for line, late in zip((new, stable), left, strict=True):
            for name, machine in line.machines.items():
                if not line.waiting and not line.held:
                    break
                if machine.busy_until_ms is None:
                    self._set_late_aside(now_ms, line, late)
                    batches += self._batch(now_ms, name, machine, line)
        self.batches += len(batches)
        spilled, handed_on = left
        return Formed(batches, handed_on, spilled)

    def _set_late_aside(self, now_ms: float, line: _Line[Query], late: list[Query]) -> None:
        """Hold or hand on whom no instance could answer in time."""
        while line.waiting:
            deadline_ms, query = line.head()
            count = len(line.waiting)
            if deadline_ms - now_ms >= 1000 * min(_needed_s(one, count) for one in line.machines.values()):
                break
            _, wish = line.waiting.pop(query)
            if self._holds and line is self._lines[0]:
                line.held[query] = wish
            else:
                late.append(query)

    def _batch(self, now_ms: float, name: str, machine: _Machine, line: _Line[Query]) -> list[Batch[Query]]:
        """The batch of an idle instance; none where it is too slow for whoever waits, whom it leaves to others."""
        kind, slower = machine.kind, machine.slower
        others_ms = [one.busy_until_ms for one in line.machines.values() if one is not machine]
        slack_s = (line.head()[0] - now_ms) / 1000 / slower if line.waiting else math.inf
        count, held, instances = len(line.waiting), len(line.held), len(line.machines)
        waited = 0.0
        if held:
            oldest_at_ms = next(iter(line.held.values())).deadline_at - 1000 * self._horizon_s
            waited = (now_ms - oldest_at_ms) / 1000 / self._give_up_s
        if held_go_first(0, slack_s, count, held, waited, instances, kind.shared):
            taken = list(itertools.islice(line.held.items(), kind.max_batch))
            variant = int(kind.shared.fastest[0])
        elif not count or slack_s < _needed_s(machine, 1, plain=True) / slower:
            return []
        else:
            next_idle_ms = min((max(0.0, (at or now_ms) - now_ms) for at in others_ms), default=math.inf)
            most, variant = choose_shared(0, slack_s, count, instances, next_idle_ms / 1000 / slower, kind.shared)
            taken = self._most_urgent(min(int(most), kind.max_batch, count), line)
        together, variant = answered_together([wish for _, wish in taken], int(variant))
        queries = [query for query, _ in taken[:together]]
        for query in queries:
            line.leave(query)
        machine.busy_until_ms = now_ms + 1000 * slower * float(kind.latency_s[variant, together])
        return [Batch(queries, name, self._serving.table.names[variant])]

    @staticmethod
    def _most_urgent(count: int, line: _Line[Query]) -> list[tuple[Query, Waiting]]:
        """So many of the most urgent, in order."""
        order = line.order
        found: list[tuple[float, int, Query]] = []
        while len(found) < count:
            line.head()
            found.append(heapq.heappop(order))
        for one in found:
            heapq.heappush(order, one)
        return [(query, line.waiting[query][1]) for _, _, query in found]


def _kind(own: VariantServing, horizon_s: float) -> _Kind:
    """Knowledge of the only type of these variants."""
    shared = own.shared(own.choices(horizon_s), horizon_s)
    return _Kind(shared, own.latency_s()[0], own.max_batch[own.types[0]])


def _needed_s(machine: _Machine, queued: int, *, plain: bool = False) -> float:
    """Seconds that an instance needs for the most urgent of so many; plain: for them alone."""
    shared = machine.kind.shared
    return machine.slower * (float(shared.expected_s[0, queued]) if plain else needed_s(0, queued, shared))

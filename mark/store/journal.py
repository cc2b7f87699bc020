"""A model's journal in the store: only the lease's holder writes it, whoever likes reads it.

It is a sequence of streams, its segments: each opens with a header and goes on with one line per tick. Who takes
the lease over goes on in the last segment, whose lines gave it its state. When one has grown long, `rotate` opens
the next; its header has to say all that the next lines build upon. The last KEEP_SEGMENTS are kept, and those
before them from the first one on that may not be dropped yet.

What a line says is the affair of `mark.controller.journal`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from mark.controller.journal import entry_line
from mark.controller.state import Decision, Observation
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.lease import Lease, LeaseLost
from mark.ports import JournalTail, TailLine
from mark.store.connect import Link
from mark.store.keys import Keys
from mark.store.scripts import APPEND, OPEN

KEEP_SEGMENTS = 4
PAGE = 200
"""Lines read at once."""


class StoreJournal:
    """One model's journal, open for writing under a lease.

    Where `append` or `write` raises RetryLater, the line may or may not stand there: writing it again is safe, and
    so is writing another one in its place.
    """

    def __init__(
        self,
        link: Link,
        keys: Keys,
        model: str,
        *,
        header: bytes,
        lease: Lease,
        may_drop: Callable[[int], bool],
        tail: JournalTail | None = None,
    ) -> None:
        """`may_drop`: whether a segment, by its number, was copied to where it is kept.

        `tail` gets each line first: what the store has lost is restored from it.
        """
        self._link = link
        self._tail = tail
        self._may_drop = may_drop
        self._keys = keys
        self._model = model
        self._lease = lease
        self._unopened: bytes | None = None
        self.segment = _segments(link, keys, model)[1]
        self.resumed = self.segment > 0
        if self.resumed:
            self._lines = int(link.call("XLEN", self._stream(self.segment)))
        else:
            self.rotate(header)

    @property
    def size_bytes(self) -> int:
        """Length of this segment's lines together."""
        return int(self._link.call("HGET", self._keys.of("journal", self._model), "bytes") or 0)

    @property
    def is_waiting(self) -> bool:
        """True where `rotate` would keep more than KEEP_SEGMENTS now, as the oldest may not be dropped yet."""
        surplus = self._surplus(self.segment + 1)
        return len(surplus) > len(self._droppable(surplus))

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Write one tick; `before` is the fleet of the line above. LeaseLost where another has the lease."""
        self.write(entry_line(before, seen, decision))

    def write(self, line: bytes) -> None:
        """Write one line. LeaseLost where another has the lease."""
        if self._unopened is not None:
            self.rotate(self._unopened)
        if self._tail is not None:
            self._tail.put(self._lease, self._model, TailLine(self.segment, self._lines, line))
        keys = (self._keys.of("epoch"), self._keys.of("journal", self._model), self._stream(self.segment))
        if not self._link.run(APPEND, keys, (self._lease.epoch, self.segment, self._lines, line)):
            raise self._lost()
        self._lines += 1

    def rotate(self, header: bytes, *, unkept: bool = False) -> None:
        """Open the next segment with this header, and drop the oldest. LeaseLost where another has the lease.

        unkept: drop them though they may not be. Where it raises RetryLater, the next line is preceded by this
        header all the same.
        """
        self._unopened = header
        following = self.segment + 1
        surplus = self._surplus(following)
        dropped = surplus if unkept else self._droppable(surplus)
        keys = (
            self._keys.of("epoch"),
            self._keys.of("journal", self._model),
            self._stream(following),
            *map(self._stream, dropped),
        )
        first = surplus.start + len(dropped)
        if self._tail is not None:
            self._tail.put(self._lease, self._model, TailLine(following, 0, header))
        if not self._link.run(OPEN, keys, (self._lease.epoch, following, first, header)):
            raise self._lost()
        self.segment, self._lines, self._unopened = following, 1, None

    def _surplus(self, following: int) -> range:
        """The segments that are there, oldest first, and beyond KEEP_SEGMENTS once `following` is opened."""
        first = _segments(self._link, self._keys, self._model)[0]
        return range(first, max(first, following + 1 - KEEP_SEGMENTS))

    def _droppable(self, surplus: range) -> range:
        return surplus[: len(list(takewhile(self._may_drop, surplus)))]

    def _stream(self, segment: int) -> str:
        return self._keys.of("journal", self._model, segment)

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"{self._lease.holder} may no longer write the journal of {self._model} (epoch {self._lease.epoch})"
        )


def restore_journal(link: Link, keys: Keys, model: str, *, lease: Lease, tail: JournalTail) -> int:
    """Write the lines that the tail has and the store has not; how many. LeaseLost where another has the lease.

    A replica that takes over lacks what was written last. Its last line is written again: the tail may hold
    another one that took its place. A store that has nothing begins with the first segment of the tail.
    """
    epoch, journal = keys.of("epoch"), keys.of("journal", model)
    last = _segments(link, keys, model)[1]
    count = int(link.call("XLEN", keys.of("journal", model, last))) if last else 0
    restored = 0
    for segment, place, line in tail.lines(model, segment=last, place=max(0, count - 1)):
        opens = place == 0 and (not last or segment in (last, last + 1))
        if not opens and (segment, place) not in ((last, count), (last, count - 1)):
            continue  # a gap: what follows builds on what is not there
        stream = keys.of("journal", model, segment)
        if opens:
            first = _segments(link, keys, model)[0] if last else segment
            done = link.run(OPEN, (epoch, journal, stream), (lease.epoch, segment, first, line))
        else:
            done = link.run(APPEND, (epoch, journal, stream), (lease.epoch, segment, place, line))
        if not done:
            raise LeaseLost(f"{lease.holder} may no longer write the journal of {model} (epoch {lease.epoch})")
        restored += (segment, place) != (last, count - 1)
        last, count = segment, place + 1
    return restored


def journal_segments(link: Link, keys: Keys, model: str) -> range:
    """The numbers of the segments that are kept."""
    first, last = _segments(link, keys, model)
    return range(first, last + 1)


def journal_lines(link: Link, keys: Keys, model: str, segment: int | None = None) -> Iterator[bytes]:
    """The lines of a segment, the last one by default. Misconfigured where there is none."""
    kept = journal_segments(link, keys, model)
    number = kept[-1] if segment is None and kept else segment
    if number is None or number not in kept:
        raise Misconfigured(
            f"the store has no journal of {model}" + ("" if segment is None else f" numbered {segment}")
        )
    after = "-"
    while page := link.call("XRANGE", keys.of("journal", model, number), after, "+", "COUNT", PAGE):
        yield from (fields.get(b"line", b"") for _, fields in page)
        after = f"({page[-1][0].decode()}"


def _segments(link: Link, keys: Keys, model: str) -> tuple[int, int]:
    """First and last segment; (1, 0) where there is none."""
    first, last = link.call("HMGET", keys.of("journal", model), "first", "last")
    return int(first or 1), int(last or 0)

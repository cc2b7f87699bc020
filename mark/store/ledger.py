"""A model's ledger as a process reads it again and again: each line is fetched and decoded once.

It is a list of transitions, and a hash that holds what was folded of it (`mark.accounting.compaction`) with the
instant up to which: what is told later than that of a time before it is not written down.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from pydantic import ValidationError

from mark.accounting.compaction import compacted, foldable
from mark.adapters import adapter_of
from mark.domain.billing.costs import LedgerRecord, Transition, UsageRollup
from mark.domain.documents import plain
from mark.domain.errors import Misconfigured
from mark.store.codec import TRANSITION
from mark.store.connect import Link
from mark.store.keys import Keys
from mark.store.scripts import COMPACT, LEDGER, NOTE


class StoredLedger:
    """One model's; safe to share between threads."""

    def __init__(self, link: Link, keys: Keys, model: str) -> None:
        self._link = link
        self._key, self._noted, self._rollup = (keys.of(part, model) for part in ("ledger", "noted", "rollup"))
        self._lock = Lock()
        self._forget()

    def note(self, transition: Transition) -> None:
        """Write a transition down, once for each instance, state and instant."""
        self._link.run(
            NOTE,
            (self._noted, self._key, self._rollup),
            (_identity(transition), TRANSITION.encode(transition), repr(transition.at)),
        )

    def record(self) -> LedgerRecord:
        """All transitions by time, those of one instant in order of arrival. The same object while none is new."""
        with self._lock:
            self._read()
            return self._known

    def compact(self, end: float, least: int) -> int:
        """Fold what ended before `end` where that takes out `least` transitions; how many it took out.

        0 too where somebody wrote meanwhile: the next time will do.
        """
        with self._lock:
            self._read()
            before = self._known
            if foldable(before.transitions, end) < least:
                return 0
            after = compacted(before, end)
            lines = [TRANSITION.encode(item) for item in after.transitions]
            told = [_identity(item) for item in after.transitions]
            done = self._link.run(
                COMPACT,
                (self._key, self._noted, self._rollup),
                (
                    self._count,
                    self._folded_to,
                    repr(after.folded_to),
                    adapter_of(tuple[UsageRollup, ...]).dump_json(after.rollups, fallback=plain),
                    len(lines),
                    *lines,
                    *told,
                ),
            )
            return len(before.transitions) - len(after.transitions) if done else 0

    def _forget(self) -> None:
        self._last, self._count, self._folded_to = b"", 0, b""
        self._known = LedgerRecord(transitions=())

    def _read(self) -> None:
        """Lines not seen yet; all of them where what was seen is no longer what the store holds."""
        is_all, folded_to, rollups, lines = self._link.run(
            LEDGER, (self._key, self._rollup), (self._count, self._last, self._folded_to)
        )
        if is_all and (self._count or lines or folded_to != self._folded_to):
            known = self._known.rollups if folded_to == self._folded_to else _decoded(rollups)
            self._forget()
            self._folded_to = folded_to
            self._known = LedgerRecord(transitions=(), rollups=known, folded_to=float(folded_to or "-inf"))
        if lines:
            all_of_them = (*self._known.transitions, *map(TRANSITION.decode, lines))
            self._known = replace(self._known, transitions=tuple(sorted(all_of_them, key=lambda item: item.at)))
            self._last, self._count = lines[-1], self._count + len(lines)


def _identity(transition: Transition) -> str:
    """The identity of a transition, for deduplication."""
    what = transition.state if transition.surplus_vcpu_s is None else "surplus"
    return f"{transition.instance} {what} {transition.at!r}"


def _decoded(rollups: bytes) -> tuple[UsageRollup, ...]:
    if not rollups:
        return ()
    try:
        return adapter_of(tuple[UsageRollup, ...]).validate_json(rollups)
    except ValidationError as error:
        raise Misconfigured(
            f"the store holds a ledger that this program cannot read ({error.errors()[0]['msg']}); "
            "use the program that wrote it"
        ) from error

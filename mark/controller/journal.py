"""The journal: its lines. Reading them takes neither planner nor `step`; `replay_check.py` has the replay law.

A journal opens with a Header (policy, catalogue, seed, the last hour of history) and goes on with one Entry per
tick. Fleets are written as what changed since the entry before, everything else as it was seen. Where lines go is
a sink's affair (`telemetry`); nothing here reads or writes. A journal that has grown long is followed by another:
its Header has a Checkpoint and all of the history, so that folding it needs no line of those before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from mark.adapters import adapter_of
from mark.controller.policy import ControllerPolicy
from mark.controller.state import Decision, Note, Observation, State
from mark.dispatch.policy import DispatchPolicy
from mark.domain.demand import Demand
from mark.domain.documents import plain
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import FleetView, Instance
from mark.domain.fleet.orders import Order

VERSION = 4
"""The only one that is read: no other was released. A change that older journals do not bear raises it."""
Line = TypeVar("Line")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The controller's position after a tick.

    `fleet` is what it saw there, `first_at` its first tick and `planned_at` the last one at which it planned,
    `orders` what a crash right then could have lost: the orders of that tick, and launches that had not been seen.
    """

    state: State
    fleet: FleetView
    first_at: float
    planned_at: float
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line: what ran on what. `history` is the last hour before the first tick.

    With a `checkpoint` the journal goes on with an earlier one, and `history` is all that was known there.

    `dispatch` and `forecaster` are the policy's other halves; folding does not need them, a reader does. `run`
    names this life of a live service: the tokens of its orders are unique within it.
    """

    # JSON has no infinity; a checkpoint's state does, where nothing has happened yet.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="strings")
    policy: ControllerPolicy
    catalogue: str
    seed: int
    history: Demand
    dispatch: DispatchPolicy = field(default_factory=DispatchPolicy)
    forecaster: str = ""
    model: str = ""
    trace: str = ""
    market: str = ""
    run: str = ""
    checkpoint: Checkpoint | None = None
    version: int = VERSION

    @property
    def state(self) -> State:
        """The controller's state before the first tick."""
        return self.checkpoint.state if self.checkpoint else State()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tick. The instances of `seen.fleet` are those before, with `changed` put in and `gone` out."""

    seen: Observation
    changed: tuple[Instance, ...]
    gone: tuple[str, ...]
    orders: tuple[Order, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One tick: its observation and its decision."""

    seen: Observation
    orders: tuple[Order, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLine:
    """A line that cannot be read: its number in its journal, the header being 1, and why."""

    number: int
    why: str

    @property
    def words(self) -> str:
        """The line's number and the reason, as a sentence."""
        return f"line {self.number} of the journal cannot be read: {self.why}"


Skip = Callable[[BrokenLine], object]
"""Called with each line that is left out."""


def header_line(header: Header) -> bytes:
    """The first line of a journal."""
    return adapter_of(Header).dump_json(header, fallback=plain)


def entry_line(before: FleetView, seen: Observation, decision: Decision) -> bytes:
    """The line of a tick; `before` is the fleet of the line above."""
    old = {instance.id: instance for instance in before}
    new = {instance.id for instance in seen.fleet}
    entry = Entry(
        seen=replace(seen, fleet=replace(seen.fleet, instances=())),
        changed=tuple(i for i in seen.fleet if old.get(i.id) != i),
        gone=tuple(sorted(old.keys() - new)),
        orders=decision.orders,
        notes=decision.notes,
    )
    return adapter_of(Entry).dump_json(entry, fallback=plain)


def same_policy(one: ControllerPolicy, other: ControllerPolicy) -> bool:
    """True where two policies are written alike in a journal."""
    policies = adapter_of(ControllerPolicy)
    return policies.dump_json(one, fallback=plain) == policies.dump_json(other, fallback=plain)


def read_journal(lines: Iterable[bytes], *, skip: Skip | None = None) -> tuple[Header, Iterator[Tick]]:
    """The header and the ticks of a journal. Misconfigured names the line that cannot be read.

    With `skip` such a line is passed to it and left out, if it is not the header: what comes after it is read, but
    fleets are then what the lines that were read say of them, and folding them gives other decisions.
    """
    header, numbered = opened(adapter_of(Header), lines, VERSION)
    return header, _ticks(header, parsed_lines(adapter_of(Entry), numbered, skip))


def opened(
    adapter: TypeAdapter[Line], lines: Iterable[bytes], reads: int
) -> tuple[Line, Iterator[tuple[int, bytes]]]:
    """The header of a journal of that version, and the numbered lines after it. Errors: Misconfigured."""
    numbered = enumerate(lines, start=1)
    first = next(numbered, None)
    if first is None:
        raise Misconfigured("the journal is empty; run the simulation again with --out")
    version = _version_of(first[1], reads)
    if version != reads:
        raise Misconfigured(
            f"the journal has version {version}, this program reads {reads}; run the simulation again with --out"
        )
    return _parsed(adapter, first), numbered


def parsed_lines(
    adapter: TypeAdapter[Line], numbered: Iterable[tuple[int, bytes]], skip: Skip | None
) -> Iterator[Line]:
    """The lines after a header. One that cannot be read is passed to `skip`, or raises where there is none."""
    for line in numbered:
        try:
            yield _parsed(adapter, line)
        except _Unreadable as error:
            if skip is None:
                raise
            skip(error.line)


def _version_of(line: bytes, reads: int) -> object:
    """The version in a header; the current one where the line is none, whose parser then says what is wrong."""
    try:
        return from_json(line)["version"]
    except (ValueError, KeyError, TypeError):
        return reads


def _ticks(header: Header, entries: Iterable[Entry]) -> Iterator[Tick]:
    before = header.checkpoint.fleet if header.checkpoint else FleetView()
    fleet = {instance.id: instance for instance in before}
    for entry in entries:
        for instance in entry.changed:
            fleet[instance.id] = instance
        for name in entry.gone:
            fleet.pop(name, None)
        view = replace(entry.seen.fleet, instances=tuple(fleet[name] for name in sorted(fleet)))
        yield Tick(seen=replace(entry.seen, fleet=view), orders=entry.orders, notes=entry.notes)


def _parsed(adapter: TypeAdapter[Line], line: tuple[int, bytes]) -> Line:
    number, text = line
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        where = error.errors()[0]
        raise _Unreadable(BrokenLine(number=number, why=where["msg"])) from error


class _Unreadable(Misconfigured):
    """A line cannot be read."""

    def __init__(self, line: BrokenLine) -> None:
        super().__init__(line.words)
        self.line = line

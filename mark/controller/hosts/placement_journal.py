"""The journal of placements: its lines. What a model's own fleet does stands in that model's journal.

It opens with a PlacementHeader and goes on with a PlacementDecision each time it is decided who shares instances.
A line names what its decision knew and all hosts that it wants, so it can be read without those before. The header
of a journal that follows another has the placement with which that one ended. Where lines go is a sink's affair
(`telemetry`).

`placement_mismatches` is the check: the orders of all lines, folded, give the hosts that each line names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol

from mark.adapters import adapter_of
from mark.controller.hosts.tenancy import ExpectedLoad, HostUse
from mark.controller.journal import Skip, opened, parsed_lines
from mark.domain.billing.spending import SpendingLimit
from mark.domain.documents import plain
from mark.domain.fleet.instances import Instance
from mark.domain.fleet.placement import Place, Placement, PlacementOrder, Tenant, placed, remaining

VERSION = 1
"""The only one that is read. A change that older journals do not bear raises it."""
NOWHERE: Placement = {}
"""Before anything was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementHeader:
    """The first line: whose placements these are."""

    policy: str
    #: All that the service serves, whether they share or not.
    models: tuple[str, ...]
    market: str
    catalogue: str
    seed: int
    #: When the run began and ends, epoch seconds; None where that is open.
    start_at: float
    end_at: float | None = None
    #: The run's name; empty where nobody needs it.
    run: str = ""
    #: Who was on which instance before the first decision.
    placement: Placement = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """One decision about shared instances: what it knew, what it wants, and what it ordered."""

    at: float
    #: The shared instances that were there.
    fleet: tuple[Instance, ...]
    #: Offerings that were refused lately; all under a spending limit.
    refused: tuple[str, ...]
    #: Of all models.
    loads: tuple[ExpectedLoad, ...]
    #: What it wants. One without a name was to be launched and was refused.
    hosts: tuple[HostUse, ...]
    orders: tuple[PlacementOrder, ...]
    #: What this saves, less rents, launches and loading; the same where all stays as it is.
    worth_usd_per_hour: float
    unchanged_usd_per_hour: float
    #: When it is decided anew, unless something happens before.
    next_at: float = 0.0
    #: The spending limit that it was made under.
    limit: SpendingLimit = SpendingLimit.NONE
    #: Offerings of which the account's quotas leave none more.
    without_quota: tuple[str, ...] = ()

    @property
    def gain_usd_per_hour(self) -> float:
        """What the changes save."""
        return self.worth_usd_per_hour - self.unchanged_usd_per_hour


class PlacementJournal(Protocol):
    """Where decisions are written."""

    def append(self, decision: PlacementDecision) -> None:
        """Write one decision."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementMismatch:
    """A host of a decision whose tenants its orders do not give."""

    at: float
    instance: str
    recorded: tuple[Tenant, ...]
    folded: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStep:
    """A decision with the placements before and after it."""

    decision: PlacementDecision
    before: Placement
    after: Placement
    #: Instances that the placement lost since the decision before, gone or with a notice, and their models.
    lost: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def moves(self) -> tuple[PlacementOrder, ...]:
        """Its orders but those that only plan another rate for a model that stays where it is."""
        return tuple(order for order in self.decision.orders if not self._is_rate(order))

    def _is_rate(self, order: PlacementOrder) -> bool:
        return isinstance(order, Place) and any(
            tenant.model == order.tenant.model for tenant in self.before.get(order.instance, ())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The point where the controller that wrote a journal stopped; without a decision, where that began."""

    placement: Placement = field(default_factory=dict)
    last: PlacementDecision | None = None


def placement_header_line(header: PlacementHeader) -> bytes:
    """The first line of a journal of placements."""
    return adapter_of(PlacementHeader).dump_json(header, fallback=plain)


def decision_line(decision: PlacementDecision) -> bytes:
    """The line of a decision."""
    return adapter_of(PlacementDecision).dump_json(decision, fallback=plain)


def read_placements(
    lines: Iterable[bytes], *, skip: Skip | None = None
) -> tuple[PlacementHeader, Iterator[PlacementDecision]]:
    """The header and the decisions. Misconfigured names a line that cannot be read; with `skip` it is left out."""
    header, rest = opened(adapter_of(PlacementHeader), lines, VERSION)
    return header, parsed_lines(adapter_of(PlacementDecision), rest, skip)


def placement_steps(decisions: Iterable[PlacementDecision], begun: Placement = NOWHERE) -> Iterator[PlacementStep]:
    """Each decision between the placements before and after it, by its orders. begun: before the first one."""
    after = begun
    for decision in decisions:
        before = remaining(after, {item.id for item in decision.fleet if item.serves_on})
        lost = tuple(
            (name, tuple(one.model for one in held)) for name, held in after.items() if name not in before
        )
        after = reduce(placed, decision.orders, before)
        yield PlacementStep(decision=decision, before=before, after=after, lost=lost)


def decided(header: PlacementHeader, decisions: Iterable[PlacementDecision]) -> Decided:
    """Fold a journal."""
    found = Decided(placement=header.placement)
    for step in placement_steps(decisions, header.placement):
        found = Decided(placement=step.after, last=step.decision)
    return found


def placement_mismatches(
    decisions: Iterable[PlacementDecision], begun: Placement = NOWHERE
) -> Iterator[PlacementMismatch]:
    """Fold the orders, and say where they do not give what a decision wants. begun: before the first one."""
    for step in placement_steps(decisions, begun):
        for host in step.decision.hosts:
            folded = step.after.get(host.name, ())
            if host.name and folded != host.placed:
                yield PlacementMismatch(
                    at=step.decision.at, instance=host.name, recorded=host.placed, folded=folded
                )

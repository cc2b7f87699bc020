"""Explanation of shared instances, of a replay or live: who sits on which shared instance at an instant, and why.

It tells what the decisions knew and nothing else: the load that they expected, what a model would cost alone, how
busy its instance is, and what the changes of a decision gain against leaving all as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, assert_never

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mark.controller.hosts.placement_journal import (
    PlacementHeader,
    PlacementMismatch,
    PlacementStep,
    placement_mismatches,
    placement_steps,
    read_placements,
)
from mark.controller.hosts.tenancy import ExpectedLoad, HostUse
from mark.controller.journal import BrokenLine
from mark.domain.errors import Misconfigured, unknown
from mark.domain.figures import plural
from mark.domain.fleet.orders import Drain, Launch
from mark.domain.fleet.placement import Evict, Place, PlacementOrder
from mark.offline.plan_service import SharedInstanceObject, host_object
from mark.report.files import JOURNAL_NAME, MODELS_NAME, PLACEMENTS_NAME
from mark.report.formatting import format_rps, milliseconds, percent, usd
from mark.report.runs.explanation import clock
from mark.report.tables import figures, make_table, texts
from mark.report.terminal import show, show_json, show_prose
from mark.telemetry.journal_file import whole_lines

MOST_CHANGED = 5
"""Decisions that are shown where no minute was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """A journal of placements, read to its end."""

    header: PlacementHeader
    steps: tuple[PlacementStep, ...]
    mismatches: tuple[PlacementMismatch, ...]
    #: Lines that cannot be read; folding ended at the first.
    broken: tuple[BrokenLine, ...]

    def minute_of(self, step: PlacementStep) -> float:
        """Of the run."""
        return (step.decision.at - self.header.start_at) / 60

    @property
    def minutes(self) -> float:
        """Length of the run, as far as it is known."""
        last = self.steps[-1].decision.at if self.steps else self.header.start_at
        return ((self.header.end_at or last) - self.header.start_at) / 60

    @property
    def has_hosts(self) -> bool:
        """True where any instance was ever to be shared."""
        return any(step.decision.hosts for step in self.steps)

    def since(self, at: float) -> Placements:
        """The same with its minutes counted from that instant."""
        return replace(self, header=replace(self.header, start_at=at))

    def until(self, at: float) -> Placements:
        """The same of a run that has come to that instant."""
        return replace(self, header=replace(self.header, end_at=at))

    def at(self, minute: float) -> tuple[PlacementStep, ...]:
        """The decisions within a minute; where there is none, the last one before it. Errors: Misconfigured."""
        if not 0 <= minute <= self.minutes:
            raise Misconfigured(
                f"the journal runs from minute 0 to {self.minutes:.0f}; --at {minute:g} is outside"
            )
        known = [step for step in self.steps if self.minute_of(step) < minute + 1]
        within = tuple(step for step in known if self.minute_of(step) >= minute)
        return within or tuple(known[-1:])


def find_placements(run_dir: Path, policy: str | None) -> Path | None:
    """The folder of a policy in a service's run; None where it is no service's. Errors: Misconfigured."""
    if not (run_dir / PLACEMENTS_NAME).is_file():
        return None
    if policy is None:
        return run_dir
    header, _ = read_placements(whole_lines(run_dir / PLACEMENTS_NAME))
    others = {path.parent.name: path.parent for path in sorted(run_dir.glob(f"*/{PLACEMENTS_NAME}"))}
    known = {header.policy: run_dir, **others}
    if policy not in known:
        raise unknown(f"policy in {run_dir}", policy, known)
    return known[policy]


def read_folder(folder: Path) -> Placements:
    """The placements of one policy. Misconfigured where the journal's first line cannot be read."""
    return placements_of(whole_lines(folder / PLACEMENTS_NAME))


def placements_of(lines: Iterable[bytes]) -> Placements:
    """The placements of a journal. Misconfigured where its first line cannot be read."""
    broken: list[BrokenLine] = []
    header, decisions = read_placements(lines, skip=broken.append)
    known = []
    for decision in decisions:
        if broken:  # what comes after it folds to nothing that ever was
            break
        known.append(decision)
    return Placements(
        header=header,
        steps=tuple(placement_steps(known, header.placement)),
        mismatches=tuple(placement_mismatches(known, header.placement)),
        broken=tuple(broken),
    )


def model_journal(folder: Path, model: str, known: Sequence[str]) -> Path:
    """The journal of one model of a service. Misconfigured where the service serves none of that name."""
    if model not in known:
        raise unknown(f"model in {folder}", model, known)
    return folder / MODELS_NAME / model / JOURNAL_NAME


def explain_placements(found: Placements, *, minute: float | None, as_json: bool) -> None:
    """Print who sits where at a minute, or the run in short."""
    steps = _most_changed(found.steps) if minute is None else found.at(minute)
    orders = Counter[str](order.kind for step in found.steps for order in step.moves)
    if as_json:
        show_json(placements_document(found, steps, orders))
        return
    header = found.header
    show(
        f"{header.policy} on {header.market}, {plural(len(header.models), 'model')}",
        f"minutes 0 to {found.minutes:.0f}, {plural(len(found.steps), 'decision')} about shared instances",
        *((_check_words(found), "") if found.steps else ()),
    )
    if not found.steps:
        show(f"{header.policy} shares no instance; --model NAME explains the fleet of one model")
        return
    if minute is None:
        show_prose(f"orders: {', '.join(f'{count} x {kind}' for kind, count in sorted(orders.items())) or 'none'}")
        show(f"the {plural(len(steps), 'decision')} that changed most (--at MINUTE shows any other):", "")
    for step in steps:
        show(_step_text(found, step))


class SharedSeats:
    """Where one model sits on shared instances: by each decision that moved it, or at a minute."""

    def __init__(self, found: Placements, model: str, minute: float | None) -> None:
        self._found, self._model = found, model
        self._steps = [step for step in found.steps if self._moves(step)] if minute is None else found.at(minute)

    def _moves(self, step: PlacementStep) -> bool:
        return bool(self._orders(step) or self._lost(step))

    def _orders(self, step: PlacementStep) -> list[PlacementOrder]:
        return [order for order in step.moves if _is_of(order, self._model)]

    def _lost(self, step: PlacementStep) -> list[str]:
        return [name for name, models in step.lost if self._model in models]

    @property
    def document(self) -> list[PlacementObject]:
        """The decisions."""
        return [placement_object(self._found, step) for step in self._steps]

    @property
    def text(self) -> RenderableType:
        """A line for each instance and order."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for step in self._steps:
            lost = (f"{name} is lost or about to be" for name in self._lost(step))
            evicted = (_words(order) for order in self._orders(step) if isinstance(order, Evict))
            lines = [*lost, *_seats(step, self._model), *evicted]
            for number, line in enumerate(lines or ["on no shared instance"]):
                grid.add_row(f"minute {self._found.minute_of(step):.0f}" if number == 0 else "", Text(line))
        heading = Text(f"{self._model} on shared instances", style="bold underline")
        return Group(heading, grid if self._steps else Text("never"))


def _seats(step: PlacementStep, model: str) -> list[str]:
    """`placed on i-1 (c5.large:spot) beside a, b: 2 requests/s, ...`."""
    alone = _loads(step)
    placed = {order.instance for order in step.moves if isinstance(order, Place) and _is_of(order, model)}
    return [
        f"{'placed' if host.name in placed else 'stays'} on {host.name} ({host.offering}) beside "
        f"{_neighbours(host, model)}: {format_rps(use.capacity_rps)} requests/s for {usd(use.usd_per_hour)} USD/h "
        f"of the rent (all of it takes {usd(alone[model].usd_per_hour_alone)} without sharing), waits "
        f"{milliseconds(use.wait_s)} ms at most for a neighbour's batch"
        for host in step.decision.hosts
        for use in host.tenants
        if host.name and use.model == model
    ]


def _neighbours(host: HostUse, model: str) -> str:
    return ", ".join(one.model for one in host.tenants if one.model != model) or "nobody"


def _loads(step: PlacementStep) -> dict[str, ExpectedLoad]:
    return {load.model: load for load in step.decision.loads}


def _is_of(order: PlacementOrder, model: str) -> bool:
    match order:
        case Place():
            return order.tenant.model == model
        case Evict():
            return order.model == model
        case Launch() | Drain():
            return False
        case _:
            assert_never(order)


def _most_changed(steps: Sequence[PlacementStep]) -> tuple[PlacementStep, ...]:
    most = sorted(steps, key=lambda step: (-len(step.moves), step.decision.at))[:MOST_CHANGED]
    return tuple(sorted((step for step in most if step.moves), key=lambda step: step.decision.at))


def _check_words(found: Placements) -> str:
    if found.broken:
        return f"{found.broken[0].words}; what comes after it is left out"
    if not found.mismatches:
        return "folded, the orders of all decisions give the same placements"
    first = found.mismatches[0]
    minute = (first.at - found.header.start_at) / 60
    return (
        f"folded, {plural(len(found.mismatches), 'placement')} differ from the journal, the first at minute "
        f"{minute:.0f} on {first.instance}: another version of the program wrote it"
    )


def _step_text(found: Placements, step: PlacementStep) -> RenderableType:
    decision = step.decision
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    there = sum(item.stays for item in decision.fleet)
    lost = [f"{name} lost or about to be" for name, _ in step.lost]
    refused = [f"{name} refused" for name in decision.refused]
    without = [f"no quota left for {name}" for name in decision.without_quota]
    grid.add_row("saw", Text("; ".join([plural(there, "shared instance"), *lost, *refused, *without])))
    gain = "its changes gain" if step.before else "sharing gains"
    against = "leaving all as it is" if step.before else "sharing nothing"
    grid.add_row("gains", Text(f"{gain} {usd(decision.gain_usd_per_hour)} USD/h against {against}"))
    moves = step.moves
    rates = len(decision.orders) - len(moves)
    told = [*map(_words, moves), *([f"another rate planned for {plural(rates, 'tenant')}"] if rates else [])]
    for number, line in enumerate(told or ["nothing: all stays as it is"]):
        grid.add_row("ordered" if number == 0 else "", Text(line))
    sits = {use.model for host in decision.hosts for use in host.tenants}
    rest = [
        f"{load.model} ({usd(load.usd_per_hour_alone)} USD/h)" for load in decision.loads if load.model not in sits
    ]
    if rest:
        grid.add_row("apart", Text(f"on Lambda or instances of their own: {', '.join(rest)}"))
    minute = found.minute_of(step)
    heading = Text(f"minute {minute:.0f} ({clock(60 * minute)} after the start)", style="bold underline")
    table = (_hosts_table(decision.hosts, _loads(step)),) if decision.hosts else ()
    return Group(heading, grid, Text(""), *table, Text(""))


def _words(order: PlacementOrder) -> str:
    match order:
        case Launch():
            what = f"launch {order.offering}"
        case Place():
            what = f"place {order.tenant.model} on {order.instance}"
        case Evict():
            what = f"evict {order.model} from {order.instance}"
        case Drain():
            what = f"drain {', '.join(order.instances)}"
        case _:
            assert_never(order)
    return f"{what}: {order.reason}"


def _hosts_table(hosts: Iterable[HostUse], loads: dict[str, ExpectedLoad]) -> Table:
    """A row an instance, then one for each model on it."""
    columns = [
        *texts("shared instance"),
        *figures("requests/s", "busy", "at most", "if peaks\nmet", "waits\nms", "USD/h", "USD/h\nalone"),
    ]
    table = make_table(columns, gap=2)
    for host in sorted(hosts, key=lambda host: (not host.name, host.name, host.offering)):
        table.add_row(
            f"{host.name or 'refused'}: {host.offering}",
            "",
            percent(host.busy, digits=0),
            percent(host.busy_peak, digits=0),
            percent(host.busy_if_together, digits=0),
            "",
            usd(host.usd_per_hour),
            "",
        )
        for use in host.tenants:
            table.add_row(
                f"   {use.model}",
                format_rps(use.capacity_rps),
                percent(use.busy, digits=0),
                percent(use.busy_peak, digits=0),
                "",
                milliseconds(use.wait_s),
                usd(use.usd_per_hour),
                usd(loads[use.model].usd_per_hour_alone),
            )
    return table


class PlacedInstanceObject(SharedInstanceObject):
    """A shared instance of a decision."""

    #: Its id; empty where its launch was refused.
    instance: str
    #: Share of its time that would be taken if all tenants had their busiest five minutes at once.
    busy_if_together: float


class ExpectedLoadObject(TypedDict):
    """One model's load as a decision expected it."""

    model: str
    mean_rps: float
    #: In its busiest five minutes.
    peak_rps: float
    #: When those begin, after the start of the run.
    peak_at_s: float
    #: What it costs where it shares nothing.
    usd_per_hour_alone: float


class PlacementOrderObject(TypedDict):
    """One order of a decision."""

    #: `launch`, `place`, `evict` or `drain`.
    kind: str
    what: str


class PlacementObject(TypedDict):
    """One decision about shared instances."""

    at_s: float
    minute: int
    #: What the changes save against leaving all as it is.
    gain_usd_per_hour: float
    #: Offerings that were refused lately; all under a spending limit.
    refused: list[str]
    #: Offerings of which the account's quotas leave none more.
    without_quota: list[str]
    #: Shared instances that were lost, or are about to be.
    lost: list[str]
    shared: list[PlacedInstanceObject]
    loads: list[ExpectedLoadObject]
    #: Without those that only plan another rate.
    orders: list[PlacementOrderObject]


class BrokenLineObject(TypedDict):
    """A line that cannot be read."""

    line: int
    why: str


class ExplainServiceDocument(TypedDict):
    """The document of `mark explain --json` for a replay of several models."""

    policy: str
    models: list[str]
    market: str
    seed: int
    catalogue: str
    duration_min: float
    decisions: int
    #: Whether the orders, folded, give every placement.
    reproduces: bool
    #: Lines that cannot be read; what comes after the first is left out.
    missing: list[BrokenLineObject]
    #: Counts of the whole run, by kind.
    orders: dict[str, int]
    #: The decisions that are shown.
    placements: list[PlacementObject]


def placements_document(
    found: Placements, steps: Iterable[PlacementStep], orders: Counter[str]
) -> ExplainServiceDocument:
    """The document of `mark explain --json` for a service."""
    header = found.header
    return {
        "policy": header.policy,
        "models": list(header.models),
        "market": header.market,
        "seed": header.seed,
        "catalogue": header.catalogue,
        "duration_min": found.minutes,
        "decisions": len(found.steps),
        "reproduces": not found.mismatches,
        "missing": [{"line": item.number, "why": item.why} for item in found.broken],
        "orders": dict(sorted(orders.items())),
        "placements": [placement_object(found, step) for step in steps],
    }


def placement_object(found: Placements, step: PlacementStep) -> PlacementObject:
    """One decision."""
    decision, start_at = step.decision, found.header.start_at
    return {
        "at_s": decision.at - start_at,
        "minute": int(found.minute_of(step)),
        "gain_usd_per_hour": decision.gain_usd_per_hour,
        "refused": list(decision.refused),
        "without_quota": list(decision.without_quota),
        "lost": [name for name, _ in step.lost],
        "shared": [
            {"instance": host.name, "busy_if_together": host.busy_if_together, **host_object(host)}
            for host in decision.hosts
        ],
        "loads": [
            {
                "model": load.model,
                "mean_rps": load.mean_rps,
                "peak_rps": load.peak_rps,
                "peak_at_s": load.peak_at - start_at,
                "usd_per_hour_alone": load.usd_per_hour_alone,
            }
            for load in decision.loads
        ],
        "orders": [{"kind": order.kind, "what": _words(order)} for order in step.moves],
    }

"""Explanation of a controller's decisions: its journal in words, and replayed as a check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import assert_never
from urllib.parse import unquote

from mark.controller.journal import BrokenLine, Header, Tick, read_journal
from mark.controller.policy import OWN
from mark.controller.replay_check import Mismatch, mismatches
from mark.controller.state import Note, NoteKind
from mark.domain.errors import Misconfigured, unknown
from mark.domain.figures import figure, plural
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import (
    Fact,
    ForecastFailed,
    Launch,
    LaunchFailed,
    LaunchRefused,
    LaunchWithdrawn,
    Order,
    PlanFailed,
    RebalanceAdvised,
    SpotWarned,
    WarmLambda,
    Withdraw,
)
from mark.domain.plan import Plan
from mark.offline.explanation.boot_times import BootTimes, boot_lines
from mark.offline.explanation.explain_service import (
    SharedSeats,
    explain_placements,
    find_placements,
    model_journal,
    read_folder,
)
from mark.report.files import JOURNAL_NAME
from mark.report.runs.explanation import ExplainedTick, explain_document, explain_text
from mark.report.terminal import progress, show, show_json
from mark.telemetry.journal_file import whole_lines

BUSIEST = 5
"""Ticks that are shown where no minute was asked for."""
BESIDE_MIN = 1.0
"""Minutes before and after the one asked for that are shown too: the first tick of each, and all that ordered."""

TOLD = {NoteKind.TRAINING: 6, NoteKind.ROLLOUT: 12}
"""Notes that a run in short tells, so many of each kind, the last of them."""


@dataclass(slots=True)
class Reading:
    """Result of one pass over a journal."""

    start_at: float = 0.0
    end_at: float = 0.0
    ticks: int = 0
    launched: Counter[str] = field(default_factory=Counter)
    ordered: Counter[str] = field(default_factory=Counter)
    facts: Counter[str] = field(default_factory=Counter)
    boots: BootTimes = field(default_factory=BootTimes)
    shown: list[ExplainedTick] = field(default_factory=list)
    #: By kind of note: when it was written, seconds since the start, and its text.
    told: dict[NoteKind, list[tuple[float, str]]] = field(default_factory=lambda: {kind: [] for kind in TOLD})


def explain_run(
    run_dir: Path, *, minute: float | None, policy: str | None, model: str | None, as_json: bool
) -> None:
    """Print the ticks around a minute of a finished run, or the run in short; of a service, its placements."""
    folder = find_placements(run_dir, policy)
    if folder is None:
        path = find_journal(run_dir, policy)
        replayed = read_journal(whole_lines(path))[0].model
        if model not in (None, replayed):
            raise unknown(f"model in {run_dir}", model, (replayed,))
        explain_journal(lambda: whole_lines(path), minute=minute, as_json=as_json)
        return
    found = read_folder(folder)
    if model is None:
        explain_placements(found, minute=minute, as_json=as_json)
        return
    own = model_journal(folder, model, found.header.models)
    shared = SharedSeats(found, model, minute) if found.steps else None
    explain_journal(lambda: whole_lines(own), minute=minute, as_json=as_json, shared=shared)


def explain_journal(
    lines: Callable[[], Iterable[bytes]],
    *,
    minute: float | None,
    as_json: bool,
    shared: SharedSeats | None = None,
) -> None:
    """Print the ticks around a minute of the journal that `lines` gives from its start each time it is called.

    shared: where the model sits on shared instances, of a service.
    """
    broken: list[BrokenLine] = []
    header, ticks = read_journal(lines(), skip=broken.append)
    with progress() as report:
        report("reading the journal", 0.0)
        reading = _read(ticks, header, minute)
        _check_minute(reading, minute)
        report("replaying the journal", 0.0)
        found = list(mismatches(*_whole_beginning(lines())))
    if as_json:
        placements = {} if shared is None else {"placements": shared.document}
        show_json({**_document(header, reading, found, broken), **placements})
        return
    show(
        f"{header.policy.name} on {header.trace}, {header.model}, {header.market}; "
        f"forecast by {header.forecaster}, routed by {header.dispatch.routing.value}",
        f"minutes 0 to {_minutes(reading):.0f}, {plural(reading.ticks, 'tick')}",
        _law(found, reading, is_own=header.policy.planner == OWN),
        *_missing(broken),
        "",
    )
    if minute is None:
        show(*_summary(reading, header), "")
    show(explain_text(reading.shown))
    if shared is not None:
        show(shared.text)


def _whole_beginning(lines: Iterable[bytes]) -> tuple[Header, Iterator[Tick]]:
    """The journal up to a line that cannot be read: what comes after it folds to nothing that ever was."""
    broken: list[BrokenLine] = []
    header, ticks = read_journal(lines, skip=broken.append)
    return header, takewhile(lambda _: not broken, ticks)


def _missing(broken: Sequence[BrokenLine]) -> list[str]:
    """Note on lines that are left out."""
    if not broken:
        return []
    lines = "1 line is" if len(broken) == 1 else f"{len(broken)} lines are"
    return [f"{lines} missing: {broken[0].words}; fleets after it are as the other lines say, folding ended there"]


def find_journal(run_dir: Path, policy: str | None) -> Path:
    """The journal of a policy in a run's folder; without a policy that of the folder itself."""
    first = run_dir / JOURNAL_NAME
    if not run_dir.is_dir():
        raise Misconfigured(f"{run_dir} is not a folder; give one that `mark simulate --out` wrote")
    others = {unquote(path.parent.name): path for path in sorted(run_dir.glob(f"*/{JOURNAL_NAME}"))}
    if not first.is_file():
        raise Misconfigured(f"{run_dir} holds no {JOURNAL_NAME}; give a folder that `mark simulate --out` wrote")
    if policy is None:
        return first
    header, _ = read_journal(whole_lines(first))
    known = {header.policy.name: first, **others}
    if policy not in known:
        raise unknown(f"policy in {run_dir}", policy, known)
    return known[policy]


def _read(ticks: Iterator[Tick], header: Header, minute: float | None) -> Reading:
    reading = Reading()
    busiest: list[tuple[int, float, ExplainedTick]] = []
    for tick in ticks:
        now = tick.seen.now
        if reading.ticks == 0:
            reading.start_at = now
        opens_minute = (
            reading.ticks == 0 or (now - reading.start_at) // 60 > (reading.end_at - reading.start_at) // 60
        )
        reading.ticks, reading.end_at = reading.ticks + 1, now
        _count(reading, tick)
        reading.boots.note(tick)
        at_min = (now - reading.start_at) / 60
        if minute is not None:
            near = minute - BESIDE_MIN <= at_min < minute + 1 + BESIDE_MIN
            if near and (opens_minute or tick.orders or _told(tick)):
                reading.shown.append(explained(tick, header, reading.start_at))
        elif tick.orders:
            busiest.append((-_weight(tick.orders), now, explained(tick, header, reading.start_at)))
            busiest = sorted(busiest, key=lambda item: item[:2])[:BUSIEST]
    reading.shown.extend(item for _, _, item in sorted(busiest, key=lambda item: item[1]))
    return reading


def _told(tick: Tick) -> list[Note]:
    """Notes on the forecaster's trainings and on rollouts."""
    return [note for note in tick.notes if note.kind in TOLD]


def _count(reading: Reading, tick: Tick) -> None:
    for note in _told(tick):
        reading.told[note.kind].append((tick.seen.now - reading.start_at, note.text))
    for fact in tick.seen.facts:
        if not isinstance(fact, LaunchRefused) or fact.count:  # one refused launch, however many pools refused it
            reading.facts[fact.kind] += 1
        if isinstance(fact, LaunchRefused) and not fact.instances:  # else standbys that sleep on
            reading.launched[fact.offering] -= fact.count
    for order in tick.orders:
        reading.ordered[order.kind] += 1
        if isinstance(order, Launch):
            reading.launched[order.offering] += order.count


def _weight(orders: Sequence[Order]) -> int:
    """Size of a tick's change: instances launched, drained, woken."""
    return sum(_size(order) for order in orders if not isinstance(order, WarmLambda))


def _size(order: Order) -> int:
    match order:
        case Launch() | Withdraw():
            return order.count
        case WarmLambda():
            return order.concurrency
        case _:
            return len(order.instances)


def explained(tick: Tick, header: Header, start_at: float) -> ExplainedTick:
    """One tick in words."""
    return ExplainedTick(
        at_s=tick.seen.now - start_at,
        seen=_format_seen(tick, header),
        forecast=_expected(tick, header),
        plan=_planned(tick),
        orders=tuple(_order(order, tick.seen.plan) for order in tick.orders),
        notes=tuple(note.text for note in tick.notes),
        counts=tick.seen.plan.counts if tick.seen.plan else (),
        excuses=tick.seen.plan.excuses if tick.seen.plan else (),
    )


def _format_seen(tick: Tick, header: Header) -> str:
    seen = tick.seen
    parts = []
    if seen.demand is not None:
        parts.append(
            f"{seen.demand.mean_rps:.1f} requests/s in the last minute (at most {seen.demand.max_rps:.1f})"
        )
    fleet = Counter((i.offering, str(i.role), str(i.state)) for i in seen.fleet)
    parts.extend(
        f"{count} {offering} {state}{'' if role == Role.SERVING else ' (standby)'}"
        for (offering, role, state), count in sorted(fleet.items())
    )
    leaving = sum(1 for i in seen.fleet if i.terminates_at is not None)
    if leaving:
        parts.append(f"{leaving} about to be taken away")
    if seen.slo is not None and header.policy.monitor is not None:
        parts.append(f"{seen.slo.missed} of {seen.slo.requests} requests missed in the monitor's window")
    if seen.lambda_warm:
        parts.append(plural(seen.lambda_warm, "warm Lambda environment"))
    parts.extend(_fact(fact) for fact in seen.facts)
    return "; ".join(parts) or "no instances"


def _fact(fact: Fact) -> str:
    match fact:
        case SpotWarned():
            said = f"spot notice: {fact.instance} goes in {fact.terminates_at - fact.at:.0f} s"
        case RebalanceAdvised():
            said = f"AWS recommends to replace {fact.instance}, which serves until another is ready"
        case LaunchRefused():
            what = f"{fact.count} {fact.offering}" if fact.count else f"{fact.offering} also"
            said = f"{what} refused: {fact.why}"
        case LaunchWithdrawn():
            said = f"{fact.count} {fact.offering} of a launch that was withdrawn do not come"
        case LaunchFailed():
            said = f"{fact.instance} ({fact.offering}) never became ready: {fact.why}"
        case ForecastFailed():
            said = f"the forecaster {fact.forecaster} failed: {fact.error}"
        case PlanFailed():
            said = f"no plan: {fact.error}"
        case _:
            assert_never(fact)
    return said


def _expected(tick: Tick, header: Header) -> str:
    forecast = tick.seen.forecast
    if forecast is None:
        return "no new forecast at this tick"
    lead = min(header.policy.lead_units, len(forecast) - 1)
    peaks = forecast.max_at(0.5)
    source = f" ({forecast.label})" if forecast.label else ""
    announced = "".join(f"; announced: {event.name}, {event.expected}" for event in forecast.events)
    return (
        f"at most {peaks[lead]:.1f} requests/s in {lead * forecast.unit_s / 60:g} minutes, "
        f"{max(peaks):.1f} within {len(forecast) * forecast.unit_s / 60:g}{source}{announced}"
    )


def _planned(tick: Tick) -> str:
    plan = tick.seen.plan
    if plan is None:
        return "no new plan at this tick"
    counts = ", ".join(f"{item.count} {item.offering}" for item in plan.counts) or "nothing"
    return f"{plan.reason or counts}; {figure(plan.usd_per_hour, digits=3)} USD/h"


def _order(order: Order, plan: Plan | None) -> str:
    # a launch repeats the plan's reason, which stands above it
    reason = order.reason.removesuffix(f"; {plan.reason}") if plan and plan.reason else order.reason
    match order:
        case Launch():
            what = f"launch {order.count} {order.offering}" + (" as standby" if order.role is Role.STANDBY else "")
        case Withdraw():
            what = f"ask for {order.count} {order.offering} less"
        case WarmLambda():
            what = f"keep {plural(order.concurrency, 'Lambda environment')} warm"
        case _:
            what = f"{order.kind.replace('-', ' ')} {', '.join(order.instances)}"
    return f"{what}: {reason}"


def _check_minute(reading: Reading, minute: float | None) -> None:
    if minute is not None and (minute < 0 or not reading.shown):
        raise Misconfigured(
            f"the journal runs from minute 0 to {_minutes(reading):.0f}; --at {minute:g} is outside"
        )


def _minutes(reading: Reading) -> float:
    return (reading.end_at - reading.start_at) / 60


def _law(found: Sequence[Mismatch], reading: Reading, *, is_own: bool) -> str:
    if not found:
        what = "orders" if is_own else "plans and orders"
        return f"replayed, the journal gives the same {what} at every tick"
    first = found[0]
    minute = (first.at - reading.start_at) / 60
    return (
        f"replayed, {len(found)} plans or orders differ from the journal, the first at minute {minute:.1f} "
        f"({first.what}): another version of the program wrote it"
    )


def _summary(reading: Reading, header: Header) -> list[str]:
    lines = []
    if reading.launched:
        launched = ", ".join(f"{count} {name}" for name, count in sorted(reading.launched.items()))
        lines.append(f"launched: {launched}")
    ordered = ", ".join(f"{count} x {kind}" for kind, count in sorted(reading.ordered.items()))
    lines.append(f"orders: {ordered or 'none'}")
    if reading.facts:
        lines.append(
            "happened: " + ", ".join(f"{count} x {kind}" for kind, count in sorted(reading.facts.items()))
        )
    lines += boot_lines(reading.boots.documents(header.policy))
    told = sorted(one for kind, most in TOLD.items() for one in reading.told[kind][-most:])
    lines += [f"minute {at_s / 60:.0f}, {note}" for at_s, note in told]
    if reading.shown:
        ticks = f"{len(reading.shown)} ticks" if len(reading.shown) > 1 else "tick"
        lines.append(f"the {ticks} that changed most (--at MINUTE shows any other):")
    return lines


def _document(
    header: Header, reading: Reading, found: Sequence[Mismatch], broken: Sequence[BrokenLine]
) -> dict[str, object]:
    """The document of `mark explain --json` (docs/json.md)."""
    return {
        "policy": header.policy.name,
        "model": header.model,
        "trace": header.trace,
        "market": header.market,
        "forecaster": header.forecaster,
        "dispatch": header.dispatch.routing.value,
        "seed": header.seed,
        "catalogue": header.catalogue,
        "duration_min": _minutes(reading),
        "tick_count": reading.ticks,
        "reproduces": not found,
        "mismatches": [
            {
                "at_s": item.at - reading.start_at,
                "what": item.what,
                "recorded": item.recorded,
                "folded": item.folded,
            }
            for item in found
        ],
        "missing": [{"line": item.number, "why": item.why} for item in broken],
        "orders": dict(sorted(reading.ordered.items())),
        "launched": dict(sorted(reading.launched.items())),
        "facts": dict(sorted(reading.facts.items())),
        "boots": reading.boots.documents(header.policy),
        **explain_document(reading.shown),
    }

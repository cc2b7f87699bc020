"""Advice on a service's cost: what each change of its settings would have saved on the load that it had.

Each change is a replay of the same arrivals with the same seed, beside one of the service as it is; a Savings Plan
is sized on the hours of the latter. What saves nothing, or keeps its objective no more, is named apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypedDict

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from mark.accounting.commitment import Floats, best_commitment
from mark.catalog.commitment_bill import commitment_words, left_by_standing
from mark.catalog.load import load_profiles
from mark.catalog.type_sets import CURRENT
from mark.config.policies import check_binds_early, chosen_overrides
from mark.config.settings import Settings
from mark.domain.commitments.applied import apply
from mark.domain.commitments.eligible import Compute, Usage
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.offering import Market
from mark.offline.experiments import line_up, make_experiment, warm_engine
from mark.offline.workloads import chosen_workload
from mark.report.formatting import format_duration, percent, usd
from mark.report.runs.rivals import usd_per_month
from mark.report.tables import Column, figures, make_table, texts
from mark.report.terminal import INTERRUPTED, Report, note, progress, show, show_json
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.simulator.workload import Workload

OWN = "hedged"
LOOSER = 1.25
"""Factor of the latency objective that is tried."""
LESS_SURE = 0.95
"""Target that is tried where a service has a higher one."""
ASSUMED = "assumed-current"
"""The shipped profiles of types that nobody measured for the paper's models."""
SHOWN_TYPES = 3
WORTH_SAYING = 0.01
"""Share of the bill below which a saving is none: another seed of the noise may turn it."""
DAY_S, HOUR_MINUTES, MONTH_HOURS = 86_400.0, 60, 730.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOptions:
    """Input of `mark advise`. days: how much of the load's end. savings_plan: discount of one; None tries none."""

    days: float
    savings_plan: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.days <= 366.0:
            raise Misconfigured(f"--days is above 0 and at most 366, not {self.days:g}")
        if self.savings_plan is not None:
            best_commitment(np.empty(0), self.savings_plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the settings, and how it is made: in the file, and in a replay where that has a flag."""

    what: str
    setting: str
    settings: Settings
    flags: str = ""
    #: False where clients get less than they are promised now.
    same_promise: bool = True


class AdviceObject(TypedDict):
    """One change. Null figures: it could not be replayed, and `unable` says why."""

    change: str
    setting: str
    #: Flags of `mark simulate` for its replay; null where it has none, or is no replay.
    flags: str | None
    same_promise: bool
    usd_per_month: float | None
    saved_usd_per_month: float | None
    #: Share of the finished requests that were in time.
    attained: float | None
    keeps_objective: bool
    unable: str | None


class AdviceDocument(TypedDict):
    """The document of `mark advise --json` (docs/json.md)."""

    load: str
    model: str
    policy: str
    days: float
    seed: int
    world: str
    usd_per_month: float
    attained: float
    #: What the account's commitments cost and cover in that time; null without any.
    commitments: str | None
    #: Changes that save, keep their objective, and are worth saying: most first.
    advice: list[AdviceObject]
    #: The others that were tried.
    tried: list[AdviceObject]


@dataclass(slots=True)
class _Found:
    base: RunResult | None = None
    advice: list[AdviceObject] = field(default_factory=list)


def advise_on(
    settings: Settings, options: AdviceOptions, *, as_json: bool, workload: Workload | None = None
) -> None:
    """Replay and print. MarkError ends it, Ctrl-C too: what is finished by then is printed before."""
    check_binds_early(settings)
    load = _last_days(workload or chosen_workload(settings), options.days)
    if load.duration_s < DAY_S:
        raise Misconfigured(
            f"advice needs a day of load at least, and {load.trace.name} has {load.duration_s / 3600:.3g} h; "
            "try later, or replay a trace with --trace"
        )
    experiment = make_experiment(settings, workload=load)
    policy = line_up(settings, experiment).policies[0]
    found, interrupted = _Found(), False
    try:
        _try_all(settings, options, experiment, policy, found)
    except KeyboardInterrupt:
        interrupted = True
    if found.base is not None:
        document = _document(experiment, policy, found.base, found.advice)
        if as_json:
            show_json(document)
        else:
            show(*printed(document))
    if interrupted:
        note(f"interrupted: {len(found.advice)} changes were tried")
        raise typer.Exit(INTERRUPTED)


def _last_days(load: Workload, days: float) -> Workload:
    first_s, last_s = load.whole_seconds
    start_s = max(first_s, last_s - round(days * DAY_S))
    return Workload(
        trace=load.trace,
        seed=load.seed,
        start_s=float(start_s),
        duration_s=float(last_s - start_s),
        speed=load.speed,
        sizes=load.sizes,
    )


def _try_all(
    settings: Settings, options: AdviceOptions, experiment: Experiment, policy: str, found: _Found
) -> None:
    """Replay the service as it is, then each change; what is finished is in `found` at once."""
    load = experiment.spec.workload
    changes = tuple(changes_of(settings, experiment, policy))
    with progress() as report:
        warm_engine(experiment, report)
        found.base = experiment.run(policy, overrides=chosen_overrides(settings), progress=report)
        if options.savings_plan is not None:
            found.advice.append(_savings_plan(experiment, found.base, options.savings_plan))
        for place, change in enumerate(changes):
            label = f"{change.what} ({place + 1} of {len(changes)})"
            try:
                changed = make_experiment(change.settings, workload=load)
                run = changed.run(
                    line_up(change.settings, changed).policies[0],
                    overrides=chosen_overrides(change.settings),
                    progress=partial(_report_as, label, report),
                )
            except MarkError as error:
                found.advice.append(_unable(change, str(error)))
            else:
                found.advice.append(_replayed(change, found.base, run))


def _report_as(label: str, report: Report, _: str, share: float) -> None:
    report(label, share)


def changes_of(settings: Settings, experiment: Experiment, policy: str) -> Iterator[Change]:
    """Changes of these settings that may be worth it; every one differs from what they say."""
    market, slo, offerings = experiment.spec.market, experiment.spec.slo, settings.offerings
    other = Market.ON_DEMAND if market is Market.SPOT else Market.SPOT
    yield Change(
        what=f"rent on {other.value.replace('-', ' ')}",
        setting=f"market: {other.value}",
        settings=settings.model_copy(update={"market": other}),
        flags=f"--market {other.value}",
    )
    if policy != OWN:
        yield Change(
            what=f"let {OWN} plan instead of {policy}",
            setting=f"policies: [{OWN}]",
            settings=settings.model_copy(update={"policies": (OWN,)}),
            flags=f"--policy {OWN}",
        )
    if set(offerings.types) not in (set(), {CURRENT}):
        yield Change(
            what="choose among all current types that are profiled",
            setting=f"offerings.types: [{CURRENT}]",
            settings=_with(settings, "offerings", types=(CURRENT,)),
            flags=f"--types {CURRENT}",
        )
    new = _unprofiled(settings, experiment)
    if new:
        named = ", ".join(new[:SHOWN_TYPES]) + (" and others" if len(new) > SHOWN_TYPES else "")
        yield Change(
            what=f"profile {named} (by assumed profiles)",
            setting=f"profiles: what `mark profile` writes there; offerings.types: [{CURRENT}]",
            settings=_with(settings, "offerings", types=(CURRENT,)).model_copy(
                update={"profiles": (*settings.profiles, ASSUMED)}
            ),
            flags=f"--types {CURRENT} --profiles {ASSUMED}",
        )
    if not offerings.overflow:
        yield Change(
            what="let Lambda take what instances cannot serve in time",
            setting="offerings.overflow: true",
            settings=_with(settings, "offerings", overflow=True),
        )
    if settings.rollout.shape != "lean":
        yield Change(
            what="deploy the lean shape",
            setting="rollout.shape: lean",
            settings=_with(settings, "rollout", shape="lean"),
        )
    zones = settings.rollout.network.zones
    if len(zones) > 2:
        network = settings.rollout.network.model_copy(update={"zones": zones[:2]})
        yield Change(
            what=f"use two zones instead of {len(zones)}",
            setting=f"rollout.network.zones: [{', '.join(zones[:2])}]",
            settings=_with(settings, "rollout", network=network),
        )
    looser_ms = 1000 * slo.latency_s * LOOSER
    yield Change(
        what=f"promise {looser_ms:g} ms instead of {1000 * slo.latency_s:g} ms",
        setting=f"objective.latency_ms: {looser_ms:g}",
        settings=_with(settings, "objective", latency_ms=looser_ms),
        flags=f"--slo-ms {looser_ms:g}",
        same_promise=False,
    )
    if slo.target > LESS_SURE:
        yield Change(
            what=f"promise {percent(LESS_SURE, digits=0)} instead of {percent(slo.target)}",
            setting=f"objective.target: {LESS_SURE:g}",
            settings=_with(settings, "objective", target=LESS_SURE),
            flags=f"--slo-target {LESS_SURE:g}",
            same_promise=False,
        )


def _unprofiled(settings: Settings, experiment: Experiment) -> tuple[str, ...]:
    """Current types that nobody profiled for the model, of which a profile is assumed."""
    name = experiment.spec.model.name
    try:
        known = load_profiles(name, settings.profiles).instance_types
        assumed = load_profiles(name, (*settings.profiles, ASSUMED)).instance_types
    except MarkError:  # of a model of one's own nothing is assumed
        return ()
    return tuple(sorted(set(assumed) - set(known)))


def _with(settings: Settings, part: str, **values: object) -> Settings:
    section = getattr(settings, part)
    return settings.model_copy(update={part: section.model_copy(update=values)})


def hourly_on_demand_usd(experiment: Experiment, run: RunResult) -> Floats:
    """Cost of what ran on demand in each whole hour of a run, USD; what boots is left out. shape (hours,).

    What commitments of the account cover is left out, too: nobody needs to buy it twice.
    """
    offerings = (*experiment.supply.offerings, *experiment.supply.on_demand)
    price = {one.name: one.usd_per_hour for one in offerings if one.market is Market.ON_DEMAND}
    whole = len(run.minutes.ready) // HOUR_MINUTES * HOUR_MINUTES
    hours = (
        run.minutes.ready[:whole].reshape(-1, HOUR_MINUTES, len(run.minutes.offerings)).sum(axis=1) / HOUR_MINUTES
    )
    usd = hours * np.array([price.get(name, 0.0) for name in run.minutes.offerings])
    footprint = experiment.spec.footprint
    owned = left_by_standing(footprint.commitments, footprint)
    if not owned:
        on_demand: Floats = usd.sum(axis=1)
        return on_demand
    names = [name.partition(":")[0] for name in run.minutes.offerings]
    return np.array([_uncovered_usd(owned, names, *row) for row in zip(hours, usd, strict=True)])


def _uncovered_usd(owned: Commitments, types: Sequence[str], hours: Floats, usd: Floats) -> float:
    """What commitments leave of an hour on demand, USD. hours, usd: shape (types,)."""
    usages = [
        Usage(compute=Compute.EC2, on_demand_usd=float(cost), hours=float(count), instance_type=name)
        for name, count, cost in zip(types, hours, usd, strict=True)
        if cost > 0.0
    ]
    shares = apply(owned, usages).left_shares
    return sum(usage.on_demand_usd * left for usage, left in zip(usages, shares, strict=True))


def _savings_plan(experiment: Experiment, base: RunResult, discount: float) -> AdviceObject:
    hours_usd = hourly_on_demand_usd(experiment, base)
    plan = best_commitment(hours_usd, discount)
    saved = plan.saved_usd / max(1, hours_usd.size) * MONTH_HOURS
    attained, which = base.attained, "another" if experiment.spec.footprint.commitments else "a"
    off = percent(discount, digits=0)
    return {
        "change": f"{which} Savings Plan of {plan.usd_per_hour:.3g} USD an hour at {off} off",
        "setting": "AWS console: Billing, Savings Plans",
        "flags": None,
        "same_promise": True,
        "usd_per_month": usd_per_month(base) - saved,
        "saved_usd_per_month": saved,
        "attained": attained,
        "keeps_objective": attained >= base.slo.target,
        "unable": None,
    }


def _replayed(change: Change, base: RunResult, run: RunResult) -> AdviceObject:
    return {
        "change": change.what,
        "setting": change.setting,
        "flags": change.flags or None,
        "same_promise": change.same_promise,
        "usd_per_month": usd_per_month(run),
        "saved_usd_per_month": usd_per_month(base) - usd_per_month(run),
        "attained": run.attained,
        "keeps_objective": run.attained >= run.slo.target,
        "unable": None,
    }


def _unable(change: Change, why: str) -> AdviceObject:
    return {
        "change": change.what,
        "setting": change.setting,
        "flags": change.flags or None,
        "same_promise": change.same_promise,
        "usd_per_month": None,
        "saved_usd_per_month": None,
        "attained": None,
        "keeps_objective": False,
        "unable": why,
    }


def _document(
    experiment: Experiment, policy: str, base: RunResult, tried: Sequence[AdviceObject]
) -> AdviceDocument:
    bill = usd_per_month(base)

    def saved(one: AdviceObject) -> float:
        return one["saved_usd_per_month"] or 0.0

    worth = [one for one in tried if one["keeps_objective"] and saved(one) >= WORTH_SAYING * bill]
    return {
        "load": experiment.spec.workload.trace.name,
        "model": experiment.spec.model.name,
        "policy": policy,
        "days": base.duration_s / DAY_S,
        "seed": base.seed,
        "world": base.world,
        "usd_per_month": bill,
        "attained": base.attained,
        "commitments": commitment_words(base.bill) or None,
        "advice": sorted(worth, key=saved, reverse=True),
        "tried": [one for one in tried if one not in worth],
    }


def printed(document: AdviceDocument) -> Iterator[str | Table]:
    """The document for a terminal."""
    days_s = document["days"] * DAY_S
    yield (
        f"{document['model']} under {document['policy']} on {format_duration(days_s)} of {document['load']}: "
        f"{usd(document['usd_per_month'])} USD a month, {percent(document['attained'], digits=2)} in time"
    )
    if document["commitments"]:
        yield document["commitments"]
    if document["advice"]:
        yield ""
        yield _table(document["advice"], ("saves\nUSD/month",))
    else:
        yield f"Nothing that was tried saves {percent(WORTH_SAYING, digits=0)} of that and keeps its objective."
    if document["tried"]:
        yield ""
        yield "Tried, and not advised:"
        yield _table(document["tried"], ("saves\nUSD/month",))
    for one in document["tried"]:
        if one["unable"]:
            yield f"{one['change']}: {one['unable']}"


def _table(rows: Sequence[AdviceObject], saves: tuple[str, ...]) -> Table:
    columns: list[Column] = [*texts("change"), *figures(*saves, "USD/month", "in time"), *texts("in mark.yaml")]
    looser = any(not one["same_promise"] for one in rows)
    table = make_table(columns, gap=2, notes=("* clients are promised less",) if looser else ())
    for one in rows:
        attained, bill, saved = one["attained"], one["usd_per_month"], one["saved_usd_per_month"]
        table.add_row(
            Text(f"{one['change']}{'' if one['same_promise'] else ' *'}"),
            "-" if saved is None else usd(saved),
            "-" if bill is None else usd(bill),
            "-" if attained is None else percent(attained, digits=2),
            Text(one["setting"]),
        )
    return table

"""Advice on a service's cost: what each change of its settings would have saved on the load that it had.

Each change is a replay of the same arrivals with the same seed, beside one of the service as it is; a Savings Plan
is sized on the hours of the latter, and replayed, too. What saves nothing, or keeps its objective no more, is
named apart.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypedDict

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from mark.accounting.commitment import best_commitment
from mark.catalog.commitment_bill import commitment_words
from mark.catalog.commitment_file import file_of
from mark.config.footprint import advise_shape
from mark.config.policies import check_binds_early, chosen_overrides
from mark.config.settings import Settings
from mark.domain.commitments.discounts import assumed_discount
from mark.domain.commitments.eligible import Compute
from mark.domain.commitments.owned import Commitments
from mark.domain.documents import json_text
from mark.domain.errors import MarkError, Misconfigured
from mark.offline.advice.advice_changes import Change, changes_of, checked
from mark.offline.advice.advice_plan import sized_plan, sized_reservation
from mark.offline.experiments import line_up, make_experiment, warm_engine
from mark.offline.workloads import chosen_workload
from mark.report.formatting import format_duration, percent, usd
from mark.report.runs.rivals import usd_per_month
from mark.report.tables import Column, figures, make_table, texts
from mark.report.terminal import INTERRUPTED, Report, note, progress, show, show_json
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.simulator.workload import Workload

WORTH_SAYING = 0.01
"""Share of the bill below which a saving is none: another seed of the noise may turn it."""
DAY_S, MINUTE_S = 86_400.0, 60
PLAN_FILE = "advised.json"
"""The file that a replay of a commitment reads it of."""
BUYS_PLAN = (
    "aws savingsplans create-savings-plan --commitment {usd:g} --savings-plan-offering-id "
    '"$(aws savingsplans describe-savings-plans-offerings --plan-types Compute --durations 31536000 '
    "--payment-options 'No Upfront' --currencies USD --query 'searchResults[0].offeringId' --output text)\""
)
BUYS_RESERVED = (
    "aws ec2 purchase-reserved-instances-offering --region {region} --instance-count {count:g} "
    "--reserved-instances-offering-id "
    '"$(aws ec2 describe-reserved-instances-offerings --region {region} --instance-type {type} '
    "--offering-class standard --offering-type 'No Upfront' --product-description 'Linux/UNIX' "
    "--min-duration 31536000 --max-duration 31536000 --no-include-marketplace "
    "--query 'ReservedInstancesOfferings[?Scope==`Region`] | [0].ReservedInstancesOfferingId' --output text)\""
)
"""Commands that buy one for a year with nothing paid upfront (AWS CLI). None can be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOptions:
    """Input of `mark advise`. days: how much of the load's end.

    savings_plan: discount of one; None for the one that is assumed. given: arguments that say what is replayed.
    file: the service's settings.
    """

    days: float
    savings_plan: float | None = None
    given: tuple[str, ...] = ()
    file: str = "mark.yaml"

    def __post_init__(self) -> None:
        if not 0.0 < self.days <= 366.0:
            raise Misconfigured(f"--days is above 0 and at most 366, not {self.days:g}")
        if self.savings_plan is not None:
            best_commitment(np.empty(0), self.savings_plan)


class AdviceObject(TypedDict):
    """One change. Null figures: it could not be replayed, and `unable` says why."""

    #: What it is.
    change: str
    #: The line of `mark.yaml` that says it.
    setting: str
    #: The command that makes it once the file has that line, or that buys a commitment.
    does: str
    #: Flags of `mark simulate` for its replay, beside those of the document's `command`.
    flags: str
    #: The whole command of its replay.
    command: str
    #: What a file has that `--commitments` of the flags names; null where they name none.
    commitments_file: dict[str, object] | None
    #: False where clients are promised less.
    same_promise: bool
    #: Of 730 h like the replay; null where it could not be replayed.
    usd_per_month: float | None
    saved_usd_per_month: float | None
    #: Share of the finished requests that were in time.
    attained: float | None
    #: Whether that is the target, or no less than the service's own share.
    keeps_objective: bool
    #: Why it could not be replayed.
    unable: str | None


class AdviceDocument(TypedDict):
    """The document of `mark advise --json` (docs/json.md)."""

    load: str
    model: str
    policy: str
    #: Days that were replayed.
    days: float
    seed: int
    world: str
    #: Of the service as it is.
    usd_per_month: float
    attained: float
    #: The command that replays the service as it is.
    command: str
    #: What the account's commitments cost and cover in that time; null without any.
    commitments: str | None
    #: Changes that save, keep their objective, and are worth saying: most first.
    advice: list[AdviceObject]
    #: The others that were tried.
    tried: list[AdviceObject]


@dataclass(slots=True)
class _Trial:
    """The replays so far, of the same load. owned: commitments of the account, None for the settings' own."""

    settings: Settings
    experiment: Experiment
    policy: str
    owned: Commitments | None
    #: The command that replays the service as it is, but for its policy.
    command: str
    base: RunResult | None = None
    tried: list[AdviceObject] = field(default_factory=list)

    def run(self, settings: Settings, label: str, report: Report, owned: Commitments | None = None) -> RunResult:
        """Replay other settings, or other commitments. MarkError."""
        load = self.experiment.spec.workload
        changed = make_experiment(settings, workload=load, owned=self.owned if owned is None else owned)
        policy = line_up(settings, changed).policies[0]
        return changed.run(
            policy, overrides=chosen_overrides(settings), progress=partial(_report_as, label, report)
        )

    def check_shape(self, settings: Settings, base: RunResult) -> None:
        """Misconfigured where lean nodes are new, and would not carry the highest minute for long."""
        if settings.rollout.shape == self.settings.rollout.shape:
            return
        arrivals = base.seconds.arrivals
        minutes = arrivals[: len(arrivals) // MINUTE_S * MINUTE_S].reshape(-1, MINUTE_S).sum(axis=1)
        peak_rps = float(minutes.max(initial=0)) / MINUTE_S
        advice = advise_shape(settings, peak_rps)
        if advice.shape != "lean":
            raise Misconfigured(
                f"two lean nodes carry {advice.lean_rps:.3g} requests/s for long, and the highest minute has "
                f"{peak_rps:.4g}"
            )

    def command_with(self, flags: str) -> str:
        """The command of a replay with these flags."""
        own = () if "--policy" in flags else (f"--policy {self.policy}",)
        return " ".join(filter(None, (self.command, *own, flags)))


def advise_on(
    settings: Settings,
    options: AdviceOptions,
    *,
    as_json: bool,
    workload: Workload | None = None,
    owned: Commitments | None = None,
) -> None:
    """Replay and print. MarkError ends it, Ctrl-C too: what is finished by then is printed before.

    owned: commitments of the account instead of the settings' own.
    """
    check_binds_early(settings)
    whole = workload or chosen_workload(settings)
    trial = _trial_of(settings, options, whole, owned=owned, is_live=workload is not None)
    interrupted = False
    try:
        with progress() as report:
            _try_all(trial, options, report)
    except KeyboardInterrupt:
        interrupted = True
    if trial.base is not None:
        document = _document(trial, trial.base)
        if as_json:
            show_json(document)
        else:
            show(*printed(document))
    if interrupted:
        note(f"interrupted: {len(trial.tried)} changes were tried")
        raise typer.Exit(INTERRUPTED)


def advice_on(settings: Settings, options: AdviceOptions, workload: Workload, report: Report) -> AdviceDocument:
    """The document of `mark advise --json`. Raises the MarkError that ends it."""
    check_binds_early(settings)
    trial = _trial_of(settings, options, workload, owned=None, is_live=False)
    return _document(trial, _try_all(trial, options, report))


def _trial_of(
    settings: Settings, options: AdviceOptions, whole: Workload, *, owned: Commitments | None, is_live: bool
) -> _Trial:
    """The load that is replayed, and nothing tried yet. Misconfigured where it is too short."""
    load = _last_days(whole, options.days)
    if load.duration_s < DAY_S:
        raise Misconfigured(
            f"advice needs a day of load at least, and {load.trace.name} has {load.duration_s / 3600:.3g} h; "
            + _more_load(whole, is_live=is_live)
        )
    experiment = make_experiment(settings, workload=load, owned=owned)
    policy = line_up(settings, experiment).policies[0]
    span = ("--start-s", f"{load.start_s:g}", "--duration-s", f"{load.duration_s:g}")
    command = shlex.join(("mark", "simulate", *options.given, *span, "--no-reference"))
    return _Trial(settings=settings, experiment=experiment, policy=policy, owned=owned, command=command)


def _more_load(whole: Workload, *, is_live: bool) -> str:
    """What brings a day of load where the one that was replayed is shorter."""
    if whole.duration_s >= DAY_S:
        return "give --days 1 or more"
    return "try later, or name a trace with --trace" if is_live else "name a longer trace, or a longer part of it"


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


def _try_all(trial: _Trial, options: AdviceOptions, report: Report) -> RunResult:
    """Replay the service as it is, then each change; what is finished is in `trial` at once."""
    experiment, settings, discount = trial.experiment, trial.settings, options.savings_plan
    changes = tuple(changes_of(settings, experiment, trial.policy, shlex.quote(options.file)))
    warm_engine(experiment, report)
    trial.base = base = experiment.run(trial.policy, overrides=chosen_overrides(settings), progress=report)
    trial.tried.append(_savings_plan(trial, base, discount, report))
    trial.tried += _reserved(trial, base, report)
    for place, change in enumerate(changes):
        label = f"{change.what} ({place + 1} of {len(changes)})"
        outcome: RunResult | str
        try:
            changed = checked(change.settings)
            trial.check_shape(changed, base)
            outcome = trial.run(changed, label, report)
        except MarkError as error:
            outcome = str(error)
        trial.tried.append(_judged(trial, base, outcome, change))
    return base


def _report_as(label: str, report: Report, _: str, share: float) -> None:
    report(label, share)


def _savings_plan(trial: _Trial, base: RunResult, discount: float | None, report: Report) -> AdviceObject:
    """A Compute Savings Plan of one year, replayed as something that the account has."""
    off = assumed_discount(Compute.EC2, years=1, one_family=False) if discount is None else discount
    owned = trial.experiment.spec.footprint.commitments
    bought = sized_plan(trial.experiment, base, off)
    words = f"Savings Plan of {bought.usd_per_hour:g} USD an hour at {'an assumed ' if discount is None else ''}"
    change = Change(
        what=f"{'another' if owned else 'a'} {words}{percent(off, digits=0)} off",
        setting="AWS console: Billing, Savings Plans",
        settings=trial.settings,
        flags=f"--commitments {PLAN_FILE}",
        does=BUYS_PLAN.format(usd=bought.usd_per_hour),
    )
    if not bought.usd_per_hour:
        return _judged(trial, base, base, replace(change, flags=""))
    return _with_commitments(trial, base, change, replace(owned, plans=(*owned.plans, bought)), report)


def _reserved(trial: _Trial, base: RunResult, report: Report) -> Iterator[AdviceObject]:
    """Reserved Instances of one type, replayed as something that the account has; nothing where none saves."""
    off = assumed_discount(Compute.EC2, years=1, one_family=True)
    owned = trial.experiment.spec.footprint.commitments
    bought = sized_reservation(trial.experiment, base, off)
    if bought is None:
        return
    several = "s" if bought.count != 1 else ""
    change = Change(
        what=f"{bought.count:g} Reserved Instance{several} {bought.instance_type} at an assumed "
        f"{percent(off, digits=0)} off",
        setting="AWS console: EC2, Reserved Instances",
        settings=trial.settings,
        flags=f"--commitments {PLAN_FILE}",
        does=BUYS_RESERVED.format(
            region=trial.settings.service.aws.region, count=bought.count, type=bought.instance_type
        ),
    )
    both = replace(owned, reservations=(*owned.reservations, bought))
    yield _with_commitments(trial, base, change, both, report)


def _with_commitments(
    trial: _Trial, base: RunResult, change: Change, both: Commitments, report: Report
) -> AdviceObject:
    outcome: RunResult | str
    try:
        outcome = trial.run(trial.settings, change.what, report, owned=both)
    except MarkError as error:
        outcome = str(error)
    return {**_judged(trial, base, outcome, change), "commitments_file": file_of(both)}


def _judged(trial: _Trial, base: RunResult, run: RunResult | str, change: Change) -> AdviceObject:
    """A change that was replayed, or the reason that it could not be."""
    ran = None if isinstance(run, str) else run
    return {
        "change": change.what,
        "setting": change.setting,
        "does": change.does,
        "flags": change.flags,
        "command": trial.command_with(change.flags),
        "commitments_file": None,
        "same_promise": change.same_promise,
        "usd_per_month": usd_per_month(ran) if ran else None,
        "saved_usd_per_month": usd_per_month(base) - usd_per_month(ran) if ran else None,
        "attained": ran.attained if ran else None,
        "keeps_objective": ran is not None and ran.attained >= min(ran.slo.target, base.attained),
        "unable": run if isinstance(run, str) else None,
    }


def _document(trial: _Trial, base: RunResult) -> AdviceDocument:
    bill, tried, experiment = usd_per_month(base), trial.tried, trial.experiment

    def saved(one: AdviceObject) -> float:
        return one["saved_usd_per_month"] or 0.0

    worth = [one for one in tried if one["keeps_objective"] and saved(one) >= WORTH_SAYING * bill]
    bought = sorted((one for one in worth if one["commitments_file"] is not None), key=saved)
    worth = [one for one in worth if one not in bought[:-1]]  # of two for the same hours the better one
    return {
        "load": experiment.spec.workload.trace.name,
        "model": experiment.spec.model.name,
        "policy": trial.policy,
        "days": base.duration_s / DAY_S,
        "seed": base.seed,
        "world": base.world,
        "usd_per_month": bill,
        "attained": base.attained,
        "command": trial.command_with(""),
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
    yield ""
    if document["advice"]:
        yield "To make a change, write its line into the file and run the command. A commitment cannot be undone."
        for place, one in enumerate(document["advice"], start=1):
            yield f"{place}. {one['change']}: {one['does']}"
            if one["commitments_file"] is not None:
                held = shlex.quote(json_text(one["commitments_file"], compact=True))
                yield f"   the file that its replay reads: printf %s {held} > {PLAN_FILE}"
            yield f"   its replay: {one['command']}"
        yield ""
    yield f"The service as it is: {document['command']}"
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

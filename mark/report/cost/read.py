"""The cost report from what is stored of a service: its ledger, tallies, journal, and replays that were kept.

It needs the store alone, no controller that is alive: a scheduled function makes the report of the command line.
Where the store is gone, what was kept of it in the service's bucket will do (`mark.report.cost.archive_reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial

from mark.accounting.budget import month_spend
from mark.accounting.client_totals import ClientAnswers, answers_by_client, grown
from mark.accounting.daily_costs import DayCost, days_between, model_days, shared_days
from mark.accounting.hourly_spend import HourSpend, bill_at, hour_edges, spend_by_hour
from mark.accounting.hourly_totals import (
    HourlyMark,
    Totals,
    clients_at,
    first_mark,
    load_marks,
    marks_key,
    next_mark,
    totals_at,
    versions_between,
)
from mark.accounting.journal_stats import (
    JournalFacts,
    PricedOrder,
    Segment,
    accuracy_over_load,
    journal_facts,
)
from mark.accounting.ledger import unpriced, unpriced_words
from mark.accounting.model_ledger import ModelLedger
from mark.accounting.version_costs import VersionCost, version_costs, versions_used
from mark.accounting.version_totals import NONE, VersionTotals
from mark.catalog.billing import bill_lambda, cost_of
from mark.catalog.break_even import break_even_rps
from mark.catalog.commitment_bill import COMPONENT, FREE_CAPACITY, UNUSED
from mark.catalog.offerings import overflow_excuse
from mark.controller.journal import BrokenLine, read_journal
from mark.dispatch.objective import attainment
from mark.domain.billing.costs import BillLine, LambdaUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.billing.shared_rent import RentShares, divide_rent
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.domain.figures import plural
from mark.domain.fleet.orders import Launch, WarmLambda, Withdraw
from mark.domain.models.profile import assumed_words, evidence_line, stand_in_words
from mark.report.cost.advice import advice_of
from mark.report.cost.archive_reader import ArchiveReader
from mark.report.cost.cost_report import (
    COUNTED,
    Answers,
    Baseline,
    Capacity,
    CostReport,
    DayAnswers,
    DayLine,
    ForecastError,
    LargeDecision,
    LoadAhead,
    ModelReport,
    ReconciledDay,
    VersionBill,
    spend_by_day,
)
from mark.report.cost.replays import LATE_S, ReplayedDay, replayed_days
from mark.report.mail.formatting import money_of
from mark.service_spec import ServedModel, ServiceSpec
from mark.store.published_status import COMMITMENTS, MODEL, LoadSeries, PublishedModel

LONGEST_REASON = 240
"""Characters of a reason that a mail shows."""
JOURNAL_LATE_S = 120.0
"""A journal that begins so long after the period says so."""
OBSERVED = (
    "nothing was rented: this is the fleet that would have been, never refused and never interrupted",
    "what planned instances would not have carried is not in these sums; the replay of the own policy has it",
)
HOUR_S = 3600.0
INSTANCES = "instances"
"""Component of the lines of a bill that are rent of serving instances."""
BOOTS_SHOW_S = 6 * HOUR_S
"""In a replay that is shorter, the boots of a first fleet are much of what is missed and paid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """`[since, until)` of the service's clock."""

    since: float
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """One model as it is stored."""

    served: ServedModel
    ledger: ModelLedger
    facts: JournalFacts
    unpriced: tuple[str, ...]
    missing: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedRent:
    """The rent of shared instances. marks: of each model; rented: ledgers of what is shared, none or one."""

    marks: Mapping[str, tuple[HourlyMark, ...]]
    rented: tuple[ModelLedger, ...]

    def between(self, since: float, until: float) -> RentShares:
        """Who pays what of it."""
        usd = sum(line.usd for line in self._lines(since, until))
        used_usd = {
            name: totals_at(marks, until).shared_usd - totals_at(marks, since).shared_usd
            for name, marks in self.marks.items()
        }
        return divide_rent(usd, used_usd)

    def offerings(self, since: float, until: float) -> set[str]:
        """Offerings that were rented."""
        return {line.item for line in self._lines(since, until)}

    def _lines(self, since: float, until: float) -> Iterator[BillLine]:
        for ledger in self.rented:
            for cost in model_days(ledger, since, until):
                if cost.line.component == INSTANCES:
                    yield cost.line


def report_period(store: ArchiveReader, *, period_s: float, wall_at: float) -> Period:
    """The last `period_s` seconds of the service's clock, from its beginning on at most."""
    until = store.clock().service_time(wall_at)
    marks = [_marks(store, served.name, until)[0].at for served in store.spec().models]
    since = max(until - period_s, min(marks, default=until))
    return Period(since=min(since, until), until=until)


def read_cost_report(
    store: ArchiveReader,
    *,
    period_s: float,
    wall_at: float,
    aws_usd: Mapping[date, float] | None = None,
    replays: Mapping[str, Sequence[ReplayedDay]] | None = None,
) -> CostReport:
    """The report of the last `period_s` seconds before `wall_at` (epoch seconds of the wall).

    `aws_usd` is what Cost Explorer says of each day; `replays` are those of each model, the ones in the store
    where they are not given.
    """
    period = report_period(store, period_s=period_s, wall_at=wall_at)
    spec = store.spec()
    read = [_read(store, spec, served, period) for served in spec.models]
    ledgers = [item.ledger for item in read]
    rented = _shared_ledgers(store, spec, period)
    days = (day for ledger in rented for day in model_days(ledger, period.since, period.until))
    shared = _day_lines((*days, *shared_days(ledgers, period.since, period.until)))
    given = {s.name: replayed_days(store, s.name) for s in spec.models} if replays is None else replays
    rent = _SharedRent(marks={item.served.name: item.ledger.marks for item in read}, rented=rented)
    models = tuple(_model(item, period, ledgers, given.get(item.served.name, ()), rent) for item in read)
    models = tuple(replace(model, ahead=_load_ahead(store, model.name, period.until)) for model in models)
    if spec.observed:  # whoever counts for us answers nobody
        models = tuple(replace(model, answers=Answers(), days=(), clients=(), versions=()) for model in models)
    lines = (*(line for model in models for line in model.lines), *shared)
    return CostReport(
        service=spec.name,
        since=period.since,
        until=period.until,
        models=models,
        shared=shared,
        reconciliation=() if aws_usd is None else _reconciled(lines, aws_usd),
        advice=advice_of(models, service=spec.name, money=money_of(cost_of(item.line for item in lines))),
        notes=(*(OBSERVED if spec.observed else ()), *_notes(read, models, period, observed=spec.observed)),
        observed=spec.observed,
        existing_usd=spec.existing_usd(period.until - period.since),
        month=month_spend((*ledgers, *rented), period.until),
        hours=_hours((*ledgers, *rented), period.until),
        idle_usd=rent.between(period.since, period.until).idle_usd if rented else None,
    )


def journal_of(store: ArchiveReader, model: str, *, skip: Callable[[str], object]) -> Iterator[Segment]:
    """All segments of a model's journal that are kept, oldest first; none where it has no journal.

    `skip` is told of each line that cannot be read, and is left out; a segment whose header cannot is left out.
    """

    def skip_line(segment: int, line: BrokenLine) -> None:
        skip(f"line {line.number} of segment {segment} cannot be read: {line.why}")

    for number in store.journal_segments(model):
        try:
            yield read_journal(store.journal_lines(model, number), skip=partial(skip_line, number))
        except Misconfigured as error:
            if number in store.journal_segments(model):  # otherwise it was dropped meanwhile
                skip(f"segment {number} is left out: {error}")


def _footprint(store: ArchiveReader, spec: ServiceSpec) -> Footprint | None:
    """The footprint, with the account's commitments as they were last read."""
    known = COMMITMENTS.read(store)
    if spec.footprint is None or known is None:
        return spec.footprint
    return replace(spec.footprint, commitments=known.commitments)


def _read(store: ArchiveReader, spec: ServiceSpec, served: ServedModel, period: Period) -> _Read:
    missing: list[str] = []
    journal = journal_of(store, served.name, skip=missing.append)
    marks = _marks(store, served.name, period.until)
    record = store.ledger(served.name)
    ledger = ModelLedger(served=served, record=record, marks=marks, footprint=_footprint(store, spec))
    return _Read(
        served=served,
        ledger=ledger,
        facts=journal_facts(journal, period.since, period.until),
        unpriced=unpriced(served, ledger.usage(period.until).usages),
        missing=missing,
    )


def _shared_ledgers(store: ArchiveReader, spec: ServiceSpec, period: Period) -> tuple[ModelLedger, ...]:
    """The ledger of the instances that models share; none where they share nothing."""
    served = spec.shared
    if served is None:
        return ()
    marks = _marks(store, served.name, period.until)
    record, footprint = store.ledger(served.name), _footprint(store, spec)
    return (ModelLedger(served=served, record=record, marks=marks, footprint=footprint),)


def _marks(store: ArchiveReader, model: str, now: float) -> tuple[HourlyMark, ...]:
    """The kept marks, and one of `now`, or of the last tick where that is later."""
    published = MODEL.read(store, model) or PublishedModel()
    now = max(now, published.at)  # a report of the past: what is counted by now came until now
    began_at = now if published.began_at is None else published.began_at
    marks = load_marks(store.status(marks_key(model))) or (first_mark(began_at),)
    series = published.series or LoadSeries(start_at=now)
    recent = Demand(
        end_at=series.start_at + len(series.mean_rps) * series.unit_s,
        mean_rps=series.mean_rps,
        max_rps=series.max_rps,
        unit_s=series.unit_s,
    )
    return (*marks, next_mark(marks[-1], store.traffic(model), recent, now))


def _model(
    read: _Read,
    period: Period,
    ledgers: Sequence[ModelLedger],
    replays: Sequence[ReplayedDay],
    rent: _SharedRent,
) -> ModelReport:
    facts, served = read.facts, read.served
    lines = _day_lines(model_days(read.ledger, period.since, period.until))
    marks, days = read.ledger.marks, days_between(period.since, period.until)
    answers = _answers(marks, period.since, period.until)
    by_day = [DayAnswers(day=day, answers=_answers(marks, start, end)) for day, start, end in days]
    shared_usd = rent.between(period.since, period.until).by_model[served.name]
    rented = {item.line.item for item in lines}
    if shared_usd > 0.0:
        rented |= rent.offerings(period.since, period.until)
    return ModelReport(
        name=served.name,
        policy=facts.policy,
        slo=served.slo,
        lines=lines,
        answers=answers,
        days=tuple(item for item in by_day if item.answers.finished),
        clients=_clients(marks, period, answers, cost_of(item.line for item in lines).serving + shared_usd),
        versions=_versions(read.ledger, period),
        baselines=_baselines(read.ledger, ledgers, replays, period, rent),
        interruptions=len(facts.warned),
        refused_launches=facts.refused,
        launched=facts.launched,
        forecast=ForecastError(
            forecaster=facts.forecaster,
            degraded=facts.degraded,
            scored=facts.scored,
            error=facts.error_rps / facts.came_rps if facts.came_rps else None,
            naive_error=facts.naive_error_rps / facts.came_rps if facts.came_rps else None,
            failed=facts.failed_forecasts,
        ),
        decisions=tuple(map(_decision, facts.largest)),
        capacity=_capacity(facts),
        never_chosen=tuple(
            (name, facts.excuses.get(name, ""))
            for name in facts.offered
            if name not in rented and name not in facts.planned
        ),
        journal_since=facts.since,
        accuracy=accuracy_over_load(facts.accuracy),
        break_even_rps=_break_even_rps(read),
        shared_usd=shared_usd,
    )


def _break_even_rps(read: _Read) -> float | None:
    """The load from which it pays, by what the controller may rent: neither standbys nor fallbacks."""
    served, footprint = read.served, read.ledger.footprint
    overflow = served.overflow
    if footprint is None or overflow is None or overflow_excuse(overflow, served.slo) is not None:
        return None
    offered = [item for item in served.offerings if item.name in read.facts.offered]
    return break_even_rps(footprint, offered, overflow, payload_mib=served.model.payload_mib)


def _day_lines(costs: Iterable[DayCost]) -> tuple[DayLine, ...]:
    return tuple(DayLine(day=cost.day, line=cost.line) for cost in costs)


def _answers(marks: Sequence[HourlyMark], start: float, end: float) -> Answers:
    """Counts of gateways in between; whole numbers, and so that days add up to the period."""
    before, after = totals_at(marks, start), totals_at(marks, end)
    counts = {name: _whole(after, name) - _whole(before, name) for name in (*COUNTED, "accuracy_known")}
    return Answers(**counts, accuracy_sum=after.accuracy_sum - before.accuracy_sum)


def _clients(
    marks: Sequence[HourlyMark], period: Period, answers: Answers, serving_usd: float
) -> tuple[ClientAnswers, ...]:
    """Requests, attainment and cost by client."""
    came = grown(clients_at(marks, period.since), clients_at(marks, period.until))
    return answers_by_client(came, serving_usd=serving_usd, answered=answers.answered)


def _versions(ledger: ModelLedger, period: Period) -> tuple[VersionBill, ...]:
    """Requests and cost by version; empty where no more than one served."""
    since, until = period.since, period.until
    came = versions_between(ledger.marks, since, until)
    names = sorted(dict.fromkeys((*came, *versions_used(ledger.usage(until)))), key=bool)
    costs = version_costs(ledger.usage, ledger.served, names, since=since, until=until)
    found = [
        _version(ledger.served, came.get(cost.version, NONE), cost)
        for cost in costs
        if cost.version in came or cost.instance_hours > 0
    ]
    return tuple(found) if sum(1 for one in found if one.version) > 1 else ()


def _version(served: ServedModel, came: VersionTotals, cost: VersionCost) -> VersionBill:
    lambda_usd = None
    if served.overflow is not None:
        used = LambdaUsage(requests=round(came.lambda_calls), cold_starts=0, gib_s=came.lambda_gib_s)
        lambda_usd = sum(line.usd for line in bill_lambda(used, served.overflow))
    return VersionBill(
        version=cost.version,
        requests=round(came.finished),
        attained=attainment(round(came.missed), round(came.finished)),
        instance_hours=cost.instance_hours,
        rent_usd=cost.usd,
        lambda_usd=lambda_usd,
    )


def _whole(totals: Totals, name: str) -> int:
    count: float = getattr(totals, name)
    return round(count)


def _baselines(
    ledger: ModelLedger,
    ledgers: Sequence[ModelLedger],
    replays: Sequence[ReplayedDay],
    period: Period,
    rent: _SharedRent,
) -> tuple[Baseline, ...]:
    """Policies that were replayed on every day that any was, beside the ledger of the same stretches.

    A whole day counts where the period cuts it: a report of each morning tells of the day that is over.
    """
    spans = {day: (start, end) for day, start, end in days_between(period.since, period.until)}
    days = [item for item in replays if item.holds(spans.get(item.day))]
    if not days:
        return ()
    models = len(ledgers)
    measured_usd = sum(_measured_usd(ledger, ledgers, item, rent) for item in days)
    answers = [_answers(ledger.marks, item.since, item.until) for item in days]
    measured = attainment(sum(item.missed for item in answers), sum(item.finished for item in answers))
    names = [name for name in days[0].policies if all(name in item.policies for item in days)]
    found = []
    for name in names:
        runs = [item.policies[name] for item in days]
        found.append(
            Baseline(
                policy=name,
                usd=sum(run.serving_usd + run.overhead_usd / models + run.commitments_usd for run in runs),
                attained=attainment(sum(run.missed for run in runs), sum(run.requests for run in runs)),
                measured_usd=measured_usd,
                measured_attained=measured,
                since=min(item.since for item in days),
                until=max(item.until for item in days),
                replayed_s=sum(item.until - item.since for item in days),
                uses_truth=any(run.uses_truth for run in runs),
            )
        )
    return tuple(sorted(found, key=lambda item: (item.usd, item.policy)))


def _measured_usd(
    ledger: ModelLedger, ledgers: Sequence[ModelLedger], item: ReplayedDay, rent: _SharedRent
) -> float:
    """Cost of a model in the seconds of a replay, with its part of what all share."""
    own = sum(cost.line.usd for cost in model_days(ledger, item.since, item.until))
    shares = rent.between(item.since, item.until)
    for_all = sum(cost.line.usd for cost in shared_days(ledgers, item.since, item.until)) + shares.idle_usd
    return own + shares.by_model[ledger.served.name] + for_all / len(ledgers)


def _decision(priced: PricedOrder) -> LargeDecision:
    order = priced.order
    match order:
        case Launch():
            what = f"launch {order.count} {order.offering}"
        case Withdraw():
            what = f"ask for {order.count} {order.offering} less"
        case WarmLambda():
            what = f"warm {plural(order.concurrency, 'Lambda environment')}"
        case _:
            count = len(order.instances)
            what = f"{order.kind.replace('-', ' ')}, {count} instance{'' if count == 1 else 's'}"
    reason = order.reason if len(order.reason) <= LONGEST_REASON else f"{order.reason[: LONGEST_REASON - 3]}..."
    return LargeDecision(at=priced.at, what=what, usd_per_hour=priced.usd_per_hour, reason=reason)


def _capacity(facts: JournalFacts) -> Capacity:
    hours = facts.hours.values()
    carried_rps = sum(hour.carried_rps for hour in hours)
    return Capacity(
        hours=sum(hour.minutes for hour in hours) / 60,
        utilisation=sum(hour.asked_rps for hour in hours) / carried_rps if carried_rps else None,
        idle_hours=sum(hour.minutes for hour in hours if hour.is_idle) / 60,
        idle_usd=sum(hour.usd for hour in hours if hour.is_idle),
    )


def _hours(ledgers: Sequence[ModelLedger], until: float) -> tuple[HourSpend, ...]:
    """Spending of the last whole hours."""
    edges = hour_edges(min((ledger.began_at for ledger in ledgers), default=until), until)
    return spend_by_hour({at: bill_at(ledgers, at) for at in edges})


def _load_ahead(store: ArchiveReader, model: str, until: float) -> LoadAhead | None:
    """Load that the last tick published; None where its forecast is over or was made after the report's end."""
    published = MODEL.read(store, model)
    series = published.series if published else None
    if published is None or series is None or not series.forecast_max_rps or not series.mean_rps:
        return None
    end_at = series.forecast_start_at + len(series.forecast_max_rps) * series.unit_s
    if not series.forecast_start_at - series.unit_s <= until <= end_at:
        return None
    return LoadAhead(series=series, planned_rps=published.plan.capacity_rps if published.plan else None)


def _reconciled(lines: Sequence[DayLine], aws_usd: Mapping[date, float]) -> tuple[ReconciledDay, ...]:
    """Ledger and Cost Explorer by day. What no usage takes of a commitment bears no tag: it is left out."""
    own = {
        day: cost.total for day, cost in spend_by_day(item for item in lines if not _is_unused(item.line)).items()
    }
    return tuple(
        ReconciledDay(day=day, ledger_usd=own.get(day, 0.0), aws_usd=aws_usd.get(day))
        for day in sorted(own.keys() | aws_usd.keys())
    )


def _is_unused(line: BillLine) -> bool:
    return line.component == COMPONENT and line.item in (UNUSED, FREE_CAPACITY)


def _begins_empty(item: _Read, model: ModelReport) -> bool:
    """True where its baselines were replayed from the service's own beginning, and over little more."""
    began = item.ledger.marks[0].at
    return any(one.since < began + LATE_S and one.replayed_s < BOOTS_SHOW_S for one in model.baselines)


def _notes(
    read: Sequence[_Read], models: Sequence[ModelReport], period: Period, *, observed: bool
) -> Iterator[str]:
    for item in read:
        since, name = item.facts.since, item.served.name
        if item.unpriced:
            yield f"{name}: {unpriced_words(item.unpriced)}"
        if item.missing:
            more = f", and {len(item.missing) - 1} more" if len(item.missing) > 1 else ""
            yield f"{name}: the journal has gaps ({item.missing[0]}{more}); this report lacks them"
        if since is not None and since > period.since + JOURNAL_LATE_S:
            when = datetime.fromtimestamp(since, UTC).strftime("%-d %b %Y %H:%M")
            yield (
                f"{name}: interruptions, forecasts, decisions and idle hours are known from {when} UTC on, as far "
                "back as the journal reaches"
            )
    if any(map(_begins_empty, read, models)):
        yield (
            "replays begin where the service did, with no fleet there: what their first instances take to boot is "
            "in their figures, as in ours"
        )
    profiles = [offering.profile for item in read for offering in item.served.offerings]
    assumed, stand_ins = assumed_words(profiles), stand_in_words(profiles)
    if assumed or stand_ins:
        yield evidence_line(assumed, stand_ins)
    has_load = observed or any(model.answers.finished for model in models)
    if has_load and not any(model.baselines for model in models):
        yield (
            "no baseline was replayed for these days yet: the acting controller does it after midnight "
            "(service.report.policies), `mark report` on a machine with the settings at once"
        )

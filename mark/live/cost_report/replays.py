"""Baselines on a service's own arrivals: their cost, replayed day by day.

A day is replayed with half an hour before it, whose cost is taken off again: a fleet that stands when the day
begins is not charged for booting then. Whole days that are over are kept in the store and never replayed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mark.accounting.daily_costs import DAY_S, days_between
from mark.catalog.billing import bill_provisioned
from mark.config.policies import chosen_model, chosen_overrides, chosen_sizes
from mark.config.served import settings_of_model
from mark.config.settings import Settings
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import UNIT_S
from mark.domain.errors import MarkError, Misconfigured
from mark.live.replay_from_journal import Journalled, demand_trace, service_journal, with_counted_events
from mark.offline.experiments import make_experiment, warm_engine
from mark.report.cost.archive_reader import ArchiveReader
from mark.report.cost.read import Period
from mark.report.cost.replays import LATE_S, ReplayedDay, ReplayedPolicy, keep_replayed_days, replayed_days
from mark.report.terminal import Report, note
from mark.service_spec import ServedModel
from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from mark.store.published_status import COMMITMENTS

RUN_IN_S = 1800.0
LEAST_S = 2 * UNIT_S
"""A stretch that is shorter says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A model, the settings of its replays, what came, and the policies that are asked for."""

    served: ServedModel
    settings: Settings
    trace: Trace
    policies: tuple[str, ...]
    #: The model's part of the account's commitments.
    owned: Commitments


def replay_days(
    store: ArchiveReader, settings: Settings, period: Period, policies: Sequence[str], report: Report
) -> Mapping[str, Sequence[ReplayedDay]]:
    """The days of a period under these policies, by model; a model that cannot be replayed has none."""
    spec, known = store.spec(), COMMITMENTS.read(store)
    owned = NO_COMMITMENTS if known is None else known.commitments.share(1.0 / len(spec.models))
    found: dict[str, Sequence[ReplayedDay]] = {}
    for served in spec.models:
        try:
            own = settings_of_model(settings, served.name)
            journalled = service_journal(store, spec.name, served.name)
            own = with_counted_events(own, journalled)
        except Misconfigured as error:
            note(f"{served.name} is not replayed: {error}")
            continue
        # what an observing service's own policy would have cost is known by replay alone: Lambda is part of it
        chosen = tuple(dict.fromkeys((own.policies[0], *policies) if spec.observed else policies))
        trace = demand_trace(journalled, own.seed)
        subject = _Subject(served=served, settings=own, trace=trace, policies=chosen, owned=owned)
        found[served.name] = _model_days(store, subject, journalled, period, report)
    return found


def _model_days(
    store: ArchiveReader, subject: _Subject, journalled: Journalled, period: Period, report: Report
) -> Sequence[ReplayedDay]:
    model = subject.served.name
    kept = {item.day: item for item in replayed_days(store, model)}
    spans = [
        (day, max(start, journalled.begin_at), min(end, journalled.demand.end_at))
        for day, start, end in days_between(period.since, period.until)
        if start >= journalled.begin_at - LATE_S
    ]
    days = []
    for day, start, end in spans:
        known = kept.get(day)
        if known is None or not known.covers((start, end)):
            known = ReplayedDay(day=day, since=start, until=end, policies={})
        lacking = known.lacks(subject.policies) if end - start >= LEAST_S else ()
        if lacking:
            known = _replayed(replace(subject, policies=lacking), known, report)
            if _is_whole(start, end, journalled):
                keep_replayed_days(store, model, known)  # at once: Ctrl-C loses no day
        if known.policies:
            days.append(known)
    return days


def _is_whole(start: float, end: float, journalled: Journalled) -> bool:
    """True for all of a day that there will ever be: from its start, or the service's, to its end."""
    day = start // DAY_S * DAY_S
    return start <= max(day, journalled.begin_at) + UNIT_S and end >= day + DAY_S - UNIT_S


def _replayed(subject: _Subject, day: ReplayedDay, report: Report) -> ReplayedDay:
    """Replay the same stretch with the subject's policies beside those that it has."""
    settings, trace = subject.settings, subject.trace
    from_s, to_s = round(day.since - trace.start_at), round(day.until - trace.start_at)
    begin_s = max(0.0, from_s - RUN_IN_S)
    owned = subject.owned.active_at(day.since)
    full = _experiment(settings, trace, begin_s, to_s, owned)
    before = _experiment(settings, trace, begin_s, from_s, owned) if from_s > begin_s else None
    warm_engine(full, report)
    found, unable = dict(day.policies), list(day.unable)

    def report_share(label: str, share: float) -> None:
        report(f"{day.day}: {label}", share)

    for policy in subject.policies:
        changed = chosen_overrides(settings)
        try:
            overflows = full.bundle(policy, changed).controller.overflow is not None
            tuned = full.tuned(policy, changed, report_share)
            if tuned is not None:  # once for both replays
                changed = replace(changed, setting=tuned.trial.setting)
            ran = full.run(policy, overrides=changed, progress=report_share)
            ran_in = before.run(policy, overrides=changed) if before else None
        except MarkError as error:
            note(f"{day.day}: {policy} is left out: {error}")
            unable.append(policy)
            continue
        made = _difference(ran, ran_in, from_s - begin_s)
        provisioned_usd = _provisioned_usd(subject.served, day.until - day.since) if overflows else 0.0
        found[policy] = replace(made, serving_usd=made.serving_usd + provisioned_usd)
    return replace(day, policies=found, unable=tuple(unable))


def _provisioned_usd(served: ServedModel, seconds: float) -> float:
    """Cost of the service's provisioned Lambda environments, used or not."""
    if served.overflow is None:
        return 0.0
    return sum(line.usd for line in bill_provisioned(served.overflow, seconds))


def _experiment(settings: Settings, trace: Trace, from_s: float, to_s: float, owned: Commitments) -> Experiment:
    sizes = chosen_sizes(settings, chosen_model(settings))
    workload = Workload(trace=trace, seed=settings.seed, start_s=from_s, duration_s=to_s - from_s, sizes=sizes)
    return make_experiment(settings, workload=workload, owned=owned)


def _difference(full: RunResult, before: RunResult | None, run_in_s: float) -> ReplayedPolicy:
    """Figures after the run-in."""
    seconds, skipped = full.seconds, round(run_in_s)
    cost, less = full.cost, before.cost if before else None
    return ReplayedPolicy(
        serving_usd=max(0.0, cost.serving - (less.serving if less else 0.0)),
        overhead_usd=max(0.0, cost.overhead - (less.overhead if less else 0.0)),
        commitments_usd=cost.commitments - (less.commitments if less else 0.0),
        requests=int(seconds.arrivals[skipped:].sum()),
        missed=int(seconds.missed[skipped:].sum()),
        uses_truth=full.uses_truth,
    )

"""`mark simulate` for a service of several models: each policy replays all of them, with one bill."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mark.config.settings import Settings
from mark.offline.experiments import Lineup, line_up_all, told_present, verdict_rivals, warm_engine
from mark.offline.out_folder import JournalFolder
from mark.offline.replay_outcome import ReplayOutcome, finish_replays, tell_runs
from mark.offline.service_members import LoadOf, check_same_span, recorded_load, replay_members, service_members
from mark.policies.bundles import FLEET_PER_MODEL
from mark.policies.present import Present, parse_present
from mark.report.live.service_rehearsal import ServiceComparison, live_document, live_table
from mark.report.service.service_document import service_document
from mark.report.service.service_page import write_service_report
from mark.report.service.service_tables import models_table, policies_table
from mark.report.service.service_verdict import lead_run, service_replay_verdict
from mark.report.terminal import Report, note
from mark.simulator.experiment import Experiment
from mark.simulator.services.service_bound import service_reference_usd
from mark.simulator.services.service_replay import NOWHERE, Member, ServiceJournals
from mark.simulator.services.service_run import ServiceRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReplays:
    """Replays of a service that settings ask for, before any of them runs."""

    settings: Settings
    members: Sequence[Member]
    now: Present
    lineup: Lineup

    @classmethod
    def of(cls, settings: Settings, *, load_of: LoadOf = recorded_load, compare: bool) -> ServiceReplays:
        """The policies that every model can run. load_of, compare: as of `simulate_service`."""
        now = parse_present(settings.simulate.now)
        members = service_members(settings, load_of)
        check_same_span(members)
        lineup = _lineup(settings, [member.experiment for member in members], now, compare=compare)
        return cls(settings=settings, members=members, now=now, lineup=lineup)

    def run(
        self,
        report: Report,
        *,
        reference: bool = True,
        journals_of: Callable[[str], ServiceJournals] | None = None,
    ) -> Iterator[list[ServiceRun]]:
        """Finished runs, after each policy. reference: compute it. Raises the MarkError that ends the runs."""
        warm_engine(self.members[0].experiment, report)
        reference_usd = None
        if reference:
            report("computing the reference", 0.0)
            reference_usd = service_reference_usd(self.members)
        runs: list[ServiceRun] = []
        policies = self.lineup.policies
        for place, policy in enumerate(policies):
            told = partial(_labelled, report, f"{policy} ({place + 1} of {len(policies)})")
            journals = NOWHERE if journals_of is None else journals_of(policy)
            run, _ = replay_members(self.settings, self.members, policy, journals=journals, progress=told)
            runs.append(replace(run, reference_usd=reference_usd))
            yield runs


def simulate_service(
    settings: Settings,
    *,
    as_json: bool,
    compare: bool,
    reference: bool = True,
    load_of: LoadOf = recorded_load,
    live: ServiceComparison | None = None,
) -> None:
    """Replay all models of the service under each policy; print the service's bill, its models and the verdict.

    compare: also run what a verdict measures by. reference: compute it. load_of: the load of each model. live: the
    same load through the live service, which is told beside. What has finished is printed before an error or
    Ctrl-C ends it.
    """
    replays = ServiceReplays.of(settings, load_of=load_of, compare=compare)
    now = replays.now
    for text in replays.lineup.left_out:
        note(text)
    folder = JournalFolder(settings.out) if settings.out is not None else None
    outcome: ReplayOutcome[ServiceRun] = ReplayOutcome()

    def replay(report: Report) -> None:
        journals_of = folder.service_journals if folder else None
        for outcome.runs in replays.run(report, reference=reference, journals_of=journals_of):
            pass  # they are kept as they come

    def draw() -> Path | None:
        if folder is None:
            return None
        if folder.failure is not None:
            raise folder.failure
        command = shlex.join(["mark", *sys.argv[1:]])
        return write_service_report(folder.path, outcome.runs, command=command, now=now, live=live)

    def tell(page: Path | None) -> None:
        tell_runs(
            outcome,
            page,
            as_json=as_json,
            document=lambda: {**live_document(live), **service_document(outcome.runs, now)},
            tables=lambda: (
                *(() if live is None else (live_table(live), "")),
                policies_table(outcome.runs),
                "",
                models_table(lead_run(outcome.runs)),
            ),
            verdict=lambda: service_replay_verdict(outcome.runs, now),
        )

    finish_replays(outcome, len(replays.lineup.policies), replay=replay, draw=draw, tell=tell)


def _lineup(settings: Settings, models: Sequence[Experiment], now: Present, *, compare: bool) -> Lineup:
    """The policies that every model can run; one that the settings name must."""
    told = told_present(settings, now)
    rivals = dict.fromkeys((FLEET_PER_MODEL,) if compare else ())
    rivals |= dict.fromkeys(name for model in models for name in (verdict_rivals(model, now) if compare else told))
    return line_up_all(settings, models, tuple(rivals))


def _labelled(report: Report, label: str, doing: str, share: float) -> None:
    report(f"{label}: {doing}", share)

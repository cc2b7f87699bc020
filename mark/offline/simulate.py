"""Replays of one model, one policy after the other. After each policy its figures are kept."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mark.config.footprint import commitment_remarks
from mark.config.policies import ALL, chosen_overrides, replayed_central, usable_cache
from mark.config.settings import Settings
from mark.dispatch.central.policy import CentralPolicy
from mark.dispatch.variants.qos import QosRule
from mark.dispatch.variants.serving import VariantServing
from mark.domain.commitments.owned import Commitments
from mark.domain.errors import Misconfigured
from mark.domain.figures import plural
from mark.offline.experiments import (
    Lineup,
    learned_days,
    line_up,
    make_experiment,
    shared_changes,
    told_present,
    verdict_rivals,
    warm_engine,
)
from mark.offline.out_folder import OutFolder
from mark.offline.replay_outcome import ReplayOutcome, finish_replays, tell_runs
from mark.plugins.load import make_rule
from mark.policies.bundles import KAIROS
from mark.policies.present import Present, parse_present
from mark.policies.supply import Supply
from mark.report.formatting import percent
from mark.report.runs.comparison import (
    ComparedRun,
    OneVariant,
    accuracy_sentence,
    headline_run,
)
from mark.report.runs.run_documents import simulate_document
from mark.report.runs.run_verdict import verdict_of
from mark.report.runs.runs_table import comparison_table
from mark.report.terminal import Report, note
from mark.simulator.engine.central_plane import CentralServing
from mark.simulator.engine.compiled import compiled_central_code
from mark.simulator.engine.data_plane import NO_LAMBDA
from mark.simulator.experiment import Experiment, OpenJournal, Yardsticks
from mark.simulator.workload import Workload

TITLE = "What this traffic costs"
BOUND_EARLY = (
    "this replay rents kairos' pool but binds each request when it arrives: live it has a central queue, which "
    "--dispatch kairos replays"
)
AT_ONCE = (
    "one queue is replayed as if an idle instance had its next batch at once: a live one waits for the gateway, "
    "which matters where batches take a few milliseconds"
)
CENTRAL = (
    "requests wait in one central queue; predictions are the profiles' and instances never run out of CPU credits"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """Replays that settings ask for, before any of them runs."""

    settings: Settings
    experiment: Experiment
    serving: CentralServing | None
    now: Present
    lineup: Lineup

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        workload: Workload | None = None,
        owned: Commitments | None = None,
        compare: bool = False,
    ) -> Replays:
        """The policies that the settings name, on `workload` where one is given instead of a trace file.

        owned: commitments of the account instead of the settings' own. compare: also what a verdict measures them
        by. Misconfigured where a policy that is named cannot run.
        """
        central = replayed_central(settings)
        experiment = make_experiment(settings, workload=workload, owned=owned)
        serving = None if central is None else central_serving(experiment, central)
        now = parse_present(settings.simulate.now)
        rivals: tuple[str, ...] = ()
        if serving is None:
            rivals = verdict_rivals(experiment, now) if compare else told_present(settings, now)
        lineup = line_up(settings, experiment, rivals)
        return cls(settings=settings, experiment=experiment, serving=serving, now=now, lineup=lineup)

    def run(
        self,
        report: Report,
        *,
        tell: Callable[[str], None],
        reference: bool = True,
        open_journal: OpenJournal | None = None,
    ) -> Iterator[list[ComparedRun]]:
        """Finished runs, after each policy and once more when all of it is known.

        tell: told which policies are left out, and why. reference: compute reference and floor, too. Raises the
        MarkError that ends the runs.
        """
        for text in self.lineup.left_out:
            tell(text)
        experiment, spec = self.experiment, self.experiment.spec
        yardsticks = _yardsticks(experiment, report) if reference else Yardsticks(None, None)
        warm_engine(experiment, report)
        pays_from_rps = experiment.supply.break_even_rps(spec.footprint, spec.model)
        runs: list[ComparedRun] = []
        for policy in self.lineup.policies:
            try:
                result = experiment.run(
                    policy,
                    overrides=chosen_overrides(self.settings),
                    open_journal=open_journal,
                    progress=report,
                    central=self.serving if policy == KAIROS else None,
                )
            except Misconfigured as error:
                # such as an LSTM without torch, which shows only when it is built
                if ALL not in self.settings.policies or policy in self.settings.policies:
                    raise
                tell(f"{policy} is left out: {error}")
                continue
            result = replace(result, notes=(*run_remarks(self.settings, experiment, policy), *result.notes))
            runs.append(ComparedRun(result=result, **yardsticks._asdict(), break_even_rps=pays_from_rps))
            yield runs
        if not runs:
            raise Misconfigured("no policy could run; the notes above say why")
        _compare_with_most_accurate(self.settings, experiment, runs, report, tell)
        yield runs


def simulate_settings(
    settings: Settings,
    *,
    as_json: bool,
    workload: Workload | None = None,
    owned: Commitments | None = None,
    reference: bool = True,
    compare: bool = False,
) -> None:
    """Run the policies of `Replays.of`, and print them; reports and journals go to the settings' folder.

    Raises the MarkError that ended the runs, and typer.Exit after Ctrl-C, both after what is finished was printed.
    """
    replays = Replays.of(settings, workload=workload, owned=owned, compare=compare)
    now = replays.now
    folder = None
    if settings.out is not None:
        command = shlex.join(["mark", *sys.argv[1:]])
        folder = OutFolder(settings.out, title=TITLE, command=command, now=now)
    outcome: ReplayOutcome[ComparedRun] = ReplayOutcome()

    def replay(report: Report) -> None:
        open_journal = folder.open_journal if folder else None
        for outcome.runs in replays.run(report, tell=note, reference=reference, open_journal=open_journal):
            if folder is not None:
                folder.keep(outcome.runs)

    def tell(page: Path | None) -> None:
        tell_runs(
            outcome,
            page,
            as_json=as_json,
            document=lambda: simulate_document(outcome.runs, now),
            tables=lambda: (
                *filter(None, [accuracy_sentence(outcome.runs)]),
                comparison_table(outcome.runs),
            ),
            verdict=lambda: verdict_of(outcome.runs, now),
        )

    def draw() -> Path | None:
        if folder is None:
            return None
        page = folder.write_report(outcome.runs, ())
        if folder.failure is not None:
            raise folder.failure
        return page

    finish_replays(outcome, len(replays.lineup.policies), replay=replay, draw=draw, tell=tell)


def _yardsticks(experiment: Experiment, report: Report) -> Yardsticks:
    report("computing reference and floor", 0.0)
    return experiment.yardsticks()


def central_serving(experiment: Experiment, policy: CentralPolicy) -> CentralServing:
    """The central queue with its compiled decisions. Misconfigured where Lambda would take part.

    Also where the user's own rule cannot be made.
    """
    if experiment.bundle(KAIROS).controller.overflow is not None:
        raise Misconfigured(NO_LAMBDA)
    if policy.own is not None:  # before another policy has run for minutes
        make_rule(policy.own)
    return CentralServing(policy, compiled_central_code(usable_cache()))


def _compare_with_most_accurate(
    settings: Settings,
    experiment: Experiment,
    runs: list[ComparedRun],
    report: Report,
    tell: Callable[[str], None],
) -> None:
    """Run the headline's policy again without variants, where the settings ask for some."""
    wishes, serving = experiment.spec.variants, experiment.assembly.variants
    asked = wishes is not None and (wishes.accuracy_floor is not None or wishes.dispatch is not None)
    if not asked or serving is None or serving.dispatch.variant is not None:
        return
    lead = headline_run(runs)
    variant, alone = experiment.with_most_accurate()
    try:
        result = alone.run(
            lead.result.policy,
            overrides=chosen_overrides(settings),
            progress=lambda label, share: report(f"{label} with {variant} alone", share),
        )
    except Misconfigured as error:
        tell(f"{lead.result.policy} is not compared with {variant} alone: {error}")
        return
    place = next(number for number, run in enumerate(runs) if run is lead)
    runs[place] = replace(lead, most_accurate=OneVariant(variant=variant, result=result))


def run_remarks(settings: Settings, experiment: Experiment, policy: str) -> tuple[str, ...]:
    """Remarks on a run besides its figures."""
    own_forecaster = experiment.bundle(policy).uses_truth
    is_central = replayed_central(settings) is not None
    replaced = [
        f"{part} {value} instead of the policy's own"
        for part, value in (
            ("forecaster", None if own_forecaster else settings.forecaster),
            ("dispatch", None if is_central and policy != KAIROS else settings.dispatch),
        )
        if value is not None
    ]
    excuse = experiment.supply.overflow_excuse
    overflow = [f"Lambda: {excuse.reason}"] if excuse else []
    variants = variant_remarks(experiment.bundle(policy).variants, experiment.supply)
    learned = _learned_remarks(settings, experiment)
    tuned = (*experiment.changes(policy), *shared_changes(settings, policy, experiment))
    sizes = experiment.spec.workload.sizes
    sized = [f"requests have {sizes.mean:.4g} items on average (sizes {sizes.name})"] if sizes else []
    notes = experiment.spec.workload.notes
    owned = commitment_remarks(settings, experiment.spec.footprint.commitments, experiment.prices.names)
    bound_early = (CENTRAL if is_central else BOUND_EARLY,) if policy == KAIROS else ()
    own = (*replaced, *bound_early, *variants, *learned, *tuned, *event_remarks(experiment))
    return (*own, *overflow, *sized, *notes, *owned, *experiment.supply.warnings)


def event_remarks(experiment: Experiment) -> tuple[str, ...]:
    """Announced events that take place before the trace begins or after the replay has ended."""
    clock_at, end_s = experiment.spec.clock_at, experiment.spec.workload.end_s
    outside = [event for event in experiment.spec.events if not event.touches(clock_at, clock_at + end_s)]
    return tuple(
        f"the event {event.name} changes nothing: it begins at {_instant(event.at, clock_at)}, and the trace goes "
        f"from {_instant(clock_at, clock_at)} to {_instant(clock_at + end_s, clock_at)}"
        for event in outside
    )


def _instant(at: float, clock_at: float) -> str:
    """Words for an instant: a date of UTC, or the second of a trace without dates."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" if clock_at else f"second {at:.0f}"


def _learned_remarks(settings: Settings, experiment: Experiment) -> tuple[str, ...]:
    """A remark where a learned policy is judged on days that it was trained on."""
    known = learned_days(settings, experiment)
    if not known:
        return ()
    on_days = f"was trained on {plural(known, 'day')} of this replay"
    return (f"the policy of {QosRule.LEARNED} {on_days}: other days say what it is worth",)


def variant_remarks(serving: VariantServing | None, supply: Supply) -> tuple[str, ...]:
    """How variants were chosen, and what plans counted on; nothing for a model without variants."""
    if serving is None:
        return ()
    counted = supply.offerings[0].profile
    floor = serving.table.variants[serving.floor]
    above = f", none below {percent(floor.accuracy, digits=4)} ({floor.name})" if serving.floor else ""
    plans = f"plans count on {counted.variant} ({percent(counted.accuracy or 0.0, digits=4)} right)"
    of = "from the one queue of all" if serving.dispatch.is_central else "from its queue"
    chosen = f"variants: by {serving.dispatch} an idle instance takes a batch {of}{above}; {plans}"
    return (chosen, AT_ONCE) if serving.dispatch.is_central else (chosen,)

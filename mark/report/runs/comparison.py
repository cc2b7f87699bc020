"""The runs side by side: which one the others are measured by, what each is called, and the headline in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mark.domain.errors import Misconfigured
from mark.domain.models.profile import evidence_line
from mark.report.formatting import (
    MISSING,
    format_duration,
    format_fallbacks,
    milliseconds,
    percent,
    usd,
)
from mark.report.runs.rivals import keeps_objective
from mark.simulator.results import RunResult

DAY_S = 86_400.0
SHORT_S = 6 * 3600.0
"""A replay that is shorter has seen no day's shape."""
HEADLINE_POLICIES = ("hedged", "mark")
"""What the others are compared with: the first of them that ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneVariant:
    """The same run with one variant alone, the most accurate that keeps the objective: what accuracy costs."""

    variant: str
    result: RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """A run and its load's yardsticks: what the best fleet with perfect knowledge of it costs (None: not solved).

    `reference_usd` serves every request; `floor_usd` may miss what the objective allows and lies below every
    run that keeps it. Both leave the overhead out, so they compare with the cost of serving;
    `reference_total_usd` compares with the total.
    """

    result: RunResult
    reference_usd: float | None = None
    floor_usd: float | None = None
    reference_total_usd: float | None = None
    #: Constant load, requests/s, from which MArk costs less than Lambda alone; None where none does.
    break_even_rps: float | None = None
    #: For the headline's run where variants were asked for; None elsewhere.
    most_accurate: OneVariant | None = None

    @property
    def cost_over_reference(self) -> float | None:
        """Cost of serving / reference; None without a reference above 0."""
        return cost_over(self.result.cost.serving, self.reference_usd)

    @property
    def cost_over_floor(self) -> float | None:
        """Cost of serving / floor; None where the floor says nothing of the run."""
        result = self.result
        says = floor_says(keeps=self.keeps_objective, duration_s=result.duration_s)
        return cost_over(result.cost.serving, self.floor_usd) if says else None

    @property
    def finished(self) -> int:
        """Requests that were answered or shed."""
        return self.result.served.total - self.result.served.in_flight

    @property
    def keeps_objective(self) -> bool:
        """At least the target share of the requests was answered in time."""
        return keeps_objective(self.result)


def floor_says(*, keeps: bool, duration_s: float) -> bool:
    """True where the floor says anything of a run that keeps its objective, or not, and lasted so long.

    One that misses its objective may cost less. Of a part of a day most could be served by burstable standbys in
    the credited starts of the whole day, which tells nothing of the run.
    """
    return keeps and duration_s >= DAY_S


def cost_over(serving_usd: float, yardstick_usd: float | None) -> float | None:
    """Cost of serving over a yardstick; None where that says nothing: it is not there, or 0."""
    if yardstick_usd is None or not math.isfinite(yardstick_usd) or yardstick_usd <= 0:
        return None
    return serving_usd / yardstick_usd


def headline_run(runs: Sequence[ComparedRun]) -> ComparedRun:
    """The first run of `hedged`, else of `mark`, else the cheapest (ties by name); Misconfigured when none ran."""
    if not runs:
        raise Misconfigured("nothing to report: no run finished; name at least one policy")
    for policy in HEADLINE_POLICIES:
        for run in runs:
            if run.result.policy == policy:
                return run
    return min(runs, key=lambda run: (run.result.cost.total, run.result.policy))


def cost_ratio(run: ComparedRun, lead: ComparedRun) -> float | None:
    """Total cost of a run over that of the headline's; None when that cost nothing."""
    base = lead.result.cost.total
    return run.result.cost.total / base if base > 0 else None


def format_attainment(run: ComparedRun, *, digits: int) -> str:
    """The share that was answered in time; `-` where nobody asked."""
    return percent(run.result.attained, digits=digits) if run.finished else MISSING


def format_accuracy(run: ComparedRun) -> str:
    """Mean accuracy of the variants that answered; empty for a model without variants."""
    return "" if run.result.accuracy is None else percent(run.result.accuracy, digits=2)


def format_quality(run: ComparedRun) -> str:
    """Mean of accuracy times the utility of the delay, 0 to 1; empty for a model without variants."""
    return "" if run.result.quality is None else f"{run.result.quality:.4f}"


def format_latency(run: ComparedRun) -> tuple[str, str, str]:
    """Median, 95th and 99th percentile in milliseconds; `-` where nobody was answered."""
    if run.finished == run.result.served.shed:
        return MISSING, MISSING, MISSING
    found = run.result.latency
    return milliseconds(found.p50_s), milliseconds(found.p95_s), milliseconds(found.p99_s)


def run_labels(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """One name a run: its policy, and behind it what else tells the runs apart (market, model, trace, seed)."""
    results = [run.result for run in runs]
    aspects = {
        "market": [r.market for r in results],
        "model": [r.model for r in results],
        "trace": [r.trace for r in results],
        "seed": [f"seed {r.seed}" for r in results],
    }
    differing = [values for values in aspects.values() if len(set(values)) > 1]
    names = [" ".join([r.policy, *(f"({values[i]})" for values in differing)]) for i, r in enumerate(results)]
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return tuple(unique)


def outcomes(runs: Sequence[ComparedRun]) -> tuple[tuple[str, ComparedRun], ...]:
    """Each outcome once, with the names of all runs that had it: two policies may rent the same instance."""
    found: dict[tuple[object, ...], tuple[list[str], ComparedRun]] = {}
    lead = headline_run(runs)
    for label, run in zip(run_labels(runs), runs, strict=True):
        labels, first = found.setdefault(_outcome(run.result), ([], run))
        labels.append(label)
        if run is lead and first is not lead:
            found[_outcome(run.result)] = labels, run
    return tuple((", ".join(labels), run) for labels, run in found.values())


def _outcome(result: RunResult) -> tuple[object, ...]:
    """Everything that a reader sees of a run but its name."""
    seen = (result.model, result.trace, result.market, result.seed, result.cost, result.served, result.attained)
    times = (result.latency.p50_s, result.latency.p95_s, result.latency.p99_s)
    return (*seen, *times, result.launches, result.interruptions, result.accuracy, result.quality)


def mean_rps(result: RunResult) -> float | None:
    """Mean load of a run at the trace's own speed, requests/s; None for a run of no length."""
    return result.requests * result.speed / result.duration_s if result.duration_s > 0 else None


def accuracy_sentence(runs: Sequence[ComparedRun]) -> str:
    """Cost of the headline's run beside that of the most accurate variant alone; empty where that did not run."""
    run = headline_run(runs)
    alone = run.most_accurate
    if alone is None or run.result.accuracy is None or alone.result.accuracy is None:
        return ""
    ours, theirs = run.result, alone.result
    points = 100 * (alone.result.accuracy - run.result.accuracy)
    other = ComparedRun(result=theirs)
    sentence = (
        f"With its variants {ours.policy} answered {format_accuracy(run)} right for {usd(ours.cost.total)} USD; "
        f"with {alone.variant} alone it would have answered {format_accuracy(other)} right, "
        f"{format_attainment(other, digits=1)} in time, for {usd(theirs.cost.total)} USD"
    )
    if theirs.cost.total <= 0:
        return f"{sentence}."
    saved = round(100 * (1 - ours.cost.total / theirs.cost.total))
    accuracy = f"{abs(points):.2f} points of accuracy {'less' if points >= 0 else 'more'}"
    cost = f"{abs(saved)} % {'less' if saved > 0 else 'more'} cost" if saved else "the same cost"
    return f"{sentence}: {accuracy}, {cost}."


def comparison_notes(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Notes on the figures: the sources of profiles, and the notes of the runs.

    A note that holds for all runs stands once, another behind the name of its run.
    """
    notes = [
        evidence_line(
            (name for run in runs for name in run.result.assumed_profiles),
            (name for run in runs for name in run.result.stand_in_profiles),
        )
    ]
    owners: dict[str, list[str]] = {}
    for label, run in zip(run_labels(runs), runs, strict=True):
        for note in dict.fromkeys((*run.result.notes, *_stood_in(run.result))):
            owners.setdefault(note, []).append(label)
    shortest_s = min((run.result.duration_s for run in runs), default=DAY_S)
    if shortest_s < SHORT_S:
        notes.append(
            f"a month here is {format_duration(shortest_s)} of load, over and over; replay a day to be surer"
        )
    for note, labels in owners.items():
        notes.append(note if len(labels) == len(runs) else f"{', '.join(labels)}: {note}")
    return tuple(notes)


def _stood_in(result: RunResult) -> tuple[str, ...]:
    """A note where the forecaster failed."""
    if not result.fallback_forecasts:
        return ()
    return (f"the forecaster failed: {format_fallbacks(result.fallback_forecasts, result.forecasts)}",)

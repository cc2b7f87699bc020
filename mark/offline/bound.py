"""Reference and floor of a trace, and what they mean."""

from __future__ import annotations

from typing import TypedDict

from mark.config.settings import Settings
from mark.offline.experiments import make_experiment
from mark.report.formatting import MISSING, format_count, format_duration, percent, usd
from mark.report.terminal import Report, note, progress, show, show_json
from mark.simulator.experiment import Experiment


def bound_settings(settings: Settings, *, as_json: bool) -> None:
    """Compute and print both."""
    experiment = make_experiment(settings)
    with progress() as report:
        document = bound_of(experiment, report)
    if as_json:
        show_json(document)
        return
    slo = experiment.spec.slo
    within = f"within {format_duration(slo.latency_s)}"
    amounts = (document["reference_usd"], document["floor_usd"], document["reference_total_usd"])
    reference, floor, total = map(format_cost, amounts)
    show(
        f"{document['trace']}: {format_count(document['requests'])} requests in "
        f"{format_duration(document['duration_s'])}, {document['model']}, {document['market']}",
        f"reference {reference}: the least that serves every request {within}, with the trace known in advance, "
        "without queueing and standbys",
        f"its whole bill {total}: with disks, addresses and the least overhead; nothing crosses between zones",
        f"floor {floor}: the least that serves {percent(slo.target)} of them {within}, with any standby",
    )
    if document["reference_usd"] is None:
        show("There is no reference: without Lambda in time no fleet can change fast enough to serve all of them.")
    for text in document["assumed_profiles"]:
        show(f"assumed: {text}")
    for text in document["notes"]:
        note(text)
    for text in document["stand_in_profiles"]:
        show(f"stand-in: {text}")


class TargetObject(TypedDict):
    """An objective: the share `target` of the requests within a latency."""

    latency_ms: float
    #: Share that must be in time.
    target: float


class BoundDocument(TypedDict):
    """The document of `mark bound --json` (docs/json.md)."""

    trace: str
    model: str
    market: str
    world: str
    seed: int
    requests: int
    #: Over how long.
    duration_s: float
    slo: TargetObject
    #: The reference; null where no fleet can serve every request in time.
    reference_usd: float | None
    #: The floor.
    floor_usd: float | None
    #: The reference with its disks, its addresses and the least overhead.
    reference_total_usd: float | None
    #: What may be rented.
    offerings: list[str]
    #: Profiles that nobody measured.
    assumed_profiles: list[str]
    #: What was filled, cut or drawn of the trace.
    notes: list[str]
    #: Profiles that were measured on another machine than their type.
    stand_in_profiles: list[str]


def bound_of(experiment: Experiment, report: Report) -> BoundDocument:
    """Reference and floor of an experiment's load: the document of `mark bound --json` (docs/json.md)."""
    report("computing reference and floor", 0.0)
    yardsticks, spec = experiment.yardsticks(), experiment.spec
    start_s, end_s = spec.workload.whole_seconds
    return {
        "trace": spec.workload.trace.name,
        "model": spec.model.name,
        "market": spec.market.value,
        "world": str(spec.world.name),
        "seed": spec.workload.seed,
        "requests": int(spec.workload.second_counts(start_s, end_s).sum()),
        "duration_s": end_s - start_s,
        "slo": {"latency_ms": round(spec.slo.latency_s * 1000, 9), "target": spec.slo.target},
        "reference_usd": yardsticks.reference_usd,
        "floor_usd": yardsticks.floor_usd,
        "reference_total_usd": yardsticks.reference_total_usd,
        "offerings": [offering.name for offering in experiment.supply.offerings],
        "assumed_profiles": list(experiment.supply.assumed),
        "notes": list(spec.workload.notes),
        "stand_in_profiles": list(experiment.supply.stand_ins),
    }


def format_cost(amount: float | None) -> str:
    """`12.30 USD`."""
    return MISSING if amount is None else f"{usd(amount)} USD"

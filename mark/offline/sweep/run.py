"""A sweep: a grid of settings over traces, in parallel, kept as it goes, and compared at its end.

Everything is checked before anything runs. Then each replay, and the yardsticks of each load once, is a job of an
engine (engines.py); its result is written under a key of all that decides it, so the same command goes
on where it stopped, and a larger grid takes over what a smaller one has computed.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import evidence_line
from mark.offline.experiments import warm_engine
from mark.offline.sweep.cells import Cell, SweepLayout, lay_out
from mark.offline.sweep.engines import SweepEngine
from mark.offline.sweep.folder import Document, SweepFolder
from mark.offline.sweep.grid import Axis, Combination, combinations
from mark.offline.sweep.job import SweepJob
from mark.offline.sweep.progress import sweep_progress
from mark.offline.sweep.served import settings_by_model, settings_served
from mark.policies.bundles import PACKED
from mark.report.runs.comparison import cost_over, floor_says
from mark.report.sweep.document import sweep_document
from mark.report.sweep.pareto import ParetoRow, SweptModel, SweptRun, format_value, pareto_rows
from mark.report.sweep.sweep_page import DOCUMENT_NAME, PAGE_NAME, render_sweep
from mark.report.sweep.sweep_table import pareto_tables
from mark.report.terminal import INTERRUPTED, note, progress, show, show_json
from mark.simulator.experiment import Yardsticks

"""Exit status after Ctrl-C: 128 + SIGINT."""
SOME_FAILED = 1
"""Exit status where a replay failed and the others are done."""


@dataclass(slots=True)
class SweepOutcome:
    """Results by key, and the failures of jobs by key."""

    results: dict[str, Document] = field(default_factory=dict)
    failures: dict[str, tuple[SweepJob, str]] = field(default_factory=dict)
    interrupted: bool = False


def sweep_grid(config: Path | None, axes: Sequence[Axis], *, engine: SweepEngine, as_json: bool) -> None:
    """Run the grid and print its fronts. typer.Exit where a replay failed, and after Ctrl-C.

    Misconfigured, before anything runs, where a combination cannot run; or when a result cannot be written.
    """
    points = [replace(point, settings=settings_served(point.settings)) for point in combinations(config, axes)]
    out = _out(points)
    with progress() as report:
        layout = lay_out(points, report)
    folder = SweepFolder(out)
    for text in layout.left_out:
        note(text)
    outcome = _run(layout, folder, engine)
    rows = pareto_rows(_runs(layout, outcome), len(layout.seeds))
    failed = [{"label": job.label, "reason": reason} for job, reason in outcome.failures.values()]
    document = sweep_document(rows, cells=_cells(layout, outcome), failed=failed)
    if not outcome.interrupted:
        folder.write(DOCUMENT_NAME, json_text(document, indent=2) + "\n")
        folder.write(PAGE_NAME, _page(points, layout, outcome, rows))
    if as_json:
        show_json(document)
    else:
        _print(rows, layout, outcome, folder)
    if outcome.interrupted:
        done = sum(cell.job.key in outcome.results for cell in layout.cells)
        note(f"interrupted: {done} of {len(layout.cells)} replays finished; the same command goes on from there")
        raise typer.Exit(INTERRUPTED)
    if failed:
        note(f"{len(failed)} of {len(layout.jobs)} jobs failed; the same command tries them again")
        raise typer.Exit(SOME_FAILED)


def _out(points: Sequence[Combination]) -> Path:
    out = points[0].settings.out
    if out is None:
        raise Misconfigured("name a folder with --out: what is finished is kept there")
    return out


def _run(layout: SweepLayout, folder: SweepFolder, engine: SweepEngine) -> SweepOutcome:
    jobs = layout.jobs
    outcome = SweepOutcome(results=folder.kept(jobs))
    todo = [job for job in jobs if job.key not in outcome.results]
    if len(todo) < len(jobs):
        note(f"{len(jobs) - len(todo)} of {len(jobs)} replays and yardsticks are there already")
    if not todo:
        return outcome
    assert layout.experiment is not None
    try:
        with progress() as report:  # once here, or every worker would compile it
            warm_engine(layout.experiment, report)
        with (
            sweep_progress(len(jobs) - len(todo), len(jobs)) as report_finished,
            closing(engine.run(todo, layout.loads)) as stream,
        ):
            for finished in stream:
                if finished.document is None:
                    outcome.failures[finished.job.key] = finished.job, finished.failure or "no reason given"
                else:
                    folder.keep(finished)
                    outcome.results[finished.job.key] = finished.document
                report_finished(finished)
    except KeyboardInterrupt:
        outcome.interrupted = True
    return outcome


def _cells(layout: SweepLayout, outcome: SweepOutcome) -> list[dict[str, Any]]:
    """The document of every finished replay, with the yardsticks of its load and where it belongs."""
    found = []
    for cell in layout.cells:
        result = outcome.results.get(cell.job.key)
        if result is None:
            continue
        known = outcome.results.get(cell.yardsticks.key) or Yardsticks(None, None)._asdict()
        serving_usd, attained = result["cost_usd"]["serving"], result["slo"]["attained"]
        keeps = attained is not None and attained >= cell.target
        proven = "models" not in result or result["policy"] not in PACKED  # of whole instances, not of pods
        says = proven and floor_says(keeps=keeps, duration_s=result["duration_s"])
        over = {
            "cost_over_reference": cost_over(serving_usd, known["reference_usd"]),
            "cost_over_floor": cost_over(serving_usd, known["floor_usd"]) if says else None,
        }
        placed = {"group": cell.group, "settings": dict(cell.settings)}
        found.append({**placed, **result, **known, **over})
    return found


def _runs(layout: SweepLayout, outcome: SweepOutcome) -> list[SweptRun]:
    able: list[Cell] = [cell for cell in layout.cells if cell.job.key in outcome.results]
    return [
        SweptRun(
            group=cell.group,
            policy=document["policy"],
            settings=cell.settings,
            seed=cell.seed,
            total_usd=document["cost_usd"]["total"],
            serving_usd=document["cost_usd"]["serving"],
            attained=document["slo"]["attained"],
            target=cell.target,
            cost_over_reference=document["cost_over_reference"],
            cost_over_floor=document["cost_over_floor"],
            accuracy=document["accuracy"],
            uses_truth=cell.uses_truth,
            forecasts=document["forecasts"],
            fallback_forecasts=document["stood_in"],
            models=tuple(_model(one) for one in document.get("models", ())),
        )
        for cell, document in zip(able, _cells(layout, outcome), strict=True)
    ]


def _model(document: Mapping[str, Any]) -> SweptModel:
    """One model of a service's replay."""
    slo = document["slo"]
    return SweptModel(
        model=document["model"],
        total_usd=document["cost_usd"]["total"],
        attained=slo["attained"],
        target=slo["target"],
    )


def _print(rows: Sequence[ParetoRow], layout: SweepLayout, outcome: SweepOutcome, folder: SweepFolder) -> None:
    for heading, table in pareto_tables(rows):
        show(heading)
        show(table)
        show("")
    for text in _notes(layout, outcome):
        show(f"- {text}")
    for job, reason in outcome.failures.values():
        show(f"failed: {job.label}: {reason}")
    if not outcome.interrupted:
        show(f"report: {folder.path / PAGE_NAME}")


def _notes(layout: SweepLayout, outcome: SweepOutcome) -> list[str]:
    """Notes on the replays: the sources of their profiles."""
    found = [outcome.results.get(cell.job.key) for cell in layout.cells]
    documents = [document for document in found if document]
    assumed = [name for document in documents for name in document["assumed_profiles"]]
    stand_ins = [name for document in documents for name in document.get("stand_in_profiles", ())]
    return [evidence_line(assumed, stand_ins)]


def _page(
    points: Sequence[Combination], layout: SweepLayout, outcome: SweepOutcome, rows: Sequence[ParetoRow]
) -> str:
    swept: dict[str, list[str]] = {}
    for point in points:
        for key, value in point.swept.items():
            swept.setdefault(key, []).append(format_value(value))
    facts = [(key, ", ".join(dict.fromkeys(values))) for key, values in swept.items()]
    models = dict.fromkeys(str(own.model) for point in points for own in settings_by_model(point.settings))
    facts = [("Model", ", ".join(models)), ("Replays", f"{len(layout.cells):,}"), *facts]
    return render_sweep(
        rows,
        facts=facts,
        notes=[*_notes(layout, outcome), f"The notes of single replays stand in {DOCUMENT_NAME}."],
        failed=[f"{job.label}: {reason}" for job, reason in outcome.failures.values()],
        command=shlex.join(["mark", *sys.argv[1:]]),
    )

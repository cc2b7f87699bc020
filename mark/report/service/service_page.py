"""The page of a service's replays: the verdict, a row a policy, a row a model of the one that leads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mark.policies.present import SAGEMAKER, Present
from mark.report.files import write_json, write_whole
from mark.report.formatting import compared_words, monthly_usd, unbroken, usd
from mark.report.html import make_environment, trusted
from mark.report.live.service_rehearsal import ServiceComparison, live_document, live_rows
from mark.report.page import DOCUMENT_NAME, REPORT_NAME
from mark.report.service.service_document import service_document
from mark.report.service.service_tables import (
    above_reference,
    around_sentence,
    by_money,
    instance_cells,
    model_cells,
)
from mark.report.service.service_verdict import lead_run, service_replay_verdict, usd_per_month
from mark.simulator.services.service_run import ServiceRun

TITLE = "Replay of a service"
MOST_INSTANCES = 30
"""Rows of shared instances, the dearest; one more has the rest."""


def render_service_report(
    runs: Sequence[ServiceRun], *, command: str, now: Present = SAGEMAKER, live: ServiceComparison | None = None
) -> str:
    """The page as text; there is one run at least. live: the live service with the same load."""
    # matplotlib takes a second to import and only a page needs it
    from mark.report.figures import wide_and_narrow  # noqa: PLC0415
    from mark.report.service import placement_plot  # noqa: PLC0415

    lead = lead_run(runs)
    dearest = sorted(lead.shared, key=lambda one: (-one.usd, one.name))
    return (
        make_environment(unbroken=unbroken)
        .get_template("service.html.j2")
        .render(
            _compared(runs, now),
            title=TITLE,
            models=[(model_cells(lead, model), model.keeps_objective) for model in by_money(lead)],
            around=around_sentence(lead),
            live=() if live is None else live_rows(live),
            apart=live,
            placements=trusted(
                wide_and_narrow(
                    partial(placement_plot.placement_figure, lead.shared, lead.duration_s), "placements"
                )
            )
            if lead.shared
            else "",
            unpictured=len(lead.shared) - len(placement_plot.pictured(lead.shared)),
            shared=[instance_cells(one) for one in dearest[:MOST_INSTANCES]],
            further=len(dearest[MOST_INSTANCES:]),
            further_usd=usd(sum(one.usd for one in dearest[MOST_INSTANCES:])),
            command=command,
        )
    )


def render_service_notebook(runs: Sequence[ServiceRun], now: Present = SAGEMAKER, *, drawn: bool = False) -> str:
    """Verdict, table and notes as a part of another page, such as a notebook, whose style it leaves alone.

    drawn: what each policy cost, by model, as a figure instead.
    """
    figures = []
    if drawn:
        # matplotlib takes a second to import and only a figure needs it
        from mark.report.figures import wide_and_narrow  # noqa: PLC0415
        from mark.report.service.cost_plot import service_cost_figure  # noqa: PLC0415

        figures = [("", trusted(wide_and_narrow(partial(service_cost_figure, runs), "service-cost")))]
    template = make_environment(unbroken=unbroken).get_template("notebook.html.j2")
    return template.render(
        _compared(runs, now), table="service_table.html.j2", bought="", changes_at="", figures=figures
    )


def _compared(runs: Sequence[ServiceRun], now: Present) -> dict[str, Any]:
    """The verdict, the table's rows and the notes."""
    lead, verdict = lead_run(runs), service_replay_verdict(runs, now)
    best = None if verdict.best is None else verdict.best.policy
    return {
        "headline": verdict.parts[0],
        "others": verdict.parts[1],
        "how": verdict.how,
        "lead": lead.policy,
        "policies": [_policy(run, lead, is_best=run.policy == best) for run in runs],
        "notes": tuple(dict.fromkeys(f"{one.model}: {text}" for one in lead.models for text in one.notes)),
    }


def write_service_report(
    out: Path,
    runs: Sequence[ServiceRun],
    *,
    command: str,
    now: Present = SAGEMAKER,
    live: ServiceComparison | None = None,
) -> Path:
    """Write `runs.json`, then `report.html`; the page's path. Misconfigured where the folder cannot be written."""
    write_json(out / DOCUMENT_NAME, {**live_document(live), **service_document(runs, now)})
    write_whole(out / REPORT_NAME, render_service_report(runs, command=command, now=now, live=live))
    return out / REPORT_NAME


def _policy(run: ServiceRun, lead: ServiceRun, *, is_best: bool) -> dict[str, object]:
    ratio = run.cost.total / lead.cost.total if lead.cost.total > 0 else None
    return {
        "name": run.policy,
        "is_best": is_best,
        "month": monthly_usd(usd_per_month(run)),
        "times": "" if run is lead else compared_words(ratio),
        "above": above_reference(run),
        "kept": f"{sum(model.keeps_objective for model in run.models)} of {len(run.models)}",
        "keeps": run.keeps_objectives,
        "instances": f"{run.instances_rented:.1f}",
    }

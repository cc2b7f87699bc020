"""A service's replays in a terminal: a row a policy, then a row a model of the one that leads."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from mark.report.formatting import (
    MISSING,
    compared_words,
    format_duration,
    format_rps,
    milliseconds,
    monthly_usd,
    over_yardstick,
    percent,
    served_percent,
    usd,
    usd_per_month_words,
)
from mark.report.runs.comparison import cost_over
from mark.report.runs.rivals import a_month
from mark.report.service.service_verdict import lead_run, usd_per_month
from mark.report.tables import figures, make_table, texts
from mark.simulator.services.service_run import ModelRun, ServiceRun
from mark.simulator.services.shared_instances import SharedInstance

MOST_NAMED = 3
"""Models of a shared instance that its row names, where it has two more than that."""
LEAST_SHOWN = 0.05
"""Fewer instances are 0.0 in a table."""


def policies_table(runs: Sequence[ServiceRun]) -> Table:
    """A row a policy: the whole service's cost, the models that keep their objectives, the instances rented."""
    lead = lead_run(runs)
    columns = [
        *texts("policy"),
        *figures("USD a\nmonth", f"vs\n{lead.policy}", "models\nin time", "instances\nrented", "above\nref."),
    ]
    table = make_table(columns, gap=2)
    for run in runs:
        kept = sum(model.keeps_objective for model in run.models)
        ratio = run.cost.total / lead.cost.total if lead.cost.total > 0 else None
        table.add_row(
            Text(run.policy, style="bold" if run is lead else ""),
            monthly_usd(usd_per_month(run)),
            "" if run is lead else compared_words(ratio),
            Text(f"{kept} of {len(run.models)}", style="" if run.keeps_objectives else "bold red"),
            f"{run.instances_rented:.1f}",
            above_reference(run),
        )
    return table


def above_reference(run: ServiceRun) -> str:
    """By how much serving costs more than the reference."""
    return over_yardstick(cost_over(run.cost.serving, run.reference_usd))


def models_table(run: ServiceRun) -> Table:
    """A row a model, the dearest first, with its part of shared instances and without the overhead of all."""
    served = "inst/stby/\nLambda/shed %"
    found = figures("USD a\nmonth", "requests/s", "in time", "objective", "p99\nms", served, "instances\nrented")
    columns = [*texts(f"model ({run.policy})"), *found]
    table = make_table(columns, gap=2, notes=(around_sentence(run),))
    for model in by_money(run):
        table.add_row(*model_cells(run, model))
    return table


def by_money(run: ServiceRun) -> tuple[ModelRun, ...]:
    """The models, the dearest first."""
    return tuple(sorted(run.models, key=lambda model: (-usd_of(model), model.model)))


def usd_of(model: ModelRun) -> float:
    """What it costs, with its part of the rent of shared instances."""
    return model.cost.total + model.shared_usd


def model_cells(run: ServiceRun, model: ModelRun) -> tuple[str, ...]:
    """The cells of a model's row."""
    attained = MISSING if model.attained is None else percent(model.attained, digits=2)
    if model.attained is not None and not model.is_sure:
        attained = f"{attained} of {model.served.total}"
    return (
        model.model,
        monthly_usd(a_month(usd_of(model), run.duration_s)),
        format_rps(model.mean_rps),
        attained if model.keeps_objective else f"{attained} MISSED",
        f"{percent(model.slo.target)} in {format_duration(model.slo.judged_s)}",
        MISSING if model.p99_s is None else milliseconds(model.p99_s),
        "/".join(f"{share:.0f}" for share in served_percent(model.served)),
        _instances(model),
    )


def instance_cells(instance: SharedInstance) -> tuple[str, ...]:
    """The cells of a shared instance's row."""
    models = sorted({stay.model for stay in instance.stays})
    more = f" and {len(models) - MOST_NAMED} more" if len(models) > MOST_NAMED + 1 else ""
    named = models[:MOST_NAMED] if more else models
    return (
        instance.name,
        instance.offering,
        f"{instance.hours:.1f}",
        usd(instance.usd),
        percent(instance.busy, digits=0),
        f"{', '.join(named)}{more}" or MISSING,
    )


def _instances(model: ModelRun) -> str:
    """`0.3 + shared`."""
    own = f"{model.instances:.1f}"
    if not model.on_shared:
        return own
    return "shared" if model.instances < LEAST_SHOWN else f"{own} + shared"


def around_sentence(run: ServiceRun) -> str:
    """The parts of the total that no model's row has, and the length that stands for a month."""
    is_divided = any(model.shared_usd for model in run.models)
    shared = f"{'what no model used of ' if is_divided else ''}{run.hosts:.1f} shared instances", run.idle_usd
    owned = ("commitments less what they cover", run.commitments_usd)
    parts = (
        *((shared,) if run.idle_usd else ()),
        ("overhead that all models share", run.around_usd),
        *((owned,) if run.commitments_usd else ()),
    )
    left = "; ".join(f"{name}, {usd_per_month_words(a_month(usd, run.duration_s))} a month" for name, usd in parts)
    return f"Not in these rows: {left}. A month is 730 h like the {format_duration(run.duration_s)} replayed."

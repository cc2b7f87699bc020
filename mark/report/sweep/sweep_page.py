"""A sweep as one page that needs nothing beside it, in the style of the report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mark.report.formatting import MISSING, over_yardstick, usd
from mark.report.html import make_environment, trusted
from mark.report.sweep.pareto import ParetoRow, by_group, format_value, row_label, short_names, swept_keys
from mark.report.sweep.sweep_table import (
    format_accuracy,
    format_attainment,
    format_mean,
    format_range,
    format_share,
    group_headline,
    model_cells,
    remark,
    told_row,
)

PAGE_NAME = "sweep.html"
DOCUMENT_NAME = "sweep.json"


def render_sweep(
    rows: Sequence[ParetoRow],
    *,
    facts: Sequence[tuple[str, str]],
    notes: Sequence[str],
    failed: Sequence[str],
    command: str,
) -> str:
    """The page as text. `facts` say what was swept, `notes` what a reader must know, `failed` what did not run."""
    # matplotlib takes a second to import and only a page needs it
    from mark.report.figures import wide_and_narrow  # noqa: PLC0415
    from mark.report.sweep.plot import pareto_figure  # noqa: PLC0415

    groups = by_group(rows)
    policies = list(dict.fromkeys(row.policy for row in rows))
    sections = [
        {
            "name": group,
            "headline": group_headline(members),
            "keys": list(short_names(swept_keys(members)).values()),
            "rows": [_cells(row, swept_keys(members)) for row in members],
            "has_variants": any(row.accuracy is not None for row in members),
            "remarks": any(remark(row) for row in members),
            "models": [(model.model, *model_cells(model)) for model in told_row(members).models],
            "models_of": row_label(told_row(members)),
            "figure": trusted(
                wide_and_narrow(partial(pareto_figure, members, policies=policies), f"front{number}")
            ),
        }
        for number, (group, members) in enumerate(groups.items())
    ]
    template = make_environment().get_template("pareto.html.j2")
    return template.render(
        title="What the settings cost, and what they keep",
        headline=page_headline(rows),
        facts=facts,
        sections=sections,
        notes=notes,
        failed=failed,
        command=command,
    )


def page_headline(rows: Sequence[ParetoRow]) -> str:
    """The outcome of all groups in a sentence."""
    groups = by_group(rows)
    if len(groups) == 1:
        return group_headline(rows)
    on_front = sum(row.front > 0 for row in rows)
    return f"{len(groups)} fronts: {on_front} of {len(rows)} choices of settings are not beaten on their load."


def _cells(row: ParetoRow, keys: Sequence[str]) -> dict[str, object]:
    settings = dict(row.settings)
    return {
        "front": row.front,
        "policy": row.policy,
        "settings": [format_value(settings[key]) if key in settings else MISSING for key in keys],
        "total": (format_mean(row.total_usd, usd), format_range(row.total_usd, usd)),
        "serving": (format_mean(row.serving_usd, usd), format_range(row.serving_usd, usd)),
        "attained": (format_attainment(row), format_range(row.attained, format_share)),
        "keeps": row.keeps_objective,
        "accuracy": (format_accuracy(row), format_range(row.accuracy, format_share)),
        "over_reference": (
            format_mean(row.cost_over_reference, over_yardstick),
            format_range(row.cost_over_reference, over_yardstick),
        ),
        "over_floor": (
            format_mean(row.cost_over_floor, over_yardstick) if row.cost_over_floor else "",
            format_range(row.cost_over_floor, over_yardstick),
        ),
        "remark": remark(row),
    }

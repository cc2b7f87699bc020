"""The picture of what a service cost: a bar a policy, by model."""

from __future__ import annotations

from collections.abc import Sequence

from mark.report.cost_bars import ROW_IN, Part, draw_cost_bars
from mark.report.figures import (
    OTHER,
    SERIES,
    WIDTH_IN,
    add_legend,
    drawing_rules,
    inline_svg,
    new_figure,
)
from mark.report.service.service_tables import by_money, usd_of
from mark.report.service.service_verdict import lead_run
from mark.simulator.services.service_run import ServiceRun

MOST_COLOURED = len(SERIES)
"""Models with a colour of their own: the dearest ones. More could not be told apart."""


def service_cost_figure(runs: Sequence[ServiceRun], *, prefix: str, width_in: float = WIDTH_IN) -> str:
    """One bar a run, its models on each other and what all share behind them.

    What commitments cover is not taken out of a part, only of the total.
    """
    shown = [model.model for model in by_money(lead_run(runs))[:MOST_COLOURED]]
    by_model = [{model.model: usd_of(model) for model in run.models} for run in runs]
    others = [sum(usd for name, usd in found.items() if name not in shown) for found in by_model]
    shared = [run.idle_usd + run.around_usd + max(0.0, run.commitments_usd) for run in runs]
    parts = [
        *(Part(name, [found[name] for found in by_model], SERIES[i]) for i, name in enumerate(shown)),
        *([Part("other models", others, OTHER)] if any(others) else []),
        Part("shared by all", shared, OTHER, "////"),
    ]
    with drawing_rules(prefix):
        figure, (axes,) = new_figure(0.95 + ROW_IN * len(runs), width_in=width_in)
        totals = [run.cost.total for run in runs]
        legend = draw_cost_bars(axes, [run.policy for run in runs], parts, totals)
        add_legend(figure, columns=6, handles=legend)
        return inline_svg(figure, prefix=prefix, description="Cost by model and policy")

"""SuperServe's figure 10: a day of a real trace, compressed to two minutes.

The paper's day is of Azure Functions, which is not at hand: `--trace` names another. Without one, a generated day
with floods stands in.
"""

from __future__ import annotations

import numpy as np

from mark.domain.errors import Misconfigured
from mark.simulator.request_streams import arrivals_of_rates
from mark.simulator.traces.generators import diurnal_floods
from mark.simulator.traces.trace import Trace
from mark.studies.study import Study, StudyContext, View
from mark.studies.superserve.cases import (
    NAMES,
    QUANTITIES,
    Case,
    Floats,
    Published,
    Scope,
    case_rng,
    serve,
    study_of,
)

DAY_S = 86_400.0
MEAN_RPS, PEAK_RPS = 6400, 8750
"""Section 6.3: of the compressed day, the peak in its busiest second."""
PUBLISHED = Published(attained=0.99999, points=4.67, ratio=2.85)
"""Section 6.3."""

_VIEW = View(
    title="A day compressed to a mean of 6,400 requests/s, 8,750 in its busiest second",
    index=("noise", "policy"),
    quantities=QUANTITIES,
    names=NAMES,
)


def superserve_fig10(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope(duration_s=120.0)
    case, load = compressed_case(context, asked, MEAN_RPS)
    return study_of(
        "fig10",
        "figure 10: a real trace, compressed",
        serve(context, asked, [case]),
        asked,
        published=PUBLISHED,
        views=(_VIEW,),
        assumed=(load,),
    )


def compressed_case(context: StudyContext, scope: Scope, mean_rps: float) -> tuple[Case, str]:
    """The compressed day as a case, and what is to be said of it."""
    trace = context.trace if context.trace is not None else diurnal_floods(context.seed, 1)
    rates = compressed_rates(trace, scope.duration_s, mean_rps)
    edges_s = np.linspace(0.0, scope.duration_s, rates.size + 1)
    arrived_s = arrivals_of_rates(rates, edges_s, 1.0, case_rng(context, "compressed"))
    source = (
        f"the last day of {trace.name}" if context.trace is not None else "generated: a daily cycle with floods"
    )
    load = (
        f"Load: {source}, {scope.duration_s:g} s long, its rates mapped to a mean of {rates.mean():,.0f} and a "
        f"peak of {_busiest(rates, scope.duration_s):,.0f} requests/s by a factor and a sum. The paper's day of "
        "Azure Functions has another shape. `--trace` names yours."
    )
    return Case((), arrived_s), load


def compressed_rates(trace: Trace, duration_s: float, mean_rps: float) -> Floats:
    """Rates of the last day in equal steps, of this mean, and of the published peak over the mean. shape (bins,).

    The day's own rates times a factor plus a sum; where that is below 0, 0. Misconfigured where all are equal.
    """
    rates = trace.rates_rps[-max(1, round(DAY_S / trace.bin_s)) :]
    mean, busiest = float(rates.mean()), _busiest(rates, duration_s)
    if not busiest > mean:
        raise Misconfigured(f"{trace.name} has no second that is busier than others: take a trace that varies")
    factor = mean_rps * (PEAK_RPS / MEAN_RPS - 1) / (busiest - mean)
    return np.maximum(0.0, mean_rps + factor * (rates - mean))


def by_second(rates: Floats, duration_s: float) -> Floats:
    """The mean rate of each second, once the day lasts `duration_s`. rates: in equal steps. shape (seconds,)."""
    edges = np.linspace(0.0, rates.size, max(1, round(duration_s)) + 1)
    summed = np.interp(edges, np.arange(rates.size + 1), np.concatenate(([0.0], np.cumsum(rates))))
    return np.asarray(np.diff(summed) / np.diff(edges))


def _busiest(rates: Floats, duration_s: float) -> float:
    return float(by_second(rates, duration_s).max())

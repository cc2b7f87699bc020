"""SuperServe's figure 10: a day of a real trace, compressed to two minutes.

The paper's day is of Azure Functions, which is not at hand: `--trace` names another. Without one, a generated day
with floods stands in.
"""

from __future__ import annotations

import numpy as np

from mark.simulator.request_streams import arrivals_of_rates
from mark.simulator.traces.generators import diurnal_floods
from mark.simulator.traces.trace import Trace
from mark.studies.study import Study, StudyContext, View
from mark.studies.superserve.cases import QUANTITIES, Case, Floats, Published, Scope, case_rng, serve, study_of

DAY_S = 86_400.0
PEAK_RPS = 8750
"""Section 6.3: the busiest second of the compressed day. Its mean is 6400."""
PUBLISHED = Published(attained=0.99999, points=4.67, ratio=2.85)
"""Section 6.3."""

_VIEW = View(
    title="A day compressed, its busiest second scaled to 8,750 requests",
    index=("noise", "policy"),
    quantities=QUANTITIES,
)


def superserve_fig10(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope(duration_s=120.0)
    trace = context.trace if context.trace is not None else diurnal_floods(context.seed, 1)
    rates = compressed_rates(trace, asked.duration_s)
    edges_s = np.linspace(0.0, asked.duration_s, rates.size + 1)
    arrived_s = arrivals_of_rates(rates, edges_s, 1.0, case_rng(context, "compressed"))
    cases = serve(context, asked, [Case((), arrived_s)])
    source = (
        f"the last day of {trace.name}" if context.trace is not None else "generated: a daily cycle with floods"
    )
    load = (
        f"Load: {source}, {asked.duration_s:g} s long; mean {rates.mean():,.0f} requests/s. The paper's day of "
        "Azure Functions (mean 6400) is another trace: published numbers are of that one. `--trace` names yours."
    )
    return study_of(
        "fig10", "a real trace, compressed", cases, asked, published=PUBLISHED, views=(_VIEW,), assumed=(load,)
    )


def compressed_rates(trace: Trace, duration_s: float) -> Floats:
    """Rates of the last day in equal steps, its busiest second scaled to PEAK_RPS. shape (bins,)."""
    rates = trace.rates_rps[-max(1, round(DAY_S / trace.bin_s)) :]
    edges = np.linspace(0.0, rates.size, max(1, round(duration_s)) + 1)
    summed = np.interp(edges, np.arange(rates.size + 1), np.concatenate(([0.0], np.cumsum(rates))))
    by_second = np.diff(summed) / np.diff(edges)
    return rates * (PEAK_RPS / float(by_second.max()))

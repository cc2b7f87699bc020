"""SuperServe's figure 11b: how many requests/s more workers carry, and with one supernet that is six at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

from mark.catalog.variant_tables import load_variants
from mark.simulator.fixed.fixed_workers import FixedWorkers
from mark.simulator.request_streams import arrivals_of_rates
from mark.studies.plot import Curve, Plot
from mark.studies.study import Row, Study, StudyContext, View
from mark.studies.superserve.cases import FULL_PREFIX, MODEL, NAMES, OURS, SLACKFIT, SLO, WORKER, case_rng

WORKERS = (1, 2, 4, 8, 16, 33)
"""33, because figure 5c has 8,000 requests/s on eight, and 33,000 are the most of figure 11b."""
PUBLISHED_RPS = {8: 8000, 33: 33_000}
"""Figure 5c (the smallest subnet alone), and section 6.4."""
CLAIM = "section 6.4: scales linearly with workers, up to about 33,000 requests/s at an attainment of 0.999"
DURATION_S = 5.0
HIGHEST_RPS = 2000
"""Requests/s a worker that none carries."""
PRECISION = 0.005
"""The bisection ends when it knows the rate to this share."""

_VIEW = View(
    title="The highest rate of Poisson arrivals of which 99.9 % are in time",
    index=("workers", "policy"),
    quantities=("allowable_rps", "of_linear", "accuracy"),
    names=NAMES,
)


def superserve_fig11b(context: StudyContext, workers: tuple[int, ...] = WORKERS) -> Study:
    """Run it."""
    policies = (OURS, SLACKFIT, f"{FULL_PREFIX}{load_variants(MODEL).table.names[0]}")
    found: dict[tuple[str, int], tuple[float, float | None]] = {}
    for turn, (name, count) in enumerate(product(policies, workers)):
        context.progress(f"{count} workers, {name}", turn / (len(policies) * len(workers)))
        found[name, count] = _allowable(context, name, count)
    linear = {name: found[name, workers[0]][0] / workers[0] for name in policies}
    return Study(
        name="superserve-fig11b",
        title="SuperServe, figure 11b: more workers",
        rows=tuple(_rows(found, linear)),
        assumptions=(
            *load_variants(MODEL).notes,
            (
                f"{DURATION_S:g} s of Poisson arrivals, {SLO.latency_s * 1000:g} ms; the highest rate, to "
                f"{PRECISION:.1%}, at which {SLO.target:g} are in time. One router that takes no time. The text "
                "states neither the arrivals nor the workers of its last point: 33 is by figure 5c's 1,000 each."
            ),
            "`of_linear` is the rate over that of the fewest workers, times how many more there are.",
        ),
        views=(_VIEW,),
        series=(_plot(found, policies, workers),),
    )


def _allowable(context: StudyContext, name: str, count: int) -> tuple[float, float | None]:
    """The highest rate that so many workers carry, requests/s, and the accuracy there."""
    pool = FixedWorkers(
        load_variants(MODEL).table, WORKER, workers=count, slo=SLO, kernel=context.variant_kernel()
    )
    low, high, accuracy = 0.0, float(HIGHEST_RPS * count), None
    while high - low > PRECISION * high:
        rate = (low + high) / 2
        rng = case_rng(context, f"{count} workers at {rate:g}")
        run = pool.run(name, arrivals_of_rates(np.array([rate]), np.array([0.0, DURATION_S]), 1.0, rng))
        if run.attained >= SLO.target:
            low, accuracy = rate, run.accuracy
        else:
            high = rate
    return low, accuracy


def _rows(
    found: Mapping[tuple[str, int], tuple[float, float | None]], linear: Mapping[str, float]
) -> Iterator[Row]:
    for (name, count), (rate, accuracy) in found.items():
        where = (("workers", count), ("policy", name))
        printed = None if name == OURS else PUBLISHED_RPS.get(count)
        yield Row(where, "allowable_rps", rate, published=printed)
        yield Row(where, "of_linear", rate / (count * linear[name]) if linear[name] else None, claim=CLAIM)
        yield Row(where, "accuracy", None if accuracy is None else 100 * accuracy)


def _plot(
    found: Mapping[tuple[str, int], tuple[float, float | None]],
    policies: tuple[str, ...],
    workers: tuple[int, ...],
) -> Plot:
    return Plot(
        name="superserve-fig11b",
        title="Requests/s of which 99.9 % are in time",
        x_label="workers",
        y_label="requests/s",
        curves=tuple(
            Curve(
                label=NAMES.get(name, name),
                x=tuple(map(float, workers)),
                y=tuple(found[name, count][0] for count in workers),
            )
            for name in policies
        ),
    )

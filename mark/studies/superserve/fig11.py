"""SuperServe's figure 11a: workers are lost one after the other, until half of them are left."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mark.simulator.request_streams import bursty_arrivals
from mark.studies.study import Row, Study, StudyContext, View
from mark.studies.superserve.cases import (
    NAMES,
    QUANTITIES,
    WORKERS,
    Case,
    Published,
    Scope,
    case_rng,
    serve,
    study_of,
)

BASE_RPS, BURST_RPS, CV2 = 1500, 2000, 2.0
KILLED = WORKERS // 2
"""Section 6.4: half of them, one every 12 s."""
PUBLISHED = Published(attained=0.999)
"""Section 6.4."""
_EVERY_SHARE = 1 / (KILLED + 1)

_VIEW = View(title="Half of the workers are lost", index=("noise", "policy"), quantities=QUANTITIES, names=NAMES)
_LEFT = View(
    title="By the workers that are left",
    index=("workers", "noise", "policy"),
    quantities=("attained", "accuracy"),
    names=NAMES,
)


def superserve_fig11(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope(duration_s=60.0)
    every_s = asked.duration_s * _EVERY_SHARE
    until_s = np.full(WORKERS, np.inf)
    until_s[:KILLED] = every_s * np.arange(1, KILLED + 1)
    arrived_s = bursty_arrivals(BASE_RPS, BURST_RPS, CV2, asked.duration_s, case_rng(context, "faults"))
    cases = serve(context, asked, [Case((), arrived_s)], until_s=until_s)
    load = (
        f"One worker is lost every {every_s:g} s; what it holds goes back to the queue. Load: even "
        f"{BASE_RPS} requests/s and {BURST_RPS} with CV^2 {CV2:g}: assumed, the text states neither."
    )
    return study_of(
        "fig11",
        "figure 11a: faults",
        cases,
        asked,
        published=PUBLISHED,
        views=(_VIEW, _LEFT),
        assumed=(load,),
        more=_by_workers(cases[0], every_s),
    )


def _by_workers(case: Case, every_s: float) -> Iterator[Row]:
    """Attainment and accuracy while so many workers are left, by whole seconds."""
    for noise, runs in case.runs.items():
        for name, run in runs.items():
            phase = np.minimum(np.arange(run.arrived.size) / every_s, KILLED).astype(np.int64)
            for lost in range(KILLED + 1):
                here = phase == lost
                answered = (run.attained_by_second * run.arrived)[here]
                worth = np.nansum((run.accuracy_by_second[here] * answered)[answered > 0])
                where = (("workers", WORKERS - lost), ("noise", noise), ("policy", name))
                total = answered.sum()
                yield Row(where, "attained", float(total / run.arrived[here].sum()))
                yield Row(where, "accuracy", float(100 * worth / total) if total else None)

"""SuperServe's figure 8: bursty streams, an even one and one with gamma gaps, from mild to extreme."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from mark.simulator.request_streams import bursty_arrivals
from mark.studies.study import Row, Study, StudyContext, View
from mark.studies.superserve.cases import (
    NAMES,
    QUANTITIES,
    RIVALS,
    SLACKFIT,
    Case,
    Published,
    Scope,
    case_rng,
    serve,
    study_of,
)
from mark.studies.superserve.optimum import LARGEST, REQUESTS, VIEW, WORKERS, optimum_rows

BASE_RPS = 1500
BURST_RPS = (2950, 4900, 5550)
CV2 = (2, 4, 8)
PUBLISHED = Published(attained=0.999, points=4.33, ratio=2.06)
"""Section 6.2.1."""

MAXBATCH, MAXACC = RIVALS
MAXBATCH_CLAIM = "section 6.4: MaxBatch's attainment falls as the arrivals' CV^2 rises"
MAXACC_CLAIM = "section 6.4: MaxAcc cannot keep up with the trace"

_RIVALS = View(
    title=f"What MaxBatch loses from CV^2 {CV2[0]} to {CV2[-1]}, and SlackFit's least attainment over MaxAcc's",
    index=("lambda_v", "noise"),
    quantities=("maxbatch_lost", "over_maxacc"),
)
_VIEW = View(
    title="Bursty streams: lambda_v (requests/s above an even 1,500) and CV^2 of its gaps",
    index=("lambda_v", "cv2", "noise", "policy"),
    quantities=QUANTITIES,
    names=NAMES,
)


def superserve_fig8(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope()
    cases = serve(
        context,
        asked,
        [
            Case(
                (("lambda_v", rps), ("cv2", cv2)),
                bursty_arrivals(BASE_RPS, rps, cv2, asked.duration_s, case_rng(context, f"bursty {rps} {cv2}")),
            )
            for rps in BURST_RPS
            for cv2 in CV2
        ],
    )
    return study_of(
        "fig8",
        "figure 8: bursty streams",
        cases,
        asked,
        published=PUBLISHED,
        views=(_RIVALS, VIEW, _VIEW),
        assumed=(
            (
                f"lambda_b {BASE_RPS} and lambda_v {', '.join(map(str, BURST_RPS))} requests/s, CV^2 "
                f"{', '.join(map(str, CV2))}: assumed. The text as we have it states a mean of 7000 (appendix "
                "A.2) and the construction, not the rates of each panel."
            ),
            (
                f"Small instances: {REQUESTS} requests, {WORKERS} worker, batches up to {LARGEST}, latencies "
                "rounded up to 1/512 s; the program knows all arrivals, no rule knows one before it comes."
            ),
        ),
        more=(*_rival_rows(cases), *optimum_rows(context)),
    )


def _rival_rows(cases: tuple[Case, ...]) -> Iterator[Row]:
    """Figure 11c: what MaxBatch loses as CV^2 rises, and the least that SlackFit has over MaxAcc."""
    for rps, noise in product(BURST_RPS, cases[0].runs):
        runs = [case.runs[noise] for case in cases if ("lambda_v", rps) in case.where]
        where = (("lambda_v", rps), ("noise", noise))
        lost = runs[0][MAXBATCH].attained - runs[-1][MAXBATCH].attained
        over = min(one[SLACKFIT].attained - one[MAXACC].attained for one in runs)
        yield Row(where, "maxbatch_lost", lost, claim=MAXBATCH_CLAIM)
        yield Row(where, "over_maxacc", over, claim=MAXACC_CLAIM)

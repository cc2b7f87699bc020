"""SuperServe's figure 8: bursty streams, an even one and one with gamma gaps, from mild to extreme."""

from __future__ import annotations

from mark.simulator.request_streams import bursty_arrivals
from mark.studies.study import Study, StudyContext, View
from mark.studies.superserve.cases import NAMES, QUANTITIES, Case, Published, Scope, case_rng, serve, study_of
from mark.studies.superserve.optimum import LARGEST, REQUESTS, VIEW, WORKERS, optimum_rows

BASE_RPS = 1500
BURST_RPS = (2950, 4900, 5550)
CV2 = (2, 4, 8)
PUBLISHED = Published(attained=0.999, points=4.33, ratio=2.06)
"""Section 6.2.1."""

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
        views=(VIEW, _VIEW),
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
        more=optimum_rows(context),
    )

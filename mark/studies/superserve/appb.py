"""SuperServe's appendix B: each subnet alone on six workers, which is the check of the assumed latencies."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.objective import Slo
from mark.studies.study import Study, StudyContext, View
from mark.studies.superserve.cases import NAMES, QUANTITIES, Published, Scope, serve, study_of
from mark.studies.superserve.fig10 import compressed_case

WORKERS, MEAN_RPS = 6, 4000
SLO = Slo(latency_s=0.030, target=0.99)
"""Appendix B."""
CLAIM = (
    "Appendix B: s1, s2 and s3 attain more than 99 %, s4, s5 and s6 less, with queues that leave little slack. It "
    "states no other numbers; the latencies of s3 are chosen by it."
)

_VIEW = View(
    title="Six workers, 4,000 requests/s in the mean, 30 ms",
    index=("noise", "policy"),
    quantities=QUANTITIES,
    names=NAMES,
)


def superserve_appb(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = replace(scope or Scope(duration_s=120.0), workers=WORKERS, slo=SLO)
    case, load = compressed_case(context, asked, MEAN_RPS)
    return study_of(
        "appb",
        "appendix B: one subnet alone",
        serve(context, asked, [case]),
        asked,
        published=Published(attained=None),
        views=(_VIEW,),
        assumed=(load, CLAIM),
    )

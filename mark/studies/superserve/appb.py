"""SuperServe's appendix B: each subnet alone on six workers, which is the check of the assumed latencies."""

from __future__ import annotations

from dataclasses import replace

from mark.domain.models.objective import Slo
from mark.studies.study import Row, Study, StudyContext, View
from mark.studies.superserve.cases import FULL_PREFIX, NAMES, QUANTITIES, Published, Scope, serve, study_of
from mark.studies.superserve.fig10 import compressed_case

WORKERS, MEAN_RPS = 6, 4000
SLO = Slo(latency_s=0.030, target=0.99)
"""Appendix B."""
CLAIMS = {
    **dict.fromkeys(("s1", "s2", "s3"), "s1, s2 and s3 attain more than 99 %"),
    **dict.fromkeys(("s4", "s5", "s6"), "s4, s5 and s6 attain less, with queues that leave little slack"),
}
ASSUMED = "Appendix B states no other numbers than these shares; the latencies of s3 are chosen by it."

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
    serve(context, asked, [case])
    alone = case.runs[asked.noises[0]]
    return study_of(
        "appb",
        "appendix B: one subnet alone",
        (case,),
        asked,
        published=Published(attained=None),
        views=(_VIEW,),
        assumed=(load, ASSUMED),
        more=(
            Row((("subnet", name),), "attained_alone", alone[f"{FULL_PREFIX}{name}"].attained, claim=claim)
            for name, claim in CLAIMS.items()
        ),
    )

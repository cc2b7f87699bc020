"""SuperServe's figure 9: the rate of arrivals rises, at one of several accelerations, to one of several rates."""

from __future__ import annotations

from mark.simulator.request_streams import accelerating_rates, arrivals_of_rates
from mark.studies.study import Study, StudyContext, View
from mark.studies.superserve.cases import NAMES, QUANTITIES, Case, Published, Scope, case_rng, serve, study_of

FROM_RPS, TO_RPS = 2500, (4800, 6800, 7400)
ACCELERATIONS = (250, 500, 5000)
CV2 = 8.0
BEGINS_SHARE = 0.1
"""Share of the stream before the rate rises."""
PUBLISHED = Published(attained=0.991)
"""Section 6.2.2: from 0.991 to 1.0 at 5,000 requests/s^2."""

_VIEW = View(
    title="Accelerating streams: to lambda_2 (requests/s) by tau (requests/s^2)",
    index=("lambda_2", "tau", "noise", "policy"),
    quantities=QUANTITIES,
    names=NAMES,
)


def superserve_fig9(context: StudyContext, scope: Scope | None = None) -> Study:
    """Run it."""
    asked = scope or Scope(duration_s=24.0)
    cases = serve(context, asked, [_case(context, asked, to, tau) for to in TO_RPS for tau in ACCELERATIONS])
    return study_of(
        "fig9",
        "figure 9: accelerating streams",
        cases,
        asked,
        published=PUBLISHED,
        views=(_VIEW,),
        assumed=(
            (
                f"Gamma gaps of CV^2 {CV2:g} throughout. Steady at {FROM_RPS} requests/s for "
                f"{asked.duration_s * BEGINS_SHARE:g} s, then up by tau to lambda_2. The accelerations' range is "
                f"published; {FROM_RPS} and lambda_2 {', '.join(map(str, TO_RPS))} are assumed."
            ),
            "Appendix A.2 has accuracies of 79.2 % at tau 250 and 77.5 % at tau 5000, without the rates.",
        ),
    )


def _case(context: StudyContext, scope: Scope, to_rps: int, tau: int) -> Case:
    rates, edges_s = accelerating_rates(
        FROM_RPS, to_rps, tau, begins_s=scope.duration_s * BEGINS_SHARE, duration_s=scope.duration_s
    )
    rng = case_rng(context, f"accelerating {to_rps} {tau}")
    return Case((("lambda_2", to_rps), ("tau", tau)), arrivals_of_rates(rates, edges_s, CV2, rng))

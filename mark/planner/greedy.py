"""Algorithm 1 of MArk (section 4.3), a greedy heuristic: a fleet for the unit one lead ahead, one at a time.

The forecast gives a rate for every unit to come. What no instance taken so far carries is the *unmet* rate. A
*span* runs from the lead tau to the last consecutive unit e whose unmet rate is above 0. Every candidate is
scored on it:

    score = (launch + rent x (e - tau + 1) units) / requests of the span that one instance covers

and the lowest score is taken, until nothing is unmet at tau. Pending, ready and requested instances are candidates
without launch cost, each taken at most once; a new instance of any offering is always one. An instance once taken
counts for all units. A long span favours what is cheap to rent, a short one what is there already or cheap to
launch: so the forecast, not a rule, decides whether a spike is worth a launch.

Ties go to running instances before new ones, then by name. Scores are compared with a relative tolerance, so that
rounding (another currency, say) decides no tie. The loop is iterative and costs O(instances taken x offerings x
units); it is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.domain.errors import PlanInfeasible
from mark.domain.figures import figure
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Excuse, Plan, PlannedCount, PlanRequest
from mark.planner.queueing import usable_rps

NOTHING_RPS = 1e-9
"""A rate up to this is none: what subtracting the same numbers in another order leaves over."""
SAME_SCORE = 1e-12
"""Scores this close, relatively, are equal: some thousand roundings of a double."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerms:
    """The terms of one offering's score before anything is taken.

    `covered_requests` are those of the span of `span_units` that one instance covers; `rent_usd` what it costs
    over the span and `launch_usd` what it costs before its first answer. `usable_rps` is 0 where the type cannot
    keep the mean latency.
    """

    offering: str
    usable_rps: float
    span_units: int
    covered_requests: float
    rent_usd: float
    launch_usd: float

    @property
    def usd_per_million(self) -> float:
        """Score of a new instance, USD per million requests covered; infinite when it covers none."""
        if self.covered_requests <= 0:
            return float("inf")
        return (self.rent_usd + self.launch_usd) / self.covered_requests * 1e6

    @property
    def usd_per_million_running(self) -> float:
        """Score of an instance that is there already."""
        return self.rent_usd / self.covered_requests * 1e6 if self.covered_requests > 0 else float("inf")


def plan_greedy(request: PlanRequest) -> Plan:
    """The fleet that Algorithm 1 wants one lead from now.

    Raises PlanInfeasible when a rate is expected at tau and no offering can keep the mean latency.
    """
    rates, tau = required_rates(request)
    terms = scores(request)
    usable = [term.usable_rps for term in terms]
    if rates[tau] > NOTHING_RPS and not any(usable):
        raise PlanInfeasible(why_infeasible(request, float(rates[tau])))
    offerings = by_name(request)
    unit_h = request.forecast.unit_s / 3600.0
    first, new, kept = _take_instances(
        rates.copy(),
        tau,
        np.array(usable),
        np.array([item.usd_per_hour * unit_h for item in offerings]),
        # A refused offering is launched only where nothing else can be: it may be had again by then.
        np.array([math.inf if item.name in request.refused else item.launch_usd for item in offerings]),
        running_of(request, offerings),
    )
    counts = tuple(
        PlannedCount(
            offering=item.name,
            count=int(new[i] + kept[i]),
            kept=int(kept[i]),
            usable_rps=usable[i],
            usd_per_hour=item.usd_per_hour,
            launch_usd=item.launch_usd,
        )
        for i, item in enumerate(offerings)
        if new[i] + kept[i] > 0
    )
    capacity_rps = sum(item.count * item.usable_rps for item in counts)
    required_rps = float(rates[tau])
    return Plan(
        # The unit planned for is the forecast's, which starts on the minute: a replan in between aims at the same.
        at=request.forecast.start_at + tau * request.forecast.unit_s,
        counts=counts,
        required_rps=required_rps,
        capacity_rps=capacity_rps,
        excuses=_excuses(request, terms, {item.offering for item in counts}, first),
        reason=_reason(terms, counts, required_rps, capacity_rps),
    )


def single_type_gap(plan: Plan, offerings: Sequence[Offering], slo: Slo) -> float:
    """Rent of `plan` over that of the cheapest fleet of one type that carries its `required_rps`.

    A single-type fleet is as many of one offering as carry the rate within the mean latency, launches free. Greedy
    may end above it (it never takes an instance back) and below (it mixes types, so it rounds up less); the ratio
    is reported, not bounded (docs/figures.md). 1 where nothing is required, infinite where no type can carry it.
    """
    if plan.required_rps <= NOTHING_RPS:
        return 1.0
    usable = [(item, usable_rps(item, slo, plan.required_rps)) for item in offerings]
    rents = [
        math.ceil(plan.required_rps / carried - NOTHING_RPS) * item.usd_per_hour
        for item, carried in usable
        if carried > NOTHING_RPS
    ]
    return plan.usd_per_hour / min(rents) if rents else math.inf


def scores(request: PlanRequest) -> tuple[CostTerms, ...]:
    """The cost terms of every offering on the first span, before anything is taken; sorted by name."""
    rates, tau = required_rates(request)
    end = tau
    while end < len(rates) and rates[end] > NOTHING_RPS:
        end += 1
    span, unit_s = rates[tau:end], request.forecast.unit_s
    terms = []
    for item in by_name(request):
        usable = usable_rps(item, request.slo, float(rates[tau])) if len(rates) else 0.0
        usable = usable if usable > NOTHING_RPS else 0.0
        terms.append(
            CostTerms(
                offering=item.name,
                usable_rps=usable,
                span_units=end - tau,
                covered_requests=float(np.minimum(span, usable).sum() * unit_s),
                rent_usd=item.usd_per_hour * unit_s / 3600.0 * (end - tau),
                launch_usd=item.launch_usd,
            )
        )
    return tuple(terms)


@njit(cache=True)
def _lowest_score(
    covered: Floats, rent_usd: Floats, launch_usd: Floats, left: Ints
) -> tuple[int, bool]:  # pragma: no cover - compiled
    """The candidate with the lowest score: an offering, and whether it is a new instance. All: length offerings.

    rent_usd: over the span; left: how many that are there were not taken yet.
    """
    taken, taken_new, lowest = -1, False, np.inf
    for is_new in (False, True):  # running ones first: they win ties
        for i in range(len(covered)):
            if covered[i] <= 0.0 or (not is_new and left[i] == 0):
                continue
            score = (rent_usd[i] + (launch_usd[i] if is_new else 0.0)) / covered[i]
            if taken < 0 or score < lowest * (1.0 - SAME_SCORE):
                taken, taken_new, lowest = i, is_new, score
    return taken, taken_new


@njit(cache=True)
def _take_instances(
    unmet: Floats, tau: int, usable: Floats, rent: Floats, launch: Floats, there: Ints
) -> tuple[int, Ints, Ints]:  # pragma: no cover - compiled
    """Algorithm 1's loop. `unmet`: length units, consumed; the others: length offerings, in the order of names.

    rent: USD per unit. Gives the first offering taken (-1: none), and per offering how many are new and how many
    were there.
    """
    left, new = there.copy(), np.zeros_like(there)
    covered = np.zeros(len(usable))
    first = -1
    while unmet[tau] > NOTHING_RPS:
        end = tau
        covered[:] = 0.0
        while end < len(unmet) and unmet[end] > NOTHING_RPS:
            covered += np.minimum(unmet[end], usable)
            end += 1
        taken, is_new = _lowest_score(covered, rent * (end - tau), launch, left)
        if is_new:
            new[taken] += 1
        else:
            left[taken] -= 1
        if first < 0:
            first = taken
        for k in range(len(unmet)):
            unmet[k] = max(0.0, unmet[k] - usable[taken])
    return first, new, there - left


def required_rates(request: PlanRequest) -> tuple[Floats, int]:
    """Rates to carry, one per unit, and the unit that is planned for: the lead, or the last one forecast."""
    rates = np.array(request.forecast.max_at(0.5), dtype=np.float64)
    if not len(rates) or not np.isfinite(rates).all():
        raise PlanInfeasible("the forecast is empty or not finite; plan with the fallback forecast")
    return rates, min(request.lead_units, len(rates) - 1)


def by_name(request: PlanRequest) -> tuple[Offering, ...]:
    """The request's offerings, sorted by name."""
    return tuple(sorted(request.offerings, key=lambda item: item.name))


def running_of(request: PlanRequest, offerings: tuple[Offering, ...]) -> Ints:
    """Instances of each of `offerings` that exist or are on their way; length offerings."""
    running = dict(request.running)
    return np.array([max(0, running.get(item.name, 0)) for item in offerings], dtype=np.int64)


def why_infeasible(request: PlanRequest, rate_rps: float) -> str:
    """Message of PlanInfeasible when `rate_rps` is expected and no offering keeps the mean latency."""
    if not request.offerings:
        return f"{figure(rate_rps)} requests/s are expected and no offering is left to serve them"
    best = min(by_name(request), key=lambda item: item.latency_s)
    return (
        f"no offering keeps a mean latency of {request.slo.mean_latency_s * 1000:.0f} ms: "
        f"the fastest, {best.name}, takes {best.latency_s * 1000:.0f} ms for a batch of {best.batch.max_batch}; "
        "relax the objective or add a faster type"
    )


def _excuses(
    request: PlanRequest, terms: tuple[CostTerms, ...], taken: set[str], first: int
) -> tuple[Excuse, ...]:
    """One for each offering that was not taken, by name."""
    excuses = []
    for term in terms:
        if term.offering in taken:
            continue
        reason = why_unable(request, term)
        if not reason and first < 0:
            reason = "nothing is expected one lead from now"
        elif not reason:
            winner = terms[first]
            reason = (
                f"{figure(term.usd_per_million)} USD per million requests, launch included; {winner.offering} "
                f"{figure(winner.usd_per_million)} (running {figure(winner.usd_per_million_running)})"
            )
        excuses.append(Excuse(offering=term.offering, reason=reason))
    return tuple(excuses)


def why_unable(request: PlanRequest, term: CostTerms) -> str:
    """Reason for which an offering could not be taken, whatever it costs; empty where it could."""
    if term.usable_rps <= 0:
        latency_s = next(item.latency_s for item in request.offerings if item.name == term.offering)
        return (
            f"a batch takes {latency_s * 1000:.0f} ms, "
            f"over the mean latency of {request.slo.mean_latency_s * 1000:.0f} ms"
        )
    return "refused just now" if term.offering in request.refused else ""


def _reason(
    terms: tuple[CostTerms, ...],
    counts: tuple[PlannedCount, ...],
    required_rps: float,
    capacity_rps: float,
) -> str:
    if not counts:
        return f"{figure(required_rps)} requests/s expected: nothing to rent"
    fleet = ", ".join(item.words for item in counts)
    return (
        f"{figure(required_rps)} requests/s expected, needed for {terms[0].span_units} minutes at least: "
        f"{fleet} carry {figure(capacity_rps)}"
    )

"""The exact planner, a mixed-integer program (MILP): the first fleet of the cheapest schedule from the lead on.

It solves what Algorithm 1 of MArk (section 4.3) approximates: whole instances of every offering in every unit,
rent for each and a launch for each that was not there before, every rate carried (`milp_program.py`).
Words and units are greedy's: an instance carries `usable_rps`, sized for the rate one lead ahead; pending, ready
and requested instances are there. Stopping is free and an instance may be launched again later, so a valley is
bridged or not, whichever is cheaper.

So that a plan takes a fraction of a second, only the first units have fleets of their own; further ahead, units
share one in longer and longer blocks (`MilpPolicy`; `EVERY_UNIT` does not). What comes out is trimmed unit by unit
and compared with the best schedule of a single offering, which is known exactly: a plan is never dearer than that,
however early its search ended. The reason says what the schedule costs, how many nodes were searched, and its gap:
how far above the optimum of all units it may be, by the program's own bound where no units share a fleet and by
that of fractional fleets where some do.

The plan knows the forecast's rates and no more: not Lambda, nor standbys, nor risk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mark.domain.errors import PlanInfeasible
from mark.domain.figures import figure
from mark.domain.plan import Excuse, Plan, PlannedCount, PlanRequest
from mark.planner.exact.milp_program import (
    GRAIN,
    Ints,
    Provisioning,
    build_problem,
    fleets_of_one,
    in_blocks,
    provisioning,
    trimmed,
    variable_name,
)
from mark.planner.exact.solver import SearchLimits, solve
from mark.planner.greedy import (
    NOTHING_RPS,
    CostTerms,
    by_name,
    required_rates,
    running_of,
    scores,
    why_infeasible,
    why_unable,
)

BLOCKS_LIMITS = SearchLimits(max_nodes=10, relative_gap=1e-3)
"""Limits where units share fleets: blocks cost more than a longer search could still find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpPolicy:
    """Limits of the search and the detail of the look-ahead."""

    limits: SearchLimits = field(default_factory=SearchLimits)
    #: Units from the lead on that have a fleet each.
    near_units: int = 8
    #: Length of each later block, which shares a fleet, over that of the block before.
    growth: float = 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Fleets for all units from the lead on. counts: shape (units, offerings by name).

    `usd` is their rent and launches; no schedule is cheaper by more than the share `gap` of it, launch latency as
    it is weighed included. `nodes` were searched.
    """

    counts: Ints
    usd: float
    gap: float
    nodes: int


QUICK = MilpPolicy()
EVERY_UNIT = MilpPolicy(near_units=10**6, limits=SearchLimits(max_nodes=10_000))
"""The whole program: exact where its gap is 0, and no plan for every minute: it may take minutes itself."""


def plan_milp(request: PlanRequest, policy: MilpPolicy = QUICK) -> Plan:
    """The first fleet of the cheapest schedule.

    Raises PlanInfeasible when a rate is expected at the lead and no offering can keep the mean latency.
    """
    rates, tau = required_rates(request)
    terms = scores(request)
    if rates[tau] > NOTHING_RPS and not any(term.usable_rps for term in terms):
        raise PlanInfeasible(why_infeasible(request, float(rates[tau])))
    found = cheapest_schedule(request, policy)
    offerings, there = by_name(request), dict(request.running)
    counts = tuple(
        PlannedCount(
            offering=item.name,
            count=count,
            kept=min(count, max(0, there.get(item.name, 0))),
            usable_rps=terms[i].usable_rps,
            usd_per_hour=item.usd_per_hour,
            launch_usd=item.launch_usd,
        )
        for i, (item, count) in enumerate(zip(offerings, map(int, found.counts[0]), strict=True))
        if count
    )
    return Plan(
        at=request.forecast.start_at + tau * request.forecast.unit_s,
        counts=counts,
        required_rps=float(rates[tau]),
        capacity_rps=sum(item.count * item.usable_rps for item in counts),
        excuses=_excuses(request, terms, found),
        reason=_reason(float(rates[tau]), counts, found),
    )


def cheapest_schedule(request: PlanRequest, policy: MilpPolicy = QUICK) -> Schedule:
    """The cheapest fleets found for all units from the lead on. Without any usable offering they are empty."""
    rates, tau = required_rates(request)
    offerings = by_name(request)
    usable_rps = np.array([term.usable_rps for term in scores(request)])
    units = len(rates) - tau
    if not usable_rps.any():
        return Schedule(counts=np.zeros((units, len(offerings)), dtype=np.int64), usd=0.0, gap=0.0, nodes=0)
    unit_h = request.forecast.unit_s / 3600.0
    given = provisioning(
        usable_rps,
        np.array([item.usd_per_hour * unit_h for item in offerings]),
        np.array([item.launch_usd + request.launch_weight_usd_per_s * item.boot_s for item in offerings]),
        running_of(request, offerings),
        np.array([item.name in request.refused for item in offerings]),
        rates=rates[tau:],
    )
    found = _search(given, policy)
    if not request.launch_weight_usd_per_s:
        return found
    started = np.maximum(0, np.diff(found.counts, axis=0, prepend=running_of(request, offerings)[None])).sum(
        axis=0
    )
    weighed_s = float(started @ np.array([item.boot_s for item in offerings]))
    return replace(found, usd=found.usd - request.launch_weight_usd_per_s * weighed_s)


def _search(given: Provisioning, policy: MilpPolicy) -> Schedule:
    """The cheapest schedule found."""
    best = min(fleets_of_one(given), key=given.cost)
    if len(given.candidates) == 1 or not best.any():
        return Schedule(counts=best, usd=given.cost(best) * given.usd_per_grain, gap=0.0, nodes=0)
    blocks = in_blocks(given, near_units=policy.near_units, growth=policy.growth)
    lossless = np.array_equal(np.repeat(blocks.rates, blocks.lengths), given.rates)
    limits = policy.limits
    if not lossless:
        limits = SearchLimits(
            max_nodes=min(limits.max_nodes, BLOCKS_LIMITS.max_nodes),
            relative_gap=max(limits.relative_gap, BLOCKS_LIMITS.relative_gap),
        )
    solved = solve(build_problem(blocks), limits)
    if solved.values:
        found = np.repeat(_counts(blocks, solved.values), blocks.lengths, axis=0)
        if given.carries(found):
            best = min((found if lossless else trimmed(given, found), best), key=given.cost)
    cost = given.cost(best) * GRAIN
    relaxed = None if lossless else solve(build_problem(given, whole=False), policy.limits)
    bound = solved.bound if relaxed is None else relaxed.bound
    gap = max(0.0, (cost - bound) / cost)
    return Schedule(counts=best, usd=given.cost(best) * given.usd_per_grain, gap=gap, nodes=solved.nodes)


def _counts(given: Provisioning, values: Mapping[str, float]) -> Ints:
    """Instances by the solver's variables; shape (blocks, offerings)."""
    counts = np.zeros((len(given.rates), len(given.rent)), dtype=np.int64)
    for i in given.candidates:
        counts[:, i] = [round(values[variable_name(i, t)]) for t in range(len(counts))]
    return counts


def _excuses(request: PlanRequest, terms: tuple[CostTerms, ...], found: Schedule) -> tuple[Excuse, ...]:
    """One for each offering that is not in the first fleet, by name."""
    excuses = []
    for i, term in enumerate(terms):
        if found.counts[0, i]:
            continue
        reason = why_unable(request, term)
        if not reason and not found.counts.any():
            reason = "nothing is expected from one lead on"
        elif not reason:
            later = np.flatnonzero(found.counts[:, i])
            use = f"first wanted {later[0]} minutes after the lead" if len(later) else "in none of the fleets"
            cost = f"{figure(term.usd_per_million)} USD per million requests, launch included"
            reason = f"{use} of the cheapest schedule; {cost}" if math.isfinite(term.usd_per_million) else use
        excuses.append(Excuse(offering=term.offering, reason=reason))
    return tuple(excuses)


def _reason(required_rps: float, counts: tuple[PlannedCount, ...], found: Schedule) -> str:
    schedule = (
        f"{figure(found.usd)} USD over {len(found.counts)} minutes, {found.nodes} nodes, gap {found.gap:.2g}"
    )
    if not counts:
        return f"{figure(required_rps)} requests/s expected: nothing to rent yet; {schedule}"
    fleet = ", ".join(item.words for item in counts)
    carried = sum(item.count * item.usable_rps for item in counts)
    return f"{figure(required_rps)} requests/s expected: {fleet} carry {figure(carried)}; {schedule}"

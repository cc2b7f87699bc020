"""Planner of the policy `kairos`: the pool of unlike instances that serves most within an hourly budget.

The load has no part in it. The pool is chosen by Kairos' bound and its similarity rule (`pool_choice.py`) from
the candidates' latencies by size, their prices now, and the sizes of requests: those of the settings until enough
have been measured (`domain.size_window`). An offering that is refused stays at what runs of it: the choice is made
again without more of it. Only full pools, into which no other instance fits, with a bound near the best take part:
with few types the ten best bounds of the similarity rule would reach down to pools that leave half of the budget
unspent, or serve half of the load.

What runs is kept while its own bound is within `PoolPolicy.drift` of the chosen pool's: prices, latencies and
sizes move a little all the time, and a change of pools costs a boot. What runs beyond the budget is never kept.
Where no pool is left to choose, because spot prices rose or every base type is refused, what runs is kept as far
as the budget goes, the cheapest first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import PlanInfeasible
from mark.domain.figures import figure, share_words
from mark.domain.load.size_window import SizeWindow
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering
from mark.domain.plan import Excuse, Plan, PlannedCount, PlanRequest
from mark.domain.plans.pool_policy import PoolPolicy
from mark.planner.baselines import PlanFunction
from mark.planner.kairos.pool_choice import (
    BUDGET_ROUNDING,
    Floats,
    Ints,
    PoolSpace,
    RankedPools,
    choose_similar,
    pool_space,
)

NEAR = 0.9
"""Share of the best bound that a pool must have for the similarity rule to look at it: bounds are estimates."""
Candidates = tuple[tuple[str, float, tuple[float, ...]], ...]
"""Name, price in USD/h and latencies in ms by row of each candidate."""


def plan_pool(policy: PoolPolicy) -> PlanFunction:
    """The planner of a pool within that budget. It plans without a forecast, and never above the budget."""

    def plan(request: PlanRequest) -> Plan:
        sizes = pool_sizes(policy, request.offerings, request.sizes)
        able, excuses = _profiled(request.offerings, sizes)
        running = {name: count for name, count in request.running if count > 0}
        try:
            space = _space(*_candidates(able, sizes), sizes, request.slo, policy.budget_usd_per_hour)
            chosen, bound_qps, why = _choose(space, running, set(request.refused), policy)
        except PlanInfeasible as error:
            chosen, bound_qps = _within_budget(running, able, policy.budget_usd_per_hour), 0.0
            why = f"no other pool can be had ({error}): what runs stays as far as the budget goes"
        measured = sizes is not policy.sizes
        sized = f"; measured: {figure(sizes.mean)} items a request, {sizes.largest} at most" if measured else ""
        return _plan(request, policy, chosen, bound_qps, why=why + sized, excuses=excuses)

    return plan


def pool_sizes(policy: PoolPolicy, offerings: tuple[Offering, ...], window: SizeWindow) -> SizeDistribution:
    """The sizes that a pool of these offerings is chosen for: as measured, where enough are known."""
    largest = min((item.profile.max_batch for item in offerings), default=policy.sizes.largest)
    return policy.sizes_now(window, largest)


def check_budget(offerings: tuple[Offering, ...], policy: PoolPolicy, slo: Slo) -> None:
    """Raise PlanInfeasible, naming the cheapest type, where the budget buys no pool of these offerings."""
    able, excuses = _profiled(offerings, policy.sizes)
    if not able:
        raise PlanInfeasible("; ".join(excuse.reason for excuse in excuses) or "no type serves this model")
    _space(*_candidates(able, policy.sizes), policy.sizes, slo, policy.budget_usd_per_hour)


def _profiled(
    offerings: tuple[Offering, ...], sizes: SizeDistribution
) -> tuple[tuple[Offering, ...], tuple[Excuse, ...]]:
    """Offerings with a profile up to the largest size, and why the others take no part."""
    able = tuple(item for item in offerings if item.profile.max_batch >= sizes.largest)
    excuses = tuple(
        Excuse(
            offering=item.name,
            reason=f"a request has up to {sizes.largest} items, its profile ends at {item.profile.max_batch}",
        )
        for item in offerings
        if item.profile.max_batch < sizes.largest
    )
    return able, excuses


def _candidates(able: tuple[Offering, ...], sizes: SizeDistribution) -> tuple[Candidates, tuple[int, ...]]:
    """The candidates and the sizes of their rows: every size that some profile was measured at."""
    measured = {point.batch for item in able for point in item.profile.points}
    rows = tuple(sorted({size for size in measured if size < sizes.largest} | {sizes.largest}))
    found = tuple(
        (item.name, item.usd_per_hour, tuple(item.profile.latency_s(size) * 1000 for size in rows))
        for item in sorted(able, key=lambda item: item.name)
    )
    return found, rows


def latency_table(offerings: tuple[Offering, ...], sizes: SizeDistribution) -> LatencyTable:
    """Latencies by name, as pools are ranked by; each of the offerings has a profile up to the largest size."""
    return _table(*_candidates(offerings, sizes))


def _table(candidates: Candidates, rows: tuple[int, ...]) -> LatencyTable:
    return LatencyTable(model="this model", sizes=rows, mean_ms={name: ms for name, _, ms in candidates})


@lru_cache(maxsize=1)
def _space(
    candidates: Candidates, rows: tuple[int, ...], sizes: SizeDistribution, slo: Slo, budget_usd_per_hour: float
) -> PoolSpace:
    """The ranked pools; kept until a price, a latency or a size moves, for a plan is made every minute."""
    if not candidates:
        raise PlanInfeasible("no offering can be launched now")
    table = _table(candidates, rows)
    prices = {name: price for name, price, _ in candidates}
    return pool_space(table, sizes, slo, usd_per_hour=prices, budget_usd_per_hour=budget_usd_per_hour)


def _choose(
    space: PoolSpace, running: dict[str, int], refused: set[str], policy: PoolPolicy
) -> tuple[dict[str, int], float, str]:
    """The pool to have, its bound in queries/s, and why."""
    ranked, now = space.ranked, np.array([running.get(name, 0) for name in space.types], dtype=np.int64)
    most = np.array([running.get(name, 0) if name in refused else np.inf for name in space.types])
    left: NDArray[np.bool_] = np.array((ranked.counts <= most).all(axis=1), dtype=np.bool_)
    if not left.any():
        raise PlanInfeasible("every base type is refused")
    whole = _those(ranked, left)
    full = _those(whole, ~_has_room(space, whole, most, policy.budget_usd_per_hour))
    ranked = _those(full, full.bound_qps >= NEAR * full.bound_qps[0])
    rank = choose_similar(ranked)
    chosen, bound_qps = ranked.counts[rank], float(ranked.bound_qps[rank])
    present = np.flatnonzero((whole.counts == now).all(axis=1))
    if len(present) and set(running) <= set(space.types) and (chosen != now).any():
        present_qps = float(whole.bound_qps[present[0]])
        if present_qps >= (1 - policy.drift) * bound_qps:
            near = f"within {share_words(policy.drift)} of the best pool's"
            why = f"its bound is {near}, {figure(bound_qps)} queries/s"
            return space.pool(now), present_qps, f"kept: {why}"
    return space.pool(chosen), bound_qps, f"chosen of {len(whole):,} pools by Kairos' bound"


def _has_room(space: PoolSpace, ranked: RankedPools, most: Floats, budget: float) -> NDArray[np.bool_]:
    """Pools that one more instance fits into, of which the similarity rule would take one: shape (pools,)."""
    found = np.zeros(len(ranked), dtype=np.bool_)
    for place, name in enumerate(space.types):
        fits = ranked.usd_per_hour + space.usd_per_hour[name] <= budget * (1 + BUDGET_ROUNDING)
        if ranked.counts[:, place].any():
            found |= fits & (ranked.counts[:, place] < most[place])
    return found


def _those(ranked: RankedPools, left: NDArray[np.bool_]) -> RankedPools:
    """The pools that are left, in their order."""
    counts: Ints = ranked.counts[left]
    return replace(ranked, counts=counts, usd_per_hour=ranked.usd_per_hour[left], bound_qps=ranked.bound_qps[left])


def _within_budget(running: dict[str, int], able: tuple[Offering, ...], budget: float) -> dict[str, int]:
    """Running instances, the cheapest offerings first, as far as the budget goes; an unknown offering leaves."""
    left_usd, kept = budget * (1 + BUDGET_ROUNDING), {}
    for item in sorted(able, key=lambda item: (item.usd_per_hour, item.name)):
        count = min(running.get(item.name, 0), int(left_usd // item.usd_per_hour))
        left_usd -= count * item.usd_per_hour
        if count > 0:
            kept[item.name] = count
    return kept


def _plan(
    request: PlanRequest,
    policy: PoolPolicy,
    chosen: dict[str, int],
    bound_qps: float,
    *,
    why: str,
    excuses: tuple[Excuse, ...],
) -> Plan:
    offerings, running = {item.name: item for item in request.offerings}, dict(request.running)
    counts = tuple(
        PlannedCount(
            offering=name,
            count=count,
            kept=min(count, running.get(name, 0)),
            usable_rps=offerings[name].capacity_rps,
            usd_per_hour=offerings[name].usd_per_hour,
            launch_usd=offerings[name].launch_usd,
        )
        for name, count in sorted(chosen.items())
    )
    cost = sum(item.count * item.usd_per_hour for item in counts)
    unchosen = tuple(
        Excuse(offering=name, reason="refused for now" if name in request.refused else "not in the chosen pool")
        for name in sorted(set(offerings) - set(chosen) - {excuse.offering for excuse in excuses})
    )
    return Plan(
        at=request.now,
        counts=counts,
        required_rps=bound_qps,
        capacity_rps=bound_qps,
        excuses=(*excuses, *unchosen),
        reason=f"{figure(cost)} of {policy.budget_usd_per_hour:g} USD/h; {why}; "
        f"bound {figure(bound_qps)} queries/s",
    )

"""Pool choice of Kairos (HPDC 2023, section 5.2): which mix of unlike instances serves most within a budget.

A *pool* is a count of each instance type. Queries differ in size, and a type serves in time only those up to its
*cut-off*, the largest size it answers within the objective. The *base* types are those with the largest cut-off of
all that leave the largest queries time to wait; the others are *auxiliary* and take queries off the base. No pool
is measured: each gets an upper bound of its throughput from latencies and query sizes alone (Eq. 9-15), and all
pools within the budget are ranked by it.

With a cut-off s below which a share f of the queries lies, let small and large be the queries up to s and above;
QS and QL the rates at which the base instances serve small ones only and large ones only; A that at which the
auxiliary instances serve small ones. Large queries fit the base only, so L <= QL / (1 - f); and the base's time is
all there is for large queries and for the small ones that the auxiliary instances leave,

    L (1 - f) / QL + (L f - A) / QS <= 1.

The bound is the larger L that both allow. With one base type this is Eq. 15 of the paper to the letter. Two things
are ours. Several types may be base, where the paper's user names one. And the paper takes for s
the largest cut-off of the pool's auxiliary types, so that one more instance can lower the bound; here the pool may
leave the types of larger cut-offs idle where that gives a larger L, and a bound never falls with a count.

The bound is an estimate: auxiliary types whose cut-off lies below s count as if they served all sizes up to s, and
a type may do better on fewer sizes than it could serve. A pool is then chosen among the best bounds without
measuring any (`choose_similar`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured, PlanInfeasible
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo

MOST_POOLS = 5_000_000
"""Largest space that is ranked: its counts and bounds take half a gigabyte and some seconds."""
SAME_SHARE = 1e-9
"""Shares of queries this close are equal: what a sum over sizes rounds."""
BUDGET_ROUNDING = 1e-9
"""Relative excess of a budget that is rounding: 3 x 0.1 USD fit 0.3 USD."""
BASE_SLACK = 0.5
"""Share of the time to wait that the fastest type leaves its largest queries, which every base type leaves them.

A type that answers the largest queries just in time can do so only if they never wait: rm2 takes r5n.large 402 ms
for 1,000 items, and a pool of r5n.large alone serves next to nothing within 420 ms.
"""
AGREEING = 3
"""So many best bounds with one number of base instances settle the choice (section 5.2)."""
COMPARED = 10
"""Otherwise the most central of so many best bounds is chosen; the paper finds the optimum among them."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoffRates:
    """Rates that the bound needs by type and cut-off. The columns are the types whose cut-off is meant."""

    #: shape (types,), bool: has the largest cut-off of all types, and time to wait there.
    base: NDArray[np.bool_]
    #: shape (types,): share of the queries up to the type's cut-off; 0 where it serves none in time.
    share: Floats
    #: shape (types, cut-offs), queries/s of one instance that serves only queries up to the cut-off.
    small_qps: Floats
    #: shape (types, cut-offs), queries/s of one instance that serves only larger queries; 0 where there are none.
    large_qps: Floats
    #: shape (types,), queries/s of one instance that serves all sizes.
    all_qps: Floats


def cutoff_rates(latency_ms: Floats, probabilities: Floats, slo_ms: float) -> CutoffRates:
    """The rates of types with latencies of shape (types, sizes); probabilities: shape (sizes,), sum 1.

    A cut-off lies before the first size that is late: where a table dips, what follows is no longer counted on.
    Sizes that no type answers in time stay in the mix, and are served late.
    """
    drawn = probabilities > 0
    latency_ms, probabilities = latency_ms[:, drawn], probabilities[drawn]
    highest_ms = np.maximum.accumulate(latency_ms, axis=1)
    in_time = highest_ms <= slo_ms
    share = np.asarray(in_time @ probabilities)
    full = share >= share.max() - SAME_SHARE
    slack_ms = np.where(full, slo_ms - highest_ms[:, max(int(in_time.sum(axis=1).max()) - 1, 0)], -np.inf)
    work_ms = latency_ms * probabilities
    small_ms = work_ms @ in_time.T
    total_ms = work_ms.sum(axis=1)
    large_ms = np.maximum(total_ms[:, None] - small_ms, 0.0)
    large_share = np.where(share > 1 - SAME_SHARE, 0.0, 1 - share)
    return CutoffRates(
        base=full & (slack_ms >= min(BASE_SLACK * slack_ms.max(), slack_ms.max())),
        share=share,
        small_qps=_rate(np.broadcast_to(share, small_ms.shape), small_ms),
        large_qps=_rate(np.broadcast_to(large_share, large_ms.shape), large_ms),
        all_qps=1000.0 / total_ms,
    )


def _rate(share: Floats, work_ms: Floats) -> Floats:
    """Queries/s of an instance whose queries are that share of all and take work_ms per query of all."""
    found = np.zeros(share.shape)
    np.divide(1000.0 * share, work_ms, out=found, where=(share > 0) & (work_ms > 0))
    return found


def throughput_bounds(rates: CutoffRates, counts: Ints) -> Floats:
    """Upper bounds of the throughput, queries/s, of pools with counts of shape (pools, types)."""
    served = counts * (rates.share > 0)
    bound = served[:, rates.base] @ rates.all_qps[rates.base]
    for cutoff in np.flatnonzero(~rates.base & (rates.share > 0)):
        used = rates.base | (rates.share <= rates.share[cutoff])
        found = _bound_at(rates, served * used, int(cutoff))
        bound = np.maximum(bound, np.where(counts[:, cutoff] > 0, found, 0.0))
    return np.asarray(bound)


def _bound_at(rates: CutoffRates, counts: Ints, cutoff: int) -> Floats:
    share = rates.share[cutoff]
    small_qps = counts[:, rates.base] @ rates.small_qps[rates.base, cutoff]
    auxiliary_qps = counts[:, ~rates.base] @ rates.small_qps[~rates.base, cutoff]
    if share >= 1 - SAME_SHARE:
        return np.asarray(small_qps + auxiliary_qps)
    large_qps = counts[:, rates.base] @ rates.large_qps[rates.base, cutoff]
    with np.errstate(divide="ignore", invalid="ignore"):
        large_only = large_qps / (1 - share)
        all_busy = (small_qps + auxiliary_qps) / ((1 - share) * small_qps / large_qps + share)
    return np.where(small_qps > 0, np.minimum(large_only, all_busy), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPools:
    """All pools within a budget, the best bound first."""

    #: shape (types,), bool: the base types.
    base: NDArray[np.bool_]
    #: shape (pools, types).
    counts: Ints
    usd_per_hour: Floats
    bound_qps: Floats

    def __len__(self) -> int:
        """Number of pools."""
        return len(self.bound_qps)


def rank_pools(rates: CutoffRates, usd_per_hour: Floats, budget_usd_per_hour: float) -> RankedPools:
    """Every pool within the budget that has a base instance; usd_per_hour: shape (types,).

    Equal bounds go to the cheaper pool. Raises PlanInfeasible where more than MOST_POOLS pools are within it.
    """
    counts = affordable_pools(np.where(rates.share > 0, usd_per_hour, np.inf), budget_usd_per_hour)
    counts = counts[counts[:, rates.base].any(axis=1)]
    bound_qps = throughput_bounds(rates, counts)
    cost = counts @ usd_per_hour
    order = np.lexsort((cost, -bound_qps))
    return RankedPools(base=rates.base, counts=counts[order], usd_per_hour=cost[order], bound_qps=bound_qps[order])


def affordable_pools(usd_per_hour: Floats, budget_usd_per_hour: float) -> Ints:
    """All pools that cost at most the budget, the empty one among them: shape (pools, types)."""
    allowed = budget_usd_per_hour * (1 + BUDGET_ROUNDING)
    counts = np.zeros((1, 0), dtype=np.int64)
    left_usd = np.array([allowed])
    for price in usd_per_hour:
        affordable = np.floor(np.maximum(left_usd, 0.0) / price) + 1
        if affordable.sum() > MOST_POOLS:
            raise PlanInfeasible(
                f"more than {MOST_POOLS:,} pools cost at most {budget_usd_per_hour:g} USD/h: "
                "give a lower budget or profiles of fewer types"
            )
        choices = affordable.astype(np.int64)
        first = np.repeat(np.cumsum(choices) - choices, choices)
        taken = np.arange(choices.sum()) - first
        counts = np.column_stack((np.repeat(counts, choices, axis=0), taken))
        # A type of infinite price is taken by nobody; 0 x inf is no number.
        left_usd = np.repeat(left_usd, choices) - (taken * price if np.isfinite(price) else 0.0)
    return counts


def choose_similar(pools: RankedPools) -> int:
    """Rank of the pool that Kairos takes without measuring any (its similarity rule).

    The best bound where the first AGREEING have equally many base instances; otherwise the one of the first
    COMPARED whose squared distances to the others, in counts, sum to the least. Ties go to the better bound.
    """
    base_counts = pools.counts[:AGREEING, pools.base].sum(axis=1)
    if (base_counts == base_counts[0]).all():
        return 0
    near = pools.counts[:COMPARED]
    distances = ((near[:, None, :] - near[None, :, :]) ** 2).sum(axis=(1, 2))
    return int(np.argmin(distances))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpace:
    """The pools of one model, objective, load and budget, ranked."""

    #: Names of the types in the order of the counts, the base types first.
    types: tuple[str, ...]
    usd_per_hour: Mapping[str, float]
    ranked: RankedPools

    @property
    def base(self) -> str:
        """The base type that serves most per USD."""
        return self.types[0]

    def pool(self, counts: Ints) -> dict[str, int]:
        """Counts of shape (types,) by name, without types of which there is none; a base type comes first."""
        return {name: int(count) for name, count in zip(self.types, counts, strict=True) if count}

    def homogeneous(self, budget_usd_per_hour: float) -> tuple[dict[str, int], float]:
        """The largest pool of the base type alone, and the factor from its cost to the budget.

        PlanInfeasible where the budget does not buy one instance of it.
        """
        price = self.usd_per_hour[self.base]
        count = int(budget_usd_per_hour * (1 + BUDGET_ROUNDING) // price)
        if count == 0:
            raise PlanInfeasible(f"{budget_usd_per_hour:g} USD/h buys no {self.base}, which costs {price:g} USD/h")
        return {self.base: count}, budget_usd_per_hour / (count * price)


def pool_space(
    table: LatencyTable,
    sizes: SizeDistribution,
    slo: Slo,
    *,
    usd_per_hour: Mapping[str, float],
    budget_usd_per_hour: float,
) -> PoolSpace:
    """Rank the pools of the table's types within the budget.

    Raises Misconfigured where a type has no price, and PlanInfeasible where no pool within the budget can keep the
    objective, because no type serves enough of the sizes in time or none that does is that cheap.
    """
    if not (math.isfinite(budget_usd_per_hour) and budget_usd_per_hour > 0):
        raise Misconfigured(f"a budget must be above 0 USD/h, not {budget_usd_per_hour:g}")
    unpriced = [name for name in table.mean_ms if name not in usd_per_hour]
    if unpriced:
        raise Misconfigured(f"no price of {', '.join(unpriced)}: add a column usd_per_hour to the profiles")
    rates, types = _base_first(table, sizes, slo, usd_per_hour)
    prices = np.array([usd_per_hour[name] for name in types])
    _check_budget(types, prices, rates.base, budget_usd_per_hour)
    return PoolSpace(
        types=types,
        usd_per_hour={name: usd_per_hour[name] for name in types},
        ranked=rank_pools(rates, prices, budget_usd_per_hour),
    )


def _base_first(
    table: LatencyTable, sizes: SizeDistribution, slo: Slo, usd_per_hour: Mapping[str, float]
) -> tuple[CutoffRates, tuple[str, ...]]:
    """Rates and names of the types: base types by what they serve per USD, then the others as in the table."""
    names = tuple(table.mean_ms)
    latency_ms = np.array([table.mean_ms[name] for name in names])
    shares = np.array(table.row_shares(sizes))
    slo_ms = slo.latency_s * 1000
    rates = cutoff_rates(latency_ms, shares, slo_ms)
    best = int(rates.share.argmax())
    if rates.share[best] < slo.target - SAME_SHARE:
        raise PlanInfeasible(
            f"no type serves {slo.target:.4g} of {table.model}'s queries within {slo_ms:g} ms: the best, "
            f"{names[best]}, serves {rates.share[best]:.4g}"
        )
    per_usd = {name: rates.all_qps[place] / usd_per_hour[name] for place, name in enumerate(names)}
    order = sorted(
        range(len(names)), key=lambda place: (not rates.base[place], -per_usd[names[place]] * rates.base[place])
    )
    return cutoff_rates(latency_ms[order], shares, slo_ms), tuple(names[place] for place in order)


def _check_budget(types: tuple[str, ...], prices: Floats, base: NDArray[np.bool_], budget: float) -> None:
    for place, what in (
        (int(prices.argmin()), "the cheapest type"),
        (int(np.where(base, prices, np.inf).argmin()), "the cheapest type that serves the largest sizes in time"),
    ):
        if prices[place] > budget * (1 + BUDGET_ROUNDING):
            raise PlanInfeasible(
                f"a budget of {budget:g} USD/h buys no instance: {what}, {types[place]}, "
                f"costs {prices[place]:g} USD/h"
            )

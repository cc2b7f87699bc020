"""Search for the best pool that measures some: Kairos+ (section 5.3 of Kairos, HPDC 2023), and what rivals share.

A pool is measured by an evaluator, which is dear: minutes of load on rented instances, seconds in replay. After
each measurement two prunings drop candidates for good: those whose bound is at most the best measured throughput,
and those that have no more instances of any type than a pool measured already. A search ends without candidates.
Where the bounds hold and an instance more never harms, no better pool was dropped, so that every search finds the
best; they differ in the number of measurements.

Kairos+ measures the candidate of the best bound. Its rivals, which draw, are in `simulator/fixed/pool_rivals.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mark.planner.kairos.pool_choice import Floats, Ints, RankedPools

Evaluator = Callable[[Ints], float]
"""Throughput within the objective, queries/s, of a pool with counts of shape (types,)."""


@dataclass(slots=True, kw_only=True)
class PoolSearch:
    """State of a search: the candidates, and what was measured. Ranks are those of `pools`."""

    pools: RankedPools
    #: shape (pools,): neither measured nor pruned.
    candidates: NDArray[np.bool_] = field(init=False)
    ranks: list[int] = field(default_factory=list)
    #: queries/s of the pools of `ranks`.
    measured_qps: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.candidates = np.ones(len(self.pools), dtype=np.bool_)

    @property
    def best(self) -> int:
        """Place in `ranks` of the best pool measured, the first among equals."""
        return int(np.argmax(self.measured_qps))

    @property
    def best_rank(self) -> int:
        """Rank of the best pool measured."""
        return self.ranks[self.best]

    @property
    def best_qps(self) -> float:
        """Its throughput, queries/s."""
        return self.measured_qps[self.best]

    def record(self, rank: int, qps: float) -> None:
        """Add a measurement and prune by it."""
        self.ranks.append(rank)
        self.measured_qps.append(qps)
        within = (self.pools.counts <= self.pools.counts[rank]).all(axis=1)
        self.candidates &= ~within & (self.pools.bound_qps > self.best_qps)

    def nearest_candidate(self, counts: Floats) -> int:
        """Rank of the candidate nearest to counts of shape (types,); of equally near ones the better bound."""
        ranks = np.flatnonzero(self.candidates)
        return int(ranks[((self.pools.counts[ranks] - counts) ** 2).sum(axis=1).argmin()])


Proposals = Callable[[PoolSearch], Iterator[int]]
"""Ranks to measure, each a candidate when taken; the search has its measurement when the next is taken."""


def best_bounds(search: PoolSearch) -> Iterator[int]:
    """Kairos+: the candidate of the best bound."""
    while True:
        yield int(search.candidates.argmax())


def search_pools(
    pools: RankedPools,
    evaluate: Evaluator,
    propose: Proposals = best_bounds,
    *,
    most_measured: int | None = None,
) -> PoolSearch:
    """Measure pools until no candidate is left, or so many were measured."""
    search = PoolSearch(pools=pools)
    for rank in propose(search):
        search.record(rank, evaluate(pools.counts[rank]))
        if not search.candidates.any() or len(search.ranks) == most_measured:
            break
    return search

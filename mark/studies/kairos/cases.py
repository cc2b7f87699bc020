"""Parts that the studies of Kairos share: models, pools within the budget, and how much a pool serves.

Kairos: B. Li, S. Samsi, V. Gadepally, D. Tiwari, HPDC 2023 (arXiv 2210.05889). The paper draws its throughputs: no
number of a pool stands in its text, so `published` is None everywhere and `claim` quotes the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from mark.catalog.latency_tables import load_latency_table, type_prices
from mark.catalog.load import known_models
from mark.dispatch.central.policy import CentralPolicy, CentralRule, TooLate
from mark.domain.load.sizes import SizeDistribution, kairos_sizes, sizes_from_formula
from mark.domain.models.latency_table import LatencyTable
from mark.domain.models.objective import Slo
from mark.planner.kairos.pool_choice import Ints, PoolSpace, choose_similar, pool_space
from mark.simulator.engine.compiled import CentralKernel
from mark.simulator.fixed.fixed_pool import Arrivals, FixedPool, PoolLoad, ServiceTimes
from mark.studies.plot import Curve

MODELS = ("ncf", "rm2", "wnd", "mtwnd", "dien")
"""The five models of Table 3; their objectives stand in the catalogue."""
BUDGET_USD_PER_HOUR = 2.5
"""The paper's default (section 7)."""

SYSTEM = {
    CentralRule.KAIROS: "Kairos",
    CentralRule.FCFS: "Ribbon (fcfs)",
    CentralRule.DRS: "DeepRecSys (drs)",
    CentralRule.CLOCKWORK: "Clockwork",
    CentralRule.ORACLE: "oracle",
}
"""Names of rules in tables, those that the paper compares."""
SMALL_SIZES = sizes_from_formula("normal:150,50,1,1000")
LARGE_SIZES = sizes_from_formula("normal:450,150,1,1000")
"""Sizes after the change of figures 12 and 16a. The paper states no parameters; ours were chosen because the
pool changes: for rm2, mtwnd and dien with the small ones, for wnd, mtwnd and dien with the large ones.
"""
SHORT_QUERIES = 1_000
"""Queries of a measurement that only finds which pools are good."""
FINALISTS = 4
"""Pools that are then measured in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Extent of a study's measurements."""

    models: tuple[str, ...] = MODELS
    budget_usd_per_hour: float = BUDGET_USD_PER_HOUR
    #: Queries of one measurement.
    queries: int = 20_000
    #: Measurements whose mean is a pool's throughput, each with queries of its own.
    seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model under a load, with the pools within a budget."""

    table: LatencyTable
    slo: Slo
    budget_usd_per_hour: float
    load: PoolLoad
    seeds: int
    kernel: CentralKernel

    @cached_property
    def space(self) -> PoolSpace:
        """The pools, ranked by their bounds."""
        return pool_space(
            self.table,
            self.load.sizes,
            self.slo,
            usd_per_hour=type_prices(self.table),
            budget_usd_per_hour=self.budget_usd_per_hour,
        )

    @property
    def chosen_rank(self) -> int:
        """Rank of Kairos' choice without a measurement."""
        return choose_similar(self.space.ranked)

    @property
    def chosen(self) -> dict[str, int]:
        """Kairos' choice without a measurement."""
        return self.pool(self.chosen_rank)

    def pool(self, rank: int) -> dict[str, int]:
        """The pool of this rank."""
        return self.space.pool(self.space.ranked.counts[rank])

    @cached_property
    def _evaluators(self) -> tuple[FixedPool, ...]:
        loads = (replace(self.load, seed=self.load.seed + turn) for turn in range(self.seeds))
        return tuple(FixedPool(self.table, self.slo, load, kernel=self.kernel) for load in loads)

    @cached_property
    def _known_qps(self) -> dict[tuple[CentralPolicy, tuple[tuple[str, int], ...]], float]:
        return {}

    def qps(
        self,
        pool: Mapping[str, int],
        rule: CentralRule = CentralRule.KAIROS,
        too_late: TooLate = TooLate.HOLD,
    ) -> float:
        """The most queries/s that the pool serves within the objective, a mean over the seeds."""
        policy = CentralPolicy(rule=rule, too_late=too_late)
        key = (policy, tuple(pool.items()))
        if key not in self._known_qps:
            self._known_qps[key] = fmean(one.allowable_qps(pool, policy) for one in self._evaluators)
        return self._known_qps[key]

    def evaluate(self, counts: Ints, rule: CentralRule = CentralRule.KAIROS) -> float:
        """The throughput under a rule of a pool with counts of shape (types,)."""
        return self.qps(self.space.pool(counts), rule)

    def best_pool(self, rule: CentralRule) -> dict[str, int]:
        """The best of all pools under a rule: the best few by a short measurement are measured in full.

        Pools whose bound is at most what another measured are passed over. What lies within a measured pool is
        not: a rule other than Kairos' may serve less with an instance more.
        """
        short = FixedPool(
            self.table,
            self.slo,
            replace(self.load, queries=min(SHORT_QUERIES, self.load.queries)),
            kernel=self.kernel,
        )
        policy = CentralPolicy(rule=rule)
        found: dict[int, float] = {}
        for rank, bound in enumerate(self.space.ranked.bound_qps):
            if bound <= max(found.values(), default=0.0):
                break
            found[rank] = short.allowable_qps(self.pool(rank), policy)
        best = sorted(found, key=lambda rank: -found[rank])[:FINALISTS]
        return max(map(self.pool, best), key=lambda pool: self.qps(pool, rule))

    def homogeneous_qps(self) -> float:
        """The throughput of the largest pool of the base type, scaled to the whole budget as in the paper."""
        pool, factor = self.space.homogeneous(self.budget_usd_per_hour)
        return self.qps(pool, CentralRule.FCFS) * factor

    def attained_curve(self, label: str, pool: Mapping[str, int], rule: CentralRule, top_qps: float) -> Curve:
        """Share of the queries in time at rates up to `top_qps`."""
        rates = tuple(top_qps * step / 24 for step in range(4, 25))
        shares = tuple(self._evaluators[0].run(pool, CentralPolicy(rule=rule), rate).attained for rate in rates)
        return Curve(label=label, x=rates, y=shares)


def case(  # noqa: PLR0913 - each figure varies another condition
    model: str,
    scope: Scope,
    *,
    kernel: CentralKernel,
    seed: int,
    sizes: SizeDistribution | None = None,
    arrivals: Arrivals = Arrivals.POISSON,
    noise: float = 0.0,
    slo_factor: float = 1.0,
    latency: ServiceTimes = ServiceTimes.MEAN,
) -> Case:
    """The case of a shipped model; `slo_factor` loosens its objective."""
    slo = known_models()[model].slo
    return Case(
        table=load_latency_table(model),
        slo=Slo(latency_s=slo.latency_s * slo_factor, target=slo.target),
        budget_usd_per_hour=scope.budget_usd_per_hour,
        load=PoolLoad(
            sizes=sizes or kairos_sizes(),
            arrivals=arrivals,
            latency=latency,
            queries=scope.queries,
            seed=seed,
            noise=noise,
        ),
        seeds=scope.seeds,
        kernel=kernel,
    )


def assumptions(scope: Scope) -> tuple[str, ...]:
    """Assumptions of every study of Kairos."""
    return (
        (
            "Profiles: means of the artifact's timings (boringlee24/hpdc23-kairos fa20590), loading included; one "
            "query an instance at a time. A query takes its row's mean, so that only sizes and arrivals vary."
        ),
        "Sizes: the artifact's mix of queries. Prices: on demand, as in Table 4.",
        (
            f"A throughput is the highest rate at which 99 % of {scope.queries:,} queries are in time, the mean "
            f"of {scope.seeds} seeds. Pools cost at most {scope.budget_usd_per_hour:g} USD/h."
        ),
        (
            "The homogeneous pool has the base type alone, first come, first served, and is scaled up to the "
            "whole budget (section 8.1)."
        ),
        "The paper draws its throughputs: no published number stands beside ours, only what its text claims.",
    )

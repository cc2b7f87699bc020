"""Choice of a pool within a budget: by Kairos' bound and similarity rule, or by a search that measures pools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from mark.catalog.latency_tables import load_latency_table, load_sizes, type_prices
from mark.config.policies import usable_cache
from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.domain.errors import unknown
from mark.domain.models.objective import Slo
from mark.planner.kairos.pool_choice import COMPARED, Ints, PoolSpace, choose_similar, pool_space
from mark.planner.kairos.pool_search import PoolSearch, search_pools
from mark.report.formatting import format_pool
from mark.report.tables import figures, make_table, texts
from mark.report.terminal import progress, show, show_json
from mark.simulator.engine.compiled import compiled_central_kernel
from mark.simulator.fixed.fixed_pool import Arrivals, FixedPool, PoolLoad, ServiceTimes
from mark.simulator.fixed.pool_rivals import SEARCHES, proposals
from mark.simulator.rng import stream

ONE_SHOT = "kairos"
METHODS = (ONE_SHOT, *SEARCHES)
"""Ways to choose: the first measures nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseOptions:
    """Input of `mark pool choose`."""

    #: A latency table; None for the shipped profiles.
    profiles: Path | None
    model: str
    slo: Slo
    budget_usd_per_hour: float
    sizes: str
    method: str
    arrivals: Arrivals
    latency: ServiceTimes
    queries: int
    seed: int


class PoolObject(TypedDict):
    """A pool and its bound."""

    #: Instances by type.
    pool: dict[str, int]
    #: Its cost.
    usd_per_hour: float
    #: Its bound.
    bound_qps: float


class MeasuredPool(PoolObject):
    """A pool that was measured."""

    #: Queries/s within the objective.
    allowable_qps: float


class ChooseDocument(TypedDict):
    """The document of `mark pool choose --json` (docs/json.md)."""

    model: str
    #: `latency_ms` and `target`.
    slo: dict[str, float]
    sizes: str
    budget_usd_per_hour: float
    method: str
    seed: int
    #: The type that a homogeneous pool would have.
    base: str
    #: The chosen pool: instances by type.
    pool: dict[str, int]
    #: Its cost.
    usd_per_hour: float
    #: Its bound.
    bound_qps: float
    #: Place among the bounds, from 1.
    bound_rank: int
    #: Queries/s that it served within the objective; null where nothing was measured.
    allowable_qps: float | None
    #: Pools within the budget.
    pools: int
    #: Pools that were measured.
    evaluations: int
    #: Measured pools, in the order of the search.
    measured: list[MeasuredPool]
    #: The ten best.
    best_bounds: list[PoolObject]


def choose_pool(options: ChooseOptions, *, as_json: bool) -> None:
    """Choose a pool and print it."""
    if options.method not in METHODS:
        raise unknown("method", options.method, METHODS)
    table = load_latency_table(options.model, options.profiles)
    sizes = load_sizes(options.sizes)
    space = pool_space(
        table,
        sizes,
        options.slo,
        usd_per_hour=type_prices(table),
        budget_usd_per_hour=options.budget_usd_per_hour,
    )
    search: PoolSearch | None = None
    if options.method != ONE_SHOT:
        load = PoolLoad(
            sizes=sizes,
            arrivals=options.arrivals,
            latency=options.latency,
            queries=options.queries,
            seed=options.seed,
        )
        evaluator = FixedPool(table, options.slo, load, kernel=compiled_central_kernel(usable_cache()))
        search = _searched(space, evaluator, options)
    document = _document(options, space, search)
    if as_json:
        show_json(document)
    else:
        _print(document)


def _searched(space: PoolSpace, evaluator: FixedPool, options: ChooseOptions) -> PoolSearch:
    policy = CentralPolicy(rule=CentralRule.KAIROS)
    with progress() as report:

        def evaluate(counts: Ints) -> float:
            pool = space.pool(counts)
            report(f"measuring {format_pool(pool)}", 0.0)
            return evaluator.allowable_qps(pool, policy)

        rng = stream(options.seed, f"pool search {options.method}")
        return search_pools(space.ranked, evaluate, proposals(options.method, rng))


def _document(options: ChooseOptions, space: PoolSpace, search: PoolSearch | None) -> ChooseDocument:
    rank = choose_similar(space.ranked) if search is None else search.best_rank
    chosen = _pool_object(space, rank)
    return {
        "model": options.model,
        "slo": {"latency_ms": round(options.slo.latency_s * 1000, 9), "target": options.slo.target},
        "sizes": options.sizes,
        "budget_usd_per_hour": options.budget_usd_per_hour,
        "method": options.method,
        "seed": options.seed,
        "base": space.base,
        **chosen,
        "bound_rank": rank + 1,
        "allowable_qps": None if search is None else search.best_qps,
        "pools": len(space.ranked),
        "evaluations": 0 if search is None else len(search.ranks),
        "measured": []
        if search is None
        else [
            {**_pool_object(space, at), "allowable_qps": qps}
            for at, qps in zip(search.ranks, search.measured_qps, strict=True)
        ],
        "best_bounds": [_pool_object(space, at) for at in range(min(COMPARED, len(space.ranked)))],
    }


def _pool_object(space: PoolSpace, rank: int) -> PoolObject:
    ranked = space.ranked
    return {
        "pool": space.pool(ranked.counts[rank]),
        "usd_per_hour": round(float(ranked.usd_per_hour[rank]), 9),
        "bound_qps": float(ranked.bound_qps[rank]),
    }


def _print(document: ChooseDocument) -> None:
    measured = document["allowable_qps"]
    show(
        f"{format_pool(document['pool'])}",
        f"{document['usd_per_hour']:g} of {document['budget_usd_per_hour']:g} USD/h; the bound is "
        f"{document['bound_qps']:.4g} queries/s, number {document['bound_rank']} of {document['pools']:,} pools",
    )
    if measured is not None:
        show(
            f"it serves {measured:.4g} queries/s within the objective; "
            f"{document['evaluations']} pools were measured ({document['method']})"
        )
    found = {format_pool(item["pool"]): item["allowable_qps"] for item in document["measured"]}
    table = make_table((*texts("pools of the best bounds"), *figures("USD/h", "bound", "measured")), gap=1)
    for item in document["best_bounds"]:
        name = format_pool(item["pool"])
        qps = f"{found[name]:.4g}" if name in found else ""
        table.add_row(name, f"{item['usd_per_hour']:g}", f"{item['bound_qps']:.4g}", qps)
    show("", table)

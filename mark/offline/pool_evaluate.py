"""Throughput of a fixed pool: the most queries/s within the objective, or the share in time at a rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

from mark.catalog.latency_tables import load_latency_table, load_sizes
from mark.config.policies import usable_cache
from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.domain.models.latency_table import parse_pool
from mark.domain.models.objective import Slo
from mark.report.formatting import percent
from mark.report.terminal import progress, show, show_json
from mark.simulator.engine.compiled import compiled_central_kernel
from mark.simulator.fixed.fixed_pool import Arrivals, FixedPool, PoolLoad, ServiceTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """Input of `mark pool evaluate`."""

    #: A latency table; None for the shipped profiles.
    profiles: Path | None
    model: str
    slo: Slo
    pool: str
    policy: CentralPolicy
    #: None to search the most that keeps the objective.
    qps: float | None
    arrivals: Arrivals
    latency: ServiceTimes
    queries: int
    sizes: str
    noise: float
    gateways: int
    seed: int


class EvaluateDocument(TypedDict):
    """The document of `mark pool evaluate --json` (docs/json.md)."""

    model: str
    #: `latency_ms` and `target`.
    slo: dict[str, float]
    #: Instances by type; the first is the base.
    pool: dict[str, int]
    dispatch: str
    sizes: str
    arrivals: str
    #: `mean`, `sample` or `learned`.
    latency: str
    #: Queries of a run.
    queries: int
    #: Gateways that share the pool.
    gateways: int
    seed: int
    #: Under drs: the size above which a query goes to the base type.
    threshold: NotRequired[int]
    #: Without `--qps`: the most queries/s within the objective; 0 where no rate is low enough.
    allowable_qps: NotRequired[float]
    #: With `--qps`: the rate.
    qps: NotRequired[float]
    #: Share of all queries that were in time.
    attained: NotRequired[float]
    #: `mean`, `p50`, `p95`, `p99`; null for the oracle, which queues nothing.
    latency_ms: NotRequired[Mapping[str, float] | None]
    #: Share of Kairos' decisions that were made in parts.
    partitioned: NotRequired[float]


def evaluate_pool(options: EvaluateOptions, *, as_json: bool) -> None:
    """Evaluate the pool and print what was found."""
    load = PoolLoad(
        sizes=load_sizes(options.sizes),
        arrivals=options.arrivals,
        latency=options.latency,
        queries=options.queries,
        seed=options.seed,
        noise=options.noise,
        gateways=options.gateways,
    )
    pool = parse_pool(options.pool)
    table = load_latency_table(options.model, options.profiles)
    table.check_pool(pool)
    judge = FixedPool(table, options.slo, load, kernel=compiled_central_kernel(usable_cache()))
    document: EvaluateDocument = {
        "model": options.model,
        "slo": {"latency_ms": round(options.slo.latency_s * 1000, 9), "target": options.slo.target},
        "pool": pool,
        "dispatch": str(options.policy.rule),
        "sizes": options.sizes,
        "arrivals": str(options.arrivals),
        "latency": str(options.latency),
        "queries": options.queries,
        "gateways": options.gateways,
        "seed": options.seed,
    }
    with progress() as report:
        report(f"measuring {options.pool}", 0.0)
        policy = options.policy
        if policy.rule is CentralRule.DRS:
            policy = judge.with_threshold(pool, policy)
            assert policy.threshold is not None, "the climb ends at a size"
            document["threshold"] = policy.threshold
        if options.qps is None:
            document["allowable_qps"] = judge.allowable_qps(pool, policy)
        else:
            run = judge.run(pool, policy, options.qps)
            document |= {
                "qps": options.qps,
                "attained": run.attained,
                "latency_ms": run.latency_ms,
                "partitioned": run.partitioned,
            }
    if as_json:
        show_json(document)
    else:
        _print(document, options.slo)


def _print(document: EvaluateDocument, slo: Slo) -> None:
    within = f"within {document['slo']['latency_ms']:g} ms"
    if "allowable_qps" in document:
        show(f"{document['allowable_qps']:.4g} queries/s with {percent(slo.target)} of them {within}")
        return
    show(f"{percent(document['attained'])} {within} at {document['qps']:g} queries/s")
    latency_ms = document["latency_ms"]
    if latency_ms:
        show(", ".join(f"{name} {value:.4g} ms" for name, value in latency_ms.items()))
    if document["partitioned"]:
        show(f"{percent(document['partitioned'])} of the matchings were made in parts: too many waited for one")

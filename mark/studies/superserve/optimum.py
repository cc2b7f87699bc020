"""Both rules beside the best schedule of small instances, which the zero-one program finds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mark.catalog.variant_tables import load_variants
from mark.dispatch.variants.slackfit_optimum import best_utility
from mark.domain.models.objective import Slo
from mark.domain.models.variants import VariantTable
from mark.simulator.fixed.fixed_workers import FixedWorkers
from mark.studies.study import Row, StudyContext, View
from mark.studies.superserve.cases import MODEL, NAMES, OURS, RIVALS, SLACKFIT, SLO, WORKER, case_rng

TICK_S = 1 / 512
"""A power of two, so that ticks and their sums are exact."""
SLO_TICKS = round(SLO.latency_s / TICK_S)
WORKERS, REQUESTS, LARGEST, INSTANCES = 1, 16, 4, 30
"""So that requests compete: with larger batches or more workers every rule finds the best schedule."""
WITHIN_TICKS = (2, 40)
"""Requests arrive within so many ticks, drawn anew for each instance: from all at once to hardly any waiting."""
VIEW = View(
    title="Utility (sum of accuracies of answers in time) over that of the best schedule, small instances",
    index=("instances", "policy"),
    quantities=("of_optimum_mean", "of_optimum_worst", "within_5_percent"),
    names=NAMES,
)


def optimum_rows(context: StudyContext, instances: int = INSTANCES) -> Iterator[Row]:
    """Shares of the best utility, for our rule, SlackFit and their rivals."""
    ticks, rng = ticked_table(), case_rng(context, "small instances")
    workers = FixedWorkers(
        ticks,
        WORKER,
        workers=WORKERS,
        slo=Slo(latency_s=SLO_TICKS * TICK_S, target=SLO.target),
        kernel=context.variant_kernel(),
        slacks=32 * SLO_TICKS,
    )
    accuracies = [variant.accuracy for variant in ticks.variants]
    latency = [[round(s / TICK_S) for s in row] for row in ticks.rows(WORKER)]
    found: dict[str, list[float]] = {name: [] for name in (OURS, SLACKFIT, *RIVALS)}
    for _ in range(instances):
        arrived = np.sort(rng.integers(rng.integers(*WITHIN_TICKS), size=REQUESTS))
        best = best_utility(arrived.tolist(), latency, accuracies, workers=WORKERS, slo=SLO_TICKS)
        for name, shares in found.items():
            run = workers.run(name, arrived.astype(np.float64) * TICK_S)
            shares.append(run.attained * REQUESTS * (run.accuracy or 0.0) / best)
    for name, shares in found.items():
        where = (("instances", instances), ("policy", name))
        near = sum(share >= 0.95 for share in shares) / instances
        yield Row(where, "of_optimum_mean", float(np.mean(shares)))
        yield Row(where, "of_optimum_worst", min(shares))
        yield Row(where, "within_5_percent", near)


def ticked_table() -> VariantTable:
    """The subnets with small batches, and latencies rounded up to ticks."""
    table = load_variants(MODEL).table
    rows = np.ceil(np.array(table.rows(WORKER))[:, :LARGEST] / TICK_S) * TICK_S
    return VariantTable(
        model=table.model,
        variants=table.variants,
        latency_s={WORKER: tuple(tuple(float(s) for s in row) for row in rows)},
    )

"""Speed of decisions about variants: one look into SlackFit's table, and the kernel's requests/s with it."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from mark.catalog.variant_tables import load_variants
from mark.dispatch.variants.slackfit import VariantRule, build_choices, choose
from mark.domain.models.objective import Slo
from mark.simulator.engine.compiled import compiled_variant_kernel
from mark.simulator.fixed.fixed_workers import FixedWorkers
from mark.simulator.request_streams import bursty_arrivals
from scripts.bench.engine import ROUNDS, cache_dir, say

MODEL, WORKER, WORKERS = "superserve-cnn", "rtx-2080-ti", 8
SLO = Slo(latency_s=0.036, target=0.999)
LOOKS = 100_000


def main() -> None:
    """Run both benches."""
    bench_decision()
    bench_kernel()


def bench_decision() -> None:
    """One decision as Python takes it, with slacks and queues of all kinds."""
    rows = np.array(load_variants(MODEL).table.rows(WORKER))
    latency_s = np.concatenate((np.zeros((len(rows), 1)), rows), axis=1)[None]
    choices = build_choices(VariantRule.SLACKFIT, latency_s, horizon_s=SLO.latency_s)
    rng = np.random.default_rng(1)
    asked = list(
        zip(rng.uniform(0, SLO.latency_s, LOOKS).tolist(), rng.integers(1, 60, LOOKS).tolist(), strict=True)
    )
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for slack_s, queued in asked:
            choose(0, slack_s, queued, choices)
        took.append((time.perf_counter() - began) / LOOKS)
    say("SlackFit, one decision in plain Python", f"{median(took) * 1e6:.1f} us", "<= 50")


def bench_kernel() -> None:
    """Eight workers under bursts: requests/s of the whole replay, decisions within."""
    table, kernel = load_variants(MODEL).table, compiled_variant_kernel(cache_dir())
    workers = FixedWorkers(table, WORKER, workers=WORKERS, slo=SLO, kernel=kernel)
    arrived_s = bursty_arrivals(1500, 5550, 8.0, 30.0, np.random.default_rng(2))
    workers.run("slackfit", arrived_s)  # compiles, and builds the table
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        workers.run("slackfit", arrived_s)
        took.append(time.perf_counter() - began)
    say("kernel of variants, SlackFit on 8 workers", f"{arrived_s.size / median(took) / 1e6:.2f} M requests/s", "")


if __name__ == "__main__":
    main()

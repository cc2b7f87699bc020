"""Packing of models on shared instances: time of a plan, and worth beside the integer program's.

`python -m scripts.bench.packing [SERVICES]` judges so many random small services, 40 unless told.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from mark.planner.shared.packing import pack
from mark.planner.shared.packing_milp import most_worth
from scripts.bench.engine import say
from scripts.bench.services import HOURS, some_needs, some_types

SERVICES = 40
MOST_SECONDS = {20: 1.0, 100: 0.2, 1000: 3.0}
"""CPU seconds that a plan of so many models may take."""


def main() -> None:
    """Run both benches."""
    bench_time()
    bench_worth(int(sys.argv[1]) if len(sys.argv) > 1 else SERVICES)


def bench_time() -> None:
    """CPU time of plans of five types, kernels compiled."""
    for count, most_s in MOST_SECONDS.items():
        needs, types = some_needs(np.random.default_rng(count), count, 5), some_types(5)
        pack(needs[:2], types, hours=HOURS)
        began = time.process_time()
        found = pack(needs, types, hours=HOURS)
        took_s = time.process_time() - began
        say(
            f"plan of {count} models, {len(found.hosts)} instances",
            f"{took_s:.2f} s of CPU",
            f"at most {most_s} s",
        )


def bench_worth(services: int) -> None:
    """Share of the worth of the best packing that the integer program finds, one to three models and two types."""
    shares = []
    for seed in range(services):
        rng = np.random.default_rng(seed)
        needs, types = some_needs(rng, int(rng.integers(1, 4)), 2), some_types(2)
        best, _ = most_worth(needs, types, hours=HOURS)
        if best > 0.0:
            shares.append(pack(needs, types, hours=HOURS).worth_usd_per_hour / best)
    least, low, middle = np.quantile(shares, (0.0, 0.05, 0.5))
    figure = f"{least:.3f}, {low:.3f}, {middle:.3f}"
    say(f"worth over the program's, {len(shares)} services: least, 5 %, median", figure, "5 %: at least 0.95")


if __name__ == "__main__":
    main()

"""Rewrites SuperServe's subnets in our own schema: `MARK_DATA=... python -m scripts.superserve_variants`.

Reads `profiles/superserve_subnets.csv` there and writes `mark/catalog/data/variants`. The paper draws its
latencies: ours follow from numbers of its text (`profiles/superserve_numbers.csv`) by the formula below.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

OUT = Path(__file__).parents[1] / "mark" / "catalog" / "data" / "variants" / "superserve-cnn.json"
LARGEST = 16
"""Largest batch, items."""
FIXED_ITEMS = 2
"""A batch takes the time of so many items more than it has."""
PEAK_OVER_MEAN = 8750 / 6400
"""Section 6.3: peak and mean of the trace, requests/s."""
FIXED_TEST_RPS, FIXED_TEST_WORKERS, FIXED_TEST_BEST = 4000, 6, "s3"
"""Appendix B: with so many workers at this mean rate, s3 is the most accurate subnet that attains 99 %."""
FORMULA = (
    "GFLOPs rise geometrically with accuracy from 0.9 to 7.5 (section 6.1). Items/s of full batches fall with a "
    "power of the GFLOPs, by 8000/2000 over that range (section 3.1). s3 serves 4000 x 8750/6400 requests/s on 6 "
    "workers with full batches: it is the most accurate subnet that attains 99 % there (appendix B, section 6.3). "
    "A batch of B takes (B + 2) / 18 of a batch of 16."
)


def main() -> None:
    """Write the file."""
    folder = Path(os.environ["MARK_DATA"]) / "profiles"
    with (folder / "superserve_subnets.csv").open(encoding="utf-8", newline="") as file:
        subnets = list(csv.DictReader(file))
    names = [row["subnet"] for row in subnets]
    accuracies = [float(row["top1_accuracy_percent"]) / 100 for row in subnets]
    document = {
        "format": "mark-variants/1",
        "model": "superserve-cnn",
        "accuracy": {
            "evidence": "published",
            "source": "SuperServe (NSDI 2025, arXiv 2312.16733), six subnets of its CNN supernet",
        },
        "latency": {
            "evidence": "assumed",
            "source": "The paper draws latencies on an RTX 2080 Ti and states none",
            "formula": FORMULA,
        },
        "variants": [{"name": n, "accuracy": round(a, 6)} for n, a in zip(names, accuracies, strict=True)],
        "latency_ms": {"rtx-2080-ti": latencies_ms(names, accuracies)},
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def latencies_ms(names: Sequence[str], accuracies: Sequence[float]) -> list[list[float]]:
    """Milliseconds by subnet and batch of 1, 2, ... items, by the formula."""
    low, high = accuracies[0], accuracies[-1]
    range_gflops, range_throughput = 7.5 / 0.9, 8000 / 2000
    gflops = [0.9 * range_gflops ** ((accuracy - low) / (high - low)) for accuracy in accuracies]
    power = math.log(range_throughput) / math.log(range_gflops)
    anchor_rps = FIXED_TEST_RPS * PEAK_OVER_MEAN / FIXED_TEST_WORKERS
    anchor = gflops[names.index(FIXED_TEST_BEST)]
    full_ms = [1000 * LARGEST / (anchor_rps * (anchor / found) ** power) for found in gflops]
    share = [(batch + FIXED_ITEMS) / (LARGEST + FIXED_ITEMS) for batch in range(1, LARGEST + 1)]
    return [[round(ms * part, 3) for part in share] for ms in full_ms]


if __name__ == "__main__":
    main()

"""Shipped tables of variants: what is published stands as published, what is assumed follows from its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from mark.catalog.variant_tables import load_variants, shipped_variants
from mark.domain.errors import Misconfigured
from tests.tables import rows

SUPERSERVE = "superserve-cnn"
LARGEST = 16
"""Largest batch, items."""
FIXED_ITEMS = 2
"""A batch takes the time of so many items more than it has."""
PEAK_OVER_MEAN = 8750 / 6400
"""Section 6.3: peak and mean of the trace, requests/s."""
FIXED_TEST_RPS, FIXED_TEST_WORKERS, FIXED_TEST_BEST = 4000, 6, "s3"
"""Appendix B: with so many workers at this mean rate, s3 is the most accurate subnet that attains 99 %."""


def test_every_shipped_table_reads_and_says_where_it_is_from():
    for name in shipped_variants():
        found = load_variants(name)
        assert found.table.model == name
        assert len(found.notes) == 2


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


def test_superserve_s_latencies_are_assumed_by_their_formula():
    found = load_variants(SUPERSERVE)
    table = found.table
    assert "assumed" in found.notes[1]
    assert "Formula" in found.notes[1]
    expected = latencies_ms(table.names, [variant.accuracy for variant in table.variants])
    for row, ms in zip(table.rows("rtx-2080-ti"), expected, strict=True):
        assert row == pytest.approx([one / 1000 for one in ms])
    rates = [16 / row[-1] for row in table.rows("rtx-2080-ti")]
    assert rates[0] / rates[-1] == pytest.approx(8000 / 2000, rel=1e-3)
    assert 6 * rates[2] == pytest.approx(4000 * 8750 / 6400, rel=1e-3)
    assert table.pareto("rtx-2080-ti").names == table.names


def test_superserve_s_accuracies_are_the_published_ones(published_dir):
    table_rows = rows(published_dir / "superserve_subnets.csv")
    published = {row["subnet"]: float(row["top1_accuracy_percent"]) / 100 for row in table_rows}
    table = load_variants(SUPERSERVE).table
    assert {one.name: one.accuracy for one in table.variants} == pytest.approx(published)


def test_an_unknown_table_gets_the_nearest_name():
    with pytest.raises(Misconfigured, match="did you mean 'superserve-cnn'"):
        load_variants("superserve-cn")

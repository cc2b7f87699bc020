"""Shipped tables of variants: what is published stands as published, what is assumed follows from its formula."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mark.catalog.variant_tables import load_variants, shipped_variants
from mark.domain.errors import Misconfigured
from tests.tables import rows

SUPERSERVE = "superserve-cnn"
LARGEST = 16
"""Largest batch, items."""
FIXED_ITEMS = 2
"""A batch takes the time of so many items more than it has."""
FULL_RPS = {"s1": 8000 / 8, "s3": 4000 * 8750 / 6400 / 6, "s6": 2000 / 8}
"""A worker's requests/s in full batches: figure 5c for the ends, appendix B with section 6.3's peak for s3."""


def test_every_shipped_table_reads_and_says_where_it_is_from():
    for name in shipped_variants():
        found = load_variants(name)
        assert found.table.model == name
        assert len(found.notes) == 2


def latencies_ms(names: Sequence[str], accuracies: Sequence[float]) -> list[list[float]]:
    """Milliseconds by subnet and batch of 1, 2, ... items, by the formula."""
    known = [accuracies[names.index(name)] for name in FULL_RPS]
    rates = np.exp(np.interp(accuracies, known, np.log(list(FULL_RPS.values()))))
    share = [(batch + FIXED_ITEMS) / (LARGEST + FIXED_ITEMS) for batch in range(1, LARGEST + 1)]
    return [[round(1000 * LARGEST / float(rate) * part, 3) for part in share] for rate in rates]


def test_superserve_s_latencies_are_assumed_by_their_formula():
    found = load_variants(SUPERSERVE)
    table = found.table
    assert "assumed" in found.notes[1]
    assert "Formula" in found.notes[1]
    expected = latencies_ms(table.names, [variant.accuracy for variant in table.variants])
    for row, ms in zip(table.rows("rtx-2080-ti"), expected, strict=True):
        assert row == pytest.approx([one / 1000 for one in ms])
    assert table.pareto("rtx-2080-ti").names == table.names


def test_superserve_s_accuracies_are_the_published_ones(published_dir):
    table_rows = rows(published_dir / "superserve_subnets.csv")
    published = {row["subnet"]: float(row["top1_accuracy_percent"]) / 100 for row in table_rows}
    table = load_variants(SUPERSERVE).table
    assert {one.name: one.accuracy for one in table.variants} == pytest.approx(published)


def test_an_unknown_table_gets_the_nearest_name():
    with pytest.raises(Misconfigured, match="did you mean 'superserve-cnn'"):
        load_variants("superserve-cn")

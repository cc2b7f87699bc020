"""Shipped tables of variants: what is published stands as published, what is assumed follows from its formula."""

from __future__ import annotations

import pytest

from mark.catalog.variant_tables import load_variants, shipped_variants
from mark.domain.errors import Misconfigured
from scripts.superserve_variants import latencies_ms
from tests.tables import rows

SUPERSERVE = "superserve-cnn"


def test_every_shipped_table_reads_and_says_where_it_is_from():
    for name in shipped_variants():
        found = load_variants(name)
        assert found.table.model == name
        assert len(found.notes) == 2


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

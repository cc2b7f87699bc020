from __future__ import annotations

import pytest

from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import kairos_sizes, size_distribution, sizes_from_csv, sizes_from_formula
from tests.tables import rows


def test_formulas_round_up_to_whole_items_and_clip_at_both_ends():
    found = sizes_from_formula("normal:2,1,1,4")

    assert found.sizes == (1, 2, 3, 4)
    assert found.probabilities == pytest.approx((0.158655, 0.341345, 0.341345, 0.158655), abs=1e-6)
    assert found.cumulative[-1] == 1.0


@pytest.mark.parametrize(
    ("spec", "mean", "largest"),
    [("constant:7", 7.0, 7), ("lognormal:5.1,0.2,1,1024", 167.8, 854), ("kairos", 239.1, 999)],
)
def test_means_of_formulas(spec, mean, largest):
    found = sizes_from_formula(spec)

    assert found.mean == pytest.approx(mean, abs=0.05)
    assert found.largest == largest


def test_a_table_gives_its_probabilities():
    found = sizes_from_csv("sizes.csv", ["size,probability", "10,0.25", "20,0.75", "30,0"])

    assert found.sizes == (10, 20)
    assert found.probabilities == (0.25, 0.75)
    assert found.mean == 17.5


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("constant:ten", "'ten' is not a number"),
        ("constant:0", "whole number from 1"),
        ("constant:2.5", "whole number from 1"),
        ("lognormal:5,0.2,1", "must read lognormal"),
        ("normal:5,-1,1,9", "SIGMA must be above 0"),
        ("normal:5,1,9,1", "MAX must be at least MIN"),
        ("normal:5,nan,1,9", "not a finite number"),
    ],
)
def test_a_wrong_formula_is_refused(spec, said):
    with pytest.raises(Misconfigured, match=said):
        sizes_from_formula(spec)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["size,share", "1,1"], "header must have size and probability"),
        (["size,probability", "one,1"], "line 2.*'one' is not a number"),
        (["size,probability", "1,0.5", "1,0.5"], "line 3.*twice"),
        (["size,probability", "1,0.5"], "sum to 0.5"),
        (["size,probability", "1,-1"], "between 0 and 1"),
        (["size,probability"], "sum to 0"),
    ],
    ids=["header", "no number", "twice", "sum", "negative", "empty"],
)
def test_a_wrong_table_is_refused(lines, said):
    with pytest.raises(Misconfigured, match=said):
        sizes_from_csv("sizes.csv", lines)


def test_the_mix_of_kairos_is_the_one_of_its_artifact(published_dir):
    published = rows(published_dir / "kairos_query_size_pmf.csv")
    drawn = {int(row["batch_size_rounded_up_to_10"]): float(row["probability"]) for row in published}
    found = dict.fromkeys(drawn, 0.0)
    for size, probability in zip(kairos_sizes().sizes, kairos_sizes().probabilities, strict=True):
        found[-(-size // 10) * 10] += probability

    assert found == pytest.approx(drawn, abs=3e-4)


def test_a_quantile_is_the_size_that_so_many_do_not_exceed() -> None:
    sizes = size_distribution("test", {1: 0.5, 7: 0.4, 30: 0.1})
    assert [sizes.quantile(share) for share in (0.1, 0.5, 0.51, 0.9, 0.95, 1.0)] == [1, 1, 7, 7, 30, 30]

"""Variants of a model: their order, floors, and those that no other one beats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.domain.models.variants import AccuracyTotal, ServedAccuracy, Variant, VariantTable

SMALL, MIDDLE, LARGE = Variant("small", 0.7), Variant("middle", 0.75), Variant("large", 0.8)


def table(*rows: tuple[float, ...], variants: tuple[Variant, ...] = (SMALL, MIDDLE, LARGE)) -> VariantTable:
    return VariantTable(model="net", variants=variants, latency_s={"c5.large": rows})


def test_a_floor_is_the_first_variant_that_is_accurate_enough():
    found = table((0.1, 0.2), (0.2, 0.3), (0.4, 0.5))
    assert [found.floor_number(accuracy) for accuracy in (0.0, 0.7, 0.71, 0.8)] == [0, 0, 1, 2]
    with pytest.raises(Misconfigured, match=r"best, large, has 0\.8"):
        found.floor_number(0.81)
    with pytest.raises(Misconfigured, match="huge"):
        found.number("huge")


def test_a_variant_that_another_one_beats_is_left_out():
    assert table((0.1, 0.2), (0.3, 0.4), (0.2, 0.4)).pareto("c5.large").names == ("small", "large")
    twins = (Variant("one", 0.7), Variant("two", 0.7))
    assert table((0.1,), (0.1,), variants=twins).pareto("c5.large").names == ("one",)


@pytest.mark.parametrize(
    ("rows", "variants", "message"),
    [
        ([(0.1,)], (SMALL, LARGE), "1 rows for 2 variants"),
        ([(0.1,), (0.1, 0.2)], (SMALL, LARGE), "batch sizes"),
        ([(0.2, 0.1)], (SMALL,), "never fall"),
        ([(0.1,), (0.1,)], (LARGE, SMALL), "rise in accuracy"),
        ([(0.1,), (0.1,)], (SMALL, SMALL), "names of their own"),
        ([], (), "no variants"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(
    rows: list[tuple[float, ...]], variants: tuple[Variant, ...], message: str
):
    with pytest.raises(Misconfigured, match=message):
        table(*rows, variants=variants)


def test_an_accuracy_is_a_share():
    with pytest.raises(Misconfigured, match="share"):
        Variant("odd", 1.1)


ANSWERED = st.builds(ServedAccuracy, answers=st.integers(1, 10**6), mean=st.floats(0.0, 1.0))


@given(st.lists(ANSWERED), ANSWERED)
def test_what_was_answered_since_a_total_is_what_was_added_to_it(
    before: list[ServedAccuracy], more: ServedAccuracy
):
    total = AccuracyTotal()
    for one in before:
        total = total.with_answers(one)
    assert total.since(total) is None
    found = total.with_answers(more).since(total)
    assert found is not None
    assert found.answers == more.answers
    assert found.mean == pytest.approx(more.mean, abs=1e-6 * (1 + total.answers / more.answers))
    assert 0 <= found.mean <= 1

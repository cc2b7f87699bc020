"""Sizes of the last requests: bins, sums and the window."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.load.size_window import (
    EMPTY_WINDOW,
    MEASURED,
    SizeCounts,
    SizeWindow,
    add_sizes,
    size_bin,
    sizes_since,
)
from mark.domain.load.sizes import LARGEST_SIZE, size_distribution
from mark.domain.plans.pool_policy import PoolPolicy

SIZE = st.integers(1, LARGEST_SIZE)
COUNTS = st.dictionaries(SIZE.map(size_bin), st.integers(1, 500), max_size=6).map(
    lambda some: add_sizes(some.items())
)
WINDOW = 1000


def total(counts: SizeCounts) -> int:
    return sum(count for _, count in counts)


@given(SIZE, SIZE)
def test_a_bin_is_narrow_keeps_the_order_and_is_its_own(one: int, other: int) -> None:
    assert one <= size_bin(one) <= one * (1 + 1 / 32)
    assert size_bin(size_bin(one)) == size_bin(one)
    assert (size_bin(one) <= size_bin(other)) or one > other


def test_a_histogram_is_small_and_small_sizes_are_exact() -> None:
    assert [size_bin(size) for size in range(1, 65)] == list(range(1, 65))
    assert len({size_bin(size) for size in range(1, 1001)}) < 200


@given(COUNTS, COUNTS)
def test_histograms_add_up_and_what_has_grown_since_is_what_was_added(one: SizeCounts, more: SizeCounts) -> None:
    both = add_sizes(one, more)
    assert both == add_sizes(more, one)
    assert dict(both) == dict(Counter(dict(one)) + Counter(dict(more)))
    assert sizes_since(both, one) == more
    assert total(sizes_since((), one)) == 0


@given(st.lists(COUNTS, max_size=12))
def test_a_window_knows_the_last_requests_and_no_others(units: list[SizeCounts]) -> None:
    window = EMPTY_WINDOW
    for done, counts in enumerate(units, start=1):
        before, window = window, window.followed_by(counts, WINDOW)
        assert window.requests >= min(WINDOW // 2, sum(map(total, units[:done])))
        assert window.requests < WINDOW + max(map(total, units[:done]), default=0)
        assert window.requests <= before.requests + total(counts)
        last = next(n for n in range(done + 1) if sum(map(total, units[done - n : done])) == window.requests)
        assert add_sizes(window.older, window.newer) == add_sizes(*units[done - last : done])


def test_a_mix_that_has_gone_is_forgotten() -> None:
    window = SizeWindow().followed_by(((900, WINDOW),), WINDOW)
    for _ in range(2):
        window = window.followed_by(((10, WINDOW // 2),), WINDOW)
    found = window.distribution(WINDOW, 1000)
    assert found is not None
    assert (found.name, found.sizes) == (MEASURED, (10,))


def test_sizes_are_those_of_the_settings_until_enough_are_measured_and_none_is_larger_than_what_is_served() -> (
    None
):
    told = size_distribution("told", {1: 1.0})
    pool = PoolPolicy(budget_usd_per_hour=1.0, sizes=told, size_window=WINDOW)
    few = pool.watch(EMPTY_WINDOW, ((4, 60), (1008, 39)))
    assert pool.sizes_now(few, 1000) is told
    enough = pool.watch(few, ((4, 1),))
    found = pool.sizes_now(enough, 1000)
    assert found.sizes == (4, 1000)
    assert found.probabilities == pytest.approx((0.61, 0.39))


def test_a_policy_that_remembers_no_sizes_keeps_to_those_of_the_settings() -> None:
    told = size_distribution("told", {1: 1.0})
    pool = PoolPolicy(budget_usd_per_hour=1.0, sizes=told)
    seen = pool.watch(EMPTY_WINDOW, ((4, 100_000),))
    assert seen == EMPTY_WINDOW
    assert pool.sizes_now(seen, 1000) is told

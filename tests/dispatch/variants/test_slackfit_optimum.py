"""The best schedule of known requests: beside all schedules of tiny instances, and beside the rules."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.dispatch.variants.slackfit_optimum import best_utility
from mark.domain.errors import Misconfigured


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[int], list[list[int]], list[float], int, int]:
    """Arrivals, latencies that rise with batch, accuracies, workers and the time to answer; all in ticks."""
    arrived = sorted(draw(st.lists(st.integers(0, 6), min_size=1, max_size=4)))
    variants, largest = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    latency = [
        sorted(draw(st.lists(st.integers(1, 5), min_size=largest, max_size=largest))) for _ in range(variants)
    ]
    accuracies = sorted(
        draw(st.lists(st.sampled_from([0.5, 0.6, 0.75, 1.0]), min_size=variants, max_size=variants))
    )
    return arrived, latency, accuracies, draw(st.integers(1, 2)), draw(st.integers(2, 8))


def searched(
    arrived: list[int], latency: list[list[int]], accuracies: list[float], workers: int, slo: int
) -> float:
    """The best of all schedules of any batches, tick by tick."""
    end = max(arrived) + slo

    @cache
    def best(now: int, left: frozenset[int], busy: tuple[int, ...]) -> float:
        if now > end or not left:
            return 0.0
        found = best(now + 1, left, tuple(max(0, ticks - 1) for ticks in busy))
        if 0 not in busy:
            return found
        here = [one for one in left if arrived[one] <= now]
        for variant, row in enumerate(latency):
            for size in range(1, min(len(row), len(here)) + 1):
                for batch in combinations(here, size):
                    if now + row[size - 1] <= min(arrived[one] for one in batch) + slo:
                        after = tuple(sorted((*busy[1:], row[size - 1])))
                        rest = best(now, left - set(batch), after)
                        found = max(found, accuracies[variant] * size + rest)
        return found

    return best(0, frozenset(range(len(arrived))), (0,) * workers)


@settings(max_examples=60)
@given(instances())
def test_the_program_finds_the_best_of_all_schedules(case: tuple) -> None:
    arrived, latency, accuracies, workers, slo = case
    found = best_utility(arrived, latency, accuracies, workers=workers, slo=slo)
    assert found == pytest.approx(searched(arrived, latency, accuracies, workers, slo))


def test_nothing_can_be_in_time_and_all_can():
    assert best_utility([0, 1], [[5, 6]], [0.9], workers=1, slo=4) == 0
    assert best_utility([0, 1], [[2, 3], [4, 5]], [0.5, 0.9], workers=2, slo=6) == pytest.approx(1.8)


def test_time_is_in_whole_ticks():
    with pytest.raises(Misconfigured, match="whole ticks"):
        best_utility([0], [[1.5]], [1.0], workers=1, slo=4)  # type: ignore[list-item]
    assert best_utility(np.array([0]).tolist(), [[1]], [1.0], workers=1, slo=4) == 1

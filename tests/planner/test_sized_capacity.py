"""Capacity in requests/s where requests have sizes: how they fill batches of so many items."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.dispatch.batcher import fits
from mark.domain.load.sizes import SizeDistribution, kairos_sizes, size_distribution, sizes_from_formula
from mark.domain.models.profile import Profile
from mark.planner.batching import capacity_rps, tune_batching
from tests.planner.builders import profile


def linear(largest: int) -> Profile:
    """Half a second, and a tenth for each item."""
    return profile({size: 0.5 + 0.1 * size for size in range(1, largest + 1)})


def served_rps(known: Profile, max_batch: int, sizes: SizeDistribution, requests: int) -> float:
    """The same by packing a long queue of drawn requests."""
    drawn = np.random.default_rng(7).choice(sizes.sizes, requests, p=sizes.probabilities).tolist()
    latency_s = [0.0, *known.latencies_s(max(max_batch, sizes.largest))]
    seconds, items = 0.0, 0
    for size in drawn:
        if not fits(items, size, max_batch):
            seconds, items = seconds + latency_s[items], 0
        items += size
    return requests / (seconds + latency_s[items])


@given(
    weights=st.dictionaries(st.integers(1, 25), st.floats(0.05, 1.0), min_size=1, max_size=6),
    max_batch=st.integers(1, 20),
)
@settings(deadline=None, max_examples=40)
def test_it_is_what_a_server_that_is_always_busy_serves(weights: dict[int, float], max_batch: int) -> None:
    sizes = size_distribution("test", weights)
    found = capacity_rps(linear(25), max_batch, sizes)
    assert found == pytest.approx(served_rps(linear(25), max_batch, sizes, 20_000), rel=0.05)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, 10 / 1.5), (3, 3 / 1.4), (10, 1 / 1.5), (11, 1 / 1.6), (20, 1 / 2.5)],
    ids=["one-item", "a-place-left", "a-batch", "larger-than-a-batch", "twice-a-batch"],
)
def test_requests_of_one_size(size: int, expected: float) -> None:
    sizes = sizes_from_formula(f"constant:{size}")
    assert capacity_rps(linear(20), 10, sizes) == pytest.approx(expected)


def test_without_batches_it_is_one_over_the_mean_time() -> None:
    sizes = size_distribution("test", {2: 0.5, 8: 0.5})
    assert capacity_rps(linear(10), 1, sizes) == pytest.approx(1 / (0.5 * 0.7 + 0.5 * 1.3))


def test_a_published_mix_of_a_thousand_sizes() -> None:
    known, sizes = profile({size: 0.002 + 1e-5 * size for size in range(10, 1001, 10)}), kairos_sizes()
    assert capacity_rps(known, 400, sizes) == pytest.approx(served_rps(known, 400, sizes, 200_000), rel=0.01)


def test_the_tuner_chooses_the_same_batch_and_counts_requests() -> None:
    plain, sized = tune_batching(linear(20), 2.0), tune_batching(linear(20), 2.0, sizes_from_formula("constant:5"))
    assert plain is not None
    assert sized is not None
    assert sized.batch == plain.batch
    assert sized.capacity_rps == pytest.approx(plain.batch.max_batch // 5 / linear(20).latency_s(15))

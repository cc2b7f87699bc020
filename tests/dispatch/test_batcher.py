"""Batches of requests with sizes: how they are filled, and how the queue is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.batcher import fits, places_after, whole_batches


def packed(sizes: list[int], max_batch: int) -> list[list[int]]:
    """The batches that a server which is always busy serves one after the other."""
    batches: list[list[int]] = []
    for size in sizes:
        if not batches or not fits(sum(batches[-1]), size, max_batch):
            batches.append([])
        batches[-1].append(size)
    return batches


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=40), max_batch=st.integers(1, 30))
def test_places_count_the_batches_to_come(sizes: list[int], max_batch: int) -> None:
    """Taking one batch after the other from the queue leaves none behind: places and requests agree."""
    places = 0
    for size in sizes:
        places = places_after(places, size, max_batch)
    for batch in packed(sizes, max_batch):
        items = sum(batch)
        assert items <= max_batch or len(batch) == 1, "only one that is larger than a batch goes beyond it, alone"
        assert places > 0
        places -= min(places, whole_batches(items, max_batch))
    assert places == 0


@given(requests=st.integers(1, 100), max_batch=st.integers(1, 30))
def test_requests_of_one_item_are_places(requests: int, max_batch: int) -> None:
    places = 0
    for _ in range(requests):
        places = places_after(places, 1, max_batch)
    assert places == requests

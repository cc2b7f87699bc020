"""Clients' totals between marks, and their parts of the cost, which add up to what serving their answers cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.client_totals import ClientTotals, between, costs_by_client, grown, totals_of
from mark.accounting.hourly_totals import HourlyMark, clients_at, dump_marks, first_mark, load_marks, next_mark
from mark.domain.demand import Demand
from mark.domain.load.traffic import ClientTraffic, ModelTraffic

COUNTS = st.integers(min_value=0, max_value=100_000)
CLIENTS = st.lists(
    st.builds(lambda answered, each: (answered, answered * each), COUNTS, st.integers(min_value=1, max_value=32)),
    max_size=8,
)


def clients(found: list[tuple[int, int]]) -> list[ClientTraffic]:
    return [
        ClientTraffic(client=f"c{number}", answered=answered, items=items)
        for number, (answered, items) in enumerate(found)
    ]


@given(CLIENTS, COUNTS, st.floats(min_value=0.0, max_value=1e6))
def test_costs_add_up_to_the_share_of_the_answers_that_were_clients(
    found: list[tuple[int, int]], others: int, usd: float
) -> None:
    theirs = sum(answered for answered, _ in found)
    costs = costs_by_client(clients(found), serving_usd=usd, answered=theirs + others)
    assert sum(costs.values()) == pytest.approx(usd * theirs / max(1, theirs + others))
    assert all(cost >= 0 for cost in costs.values())


def test_who_has_twice_the_items_bears_twice_the_cost() -> None:
    costs = costs_by_client(clients([(10, 10), (10, 20)]), serving_usd=9.0, answered=60)
    assert costs == {"c0": pytest.approx(1.0), "c1": pytest.approx(2.0)}


def test_whoever_was_only_refused_bears_nothing() -> None:
    only = [ClientTraffic(client="loud", limited=500)]
    assert costs_by_client(only, serving_usd=9.0, answered=100) == {"loud": 0.0}


def test_between_two_marks_counts_grow_evenly_and_a_new_client_begins_at_none() -> None:
    before = {"a": ClientTotals(answered=10.0)}
    after = {"a": ClientTotals(answered=20.0), "b": ClientTotals(answered=4.0, limited=8.0)}
    middle = between(before, after, 0.5)
    assert (middle["a"].answered, middle["b"].answered, middle["b"].limited) == (15.0, 2.0, 4.0)
    assert [(one.client, one.requests) for one in grown(middle, after)] == [("a", 5), ("b", 6)]


def test_marks_keep_clients_and_those_of_an_older_version_have_none() -> None:
    empty = Demand(end_at=0.0, mean_rps=(), max_rps=())
    traffic = ModelTraffic(model="m", instance=8, clients=(ClientTraffic(client="a", answered=8, items=8),))
    marks = (first_mark(0.0), next_mark(first_mark(0.0), traffic, empty, 3600.0))
    kept = load_marks(dump_marks(marks))
    assert kept == marks
    assert clients_at(kept, 1800.0)["a"].answered == 4.0
    assert clients_at(kept, 9000.0) == totals_of(traffic.clients)
    document = dump_marks(marks)
    for mark in document["marks"]:
        del mark["clients"]
    older: tuple[HourlyMark, ...] = load_marks(document)
    assert clients_at(older, 3600.0) == {}

"""Spending by the hour: hours add up to the bill between the first and the last, and none is negative."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.accounting.hourly_spend import HOUR_S, SHOWN_HOURS, HourSpend, bill_at, hour_edges, spend_by_hour
from mark.accounting.model_ledger import ModelLedger
from tests.accounting.test_daily_costs import BEGAN, DAY_S, ledgers


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_edges_are_whole_hours_that_are_over_since_the_beginning(began_at: float, since_s: float) -> None:
    now = began_at + since_s
    edges = hour_edges(began_at, now)
    assert len(edges) <= SHOWN_HOURS + 1
    assert all(right - left == HOUR_S for left, right in pairwise(edges))
    assert all(began_at - HOUR_S <= at <= now for at in edges)
    assert now - edges[-1] < HOUR_S


@given(ledgers(), st.floats(HOUR_S, 5 * DAY_S))
def test_hours_are_never_negative_and_add_up_to_the_bill(ledger: ModelLedger, since_s: float) -> None:
    edges = hour_edges(BEGAN, BEGAN + since_s)
    bills = {at: bill_at([ledger], at) for at in edges}
    hours = spend_by_hour(bills)
    assert [hour.at for hour in hours] == list(edges[:-1])
    assert all(min(hour.instances, hour.lambda_usd, hour.overhead) >= 0 for hour in hours)
    total = sum(hour.instances + hour.lambda_usd + hour.overhead for hour in hours)
    assert total == pytest.approx(bills[edges[-1]].total - bills[edges[0]].total, abs=1e-6)


def test_an_hour_whose_end_is_not_known_is_left_out() -> None:
    assert spend_by_hour({}) == ()


USD = st.floats(0.0, 100.0)


@given(USD, USD, USD, st.floats(-300.0, 100.0))
def test_what_commitments_save_is_taken_off_and_no_part_is_negative(
    instances, lambda_usd, overhead, owned
) -> None:
    hour = HourSpend(at=0.0, instances=instances, lambda_usd=lambda_usd, overhead=overhead, commitments=owned)
    net = hour.net
    assert min(net.instances, net.lambda_usd, net.overhead, net.commitments) >= 0.0
    assert net.total == pytest.approx(max(0.0, hour.total), abs=1e-9)
    if owned == 0.0:
        assert net == hour

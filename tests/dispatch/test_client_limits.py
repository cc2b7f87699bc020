"""Limits of a client: rate and burst bound what is admitted, and a refusal says when to come again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.client_limits import (
    BUSY_RETRY_S,
    ClientLimits,
    TokenBucket,
    access_status,
    may_wait,
    queue_share,
)
from mark.domain.clients import LEAST_RPS, MOST, Client, HashedKey, Limits, Priority

RATES = st.floats(min_value=0.05, max_value=5000.0)
BURSTS = st.integers(min_value=1, max_value=200)
GAPS = st.lists(st.floats(min_value=0.0, max_value=5.0), min_size=1, max_size=200)
EPSILON = 1e-6


def instants(gaps: list[float]) -> list[float]:
    at, found = 1000.0, []
    for gap in gaps:
        at += gap
        found.append(at)
    return found


@given(RATES, BURSTS, GAPS)
def test_no_span_admits_more_than_rate_times_its_length_and_a_burst(
    rate: float, burst: int, gaps: list[float]
) -> None:
    bucket = TokenBucket(rate, burst)
    admitted = [at for at in instants(gaps) if bucket.take(at) == 0.0]
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            most = rate * (admitted[last] - admitted[first]) + burst
            assert last - first + 1 <= most * (1 + EPSILON) + EPSILON


@pytest.mark.parametrize("rate", [LEAST_RPS, MOST])
@pytest.mark.parametrize("burst", [1, int(MOST)])
@pytest.mark.parametrize("gateways", [1, 3])
def test_the_least_and_the_largest_limits_hold(rate: float, burst: int, gateways: int) -> None:
    limits = ClientLimits(Limits(rate_rps=rate, burst=burst), gateways=gateways, now=0.0)
    waits = [limits.admit(1.0) for _ in range(5)]
    if burst > 1:
        assert waits == [0.0] * 5
    else:
        assert waits[0] == 0.0
        assert all(0.0 < wait_s <= 1.001 * gateways / rate for wait_s in waits[1:])


@given(RATES, BURSTS, GAPS)
def test_who_is_refused_is_told_when_the_next_would_be_admitted(
    rate: float, burst: int, gaps: list[float]
) -> None:
    bucket = TokenBucket(rate, burst)
    for at in instants(gaps):
        wait_s = bucket.take(at)
        if wait_s > 0.0:
            assert bucket.take(at + wait_s * (1 - 1e-3) - EPSILON) > 0.0
            assert bucket.take(at + wait_s + EPSILON) == 0.0
            return


@given(RATES, BURSTS)
def test_a_client_that_keeps_its_rate_is_never_refused(rate: float, burst: int) -> None:
    bucket = TokenBucket(rate, burst)
    assert all(bucket.take(50.0 + number * (1 + EPSILON) / rate) == 0.0 for number in range(300))


@given(BURSTS)
def test_after_a_pause_a_burst_passes_and_no_more(burst: int) -> None:
    bucket = TokenBucket(2.0, burst)
    assert [bucket.take(10.0) == 0.0 for _ in range(burst + 1)] == [True] * burst + [False]


@given(st.integers(min_value=1, max_value=8), RATES, st.integers(min_value=8, max_value=200))
def test_gateways_together_admit_the_clients_rate(gateways: int, rate: float, burst: int) -> None:
    shares = [
        ClientLimits(Limits(rate_rps=rate, burst=burst), gateways=gateways, now=0.0) for _ in range(gateways)
    ]
    length_s, tries = 20.0 / rate, 400
    admitted = sum(share.admit(number * length_s / tries) == 0.0 for share in shares for number in range(tries))
    assert admitted <= rate * length_s + burst + EPSILON
    assert admitted >= min(rate * length_s * (1 - 1 / tries), 400) - gateways


def test_a_change_of_the_share_gives_no_fresh_burst() -> None:
    limits = ClientLimits(Limits(rate_rps=1.0, burst=10), gateways=1, now=0.0)
    assert [limits.admit(0.0) for _ in range(10)] == [0.0] * 10
    limits.share(Limits(rate_rps=1.0, burst=10), gateways=2, now=0.0)
    assert limits.admit(0.0) > 0.0
    assert limits.admit(8.0) > 0.0
    assert limits.admit(12.1) == 0.0


def test_requests_in_flight_are_bounded_and_end() -> None:
    limits = ClientLimits(Limits(concurrency=3), gateways=2, now=0.0)
    assert [limits.admit(0.0) for _ in range(3)] == [0.0, 0.0, BUSY_RETRY_S]
    limits.end()
    assert limits.admit(0.0) == 0.0


def test_what_is_refused_for_its_rate_is_not_in_flight() -> None:
    limits = ClientLimits(Limits(rate_rps=1.0, concurrency=5), gateways=1, now=0.0)
    assert limits.admit(0.0) == 0.0
    assert limits.admit(0.0) == pytest.approx(1.0)
    assert limits.in_flight == 1


@given(st.lists(st.booleans(), max_size=300), st.integers(min_value=1, max_value=10))
def test_never_more_in_flight_than_allowed(admits: list[bool], most: int) -> None:
    limits = ClientLimits(Limits(concurrency=most), gateways=1, now=0.0)
    for tries in admits:
        if tries:
            limits.admit(0.0)
        elif limits.in_flight:
            limits.end()
        assert 0 <= limits.in_flight <= most


def test_access() -> None:
    client = Client(name="shop", keys=(HashedKey(sha256="ff"),), models=("net",))
    assert access_status(None, "net") == 401
    assert access_status(client, "digits") == 403
    assert access_status(client, "net") == 0
    assert access_status(client, "") == 0
    assert access_status(Client(name="shop", keys=(), revoked_at=1.0), "net") == 401


@given(st.sets(st.sampled_from(list(Priority))))
def test_a_higher_class_never_has_less_of_the_queue(present: set[Priority]) -> None:
    shares = [queue_share(priority, present) for priority in (Priority.HIGH, Priority.NORMAL, Priority.LOW)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert all(0.0 < share <= 1.0 for share in shares)


@given(st.sampled_from(list(Priority)))
def test_a_class_that_is_alone_loses_nothing(priority: Priority) -> None:
    assert queue_share(priority, {priority}) == 1.0


def test_an_idle_server_takes_every_class() -> None:
    assert may_wait(0.0, -1.0, 0.25)
    assert may_wait(0.1, 0.4, 0.25)
    assert not may_wait(0.11, 0.4, 0.25)
    assert not may_wait(math.inf, 0.4, 1.0)

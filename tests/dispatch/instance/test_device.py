"""The rules of a shared device: a lone tenant's are the Bouncer's, and what is due first goes first."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.bouncer import deviating_finish_at, late_finish_at, predicted_finish_at
from mark.dispatch.instance.device import (
    ahead_s,
    batches,
    batches_due_by,
    keeps_promises,
    likely_finish_at,
    next_tenant,
    shared_deviation_s,
    shared_finish_at,
    stays_late,
    work_s,
)
from mark.dispatch.routing import NONE

RING = 16


@dataclass(slots=True)
class Tenant:
    """What the rules read of a server."""

    waiting: int = 0
    in_service: int = 0
    max_batch: int = 1
    single_s: float = 0.05
    full_batch_s: float = 0.1
    free_at: float = 0.0
    cv: float = 0.0
    head: int = 0
    objective_s: float = 1.0


def ring(tenant: Tenant, *arrivals: float) -> list[float]:
    """A ring with these arrivals behind those in service."""
    held = [0.0] * RING
    for place, at in enumerate(arrivals):
        held[(tenant.head + tenant.in_service + place) % RING] = at
    tenant.waiting = len(arrivals)
    return held


@given(
    waiting=st.integers(0, 12),
    in_service=st.integers(0, 3),
    max_batch=st.integers(1, 4),
    left_s=st.floats(-0.2, 1.0),
    cv=st.floats(0.01, 0.5),
    sigmas=st.floats(0.1, 3.0),
)
def test_a_lone_tenant_is_judged_as_by_the_bouncer(
    waiting: int, in_service: int, max_batch: int, left_s: float, cv: float, sigmas: float
) -> None:
    if in_service == 0:
        waiting = 0  # an idle device starts what waits at once
    one = Tenant(in_service=in_service, max_batch=max_batch, free_at=5.0 + left_s, cv=cv)
    queue = [ring(one, *[5.0] * waiting)]
    finish_at = shared_finish_at(5.0, 0, 6.0, [0], [one], queue)
    given_ = (one.free_at, in_service, waiting, max_batch, one.single_s, one.full_batch_s)
    assert finish_at == predicted_finish_at(5.0, *given_)
    late_at = deviating_finish_at(5.0, finish_at, shared_deviation_s(0, 6.0, [0], [one], queue), sigmas)
    expected = late_finish_at(5.0, finish_at, in_service, waiting, max_batch, one.full_batch_s, cv, sigmas)
    assert late_at == pytest.approx(expected)
    assert keeps_promises(5.0, 0, 6.0, [0], [one], queue, sigmas)


@given(
    held=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=4),
    due_s=st.floats(0.0, 2.0),
)
def test_what_is_likely_is_no_later_than_what_admission_goes_by(
    held: list[tuple[int, int, int]], due_s: float
) -> None:
    runs = next((place for place, (_, in_service, _) in enumerate(held) if in_service), None)
    tenants = [
        Tenant(in_service=in_service if place == runs else 0, max_batch=max_batch, free_at=5.05)
        for place, (_, in_service, max_batch) in enumerate(held)
    ]
    for one in tenants:
        one.full_batch_s = 0.05 + 0.02 * (one.max_batch - 1)
    queue = [
        ring(one, *[4.9 + 0.01 * place for place in range(waiting if runs is not None else 0)])
        for one, (waiting, _, _) in zip(tenants, held, strict=True)
    ]
    rows, at = [*range(len(tenants))], 5.0 + due_s
    likely, sure = (finish(5.0, 0, at, rows, tenants, queue) for finish in (likely_finish_at, shared_finish_at))
    assert likely <= sure + 1e-9
    assert likely >= 5.0 + tenants[0].single_s


def test_batches_that_are_not_full_take_less() -> None:
    one = Tenant(max_batch=3, single_s=0.05, full_batch_s=0.1)
    assert [work_s(one, count) for count in range(5)] == pytest.approx([0.0, 0.05, 0.075, 0.1, 0.15])


def test_the_device_takes_whose_oldest_is_due_first() -> None:
    slow, quick, idle = Tenant(objective_s=3.0), Tenant(objective_s=0.5), Tenant(objective_s=0.1)
    servers = [slow, quick, idle]
    queue = [ring(slow, 1.0, 1.1), ring(quick, 2.0), ring(idle)]
    assert next_tenant([0, 1, 2], servers, queue) == 1
    queue[0] = ring(slow, -1.0)
    assert next_tenant([0, 1, 2], servers, queue) == 0
    assert next_tenant([2], servers, queue) == NONE


@given(
    arrivals=st.lists(st.floats(0.0, 9.0), max_size=12),
    max_batch=st.integers(1, 4),
    head=st.integers(0, RING - 1),
    at=st.floats(0.0, 11.0),
)
def test_batches_are_due_by_their_oldest_request(
    arrivals: list[float], max_batch: int, head: int, at: float
) -> None:
    one, other = Tenant(max_batch=max_batch, head=head), Tenant()
    held = ring(one, *sorted(arrivals))
    due = [sorted(arrivals)[place] + one.objective_s for place in range(0, len(arrivals), max_batch)]
    assert batches(one) == len(due)
    found = batches_due_by(at, one, held)
    assert found == sum(instant <= at for instant in due)
    assert ahead_s(1, at, [0, 1], [one, other], [held, ring(other)]) == pytest.approx(found * 0.1)


def test_who_is_not_admitted_waits_only_where_lambda_is_late_and_later() -> None:
    assert stays_late(finish_at=11.0, lambda_at=12.0, deadline_at=10.0)
    assert not stays_late(finish_at=12.0, lambda_at=11.0, deadline_at=10.0)
    assert not stays_late(finish_at=9.0, lambda_at=10.0, deadline_at=10.0), "Lambda is in time"


def test_a_request_that_is_due_sooner_may_not_push_others_past_their_deadlines() -> None:
    """The other's request ends at 10.2; a batch of 0.1 s before it would end it at 10.3."""
    running = Tenant(in_service=1, free_at=10.1)
    promised = Tenant()
    queue = [ring(running), ring(promised, 9.25)]
    servers = [running, promised]
    assert not keeps_promises(10.0, 0, 10.2, [0, 1], servers, queue, 0.0), "due at 10.25, ended at 10.3"
    assert keeps_promises(10.0, 0, 10.2, [0, 1], servers, [queue[0], ring(promised, 9.31)], 2.0), "nothing varies"
    promised.cv = 0.1
    assert not keeps_promises(10.0, 0, 10.2, [0, 1], servers, [queue[0], ring(promised, 9.31)], 2.0), (
        "it may be late"
    )
    promised.cv = 0.0
    queue[1] = ring(promised, 9.4)
    assert keeps_promises(10.0, 0, 10.2, [0, 1], servers, queue, 0.0), "due at 10.4"
    queue[1] = ring(promised, 9.1)
    assert keeps_promises(10.0, 0, 10.05, [0, 1], servers, queue, 0.0), "late without it, too"
    queue[1] = ring(promised, 9.25)
    assert keeps_promises(10.0, 0, 10.3, [0, 1], servers, queue, 0.0), "it goes behind"

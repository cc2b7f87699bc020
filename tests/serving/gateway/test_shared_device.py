"""A gateway sees what neighbours have to do on a shared instance, and sends a request to the one that is free."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.dispatch.routing import NONE, OVERDUE_SHARE, least_finish
from mark.protocols.frames import State
from mark.serving.gateway.members_view import AgentView
from mark.serving.gateway.request import InferenceRequest
from mark.serving.gateway.shared_device import SharedDevice, least_finish_on_devices

SINGLE_S, FULL_S, MAX_BATCH = 0.1, 0.16, 2


@dataclass
class Connection:
    """A gateway's side of a tenant's agent."""

    view: AgentView
    in_flight: dict[int, InferenceRequest] = field(default_factory=dict)

    def send(self, now: float, due_at: float) -> None:
        self.in_flight[len(self.in_flight)] = cast("InferenceRequest", SimpleNamespace(deadline_at=due_at))
        self.view.sent(now, SINGLE_S)


def connection(instance: str, *, waiting: int = 0, in_service: int = 0, busy_s: float = 0.0) -> Connection:
    view = AgentView(instance, (0.0, SINGLE_S, FULL_S))
    batch_s = tuple(SINGLE_S + (FULL_S - SINGLE_S) * n / (MAX_BATCH - 1) for n in range(MAX_BATCH))
    state = State(
        accepting=True, standby=False, waiting=waiting, in_service=in_service, busy_s=busy_s,
        terminates_in_s=float("inf"), batch_s=batch_s, weight=1.0, seen=0,
    )  # fmt: skip
    view.on_state(state, 0, 0.0)
    view.is_shared = True
    return Connection(view)


def shared(*tenants: Connection) -> SharedDevice:
    device = SharedDevice()
    for tenant in tenants:
        device.join(tenant)
    return device


def test_a_request_goes_to_the_instance_whose_neighbours_are_idle() -> None:
    mine, also_mine = connection("i-0"), connection("i-1")
    neighbour, other = connection("i-0"), connection("i-1")
    shared(mine, neighbour)
    shared(also_mine, other)
    views = [mine.view, also_mine.view]
    assert least_finish_on_devices(0.0, 1.0, [0, 1], views) == 0
    neighbour.send(0.0, 1.0)
    assert least_finish_on_devices(0.0, 1.0, [0, 1], views) == 1
    assert [view.is_idle(0.0) for view in views] == [False, True]
    assert mine.view.finish_at(0.0, 1, 1.0) == pytest.approx(SINGLE_S + FULL_S)
    assert also_mine.view.finish_at(0.0, 1, 1.0) == pytest.approx(SINGLE_S)


@pytest.mark.parametrize(("due_at", "batches"), [(0.4, 0), (2.0, 1)])
def test_what_is_due_later_waits_behind_it(due_at: float, batches: int) -> None:
    mine, neighbour = connection("i-0"), connection("i-0")
    shared(mine, neighbour)
    for _ in range(3):  # one is in service, a batch waits
        neighbour.send(0.0, 1.0)
    assert mine.view.finish_at(0.0, 1, due_at) == pytest.approx(SINGLE_S + (batches + 1) * FULL_S)


def test_what_other_gateways_sent_to_a_neighbour_is_done_before() -> None:
    mine, neighbour = connection("i-0"), connection("i-0", waiting=2, in_service=1, busy_s=0.05)
    shared(mine, neighbour)
    neighbour.in_flight[7] = cast("InferenceRequest", SimpleNamespace(deadline_at=1.0))  # the last of them
    assert mine.view.finish_at(0.0, 1, 0.01) == pytest.approx(0.05 + FULL_S + FULL_S)


def test_a_batch_is_likely_no_fuller_than_it_is() -> None:
    mine, neighbour = connection("i-0"), connection("i-0", waiting=1, in_service=1, busy_s=0.05)
    device = shared(mine, neighbour)
    neighbour.in_flight[0] = cast("InferenceRequest", SimpleNamespace(deadline_at=0.0))
    assert device.likely_finish_at(mine.view, 0.0, 1.0) == pytest.approx(0.05 + SINGLE_S + SINGLE_S)
    assert device.finish_at(mine.view, 0.0, 1.0) == pytest.approx(0.05 + FULL_S + FULL_S)


def test_a_neighbour_that_is_overdue_is_expected_to_take_longer() -> None:
    mine, neighbour = connection("i-0"), connection("i-0", in_service=1)
    device = shared(mine, neighbour)
    assert device.overdue_s(1.0) == pytest.approx(OVERDUE_SHARE * FULL_S)
    assert device.overdue_s(0.0) == 0.0


def test_a_neighbour_whose_batch_hangs_delays_nobody() -> None:
    mine, neighbour = connection("i-0"), connection("i-0", waiting=1, in_service=1, busy_s=30.0)
    device = shared(neighbour, mine)
    assert mine.view.finish_at(0.0, 1, 1.0) == pytest.approx(SINGLE_S)
    for finish_at in (device.finish_at, device.likely_finish_at):
        assert finish_at(neighbour.view, 0.0, 1.0) == pytest.approx(30.0 + FULL_S)


def test_of_two_that_seem_to_be_in_service_the_one_that_ends_later_counts() -> None:
    mine, neighbour = connection("i-0"), connection("i-0", in_service=1, busy_s=0.15)
    device = shared(mine, neighbour)
    mine.send(0.0, 1.0)
    assert mine.view.finish_at(0.0, 1, 1.0) == pytest.approx(0.15 + FULL_S)
    assert device.likely_finish_at(mine.view, 0.0, 1.0) == pytest.approx(0.15 + SINGLE_S)


@pytest.mark.parametrize(("due_at", "harmed"), [(SINGLE_S, False), (1.5 * FULL_S, True), (3 * FULL_S, False)])
def test_a_request_harms_a_neighbour_that_it_makes_late(due_at: float, harmed: bool) -> None:
    """The neighbour's batch waits behind one in service, and is due after this request; or it is late anyway."""
    mine, neighbour = connection("i-0"), connection("i-0", waiting=1)
    device = shared(mine, neighbour, connection("i-0", in_service=1, busy_s=0.05))
    neighbour.in_flight[0] = cast("InferenceRequest", SimpleNamespace(deadline_at=due_at))
    assert device.harms_nobody(mine.view, 0.0, 0.0) is not harmed
    neighbour.in_flight.clear()  # another gateway has sent it: who knows when it is due
    assert not device.harms_nobody(mine.view, 0.0, 0.0)


def test_one_that_has_left_delays_nobody() -> None:
    mine, neighbour = connection("i-0"), connection("i-0", in_service=1, busy_s=1.0)
    device = shared(mine, neighbour)
    assert not device.leave(neighbour)
    assert mine.view.finish_at(0.0, 1, 1.0) == pytest.approx(SINGLE_S)
    assert device.leave(mine)
    assert mine.view.device is None


queues = st.builds(
    connection,
    st.just("i"),
    waiting=st.integers(0, 5),
    in_service=st.integers(0, 2),
    busy_s=st.floats(0.0, 0.3),
)


@given(tenants=st.lists(queues, max_size=5), now=st.floats(0.0, 0.5))
def test_without_neighbours_it_is_the_rule_of_an_instance_of_ones_own(
    tenants: list[Connection], now: float
) -> None:
    for tenant in tenants:
        if tenant.view.waiting:  # else the instance would be idle beside what waits
            tenant.view.in_service = max(1, tenant.view.in_service)
    views = [tenant.view for tenant in tenants]
    alone = least_finish(now, range(len(views)), views)
    for tenant in tenants:
        shared(tenant)
    assert least_finish_on_devices(now, 1.0, range(len(views)), views) == alone
    assert (alone == NONE) == (not tenants)

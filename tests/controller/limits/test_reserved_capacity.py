"""Launches into reserved capacity go to its zone, as many as have a place, whatever was refused before."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mark.controller.limits.reserved_capacity import reserved_room
from mark.controller.state import PoolBackoff, State
from mark.domain.commitments.owned import CapacityReservation, Commitments
from mark.domain.fleet.instances import Instance
from mark.domain.fleet.orders import Launch, LaunchRefused, RefusalCause
from tests.controller.builders import POLICY, SMALL, Stepped, instances, launched, plan, seen

ZONES = ("us-east-1a", "us-east-1b")


def kept(
    count: float, zone: str = ZONES[0], name: str = "cr-1", ends_at: float | None = None
) -> CapacityReservation:
    return CapacityReservation(name=name, instance_type="small", zone=zone, count=count, ends_at=ends_at)


def policy(*items: CapacityReservation, zones: tuple[str, ...] = ZONES):
    return replace(POLICY, zones=zones, commitments=Commitments(capacity_reservations=items))


def placed(fleet: tuple[Instance, ...], zone: str) -> tuple[Instance, ...]:
    return tuple(replace(one, zone=zone) for one in fleet)


def test_of_a_refused_type_as_many_are_launched_as_are_reserved() -> None:
    made = Stepped(policy(kept(3.0)), State(capacity_backoff=((SMALL.name, 600.0),)))
    (order,) = made.see(seen(10.0, wanted=plan(small=5)))
    assert isinstance(order, Launch)
    assert (order.count, order.without) == (3, ((SMALL.name, ZONES[1]),))
    assert "in reserved capacity of us-east-1a" in order.reason
    there = placed(instances(3, token=order.token), ZONES[0])
    assert made.see(seen(20.0, there)) == ()


def test_what_is_beyond_it_is_launched_elsewhere_and_leaves_out_what_was_refused() -> None:
    refused = PoolBackoff(offering=SMALL.name, zone=ZONES[0], until=600.0)
    made = Stepped(policy(kept(2.0)), State(pool_backoff=(refused,)))
    orders = made.see(seen(10.0, wanted=plan(small=5)))
    assert [(one.count, one.without) for one in orders if isinstance(one, Launch)] == [
        (2, ((SMALL.name, ZONES[1]),)),
        (3, ((SMALL.name, ZONES[0]),)),
    ]
    assert len({one.token for one in orders}) == 2


def test_a_place_that_is_gone_is_not_asked_for_again_and_others_are_launched_meanwhile() -> None:
    made = Stepped(policy(kept(3.0)))
    (order,) = made.see(seen(10.0, wanted=plan(small=3)))
    assert isinstance(order, Launch)
    assert order.reserved_in == ZONES[0]
    refused = LaunchRefused(
        token=order.token, offering=SMALL.name, count=3, cause=RefusalCause.CAPACITY, at=20.0, zone=ZONES[0]
    )
    (again,) = made.see(seen(70.0, facts=(refused,), wanted=plan(small=3)))
    assert isinstance(again, Launch)
    assert (again.count, again.reserved_in, again.without) == (3, "", ((SMALL.name, ZONES[0]),))


def test_a_reservation_that_has_ended_holds_nothing() -> None:
    made = Stepped(policy(kept(3.0, ends_at=5.0)), State(capacity_backoff=((SMALL.name, 600.0),)))
    assert made.see(seen(10.0, wanted=plan(small=5))) == ()


@given(
    counts=st.lists(st.integers(0, 5), min_size=2, max_size=2),
    there=st.lists(st.integers(0, 5), min_size=2, max_size=2),
    wanted=st.integers(0, 15),
    by_letter=st.booleans(),
)
def test_no_more_is_launched_into_it_than_has_a_place(counts, there, wanted, by_letter) -> None:
    """Replays call zones by their letters."""
    zones = ("a", "b") if by_letter else ZONES
    given = policy(kept(counts[0]), kept(counts[1], ZONES[1], "cr-2"), zones=zones)
    fleet = (
        *placed(instances(there[0]), zones[0]),
        *placed(instances(there[1], first=100), zones[1]),
    )
    room = reserved_room(State(), seen(10.0, fleet), given)
    assert room == {
        (SMALL.name, zone): count - here
        for zone, count, here in zip(zones, counts, there, strict=True)
        if count > here
    }
    orders = Stepped(given).see(seen(10.0, fleet, wanted=plan(small=wanted)))
    into = [one for one in orders if isinstance(one, Launch) and "in reserved capacity" in one.reason]
    assert sum(one.count for one in into) == min(sum(room.values()), max(0, wanted - len(fleet)))
    assert launched(orders).get(SMALL.name, 0) == max(0, wanted - len(fleet))

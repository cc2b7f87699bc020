"""Where requests come in, from the gateways and agents that announce themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState, Peer
from mark.domain.front import Front, address_weights
from mark.domain.load.traffic import ModelTraffic
from mark.live.control.entry import LOOK_EACH_S, MEASURE_EACH_S, LiveFront

AGENT = Member(
    instance="i-1",
    model="m",
    offering="c5.large:spot",
    role=Role.SERVING,
    host="h",
    port=1,
    state=MemberState.READY,
    max_batch=1,
    batch_s=(0.1,),
    capacity_rps=10.0,
    zone="a",
)
USD = 1.0 / 36_000
"""What crosses costs: an agent of 10 requests/s pulls one USD an hour."""


class Store:
    def __init__(self) -> None:
        self.up = [Peer(name="g1", host="1", port=1, zone="a"), Peer(name="g2", host="2", port=1, zone="b")]
        self.agents = [AGENT]
        self.entered: tuple[tuple[str, int], ...] = ()

    def gateways(self) -> list[Peer]:
        return self.up

    def members(self) -> list[Member]:
        return self.agents

    def traffic(self, model: str, /) -> ModelTraffic:
        return ModelTraffic(model=model, entered=self.entered)


def test_a_model_sees_what_the_others_pull_and_the_name_follows_all() -> None:
    store = Store()
    tenant = replace(AGENT, instance="i-2", model="n", zone="b", share_rps=30.0)
    store.agents += [tenant, replace(AGENT, instance="i-3", state=MemberState.STARTING, zone="b")]
    front = LiveFront(store, {"m": USD, "n": USD}, is_steered=True)
    even = (("a", 0.5), ("b", 0.5))
    assert front.of("m") == Front(shares=even, is_steered=True, beside=(("b", pytest.approx(3.0)),))  # type: ignore[arg-type]
    assert front.of(SHARED) == Front(shares=even, is_steered=True, beside=(("a", pytest.approx(1.0)),))  # type: ignore[arg-type]
    assert front.shares() == pytest.approx({"a": 0.25, "b": 0.75})


def test_requests_come_in_evenly_where_nothing_steers_them() -> None:
    assert LiveFront(Store(), {"m": USD}, is_steered=False).shares() == {"a": 0.5, "b": 0.5}


def test_what_is_not_steered_is_measured_and_follows_the_gateways_that_are_up() -> None:
    store, now = Store(), [0.0]
    front = LiveFront(store, {"m": USD}, is_steered=False, monotonic=lambda: now[0])

    def shares() -> dict[str, float]:
        seen = front.of("m")
        return {} if seen is None else dict(seen.shares)

    assert shares() == {"a": 0.5, "b": 0.5}
    store.entered, now[0] = (("a", 900), ("b", 300)), MEASURE_EACH_S
    assert shares() == {"a": 0.75, "b": 0.25}
    store.up.pop(0)
    now[0] += LOOK_EACH_S
    assert shares() == {"b": 1.0}
    store.up = [Peer(name="g3", host="3", port=1)]
    now[0] += LOOK_EACH_S
    assert front.of("m") is None, "nobody knows its zone"


def test_addresses_are_weighed_by_the_shares_of_their_zones() -> None:
    assert address_weights({"1": "a", "2": "b"}, {"a": 1.0, "b": 0.0}) == {"1": 10, "2": 0}
    assert address_weights({"1": "a", "2": "a", "3": "b"}, {"a": 0.5, "b": 0.5}) == {"1": 5, "2": 5, "3": 10}
    assert address_weights({"1": "a", "2": ""}, {"a": 1.0}) == {"1": 10, "2": 10}
    assert address_weights({"1": "b"}, {"a": 1.0}) == {"1": 10}

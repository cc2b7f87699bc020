"""What GatewayLink, AgentLink and Membership promise, on the real store and on the fake."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.domain.fleet.member import MemberState, Peer
from mark.domain.load.traffic import Warmed
from mark.ports import AgentLink, GatewayLink
from tests.store.builders import MEMBER, a_member, a_report
from tests.store.fakes import FakeStore
from tests.store.worlds import TTL_S, World


def test_members_are_those_who_announced_themselves_by_instance(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        assert list(await gateway.members()) == []
        for instance in ("i-2", "i-1"):
            await agent.announce(a_member(instance))
        assert list(await gateway.members()) == [a_member("i-1"), a_member("i-2")]

    world.play(story)


def test_a_member_comes_back_as_it_was_told(world: World) -> None:
    told = replace(MEMBER, terminates_at=1234.5, credits=0.1 + 0.2, epoch=7, state=MemberState.DRAINING)

    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        await agent.announce(told)
        assert list(await gateway.members()) == [told]

    world.play(story)


def test_the_version_rises_only_when_members_appear_change_or_leave(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        versions = [await gateway.members_version()]
        starting = a_member(state=MemberState.STARTING)
        for member in (starting, starting, a_member(), a_member(), a_member("i-2")):
            await agent.announce(member)
            versions.append(await gateway.members_version())
        for instance in ("i-1", "i-1"):
            await agent.leave(instance)
            versions.append(await gateway.members_version())
        rises = [after > before for before, after in pairwise(versions)]
        assert rises == [True, False, True, False, True, True, False]
        assert versions == sorted(versions)

    world.play(story)


def test_a_silent_agent_is_gone_and_the_version_says_so(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        await agent.announce(a_member("i-1"))
        await agent.announce(a_member("i-2"))
        before = await gateway.members_version()
        for _ in range(3):
            world.wait(TTL_S / 2)
            await agent.announce(a_member("i-2"))
        assert await gateway.members_version() > before
        assert list(await gateway.members()) == [a_member("i-2")]
        await agent.announce(a_member("i-1"))
        assert list(await gateway.members()) == [a_member("i-1"), a_member("i-2")]

    world.play(story)


def test_the_last_agent_of_all_is_gone_too_when_it_is_silent(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        await agent.announce(a_member())
        assert await gateway.members_version()
        for _ in range(3):
            world.wait(TTL_S / 2)
            await gateway.members_version()
        assert list(world.membership("digits").members()) == []

    world.play(story)


def test_the_controller_sees_one_models_members(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        await agent.announce(a_member("i-1", model="digits"))
        await agent.announce(a_member("i-2", model="words"))
        assert [member.instance for member in world.membership("words").members()] == ["i-2"]

    world.play(story)


def test_a_drain_is_told_until_the_controller_takes_it_back(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        assert await agent.announce(a_member("i-1")) is False
        world.membership("digits").drain(["i-1", "i-3"])
        assert await agent.announce(a_member("i-1")) is True
        assert await agent.announce(a_member("i-1", state=MemberState.DRAINING)) is True
        assert await agent.announce(a_member("i-2")) is False
        assert await agent.announce(a_member("i-3")) is True  # it was asked before it was there
        await agent.leave("i-1")
        assert await agent.announce(a_member("i-1")) is True, "no agent takes it back"
        world.membership("digits").undrain(["i-1"])
        assert await agent.announce(a_member("i-1")) is False  # a standby, woken again

    world.play(story)


def test_draining_nobody_is_no_error(world: World) -> None:
    async def story(_gateway: GatewayLink, agent: AgentLink) -> None:
        assert not await agent.announce(a_member())
        world.membership("digits").drain([])
        assert not await agent.announce(a_member()), "it is told to go on"

    world.play(story)


def test_the_clock_is_the_walls_until_it_is_set(world: World) -> None:
    anchor = ClockAnchor(wall_at=1e9 + 0.1, service_at=5.0, speed=20.0)

    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        assert await gateway.clock() == await agent.clock() == ClockAnchor()
        world.put_clock(anchor)
        assert await gateway.clock() == await agent.clock() == anchor
        assert await agent.acted_at() is None
        world.put_acted_at(1234.0625)
        assert await agent.acted_at() == 1234.0625

    world.play(story)


def test_the_last_warm_up_of_each_model_and_version_is_known(world: World) -> None:
    first, last = (Warmed(model="a", at=float(at), share=3) for at in (1, 2))
    other = Warmed(model="b", at=1.0, share=7)
    versions = [Warmed(model="a", at=1.0, share=4, version=f"{name:012x}") for name in (7, 2, 9, 1)]

    async def story(gateway: GatewayLink, _: AgentLink) -> None:
        assert await gateway.warmed() == ()
        for warmed in (other, *versions, first, last):
            world.put_warmed(warmed)
        assert await gateway.warmed() == (last, *sorted(versions, key=lambda one: one.version), other)

    world.play(story)


def test_gateways_know_those_that_announced_themselves_lately(world: World) -> None:
    one, other = (Peer(name=f"g-{number}", host="127.0.0.1", port=number) for number in (1, 2))

    async def came(gateway: GatewayLink, _: AgentLink) -> None:
        assert await gateway.announce_gateway(other) == (other,)
        assert await gateway.announce_gateway(one) == (one, other)
        await gateway.leave_gateways("g-2")
        assert await gateway.announce_gateway(one) == (one,)
        assert await gateway.announce_gateway(other) == (one, other)

    async def went(gateway: GatewayLink, _: AgentLink) -> None:
        assert await gateway.announce_gateway(other) == (other,)

    world.play(came)
    world.wait(2 * TTL_S)
    world.play(went)


def test_a_report_sent_twice_is_counted_once(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        for sequence, requests in ((1, 5), (1, 5), (2, 7), (1, 5)):
            await gateway.report(a_report("g-1", sequence, arrivals=((100, requests), (101, 1))))
        assert world.arrivals("digits", 99, 102) == [0, 12, 2, 0]

    world.play(story)


def test_each_gateway_counts_its_own_reports(world: World) -> None:
    async def story(gateway: GatewayLink, agent: AgentLink) -> None:
        for name in ("g-1", "g-2", "g-1-again"):
            await gateway.report(a_report(name, 0, arrivals=((100, 5),)))
        assert world.arrivals("digits", 100, 100) == [15]
        assert world.arrivals("words", 100, 100) == [0]

    world.play(story)


def test_the_fake_fails_as_often_as_it_is_told() -> None:
    store = FakeStore()
    store.fail_next(RetryLater("away"))
    with pytest.raises(RetryLater, match="away"):
        store.membership("digits").drain(["i-1"])
    store.membership("digits").drain(["i-1"])

"""The simulated cloud: every transition at its exact second, every stretch that is billed, every fact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mark.cloudmodel import world as worlds
from mark.cloudmodel.spot_prices import SpotPrices
from mark.dispatch.policy import Bounced, DispatchPolicy
from mark.domain.commitments.owned import CapacityReservation
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.orders import (
    Drain,
    Launch,
    LaunchRefused,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
)
from mark.domain.offerings.offering import CREDITED_STARTS_A_DAY, BurstCredits, Market, Offering
from mark.domain.offerings.quota import VcpuQuota, quota_family
from mark.domain.offerings.times import LognormalTime
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.compiled import Kernel
from mark.simulator.engine.data_plane import Engine
from mark.simulator.faults import FaultScript, Interrupt, LateBoots, Refuse
from mark.simulator.services.account_quotas import AccountQuotas
from tests.planner.builders import offering
from tests.scenarios.builders import FIXED, FIXED_WORLD, validate_cloud, validate_engine, validate_usages
from tests.simulator.engines import burstable, engine, lambda_offering

PATIENT = DispatchPolicy(bounced=Bounced.NOWHERE, admission_factor=None)
SERVING = offering(rps=1.0)
SPOT = replace(
    SERVING,
    market=Market.SPOT,
    instance_type=replace(SERVING.instance_type, spot_usd_per_hour=0.1, spot_interruption_rate=0.5),
)
SLEEPER = burstable(1.0, credits_=30.0)


class World:
    """A cloud and its engine, run from event to event as the replay does."""

    def __init__(
        self,
        kernel: Kernel,
        arrivals: list[float] | None = None,
        *,
        faults: FaultScript | None = None,
        of: worlds.World = FIXED_WORLD,
        seed: int = 1,
        redispatch: bool = True,
        sleeper: Offering = SLEEPER,
    ) -> None:
        self.asked = 0
        self.engine: Engine = engine(
            kernel, arrivals or [], dispatch=PATIENT, overflow=lambda_offering(), duration_s=200_000.0
        )
        known = (SERVING, SPOT, sleeper)
        self.cloud = SimulatedCloud(
            engine=self.engine,
            offerings={item.name: item for item in known},
            world=of,
            faults=faults or FaultScript(stress=0.0),
            seed=seed,
            start_at=0.0,
            redispatch=redispatch,
        )

    def launch(self, item: Offering, count: int = 1, role: Role = Role.SERVING, token: str | None = None) -> None:
        self.asked += 1
        token = token or f"t1-{self.asked}"
        self.cloud.submit(Launch(token=token, reason="test", offering=item.name, count=count, role=role))

    def to(self, at: float) -> None:
        """Run to `at`, events included, and validate after each."""
        while self.engine.now < at or self.cloud.next_at() <= at:
            stop = min(at, self.cloud.next_at())
            self.engine.run_until(stop)
            self.cloud.fire(stop)
            validate_engine(self.engine)
            validate_cloud(self.cloud, self.engine)

    def states(self) -> dict[str, InstanceState]:
        return {one.id: one.state for one in self.cloud.observe()}

    def stretches(self) -> list[tuple[str, float, float]]:
        validate_usages(self.cloud.usages)
        return [(u.instance, u.started_at, u.ended_at) for u in self.cloud.usages]


@pytest.fixture
def world(kernel: Kernel) -> World:
    return World(kernel)


def test_a_launch_is_ready_after_its_boot_and_billed_after_its_pending_time(world: World) -> None:
    world.launch(SERVING)
    assert world.states() == {"i-000001": InstanceState.PENDING}
    world.to(149.99)
    assert world.states() == {"i-000001": InstanceState.PENDING}
    world.to(150.0)
    assert world.states() == {"i-000001": InstanceState.READY}
    assert world.cloud.ready() == {SERVING.name: 1}
    world.to(500.0)
    world.cloud.close(500.0)
    assert world.stretches() == [("i-000001", 15.0, 500.0)]
    assert (world.cloud.launches, world.cloud.running_s) == (1, 485.0)


def test_the_first_fleet_is_there_at_once_and_not_counted_as_launched(world: World) -> None:
    world.cloud.prewarmed = True
    world.launch(SERVING, 2)
    world.launch(SLEEPER, role=Role.STANDBY)
    world.cloud.prewarmed = False
    ready, asleep = InstanceState.READY, InstanceState.STOPPED
    assert list(world.states().values()) == [ready, ready, asleep]
    world.cloud.close(100.0)
    assert world.stretches() == [("i-000001", 0.0, 100.0), ("i-000002", 0.0, 100.0)]  # the standby slept before
    assert (world.cloud.launches, world.cloud.asleep_s) == (3, 100.0)


def test_drained_while_pending_it_is_gone_and_costs_nothing(world: World) -> None:
    world.launch(SERVING)
    world.to(10.0)
    world.cloud.submit(Drain(token="t2-1", reason="test", instances=("i-000001",)))
    assert world.states() == {}
    world.to(1000.0)
    assert world.stretches() == []


def test_draining_a_busy_instance_loses_nothing(kernel: Kernel) -> None:
    world = World(kernel, [200.0, 200.1, 200.2, 203.0])
    world.launch(SERVING)
    world.to(200.5)
    world.cloud.submit(Drain(token="t2-1", reason="test", instances=("i-000001", "i-none")))
    assert world.states() == {"i-000001": InstanceState.DRAINING}
    world.to(202.99)
    assert world.states() == {"i-000001": InstanceState.DRAINING}
    world.to(204.0)
    assert world.states() == {}
    assert world.stretches() == [("i-000001", 15.0, 203.0)]
    served = world.engine.served()
    assert (served.instance, served.shed) == (3, 1)  # the one that came after the drain found nobody


def test_terminated_at_once_its_requests_run_elsewhere(kernel: Kernel) -> None:
    world = World(kernel, [200.0, 200.1, 200.2])
    world.launch(SERVING, 2)
    world.to(200.5)
    world.cloud.submit(Terminate(token="t2-1", reason="test", instances=("i-000001",)))
    assert world.states() == {"i-000002": InstanceState.READY}
    world.to(210.0)
    assert world.engine.served().instance == 3


def test_a_standby_sleeps_wakes_and_sleeps_again(world: World) -> None:
    world.launch(SLEEPER, role=Role.STANDBY)
    world.to(200.0)
    world.cloud.submit(StopStandby(token="t2-1", reason="test", instances=("i-000001",)))
    assert world.states() == {"i-000001": InstanceState.STOPPED}
    world.to(1000.0)
    world.cloud.submit(StartStandby(token="t3-1", reason="test", instances=("i-000001",)))
    world.to(1074.9)
    assert world.states() == {"i-000001": InstanceState.PENDING}
    world.to(1075.0)
    assert world.states() == {"i-000001": InstanceState.READY}
    world.to(1200.0)
    world.cloud.submit(StopStandby(token="t4-1", reason="test", instances=("i-000001",)))
    world.to(1500.0)
    world.cloud.submit(Terminate(token="t5-1", reason="test", instances=("i-000001",)))
    assert world.stretches() == [("i-000001", 15.0, 200.0), ("i-000001", 1000.0, 1200.0)]
    assert world.cloud.asleep_s == 800.0 + 300.0
    assert (world.cloud.wakes, world.cloud.launches) == (1, 1)


def test_orders_that_do_not_fit_the_state_change_nothing(world: World) -> None:
    world.launch(SERVING)
    world.to(200.0)
    before = world.states()
    world.cloud.submit(StartStandby(token="t2-1", reason="test", instances=("i-000001",)))
    world.cloud.submit(Drain(token="t2-2", reason="test", instances=("i-999999",)))
    assert world.states() == before
    assert world.cloud.wakes == 0


@pytest.mark.parametrize(
    ("keeps", "launch_credits", "balance"), [(False, 30.0, 30.0), (True, 0.0, 0.0), (True, 30.0, 60.0)]
)
def test_credits_at_the_second_start(kernel: Kernel, keeps: bool, launch_credits: float, balance: float) -> None:
    credit = BurstCredits(
        vcpus=1,
        earn_per_hour=6.0,
        max_balance=144.0,
        baseline=0.1,
        launch_credits=launch_credits,
        keeps_when_stopped=keeps,
    )
    sleeper = replace(SLEEPER, instance_type=replace(SLEEPER.instance_type, credits=credit))
    world = World(kernel, sleeper=sleeper)
    world.launch(sleeper, role=Role.STANDBY)
    world.to(200.0)
    world.cloud.submit(StopStandby(token="t2-1", reason="test", instances=("i-000001",)))
    world.cloud.submit(StartStandby(token="t3-1", reason="test", instances=("i-000001",)))
    world.to(300.0)
    slot = world.cloud._machines["i-000001"].slot
    assert slot is not None
    before_s, since_s = (50.0 if keeps else 0.0), 25.0  # seconds ready before the stop, and since the second start
    earned = (before_s + since_s) * 6.0 / 3600.0
    assert world.engine.credits(slot) == pytest.approx(balance + earned)


def test_an_account_has_a_hundred_credited_starts_a_day(world: World) -> None:
    world.cloud.prewarmed = True
    world.launch(SLEEPER, CREDITED_STARTS_A_DAY + 3)

    def granted() -> int:
        slots = [machine.slot for machine in world.cloud._machines.values()]
        servers = world.engine._fleet.servers
        return sum(float(servers[slot].balance) == 30.0 for slot in slots if slot is not None)

    assert granted() == CREDITED_STARTS_A_DAY
    world.to(86_401.0)
    world.launch(SLEEPER)
    assert granted() == CREDITED_STARTS_A_DAY + 1


def test_a_scripted_interruption_takes_its_share_after_its_notice(kernel: Kernel) -> None:
    script = FaultScript(stress=0.0, interrupts=(Interrupt(at_s=400.0, share=0.8),))
    world = World(kernel, faults=script)
    world.launch(SPOT, 10)
    world.launch(SERVING, 5)
    world.to(400.0)
    facts = world.cloud.drain_facts()
    assert len(facts) == 8
    assert {fact.instance for fact in facts if isinstance(fact, SpotWarned)} <= {
        f"i-{n:06d}" for n in range(1, 11)
    }
    assert all(isinstance(fact, SpotWarned) and (fact.at, fact.terminates_at) == (400.0, 520.0) for fact in facts)
    assert world.cloud.drain_facts() == ()
    warned = [one for one in world.cloud.observe() if one.terminates_at == 520.0]
    assert len(warned) == 8
    assert world.cloud.observe().staying[SPOT.name] == 2
    world.to(519.9)
    assert len(world.states()) == 15
    world.to(520.0)
    assert len(world.states()) == 7
    assert world.cloud.interruptions == 8
    assert {ended for _, _, ended in world.stretches()} == {520.0}


def test_a_scripted_interruption_of_one_pool_leaves_the_others(kernel: Kernel) -> None:
    script = FaultScript(stress=0.0, interrupts=(Interrupt(at_s=400.0, share=1.0, offering="other:spot"),))
    world = World(kernel, faults=script)
    world.launch(SPOT, 4)
    world.to(600.0)
    assert world.cloud.interruptions == 0


@pytest.mark.parametrize("stress", [1.0, 50.0])
def test_drawn_interruptions_follow_the_hazard(kernel: Kernel, stress: float) -> None:
    """Exponential lives: half gone in ln 2 / (hazard x stress) hours."""
    world = World(kernel, faults=FaultScript(stress=stress))
    world.cloud.prewarmed = True
    count = 600
    world.launch(SPOT, count)
    half_s = np.log(2) / (SPOT.hazard_per_hour * stress) * 3600.0
    at = min(half_s, 190_000.0)
    dead = 1.0 - 0.5 ** (at / half_s)
    world.engine.run_until(at)
    world.cloud.fire(at)
    expected, sigma = count * dead, np.sqrt(count * dead * (1 - dead))
    assert abs(world.cloud.interruptions - expected) < 4 * sigma
    assert sigma > 0


def test_on_demand_instances_are_never_interrupted(kernel: Kernel) -> None:
    world = World(kernel, faults=FaultScript(stress=1e6, interrupts=(Interrupt(at_s=300.0, share=1.0),)))
    world.launch(SERVING, 20)
    world.to(1000.0)
    assert world.cloud.interruptions == 0


def test_warned_while_it_boots_it_serves_until_it_goes(kernel: Kernel) -> None:
    world = World(kernel, faults=FaultScript(stress=1e6))  # warned within a second
    world.launch(SPOT)
    world.to(100.0)
    (one,) = world.cloud.observe()
    assert one.terminates_at is not None
    assert one.terminates_at < 150.0
    world.to(150.0)
    assert world.states() == {}


def test_a_refused_launch_is_a_fact_and_nothing_else(kernel: Kernel) -> None:
    world = World(kernel, faults=FaultScript(refusals=(Refuse(from_s=0.0, to_s=10.0, code="NoCapacity"),)))
    world.launch(SERVING, 3, token="t7-1")
    world.cloud.fire(0.0)
    fact = LaunchRefused(
        token="t7-1", offering=SERVING.name, count=3, cause=RefusalCause.CAPACITY, code="NoCapacity", at=0.0
    )
    assert world.cloud.drain_facts() == (fact,)
    assert (world.cloud.refusals, world.cloud.launches, world.states()) == (3, 0, {})
    world.to(10.0)
    world.launch(SERVING)
    world.to(200.0)
    assert len(world.states()) == 1


def test_late_boots_are_late_by_their_factor(kernel: Kernel) -> None:
    world = World(kernel, faults=FaultScript(late_boots=(LateBoots(from_s=0.0, to_s=1.0, factor=3.0),)))
    world.launch(SERVING)
    world.to(449.0)
    assert world.cloud.ready() == {}
    world.to(450.0)
    assert world.cloud.ready() == {SERVING.name: 1}


def test_a_warm_up_adds_warm_environments(world: World) -> None:
    world.cloud.submit(WarmLambda(token="t1-1", reason="test", concurrency=4))
    assert world.engine.lambda_warm() == 4


def test_boots_have_the_pinned_median_and_tail(kernel: Kernel) -> None:
    world = World(kernel, of=worlds.IDEAL)
    world.launch(SERVING, 2000)
    counts = []
    for at in (150.0, 270.0):
        world.engine.run_until(at)
        world.cloud.fire(at)
        counts.append(world.cloud.ready().get(SERVING.name, 0) / 2000)
    assert counts == [pytest.approx(0.5, abs=0.045), pytest.approx(0.95, abs=0.02)]


def test_a_launch_changes_no_other_draws(kernel: Kernel) -> None:
    """Interruptions have their own stream: the same instances go at the same time whatever boots take."""

    def warned(of: worlds.World) -> list[float]:
        world = World(kernel, of=of, faults=FaultScript(stress=20_000.0))
        world.launch(SPOT, 30)
        world.to(3000.0)
        return sorted(fact.at for fact in world.cloud.drain_facts() if isinstance(fact, SpotWarned))

    assert warned(FIXED_WORLD) == warned(worlds.IDEAL)
    assert len(warned(FIXED_WORLD)) > 5


def test_refused_standbys_sleep_on_and_are_named(kernel: Kernel) -> None:
    world = World(kernel, of=replace(FIXED_WORLD, wake_refused=0.5))
    world.launch(SLEEPER, 20, Role.STANDBY)
    world.to(200.0)
    names = tuple(world.states())
    world.cloud.submit(StopStandby(token="t2-1", reason="test", instances=names))
    world.to(300.0)
    world.cloud.submit(StartStandby(token="t3-1", reason="test", instances=names))
    world.to(300.0)
    (refused,) = [fact for fact in world.cloud.drain_facts() if isinstance(fact, LaunchRefused)]
    assert refused.token == "t3-1"
    assert refused.offering == SLEEPER.name
    assert refused.cause is RefusalCause.CAPACITY
    assert 3 < refused.count == len(refused.instances) == world.cloud.refusals < 17
    asleep = {name for name, state in world.states().items() if state is InstanceState.STOPPED}
    assert asleep == set(refused.instances)
    assert world.cloud.wakes == 20 - refused.count


def test_clouds_of_one_account_are_refused_what_exceeds_its_quotas_together(kernel: Kernel) -> None:
    """Three instances in each market: what boots counts, what sleeps does not, and it must find room to wake."""
    kind, one, other = SERVING.instance_type, World(kernel), World(kernel)
    quotas = tuple(
        VcpuQuota(family=quota_family(kind.name, market), market=market, vcpus=3.0 * kind.vcpus)
        for market in Market
    )
    account = AccountQuotas(quotas, {item.name: item for item in (SERVING, SPOT)})
    for world in (one, other):
        account.watch(world.cloud)

    def refusals(world: World) -> list[tuple[int, RefusalCause, str]]:
        world.to(world.engine.now)
        facts = [fact for fact in world.cloud.drain_facts() if isinstance(fact, LaunchRefused)]
        return [(fact.count, fact.cause, fact.code) for fact in facts]

    one.launch(SERVING, 1)
    other.launch(SERVING, 3, Role.STANDBY)
    other.launch(SPOT, 4)
    assert refusals(other) == [
        (1, RefusalCause.QUOTA, "VcpuLimitExceeded"),
        (1, RefusalCause.QUOTA, "MaxSpotInstanceCountExceeded"),
    ]
    other.to(200.0)
    asleep = tuple(item.id for item in other.cloud.observe() if item.role is Role.STANDBY)
    other.cloud.submit(StopStandby(token="t2-1", reason="test", instances=asleep))
    other.to(300.0)
    one.launch(SERVING, 1)
    assert refusals(one) == []
    other.cloud.submit(StartStandby(token="t3-1", reason="test", instances=asleep))
    assert [count for count, _, _ in refusals(other)] == [1]


def test_a_refused_launch_is_told_and_no_instance_comes(kernel: Kernel) -> None:
    world = World(kernel, of=replace(FIXED_WORLD, on_demand_refused=1.0))
    world.launch(SERVING, 3)
    world.launch(SPOT, 2)
    world.to(0.0)
    (refused,) = world.cloud.drain_facts()
    assert isinstance(refused, LaunchRefused)
    assert (refused.offering, refused.count, refused.instances) == (SERVING.name, 3, ())
    assert len(world.states()) == 2


def test_the_first_fleet_is_there_whatever_is_refused(kernel: Kernel) -> None:
    world = World(kernel, of=replace(FIXED_WORLD, on_demand_refused=1.0))
    world.cloud.prewarmed = True
    world.launch(SERVING, 3)
    assert world.cloud.ready() == {SERVING.name: 3}


def is_refused_at(world: World, at: float) -> bool:
    """Launch one on demand then, in a world with spot instances; true where it is refused."""
    world.launch(SPOT, 4)
    world.to(at)
    world.cloud.drain_facts()
    world.launch(SERVING)
    world.to(at)
    return any(isinstance(fact, LaunchRefused) for fact in world.cloud.drain_facts())


def test_a_pool_is_lost_whole_and_its_type_is_scarce_then(kernel: Kernel) -> None:
    rough = replace(FIXED_WORLD, pool_loss_every_s=3600.0, refused_after_loss=1.0, after_loss_s=1800.0)
    world = World(kernel, of=rough)
    world.launch(SPOT, 4)
    world.to(3600.0)
    facts = world.cloud.drain_facts()
    assert sum(isinstance(fact, SpotWarned) for fact in facts) == 4
    assert world.cloud.ready() == {}
    lost_at = facts[0].at
    assert lost_at < 3600.0
    assert is_refused_at(World(kernel, of=rough), lost_at + 60.0)
    assert not is_refused_at(World(kernel, of=replace(rough, after_loss_s=30.0)), lost_at + 60.0)


ZONED = replace(FIXED_WORLD, zones=("a", "b", "c"), spot_zone_spread=0.1, spot_drift=0.026)


def test_a_spot_instance_pays_what_its_zone_costs_hour_by_hour_and_one_on_demand_its_list_price(
    kernel: Kernel,
) -> None:
    world = World(kernel, of=ZONED)
    world.launch(SPOT)
    world.launch(SERVING)
    world.to(15_000.0)
    world.cloud.close(15_000.0)
    prices = SpotPrices(ZONED, 1)
    on_spot, on_demand = sorted(world.cloud.usages, key=lambda usage: usage.usd_per_hour is None)
    item, zone = SPOT.instance_type, prices.zones_by_price(SPOT.instance_type, 0.0)[0]
    asked = prices.mean_usd_per_hour(item, zone, on_spot.started_at, 15_000.0)
    assert on_spot.usd_per_hour == asked
    assert asked != prices.usd_per_hour(item, zone, 0.0)
    assert on_demand.usd_per_hour is None


def test_a_controller_sees_the_price_of_the_cheapest_zone_and_none_where_it_never_moves(kernel: Kernel) -> None:
    item = SPOT.instance_type
    zone = SpotPrices(ZONED, 1).zones_by_price(item, 0.0)[0]
    price = SpotPrices(ZONED, 1).usd_per_hour(item, zone, 0.0)
    seen = dict(World(kernel, of=ZONED).cloud.observe().spot_usd_per_hour)
    assert seen[SPOT.name] == seen[f"{SPOT.name}:{zone}"] == price
    assert price == min(seen.values())
    assert len(seen) == 1 + len(ZONED.zones)
    assert World(kernel).cloud.observe().spot_usd_per_hour == ()


def test_what_is_launched_after_a_pool_was_lost_goes_to_another_zone(kernel: Kernel) -> None:
    world = World(kernel, of=replace(ZONED, refused_after_loss=1.0, after_loss_s=1800.0))
    first, second, _ = SpotPrices(ZONED, 1).zones_by_price(SPOT.instance_type, 0.0)
    world.launch(SPOT, 2)
    world.to(300.0)
    world.cloud._take(300.0, 1.0, f"{SPOT.name}:{second}")
    assert world.cloud.interruptions == 0
    world.cloud._take(300.0, 1.0, f"{SPOT.name}:{first}")
    assert world.cloud.interruptions == 2
    world.launch(SPOT)
    assert [m.pool for m in world.cloud._machines.values()][-1] == f"{SPOT.name}:{second}"


def test_wakes_take_as_long_as_their_kind(kernel: Kernel) -> None:
    times = replace(FIXED, wake_accelerated=LognormalTime(median_s=120.0, p95_s=120.0))
    gpu = replace(SLEEPER, instance_type=replace(SLEEPER.instance_type, accelerator="t4", accelerator_count=1))
    world = World(kernel, of=replace(FIXED_WORLD, times=times), sleeper=gpu)
    world.launch(gpu, 1, Role.STANDBY)
    world.to(200.0)
    world.cloud.submit(StopStandby(token="t2-1", reason="test", instances=("i-000001",)))
    world.to(300.0)
    world.cloud.submit(StartStandby(token="t3-1", reason="test", instances=("i-000001",)))
    world.to(419.9)
    assert world.states() == {"i-000001": InstanceState.PENDING}
    world.to(420.0)
    assert world.states() == {"i-000001": InstanceState.READY}


def test_a_launch_that_names_several_types_gets_the_cheapest_that_is_not_refused(kernel: Kernel) -> None:
    refuse = FaultScript(stress=0.0, refusals=(Refuse(from_s=0.0, to_s=100.0, offering=SERVING.name),))
    cheaper = replace(SLEEPER, usd_per_hour=SERVING.usd_per_hour / 2)
    world = World(kernel, faults=refuse, sleeper=cheaper)
    order = Launch(token="t1", reason="test", offering=SERVING.name, count=2, equivalents=(cheaper.name,))
    world.cloud.submit(order)
    assert world.cloud.observe().staying == {cheaper.name: 2}
    world.to(150.0)
    world.cloud.submit(replace(order, token="t2", equivalents=()))
    assert world.cloud.observe().staying == {cheaper.name: 2, SERVING.name: 2}


def test_a_launch_leaves_out_the_zones_that_it_names_and_is_refused_where_none_is_left(kernel: Kernel) -> None:
    world = World(kernel, of=replace(FIXED_WORLD, zones=("a", "b")))
    order = Launch(token="t1", reason="test", offering=SPOT.name, count=1, without=((SPOT.name, "a"),))
    world.cloud.submit(order)
    assert [one.zone for one in world.cloud.observe()] == ["b"]
    world.cloud.submit(replace(order, token="t2", without=((SPOT.name, "a"), (SPOT.name, "b"))))
    world.to(1.0)
    [fact] = world.cloud.drain_facts()
    assert isinstance(fact, LaunchRefused)
    assert (fact.count, fact.code) == (1, "InsufficientInstanceCapacity")


def test_reserved_capacity_refuses_nobody_and_what_is_beyond_it_is_refused(kernel: Kernel) -> None:
    always = FaultScript(stress=0.0, refusals=(Refuse(from_s=0.0, to_s=1e6),))
    world = World(kernel, faults=always, of=ZONED)
    name = SERVING.instance_type.name
    kept = CapacityReservation(name="cr-1", instance_type=name, zone="us-east-1b", count=2.0)
    world.cloud.reserved = lambda: (kept,)
    world.launch(SERVING, 3)
    assert [one.zone for one in world.cloud.observe()] == ["b", "b"]
    world.to(1.0)
    (refused,) = (fact for fact in world.cloud.drain_facts() if isinstance(fact, LaunchRefused) and fact.count)
    assert refused.count == 1
    world.launch(SPOT)
    world.launch(SERVING)
    assert len(world.states()) == 2
    world.cloud.submit(Terminate(token="t", reason="test", instances=("i-000001",)))
    world.to(300.0)
    world.launch(SERVING, 2)
    assert [one.zone for one in world.cloud.observe()] == ["b", "b"]

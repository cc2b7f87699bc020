"""Whatever is asked in whatever order, instances move only as EC2's do, and processes follow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.cloudmodel.capacity import Capacity
from mark.cloudmodel.world import IDEAL, World
from mark.domain.clock import ClockAnchor
from mark.domain.offerings.offering import Market
from mark.emulator.clock import ServiceClock
from mark.emulator.ec2.machine import LaunchSpec, Machine, MachineState
from mark.emulator.ec2.machines import Machines
from mark.emulator.errors import ApiError
from tests.emulator.conftest import TYPES, draws

S = MachineState
LEGAL = {
    (S.PENDING, S.PENDING),  # as launched
    (S.PENDING, S.RUNNING),
    (S.PENDING, S.STOPPING),
    (S.PENDING, S.SHUTTING_DOWN),
    (S.RUNNING, S.STOPPING),
    (S.RUNNING, S.SHUTTING_DOWN),
    (S.STOPPING, S.STOPPED),
    (S.STOPPING, S.SHUTTING_DOWN),
    (S.STOPPED, S.PENDING),
    (S.STOPPED, S.SHUTTING_DOWN),
    (S.SHUTTING_DOWN, S.TERMINATED),
}


class Lab:
    """Machines with processes that end when the test says so; also who is told what happens."""

    def __init__(self, world: World = IDEAL) -> None:
        self.wall = 1000.0
        self.clock = ServiceClock(ClockAnchor(), wall=lambda: self.wall)
        self.processes: dict[str, bool] = {}
        self.states: dict[str, MachineState] = {}
        self.machines = Machines(
            clock=self.clock,
            capacity=Capacity(world, seed=1),
            draws=draws(),
            stress=3000.0,
            boot_factor=lambda: 1.0,
            power=self,
            environment=lambda machine: {"id": machine.id},
            watcher=self,
        )

    def power_on(self, name: str, environment: Mapping[str, str]) -> None:
        assert name not in self.processes
        assert environment == {"id": name}
        self.processes[name] = False

    def power_off(self, name: str) -> None:
        self.processes[name] = True

    def runs(self, name: str) -> bool:
        return name in self.processes

    def state_changed(self, machine: Machine, at: float) -> None:
        assert at <= self.clock.now() + 1e-6
        assert (self.states.get(machine.id, S.PENDING), machine.state) in LEGAL
        self.states[machine.id] = machine.state

    def spot_warned(self, machine: Machine, at: float) -> None:
        assert machine.is_spot
        assert machine.life.terminates_at == at + 120

    def rebalance_advised(self, machine: Machine, at: float) -> None:
        raise AssertionError("this world recommends nothing")

    def launch(self, market: Market) -> None:
        spec = LaunchSpec(
            instance_type=TYPES["c5.large"], market=market, image_id="ami", zone="z", subnet_id="s", vpc_id="v"
        )
        self.machines.launch(spec, "r")

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.clock.fire_due()

    def end(self, name: str) -> None:
        """The process ends, by itself or because it was told to."""
        if self.processes.pop(name, None) is not None:
            self.machines.powered_off(name)

    def check(self) -> None:
        for machine in self.machines:
            if machine.state is S.RUNNING:
                assert machine.id in self.processes
            elif machine.state in (S.PENDING, S.STOPPED, S.TERMINATED):
                assert machine.id not in self.processes
            else:
                assert self.processes.get(machine.id, True)


STEPS = st.one_of(
    st.tuples(st.just("launch"), st.sampled_from(Market)),
    st.tuples(st.sampled_from(["start", "stop", "terminate", "end", "warn"]), st.integers(0, 5)),
    st.tuples(st.just("advance"), st.floats(0.0, 200.0)),
    st.tuples(st.just("sweep"), st.none()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_only_legal_moves_and_processes_follow(steps: list[tuple[str, object]]) -> None:
    lab = Lab()
    try:
        for verb, detail in steps:
            take(lab, verb, detail)
            lab.check()
        lab.machines.terminate([machine for machine in lab.machines if machine.state is not S.TERMINATED])
        for name in list(lab.processes):
            lab.end(name)
        lab.advance(1.0)
        assert {machine.state for machine in lab.machines} <= {S.TERMINATED}
        assert lab.processes == {}
    finally:
        lab.machines.close()


def test_a_launch_that_fails_ends_while_it_is_pending_and_says_why() -> None:
    lab = Lab()
    lab.machines.launch_failure = {"c5.large:spot": "Client.InternalError"}.get
    for market in Market:
        lab.launch(market)
    dying, well = sorted(lab.machines, key=lambda machine: not machine.is_spot)
    lab.advance(60.0)
    lab.advance(1.0)

    assert (dying.state, well.state) == (S.TERMINATED, S.RUNNING)
    assert (dying.reason_code, dying.reason) == (
        "Client.InternalError",
        "Client.InternalError: Client error on launch",
    )
    lab.machines.close()


def test_a_refused_start_leaves_all_asleep_and_says_why() -> None:
    lab = Lab(replace(IDEAL, wake_refused=0.9))
    try:
        for _ in range(6):
            lab.launch(Market.ON_DEMAND)
        lab.advance(300.0)
        there = list(lab.machines)
        lab.machines.stop(there)
        for machine in there:
            lab.end(machine.id)
        with pytest.raises(ApiError) as refused:
            lab.machines.start(there)
        assert refused.value.code == "InsufficientInstanceCapacity"
        assert {machine.state for machine in there} == {S.STOPPED}
    finally:
        lab.machines.close()


def test_a_rough_world_loses_a_whole_pool_within_the_hour_and_launches_of_its_type_are_refused() -> None:
    lab = Lab(replace(IDEAL, pool_loss_every_s=3600.0, refused_after_loss=1.0, after_loss_s=3600.0))
    try:
        lab.launch(Market.SPOT)
        lab.launch(Market.SPOT)
        assert lab.machines.zone_of_launch(TYPES["c5.large"], Market.ON_DEMAND) == "us-east-1a"
        lab.advance(300.0)
        lab.advance(3300.0)
        assert all(machine.life.terminates_at is not None for machine in lab.machines if machine.is_spot)
        assert lab.machines.zone_of_launch(TYPES["c5.large"], Market.ON_DEMAND) is None
    finally:
        lab.machines.close()


def take(lab: Lab, verb: str, detail: object) -> None:
    there = list(lab.machines)
    if isinstance(detail, Market):
        lab.launch(detail)
    elif isinstance(detail, float):
        lab.advance(detail)
    elif detail is None:
        lab.machines.sweep()
    elif there:
        machine = there[int(str(detail)) % len(there)]
        calls = {
            "start": lab.machines.start,
            "stop": lab.machines.stop,
            "terminate": lab.machines.terminate,
            "warn": lab.machines.interrupt,
        }
        if verb == "end":
            lab.end(machine.id)
            return
        before = machine.state
        try:
            calls[verb]([machine])
        except ApiError:
            assert machine.state is before


def test_a_clock_that_is_replaced_keeps_what_is_due() -> None:
    wall, fired = [0.0], []
    clock = ServiceClock(ClockAnchor(), wall=lambda: wall[0])
    clock.at(10.0, fired.append)
    clock.at(5.0, fired.append)
    clock.replace(ClockAnchor(wall_at=0.0, service_at=0.0, speed=0.0))
    wall[0] = 100.0
    clock.fire_due()
    assert fired == []
    clock.replace(ClockAnchor(wall_at=100.0, service_at=0.0, speed=20.0))
    wall[0] = 100.3
    clock.fire_due()
    assert fired == [5.0]
    wall[0] = 100.5
    clock.fire_due()
    assert fired == [5.0, 10.0]


def test_a_wake_is_billed_from_its_start() -> None:
    lab = Lab()
    try:
        lab.launch(Market.ON_DEMAND)
        (machine,) = lab.machines
        lab.advance(30.0)
        lab.machines.stop([machine])
        lab.end(machine.id)
        assert machine.state is S.STOPPED
        lab.advance(500.0)
        lab.machines.start([machine])
        lab.advance(0.0)
        assert machine.state is S.RUNNING
        assert machine.life.billed_since == pytest.approx(1530.0)
        assert machine.life.ready_at > 1550.0
    finally:
        lab.machines.close()


def test_a_timer_that_fails_does_not_stop_the_clock() -> None:
    fired: list[float] = []
    said: list[object] = []

    def fail(at: float) -> None:
        raise ValueError(at)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context["exception"]))
        clock, over = ServiceClock(ClockAnchor(speed=1000.0)), asyncio.Event()

        def fire(at: float) -> None:
            fired.append(at)
            over.set()

        clock.at(1.0, fail)
        clock.at(2.0, fire)
        clock.start()
        await asyncio.wait_for(over.wait(), 60.0)
        clock.stop()

    asyncio.run(run())
    assert fired == [2.0]
    assert [type(error) for error in said] == [ValueError]

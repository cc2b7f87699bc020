"""A replay and an emulated AWS are one world: the same seed refuses the same, and bills the same standbys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.cloudmodel.capacity import Capacity
from mark.cloudmodel.lifecycle import draw_launch
from mark.cloudmodel.world import ROUGH
from mark.config.service import ServedSettings, ServiceSettings
from mark.config.settings import Settings
from mark.domain.clock import ClockAnchor
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import InstanceState, Role
from mark.domain.fleet.orders import (
    Fact,
    Launch,
    LaunchRefused,
    RebalanceAdvised,
    SpotWarned,
    StartStandby,
    StopStandby,
)
from mark.domain.offerings.offering import Market, Offering
from mark.domain.offerings.times import LognormalTime, RebalanceAdvice
from mark.emulator.clock import ServiceClock
from mark.emulator.config import Draws
from mark.emulator.ec2.machine import LaunchSpec, Machine, MachineState
from mark.emulator.ec2.machines import Machines
from mark.emulator.errors import ApiError
from mark.live.processes.emulator import emulated_aws
from mark.offline.workloads import each_seeded
from mark.simulator.cloud import SimulatedCloud
from mark.simulator.engine.compiled import plain_kernel
from mark.simulator.faults import FaultScript
from mark.simulator.rng import stream
from tests.emulator.conftest import draws
from tests.planner.builders import offering
from tests.simulator.engines import engine

ADVICE = RebalanceAdvice(share=0.5, lead=LognormalTime(median_s=600.0, p95_s=1800.0), unfounded=0.5)
TIMES = replace(ROUGH.times, advice=ADVICE)
WORLD = replace(ROUGH, times=TIMES, spot_refused=0.3, on_demand_refused=0.3, pool_loss_every_s=None)
ON_DEMAND = offering()
SPOT = replace(
    ON_DEMAND,
    market=Market.SPOT,
    instance_type=replace(ON_DEMAND.instance_type, spot_usd_per_hour=0.1, spot_interruption_rate=0.5),
)
REPLAY_AT, LIVE_AT = 3600.0, 1_800_000_015.0
"""Where each world's clock stands at the start."""
STANDBYS = 5


class Replayed:
    """Standbys of a replay by their number."""

    def __init__(self, seed: int, stress: float = 0.0) -> None:
        self._engine = engine(plain_kernel(), [], duration_s=20_000.0, start_at=REPLAY_AT)
        self.cloud = SimulatedCloud(
            engine=self._engine,
            offerings={item.name: item for item in (ON_DEMAND, SPOT)},
            world=WORLD,
            faults=FaultScript(stress=stress),
            seed=seed,
            start_at=REPLAY_AT,
            redispatch=True,
        )
        self.heard: list[Fact] = []
        self.cloud.prewarmed = True
        self._submit_launch(ON_DEMAND, STANDBYS, Role.STANDBY)
        self.cloud.prewarmed = False
        self._names = [instance.id for instance in self.cloud.observe()]

    def to(self, at_s: float) -> None:
        at = REPLAY_AT + at_s
        while self._engine.now < at or self.cloud.next_at() <= at:
            stop = min(at, self.cloud.next_at())
            self._engine.run_until(stop)
            self.cloud.fire(stop)

    def pool_of_launch(self, item: Offering) -> str | None:
        """The pool that one more is taken from; None where it is refused."""
        if self._refused(lambda: self._submit_launch(item, 1, Role.SERVING)):
            return None
        return next(reversed(self.cloud._machines.values())).pool

    def refused_wakes(self) -> list[int]:
        order = StartStandby(token="w", reason="test", instances=tuple(self._names))
        facts = self._refused(lambda: self.cloud.submit(order))
        self.cloud.submit(StopStandby(token="s", reason="test", instances=tuple(self._names)))
        return sorted(self._names.index(name) for fact in facts for name in fact.instances)

    def _refused(self, ask: Callable[[], None]) -> list[LaunchRefused]:
        ask()
        self.cloud.fire(self._engine.now)
        facts = self.cloud.drain_facts()
        self.heard += facts
        return [fact for fact in facts if isinstance(fact, LaunchRefused)]

    def _submit_launch(self, item: Offering, count: int, role: Role) -> None:
        token = f"t{self._engine.now}-{item.name}-{role}"
        self.cloud.submit(Launch(token=token, reason="test", offering=item.name, count=count, role=role))


class Emulated:
    """The same on an emulated EC2 whose clock the test moves; processes end at once."""

    def __init__(self, seed: int, stress: float = 0.0, drawn: Draws | None = None) -> None:
        self._wall = 0.0
        self.advised: list[float] = []
        self._clock = ServiceClock(ClockAnchor(service_at=LIVE_AT), wall=lambda: self._wall)
        self.machines = Machines(
            clock=self._clock,
            capacity=Capacity(WORLD, seed, start_at=self._clock.now()),
            draws=drawn or draws(seed),
            stress=stress,
            boot_factor=lambda: 1.0,
            power=self,
            environment=lambda _: {},
            watcher=self,
        )
        self.machines.prewarm = True
        self._standbys = [self._launch(ON_DEMAND, Role.STANDBY) for _ in range(STANDBYS)]
        self.machines.prewarm = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.machines.close()

    def to(self, at_s: float) -> None:
        self._wall = at_s
        self._clock.fire_due()

    def pool_of_launch(self, item: Offering) -> str | None:
        zone = self.machines.zone_of_launch(item.instance_type, item.market)
        return None if zone is None else self._launch(item, Role.SERVING, zone).pool

    def refused_wakes(self) -> list[int]:
        refused = []
        for number, machine in enumerate(self._standbys):
            try:
                self.machines.start([machine])
            except ApiError:
                refused.append(number)
        self._clock.fire_due()
        self.machines.stop(self._standbys)
        self._clock.fire_due()
        return refused

    def boot_s(self, model: str) -> float:
        """The boot of one more instance of a model."""
        life = self._launch(ON_DEMAND, Role.SERVING, model=model).life
        return life.ready_at - self._clock.now()

    def _launch(self, item: Offering, role: Role, zone: str = "us-east-1a", model: str = "") -> Machine:
        tags = {"mark:offering": item.name, "mark:role": role.value, "mark:model": model}
        spec = LaunchSpec(
            instance_type=item.instance_type,
            market=item.market,
            image_id="ami",
            zone=zone,
            subnet_id="s",
            vpc_id="v",
            tags=tags,
        )
        return self.machines.launch(spec, "r")

    def power_on(self, name: str, environment: object) -> None:
        """No process."""

    def power_off(self, name: str) -> None:
        """No process."""

    def runs(self, name: str) -> bool:
        return False

    def state_changed(self, machine: Machine, at: float) -> None:
        """Nobody looks."""

    def spot_warned(self, machine: Machine, at: float) -> None:
        """Nobody looks."""

    def rebalance_advised(self, machine: Machine, at: float) -> None:
        self.advised.append(at - LIVE_AT)


ASKED = st.tuples(st.integers(1, 90), st.sampled_from(["on-demand", "spot", "wake"]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 50), asked=st.lists(ASKED, min_size=1, max_size=20))
def test_both_refuse_the_same_and_take_from_the_same_pools_though_clocks_and_ids_differ(
    seed: int, asked: list[tuple[int, str]]
) -> None:
    at_s, replayed = 0.0, Replayed(seed)
    with Emulated(seed) as emulated:
        for after_s, what in asked:
            at_s += after_s
            for world in (replayed, emulated):
                world.to(at_s)
            if what == "wake":
                assert replayed.refused_wakes() == emulated.refused_wakes()
            else:
                item = SPOT if what == "spot" else ON_DEMAND
                assert replayed.pool_of_launch(item) == emulated.pool_of_launch(item)


def test_both_recommend_to_replace_the_same_before_some_notices_and_without() -> None:
    replayed, told, warned = Replayed(3, stress=2000.0), list[float](), 0
    with Emulated(3, stress=2000.0) as emulated:
        for world in (replayed, emulated):
            for minute in range(60):
                world.to(60.0 * minute)
                world.pool_of_launch(SPOT)
            world.to(40_000.0)
    for fact in (*replayed.heard, *replayed.cloud.drain_facts()):
        told += [fact.at - REPLAY_AT] if isinstance(fact, RebalanceAdvised) else []
        warned += isinstance(fact, SpotWarned)
    assert 0 < len(told) < 2 * warned
    assert sorted(told) == pytest.approx(sorted(emulated.advised))


def test_standbys_that_were_there_before_the_start_sleep_and_no_run_of_theirs_is_billed() -> None:
    replayed = Replayed(1)
    assert [i.state for i in replayed.cloud.observe()] == [InstanceState.STOPPED] * STANDBYS
    replayed.to(600.0)
    replayed.cloud.close(REPLAY_AT + 600.0)
    assert replayed.cloud.usages == []
    assert replayed.cloud.asleep_s == pytest.approx(STANDBYS * 600.0)
    with Emulated(1) as emulated:
        assert [m.state for m in emulated.machines] == [MachineState.STOPPED] * STANDBYS
        assert [m.life.asleep_since for m in emulated.machines] == [LIVE_AT] * STANDBYS


def test_ids_rise_with_the_launches_as_in_a_replay() -> None:
    with Emulated(1) as emulated:
        ids = [machine.id for machine in emulated.machines]
    assert ids == sorted(set(ids))
    assert all(len(name) == len("i-0123456789abcdef0") for name in ids)


def test_each_model_of_a_service_boots_as_in_its_replay_whoever_launches_between(tmp_path: Path) -> None:
    serve = (ServedSettings(model="inception-v3"), ServedSettings(model="resnet-50"))
    several = Settings(seed=3, service=ServiceSettings(serve=serve))
    config = emulated_aws(several, logs=tmp_path, port=0, began_at=LIVE_AT)
    seeds = {entry.model: own.seed for own, entry in each_seeded(several)} | {SHARED: 3}
    booted: dict[str, list[float]] = {model: [] for model in seeds}
    with Emulated(3, drawn=config.draws) as emulated:
        for model in [*seeds, *reversed(seeds), *seeds]:
            booted[model].append(emulated.boot_s(model))

    for model, seed in seeds.items():
        boots, lives = stream(seed, "boots"), stream(seed, "any")
        replayed = [draw_launch(TIMES, boots, lives, boot_factor=1.0, hazard_per_hour=0.0) for _ in range(3)]
        assert booted[model] == pytest.approx([drawn.boot_s for drawn in replayed])


def test_the_emulated_world_begins_where_the_services_clock_does(tmp_path: Path) -> None:
    config = emulated_aws(Settings(), logs=tmp_path, port=0, began_at=LIVE_AT)
    assert ServiceClock(config.anchor).now() == LIVE_AT

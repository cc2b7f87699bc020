"""All instances of the account on service time, and their processes.

What an instance may become, and when, is `mark.cloudmodel.lifecycle`'s, and so are the draws: given the streams of
the simulated cloud, instances here live the same lives. Here stands what EC2's API and the processes have to do
with it: a process starts when its instance runs, and an instance has stopped or ended when its process is gone.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from mark.aws.ec2.tags import MODEL, ROLE
from mark.cloudmodel.capacity import NO_CAPACITY, Capacity, pool_name
from mark.cloudmodel.lifecycle import (
    Event,
    Phase,
    allows,
    caught_up,
    draw_advice,
    draw_launch,
    draw_victims,
    draw_wake,
    launched,
    step,
    wake,
    warn,
)
from mark.cloudmodel.world import pool_zone
from mark.domain.offerings.offering import InstanceType, Market
from mark.emulator.clock import ServiceClock
from mark.emulator.config import DEFAULT_ZONE, REGION, Draws, LifeDraws
from mark.emulator.ec2.address import AddressPool
from mark.emulator.ec2.machine import LaunchSpec, Machine, MachineState
from mark.emulator.errors import ApiError

FORGET_AFTER_S = 3600.0
"""Terminated instances stay visible for about an hour."""
USER_INITIATED = ("Client.UserInitiatedShutdown", "User initiated shutdown")
GUEST_INITIATED = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
SPOT_TERMINATION = ("Server.SpotInstanceTermination", "Spot instance termination")


def not_found(names: Sequence[str]) -> ApiError:
    """EC2's error for instances that do not exist, or not yet for who asks."""
    words = "ID" if len(names) == 1 else "IDs"
    return ApiError("InvalidInstanceID.NotFound", f"The instance {words} '{', '.join(names)}' do not exist")


class Power(Protocol):
    """Runner of the instances' processes; it calls `Machines.powered_off` when one has ended."""

    def power_on(self, name: str, environment: Mapping[str, str]) -> None:
        """Start the instance's process."""

    def power_off(self, name: str) -> None:
        """End it."""

    def runs(self, name: str) -> bool:
        """True where it has one."""


class Watcher(Protocol):
    """Observer of what happens to instances."""

    def state_changed(self, machine: Machine, at: float) -> None:
        """Note its other state since `at`."""

    def spot_warned(self, machine: Machine, at: float) -> None:
        """Note its spot notice at `at`."""

    def rebalance_advised(self, machine: Machine, at: float) -> None:
        """Note at `at` that it is likely to get one."""


class Machines:
    """Every instance of the account. All calls are made on the event loop's thread."""

    def __init__(
        self,
        *,
        clock: ServiceClock,
        capacity: Capacity,
        draws: Draws,
        stress: float,
        boot_factor: Callable[[], float],
        power: Power,
        environment: Callable[[Machine], Mapping[str, str]],
        watcher: Watcher,
    ) -> None:
        self._clock = clock
        self._times = capacity.world.times
        self._capacity = capacity
        self._draws = draws
        self._stress = stress
        self._boot_factor = boot_factor
        self._power = power
        self._environment = environment
        self._watcher = watcher
        self._machines: dict[str, Machine] = {}
        self._lives: dict[str, LifeDraws] = {}
        self._addresses = AddressPool()
        self._account_life, self._made = secrets.token_hex(4), itertools.count(1)
        self.prewarm = False
        self.launch_failure: Callable[[str], str | None] = lambda _: None
        self.metered: Callable[[Machine, float], None] = lambda *_: None
        self._lose_pools(clock.now(), 0)

    def __iter__(self) -> Iterator[Machine]:
        """In the order of their launches."""
        return iter(self._machines.values())

    def find(self, name: str) -> Machine | None:
        """The instance of that id, if there is one."""
        return self._machines.get(name)

    def tags_of(self, name: str) -> dict[str, str] | None:
        """Tags of the instance of that id, if there is one."""
        found = self._machines.get(name)
        return found.tags if found else None

    def named(self, names: list[str]) -> list[Machine]:
        """The instances of these ids; InvalidInstanceID.NotFound where one does not exist."""
        lacking = [name for name in names if name not in self._machines]
        if lacking:
            raise not_found(lacking)
        return [self._machines[name] for name in names]

    def close(self) -> None:
        """Let go of the addresses."""
        self._addresses.close()

    # What the API asks for.

    def launch(self, spec: LaunchSpec, reservation: str, index: int = 0) -> Machine:
        """A new instance: pending, or running and booted where the world is prewarmed."""
        now = self._clock.now()
        pool = pool_name(spec.offering, self._zone_of(spec))
        hazard = spec.instance_type.spot_hazard_per_hour * self._stress if spec.is_spot else 0.0
        lives = self._life_draws(spec)
        drawn = draw_launch(
            self._times,
            lives.boots,
            lives.spot(pool),
            boot_factor=self._boot_factor(),
            hazard_per_hour=hazard,
        )
        machine = Machine(
            id=self._next_id(),
            spec=spec,
            address=self._addresses.take(),
            launched_at=now,
            reservation=reservation,
            tags=dict(spec.tags),
            shutdown_behavior=spec.shutdown_behavior,
            life=launched(
                now,
                pending_s=0.0 if self.prewarm else drawn.pending_s,
                boot_s=0.0 if self.prewarm else drawn.boot_s,
            ),
            pool=pool,
            number=self._capacity.number_launch(pool),
            index=index,
        )
        if machine.is_spot:
            machine.spot_request = f"sir-{secrets.token_hex(4)}"
        self._machines[machine.id] = machine
        self._begin(machine, drawn.until_notice_s, now)
        advised = lives.spot(f"advice {pool}")
        for after_s in draw_advice(self._times.advice, advised, drawn.until_notice_s, hazard):
            self._clock.at(now + after_s, partial(self._advise, machine))
        return machine

    def zone_of_launch(self, item: InstanceType, market: Market, named: str = "") -> str | None:
        """The availability zone that a launch goes to; None where it is refused.

        named: the zone that it asks for, empty where EC2 may choose. The first fleet of a prewarmed world was
        launched before and is never refused.
        """
        now = self._clock.now()
        if not named:
            zone = self._capacity.zone_of_launch(item, market, now, prewarmed=self.prewarm)
            return None if zone is None else f"{REGION}{zone or DEFAULT_ZONE}"
        refused = self._capacity.refuses_launch(item, market, self._known(market, named), now)
        return None if refused and not self.prewarm else named

    @property
    def spot_zones(self) -> tuple[str, ...]:
        """The availability zones that have spot prices of their own."""
        return tuple(f"{REGION}{zone or DEFAULT_ZONE}" for zone in self._capacity.world.zones)

    def spot_usd_per_hour(self, item: InstanceType, zone: str = "") -> float | None:
        """The spot price of now in an availability zone, or in the cheapest; None where it has no spot market."""
        if item.spot_usd_per_hour is None:
            return None
        now, prices = self._clock.now(), self._capacity.prices
        return prices.usd_per_hour(
            item, self._known(Market.SPOT, zone) or prices.zones_by_price(item, now)[0], now
        )

    def mean_usd_per_hour(self, machine: Machine, since: float, until: float) -> float:
        """What the instance's hour costs within a time: its type's price, on spot that of its zone as it moves."""
        item, spec = machine.spec.instance_type, machine.spec
        if not spec.is_spot:
            return item.on_demand_usd_per_hour
        return self._capacity.prices.mean_usd_per_hour(item, self._zone_of(spec), since, until)

    def start(self, machines: list[Machine]) -> None:
        """Wake stopped instances: all of them, or none where one cannot be had."""
        self._check(machines, "started", (MachineState.STOPPED, MachineState.PENDING, MachineState.RUNNING))
        now = self._clock.now()
        asleep = [machine for machine in machines if machine.state is MachineState.STOPPED]
        for machine in asleep:
            item = machine.spec.instance_type
            if self._capacity.refuses_wake(item, machine.number, now):
                raise ApiError(NO_CAPACITY, f"We currently do not have sufficient {item.name} capacity.", 500)
        for machine in asleep:
            self._wake(machine, now)

    def stop(self, machines: list[Machine]) -> None:
        """Stop instances; one-time spot instances cannot be stopped."""
        for machine in machines:
            if machine.is_spot:
                raise ApiError(
                    "UnsupportedOperation",
                    f"You can't stop the Spot Instance '{machine.id}' because it is associated with a one-time "
                    "Spot Instance request. You can only stop Spot Instances associated with persistent Spot "
                    "Instance requests.",
                )
        allowed = (MachineState.PENDING, MachineState.RUNNING, MachineState.STOPPING, MachineState.STOPPED)
        self._check(machines, "stopped", allowed)
        for machine in machines:
            self._leave(machine, Event.STOP, USER_INITIATED, self._clock.now())

    def terminate(self, machines: list[Machine]) -> None:
        """End instances, all or none of them; those that end already go on ending."""
        for machine in machines:
            if machine.protected:
                raise ApiError(
                    "OperationNotPermitted",
                    f"The instance '{machine.id}' may not be terminated. Modify its 'disableApiTermination' "
                    "instance attribute and try again.",
                )
        for machine in machines:
            self._leave(machine, Event.TERMINATE, USER_INITIATED, self._clock.now())

    def interrupt(self, machines: list[Machine], after_s: float = 0.0) -> list[Machine]:
        """Give these spot instances their notice; those that got it.

        after_s: a recommendation now and the notice so much later, as AWS's fault injection does.
        """
        wrong = [machine.id for machine in machines if not machine.is_spot]
        if wrong:
            raise ApiError("InvalidParameterValue", f"not spot instances: {', '.join(wrong)}")
        now = self._clock.now()
        if after_s <= 0.0:
            return [machine for machine in machines if self._warn(machine, now)]
        told = [machine for machine in machines if machine.life.can_be_warned]
        for machine in told:
            self._advise(machine, now)
            self._clock.at(now + after_s, partial(self._interrupt, machine))
        return told

    def ready_spot(self, taken: str = "") -> list[Machine]:
        """The ready spot instances that have no notice yet, of one offering or pool where it is named."""
        now = self._clock.now()
        return [
            machine
            for machine in self
            if machine.is_spot
            and caught_up(machine.life, now).is_ready_to_lose
            and taken in ("", machine.offering, machine.pool)
        ]

    def victims(self, share: float, pool: Sequence[Machine]) -> list[Machine]:
        """A share of these, drawn as the simulator draws."""
        return draw_victims(share, pool, self._draws.victims)

    # What happens to them.

    def _lose_pools(self, began_at: float, number: int) -> None:
        """Whole pools are lost, in a world where they are: the n-th in its time, then the next."""
        after_s = self._capacity.pool_loss_s(number)
        if after_s is None:
            return

        def lose(_: float) -> None:
            pools = {machine.pool for machine in self.ready_spot()}
            if pools:
                self.interrupt(self.ready_spot(self._capacity.lost_pool(number, [*pools])))
            self._lose_pools(began_at, number + 1)

        self._clock.at(began_at + after_s, lose)

    def powered_off(self, name: str) -> None:
        """Its process has ended: as it was told to, or by itself (the guest's own shutdown)."""
        machine, now = self._machines[name], self._clock.now()
        if machine.state is MachineState.RUNNING:
            stops = machine.shutdown_behavior == "stop" and not machine.is_spot
            self._leave(machine, Event.STOP if stops else Event.TERMINATE, GUEST_INITIATED, now)
        else:
            self._settle(machine, now)

    def sweep(self) -> None:
        """Agree with the processes: what runs has one, what has none is not on its way to lose it."""
        for machine in list(self):
            if machine.state is MachineState.RUNNING and not self._power.runs(machine.id):
                self._power.power_on(machine.id, self._environment(machine))
            elif machine.state in (MachineState.STOPPING, MachineState.SHUTTING_DOWN):
                self._settle(machine, self._clock.now())

    def _begin(self, machine: Machine, until_notice_s: float | None, now: float) -> None:
        """Tell of a new instance, and what becomes of it by itself."""
        if until_notice_s is not None:
            self._clock.at(now + until_notice_s, lambda at: self._interrupt(machine, at))
        self._publish_state(machine, now)
        failure = None if self.prewarm else self.launch_failure(machine.pool)
        if failure is not None:
            why = (failure, "Client error on launch")
            self._clock.at(machine.life.runs_at, lambda at: self._leave(machine, Event.TERMINATE, why, at))
        elif not self.prewarm:
            self._clock.at(machine.life.runs_at, lambda at: self._run(machine, at))
        elif machine.tags.get(ROLE) == "standby":
            self._enter(machine, now, Event.STOP, Event.PROCESS_ENDED)
        else:
            self._run(machine, now)

    def _wake(self, machine: Machine, now: float) -> None:
        item = machine.spec.instance_type
        wakes = self._life_draws(machine.spec).wakes
        wake_s = draw_wake(self._times, item, wakes, boot_factor=self._boot_factor())
        machine.life = wake(machine.life, now, wake_s)
        machine.reason_code = machine.reason = ""
        machine.ended_at = None
        self._publish_state(machine, now)
        self._clock.at(now, lambda at: self._run(machine, at))

    def _run(self, machine: Machine, now: float) -> None:
        if self._enter(machine, now, Event.RUN):
            self._power.power_on(machine.id, self._environment(machine))

    def _interrupt(self, machine: Machine, now: float) -> None:
        self._warn(machine, now)

    def _advise(self, machine: Machine, now: float) -> None:
        """The rebalance recommendation, which changes nothing by itself."""
        if machine.life.can_be_warned:
            self._watcher.rebalance_advised(machine, now)

    def _warn(self, machine: Machine, now: float) -> bool:
        """The notice; the instance is shut down when it has run out."""
        before, machine.life = machine.life, warn(machine.life, now, self._times.spot_notice_s)
        if machine.life is before:
            return False
        assert machine.life.terminates_at is not None
        self._clock.at(
            machine.life.terminates_at, lambda at: self._leave(machine, Event.TERMINATE, SPOT_TERMINATION, at)
        )
        pool = [one for one in self if one.pool == machine.pool and one.life.phase is not Phase.GONE]
        notices = sum(one.life.terminates_at is not None for one in pool)
        zone = self._zone_of(machine.spec)
        self._capacity.note_notices(machine.spec.instance_type, zone, warned=notices, there=len(pool), now=now)
        self._watcher.spot_warned(machine, now)
        return True

    def _leave(self, machine: Machine, event: Event, why: tuple[str, str], now: float) -> None:
        """Begin to stop or to end, if it does not yet; done when its process is gone."""
        if not allows(machine.life, event):
            return
        machine.before = (machine.life, now)
        machine.reason_code, machine.reason = why[0], f"{why[0]}: {why[1]}"
        if machine.ended_at is None:
            machine.ended_at = now
        self._enter(machine, now, event)
        if self._power.runs(machine.id):
            self._power.power_off(machine.id)
        else:
            self._clock.at(now, lambda at: self._settle(machine, at))

    def _settle(self, machine: Machine, now: float) -> None:
        """Stopped or terminated, if it is on its way there and no process is left."""
        if self._power.runs(machine.id) or not self._enter(machine, now, Event.PROCESS_ENDED):
            return
        if machine.life.phase is Phase.GONE:
            self._addresses.give_back(machine.address)
            self._clock.at(now + FORGET_AFTER_S, lambda _: self._forget(machine))

    def _forget(self, machine: Machine) -> None:
        del self._machines[machine.id]

    def _enter(self, machine: Machine, now: float, *events: Event) -> bool:
        """Live through these at one instant, and tell of where they lead; whether they lead anywhere."""
        before = machine.life
        for event in events:
            machine.life = step(machine.life, event, now)
        if machine.life is before:
            return False
        self._publish_state(machine, now)
        return True

    def _publish_state(self, machine: Machine, now: float) -> None:
        machine.xml = None
        self.metered(machine, now)
        self._watcher.state_changed(machine, now)

    def _next_id(self) -> str:
        """An id that no instance of an earlier life of this account had; ids rise, as a replay's do."""
        return f"i-{self._account_life}{next(self._made):09x}"

    def _zone_of(self, spec: LaunchSpec) -> str:
        """The world's name of its zone."""
        return self._known(spec.market, spec.zone)

    def _known(self, market: Market, zone: str) -> str:
        """The world's name of an availability zone; empty where it tells none apart."""
        return "" if self._capacity.world.zones == ("",) else pool_zone(market, zone.removeprefix(REGION))

    def _life_draws(self, spec: LaunchSpec) -> LifeDraws:
        """Random generators of the model that it is launched for. Launches of other models do not move them."""
        model = spec.tags.get(MODEL, "")
        if model not in self._lives:
            self._lives[model] = self._draws.lives(model)
        return self._lives[model]

    def _check(self, machines: list[Machine], verb: str, allowed: tuple[MachineState, ...]) -> None:
        for machine in machines:
            if machine.state not in allowed:
                raise ApiError(
                    "IncorrectInstanceState",
                    f"The instance '{machine.id}' is not in a state from which it can be {verb}.",
                )

"""All transitions of instances, on service time.

    launch: pending -> running (its process starts; ready when the boot is over) -> shutting-down -> terminated
    stop: running -> stopping -> stopped; start: stopped -> pending -> running (ready when the wake is over)
    spot: a notice, then shutting-down when its time has run out

Draws are those of the simulated cloud (`mark.simulator.cloud`), in its order: per launch the pending time, the
boot and the life; per start the wake.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from mark.domain.times import CloudTimes
from mark.emulator.clock import ServiceClock
from mark.emulator.config import Draws
from mark.emulator.ec2.address import AddressPool
from mark.emulator.ec2.machine import LaunchSpec, Machine, MachineState
from mark.emulator.errors import ApiError

FORGET_AFTER_S = 3600.0
"""Terminated instances stay visible for about an hour."""
USER_INITIATED = ("Client.UserInitiatedShutdown", "User initiated shutdown")
GUEST_INITIATED = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
SPOT_TERMINATION = ("Server.SpotInstanceTermination", "Spot instance termination")
ENDING = (MachineState.SHUTTING_DOWN, MachineState.TERMINATED)

Step = Callable[[Machine, float], None]


class Power(Protocol):
    """Whoever runs the instances' processes; it calls `Machines.powered_off` when one has ended."""

    def power_on(self, name: str, environment: Mapping[str, str]) -> None:
        """Start the instance's process."""

    def power_off(self, name: str) -> None:
        """End it."""

    def runs(self, name: str) -> bool:
        """Whether it has one."""


class Watcher(Protocol):
    """Whoever tells the world what happens to instances."""

    def state_changed(self, machine: Machine, at: float) -> None:
        """It is in another state since `at`."""

    def spot_warned(self, machine: Machine, at: float) -> None:
        """It got its notice at `at`."""


class Machines:
    """Every instance of the account. All calls are made on the event loop's thread."""

    def __init__(
        self,
        *,
        clock: ServiceClock,
        times: CloudTimes,
        draws: Draws,
        stress: float,
        boot_factor: Callable[[], float],
        power: Power,
        environment: Callable[[Machine], Mapping[str, str]],
        watcher: Watcher,
    ) -> None:
        self._clock = clock
        self._times = times
        self._draws = draws
        self._stress = stress
        self._boot_factor = boot_factor
        self._power = power
        self._environment = environment
        self._watcher = watcher
        self._machines: dict[str, Machine] = {}
        self._pools: dict[str, np.random.Generator] = {}
        self._addresses = AddressPool()
        self.prewarm = False

    def __iter__(self) -> Iterator[Machine]:
        """In the order of their launches."""
        return iter(self._machines.values())

    def find(self, name: str) -> Machine | None:
        """The instance of that id, if there is one."""
        return self._machines.get(name)

    def named(self, names: list[str]) -> list[Machine]:
        """The instances of these ids; InvalidInstanceID.NotFound where one does not exist."""
        lacking = [name for name in names if name not in self._machines]
        if lacking:
            words = "ID" if len(lacking) == 1 else "IDs"
            raise ApiError(
                "InvalidInstanceID.NotFound", f"The instance {words} '{', '.join(lacking)}' do not exist"
            )
        return [self._machines[name] for name in names]

    def close(self) -> None:
        """Let go of the addresses."""
        self._addresses.close()

    # What the API asks for.

    def launch(self, spec: LaunchSpec, reservation: str, index: int = 0) -> Machine:
        """A new instance: pending, or running and booted where the world is prewarmed."""
        now = self._clock.now()
        machine = Machine(
            id=f"i-{secrets.token_hex(9)[:17]}",
            spec=spec,
            address=self._addresses.take(),
            launched_at=now,
            reservation=reservation,
            tags=dict(spec.tags),
            shutdown_behavior=spec.shutdown_behavior,
            index=index,
        )
        if machine.is_spot:
            machine.spot_request = f"sir-{secrets.token_hex(4)}"
        self._machines[machine.id] = machine
        self._begin(machine, now)
        return machine

    def start(self, machines: list[Machine]) -> None:
        """Wake stopped instances."""
        self._check(machines, "started", (MachineState.STOPPED, MachineState.PENDING, MachineState.RUNNING))
        for machine in machines:
            if machine.state is MachineState.STOPPED:
                self._wake(machine, self._clock.now())

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
            if machine.state in (MachineState.PENDING, MachineState.RUNNING):
                self._leave(machine, MachineState.STOPPING, USER_INITIATED, self._clock.now())

    def terminate(self, machines: list[Machine]) -> None:
        """End instances; those that end already go on ending."""
        for machine in machines:
            self._shut_down(machine, USER_INITIATED, self._clock.now())

    def interrupt(self, machines: list[Machine]) -> list[Machine]:
        """Give these spot instances their notice; those that got it."""
        wrong = [machine.id for machine in machines if not machine.is_spot]
        if wrong:
            raise ApiError("InvalidParameterValue", f"not spot instances: {', '.join(wrong)}")
        now = self._clock.now()
        return [machine for machine in machines if self._warn(machine, now)]

    def ready_spot(self, offering: str = "") -> list[Machine]:
        """The ready spot instances that have no notice yet, of one pool where it is named."""
        now = self._clock.now()
        return [
            machine
            for machine in self
            if machine.is_spot
            and machine.state is MachineState.RUNNING
            and machine.ready_at is not None
            and machine.ready_at <= now
            and machine.gone_at is None
            and offering in ("", machine.pool)
        ]

    def victims(self, share: float, pool: Sequence[Machine]) -> list[Machine]:
        """A share of these, drawn as the simulator draws."""
        count = round(share * len(pool))
        chosen: Iterable[int] = self._draws.victims.choice(len(pool), size=count, replace=False) if count else []
        return [pool[place] for place in sorted(chosen)]

    # What happens to them.

    def powered_off(self, name: str) -> None:
        """Its process has ended: as it was told to, or by itself (the guest's own shutdown)."""
        machine, now = self._machines[name], self._clock.now()
        if machine.state is MachineState.RUNNING:
            stops = machine.shutdown_behavior == "stop" and not machine.is_spot
            state = MachineState.STOPPING if stops else MachineState.SHUTTING_DOWN
            self._leave(machine, state, GUEST_INITIATED, now)
        else:
            self._settle(machine, now)

    def sweep(self) -> None:
        """Agree with the processes: what runs has one, what has none is not on its way to lose it."""
        for machine in list(self):
            if machine.state is MachineState.RUNNING and not self._power.runs(machine.id):
                self._power.power_on(machine.id, self._environment(machine))
            elif machine.state in (MachineState.STOPPING, MachineState.SHUTTING_DOWN):
                self._settle(machine, self._clock.now())

    def _begin(self, machine: Machine, now: float) -> None:
        """Boot a new instance and draw its interruption."""
        times, boots = self._times, self._draws.boots
        pending_s = float(boots.uniform(times.pending_min_s, times.pending_max_s))
        boot_s = times.launch.at(float(boots.standard_normal())) * self._boot_factor()
        life_s = float(self._pool(machine.pool).exponential())
        hazard = (
            machine.spec.instance_type.spot_hazard_per_hour * self._stress / 3600.0 if machine.is_spot else 0.0
        )
        if hazard > 0:
            self._clock.at(now + life_s / hazard, lambda at: self._strike(machine, at))
        self._say(machine, now)
        if not self.prewarm:
            machine.ready_at = now + boot_s
            self._after(machine, min(pending_s, boot_s), self._run)
            return
        machine.ready_at = now
        if machine.tags.get("mark:role") == "standby":
            self._enter(machine, MachineState.STOPPED, now)
        else:
            self._run(machine, now)

    def _wake(self, machine: Machine, now: float) -> None:
        wake_s = self._times.wake.at(float(self._draws.wakes.standard_normal())) * self._boot_factor()
        machine.reason_code = machine.reason = ""
        machine.ended_at, machine.ready_at = None, now + wake_s
        self._enter(machine, MachineState.PENDING, now)
        # Billed from now on, as in the simulator: the wake is counted in state running.
        self._after(machine, 0.0, self._run)

    def _run(self, machine: Machine, now: float) -> None:
        machine.running_at = now
        self._enter(machine, MachineState.RUNNING, now)
        self._power.power_on(machine.id, self._environment(machine))

    def _strike(self, machine: Machine, now: float) -> None:
        self._warn(machine, now)

    def _warn(self, machine: Machine, now: float) -> bool:
        """The notice; the instance is shut down when it has run out."""
        if machine.state in ENDING or machine.gone_at is not None:
            return False
        machine.gone_at = now + self._times.spot_notice_s
        self._clock.at(machine.gone_at, lambda at: self._shut_down(machine, SPOT_TERMINATION, at))
        self._watcher.spot_warned(machine, now)
        return True

    def _shut_down(self, machine: Machine, why: tuple[str, str], now: float) -> None:
        if machine.state not in ENDING:
            self._leave(machine, MachineState.SHUTTING_DOWN, why, now)

    def _leave(self, machine: Machine, state: MachineState, why: tuple[str, str], now: float) -> None:
        """Begin to stop or to end; done when its process is gone."""
        machine.reason_code, machine.reason = why[0], f"{why[0]}: {why[1]}"
        if machine.ended_at is None:
            machine.ended_at = now
        self._enter(machine, state, now)
        if self._power.runs(machine.id):
            self._power.power_off(machine.id)
        else:
            self._after(machine, 0.0, self._settle)

    def _settle(self, machine: Machine, now: float) -> None:
        """Stopped or terminated, if it is on its way there and no process is left."""
        if self._power.runs(machine.id):
            return
        if machine.state is MachineState.STOPPING:
            self._enter(machine, MachineState.STOPPED, now)
        elif machine.state is MachineState.SHUTTING_DOWN:
            self._enter(machine, MachineState.TERMINATED, now)
            self._addresses.give_back(machine.address)
            self._clock.at(now + FORGET_AFTER_S, lambda _: self._forget(machine))

    def _forget(self, machine: Machine) -> None:
        del self._machines[machine.id]

    def _enter(self, machine: Machine, state: MachineState, now: float) -> None:
        machine.state = state
        machine.epoch += 1
        self._say(machine, now)

    def _say(self, machine: Machine, now: float) -> None:
        machine.xml = None
        self._watcher.state_changed(machine, now)

    def _after(self, machine: Machine, delay_s: float, action: Step) -> None:
        """Do this in `delay_s`, unless the instance has changed course by then."""
        epoch = machine.epoch

        def act(at: float) -> None:
            if machine.epoch == epoch:
                action(machine, at)

        self._clock.at(self._clock.now() + delay_s, act)

    def _pool(self, name: str) -> np.random.Generator:
        if name not in self._pools:
            self._pools[name] = self._draws.spot(name)
        return self._pools[name]

    def _check(self, machines: list[Machine], verb: str, allowed: tuple[MachineState, ...]) -> None:
        for machine in machines:
            if machine.state not in allowed:
                raise ApiError(
                    "IncorrectInstanceState",
                    f"The instance '{machine.id}' is not in a state from which it can be {verb}.",
                )

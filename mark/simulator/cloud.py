"""A cloud in virtual time: instances that boot, wake, drain, are interrupted and billed.

It answers the controller's Cloud port; `next_at` and `fire` let the replay move it from event to event. All
transitions of an instance are made here:

    launch: pending (unbilled) -> pending (billed, booting) -> ready -> draining -> gone
    standby: ready -> draining -> stopped -> pending (waking, billed) -> ready, or stopped again
    spot: a notice, then gone after its time; the instance serves what it can finish before
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from mark.domain.costs import InstanceUsage
from mark.domain.fleet import FleetView, Instance, InstanceState, Role
from mark.domain.offering import CREDITED_STARTS_A_DAY, Market, Offering
from mark.domain.orders import (
    Drain,
    Fact,
    Launch,
    LaunchRefused,
    Order,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
)
from mark.domain.times import CloudTimes, LognormalTime
from mark.simulator.engine.data_plane import Engine
from mark.simulator.faults import FaultScript, Interrupt
from mark.simulator.rng import stream

NEVER = float("inf")


@dataclass(slots=True)
class _Machine:
    """One simulated instance; `slot` is its place in the engine while it serves."""

    id: str
    offering: Offering
    role: Role
    token: str
    launched_at: float
    state: InstanceState = InstanceState.PENDING
    running_at: float | None = None
    slot: int | None = None
    interrupt_at: float | None = None
    credits: float | None = None
    stopped_at: float | None = None
    epoch: int = 0  # counts its transitions: an event of an earlier epoch is void
    view: Instance | None = None


class SimulatedCloud:
    """Where instances live during a replay. Randomness comes from named streams of one seed."""

    def __init__(
        self,
        *,
        engine: Engine,
        offerings: Mapping[str, Offering],
        times: CloudTimes,
        faults: FaultScript,
        seed: int,
        start_at: float,
        redispatch: bool,
    ) -> None:
        self._engine = engine
        self._offerings = offerings
        self._times = times
        self._faults = faults
        self._start_at = start_at
        self._redispatch = redispatch
        self._boots = stream(seed, "boots")
        self._wakes = stream(seed, "wakes")
        # A stream per pool: what happens in one does not depend on what is rented in another.
        self._spot = {name: stream(seed, f"spot {name}") for name in offerings}
        self._victims = stream(seed, "victims")
        self._machines: dict[str, _Machine] = {}
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._scheduled = 0
        self._facts: list[Fact] = []
        self._made = 0
        self._tokens: set[str] = set()
        self._credited: list[float] = []
        self.usages: list[InstanceUsage] = []
        self.asleep_s = 0.0
        self.running_s = 0.0
        self.launches = 0
        self.refusals = 0
        self.interruptions = 0
        self.wakes = 0
        self.prewarmed = False
        for interrupt in faults.interrupts:
            self._script(interrupt)

    # The Cloud port.

    def observe(self) -> FleetView:
        """All instances that are not gone, by id."""
        return FleetView(instances=tuple(self._view(machine) for machine in self._machines.values()))

    def drain_facts(self) -> tuple[Fact, ...]:
        """The facts since the last call."""
        facts, self._facts = tuple(self._facts), []
        return facts

    def acknowledge(self) -> None:
        """Do nothing: a replay does not crash."""

    def submit(self, order: Order) -> None:
        """Do what is asked, or begin to. While `prewarmed`, launches are ready at once (the run's first fleet)."""
        match order:
            case Launch():
                self._launch(order)
            case Drain():
                for machine in self._named(order.instances):
                    self._drain(machine)
            case Terminate():
                for machine in self._named(order.instances):
                    self._end(machine, self._engine.now)
            case StartStandby():
                for machine in self._named(order.instances):
                    self._wake(machine)
            case StopStandby():
                for machine in self._named(order.instances):
                    self._rest(machine)
            case WarmLambda():
                self._engine.warm(order.concurrency)
            case _:
                assert_never(order)

    # Virtual time.

    def next_at(self) -> float:
        """When the next event is due."""
        return self._heap[0][0] if self._heap else NEVER

    def fire(self, now: float) -> bool:
        """Let everything due by `now` happen; whether the controller should look at it at once."""
        before = len(self._facts)
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
        return len(self._facts) > before

    def close(self, now: float) -> None:
        """End the run: what still runs is billed to `now`."""
        for machine in list(self._machines.values()):
            self._settle_bill(machine, now)

    def ready(self) -> dict[str, int]:
        """Instances that serve, standbys included, per offering."""
        counts: dict[str, int] = {}
        for machine in self._machines.values():
            if machine.state is InstanceState.READY:
                name = machine.offering.name
                counts[name] = counts.get(name, 0) + 1
        return counts

    def _script(self, interrupt: Interrupt) -> None:
        self._at(
            self._start_at + interrupt.at_s,
            lambda now: self._take(now, interrupt.share, interrupt.offering),
        )

    # Transitions.

    def _launch(self, order: Launch) -> None:
        if order.token in self._tokens:  # the same order again: EC2 answers with the instances it already has
            return
        self._tokens.add(order.token)
        now = self._engine.now
        offering = self._offerings[order.offering]
        refusal = self._faults.refusal(now - self._start_at, order.offering)
        if refusal is not None:
            self.refusals += order.count
            fact = LaunchRefused(
                token=order.token,
                offering=order.offering,
                count=order.count,
                cause=RefusalCause.CAPACITY,
                code=refusal.code,
                at=now,
            )
            self._at(now, lambda _: self._facts.append(fact))
            return
        for _ in range(order.count):
            self._made += 1
            machine = _Machine(
                id=f"i-{self._made:06d}",
                offering=offering,
                role=order.role,
                token=order.token,
                launched_at=now,
            )
            self._machines[machine.id] = machine
            self._begin(machine, now)

    def _begin(self, machine: _Machine, now: float) -> None:
        """Boot a new instance and draw its interruption, always from the same streams in the same order."""
        self.launches += 0 if self.prewarmed else 1
        pending_s = self._boots.uniform(self._times.pending_min_s, self._times.pending_max_s)
        boot_s = _draw(self._times.launch, self._boots) * self._faults.boot_factor(now - self._start_at)
        life_s = self._spot[machine.offering.name].exponential()
        hazard = machine.offering.hazard_per_hour * self._faults.stress / 3600.0
        if hazard > 0:
            self._at(now + life_s / hazard, lambda at: self._warn(machine, at))
        if self.prewarmed:
            self._run(machine, now)
            self._serve(machine, now)
            if machine.role is Role.STANDBY:
                self._stop(machine, now)
            return
        self._after(machine, min(pending_s, boot_s), self._run)
        self._after(machine, boot_s, self._serve)

    def _run(self, machine: _Machine, now: float) -> None:
        machine.running_at = now

    def _serve(self, machine: _Machine, now: float) -> None:
        machine.state = InstanceState.READY
        burst = machine.offering.instance_type.credits
        balance = machine.credits or 0.0
        if burst and self._credit_start(now):
            balance += burst.launch_credits
        machine.slot = self._engine.add(machine.offering, standby=machine.role is Role.STANDBY, balance=balance)
        if machine.interrupt_at is not None:
            self._engine.will_go(machine.slot, machine.interrupt_at)
        self._changed(machine)

    def _credit_start(self, now: float) -> bool:
        """Whether this start still gets launch credits: an account has so many a day."""
        self._credited = [at for at in self._credited if at > now - 86400.0]
        if len(self._credited) >= CREDITED_STARTS_A_DAY:
            return False
        self._credited.append(now)
        return True

    def _wake(self, machine: _Machine) -> None:
        if machine.state is not InstanceState.STOPPED:
            return
        now = self._engine.now
        self.wakes += 1
        self._count_sleep(machine, now)
        machine.state, machine.running_at = InstanceState.PENDING, now
        machine.epoch += 1
        wake_s = _draw(self._times.wake, self._wakes) * self._faults.boot_factor(now - self._start_at)
        self._after(machine, wake_s, self._serve)
        self._changed(machine)

    def _drain(self, machine: _Machine) -> None:
        """No new requests; stopped (standbys) or gone when the last one is answered."""
        now = self._engine.now
        if machine.state is InstanceState.PENDING:
            self._end(machine, now)
            return
        if machine.state is not InstanceState.READY or machine.slot is None:
            return
        machine.state = InstanceState.DRAINING
        self._engine.stop_accepting(machine.slot)
        self._changed(machine)
        self._drained(machine, now)

    def _rest(self, machine: _Machine) -> None:
        """Stop a standby: at once while it still wakes, when its last request is answered otherwise."""
        if machine.state is InstanceState.PENDING:
            self._stop(machine, self._engine.now)
        else:
            self._drain(machine)

    def _drained(self, machine: _Machine, now: float) -> None:
        assert machine.slot is not None
        if not self._engine.is_idle(machine.slot):
            drained_at = self._engine.drained_at(machine.slot)
            assert drained_at > now, "an instance holds a request that it has answered"
            self._after(machine, drained_at - now, self._drained)
        elif machine.role is Role.STANDBY:
            self._stop(machine, now)
        else:
            self._end(machine, now)

    def _stop(self, machine: _Machine, now: float) -> None:
        self._settle_bill(machine, now)
        burst = machine.offering.instance_type.credits
        if machine.slot is not None:
            kept = burst is not None and burst.keeps_when_stopped
            machine.credits = self._engine.credits(machine.slot) if kept else None
            self._engine.remove(machine.slot, redispatch=self._redispatch)
        machine.slot = None
        machine.state, machine.stopped_at = InstanceState.STOPPED, now
        machine.epoch += 1
        self._changed(machine)

    def _warn(self, machine: _Machine, now: float) -> None:
        """The spot notice; the instance is gone when it has run out."""
        if machine.id not in self._machines or machine.interrupt_at is not None:
            return
        gone_at = now + self._times.spot_notice_s
        machine.interrupt_at = gone_at
        self.interruptions += 1
        if machine.slot is not None:
            self._engine.will_go(machine.slot, gone_at)
        self._facts.append(SpotWarned(instance=machine.id, at=now, terminates_at=gone_at))
        self._at(gone_at, lambda at: self._end(machine, at))
        self._changed(machine)

    def _take(self, now: float, share: float, offering: str) -> None:
        """A scripted interruption of a share of the ready spot instances."""
        pool = [
            m
            for m in self._machines.values()
            if m.offering.market is Market.SPOT
            and m.state is InstanceState.READY
            and m.interrupt_at is None
            and offering in ("", m.offering.name)
        ]
        count = round(share * len(pool))
        for place in sorted(self._victims.choice(len(pool), size=count, replace=False)) if count else ():
            self._warn(pool[place], now)

    def _end(self, machine: _Machine, now: float) -> None:
        if machine.id not in self._machines:
            return
        self._settle_bill(machine, now)
        machine.state = InstanceState.GONE
        machine.epoch += 1
        del self._machines[machine.id]
        if machine.slot is not None:
            self._engine.remove(machine.slot, redispatch=self._redispatch)

    # Bookkeeping.

    def _settle_bill(self, machine: _Machine, now: float) -> None:
        """Write down the stretch in state running that ends now, and the time asleep."""
        self._count_sleep(machine, now)
        if machine.running_at is None:
            return
        surplus = self._engine.surplus_vcpu_s(machine.slot) if machine.slot is not None else 0.0
        self.usages.append(
            InstanceUsage(
                instance=machine.id,
                offering=machine.offering.name,
                role=machine.role,
                started_at=machine.running_at,
                ended_at=now,
                surplus_vcpu_s=surplus,
            )
        )
        self.running_s += now - machine.running_at
        machine.running_at = None

    def _count_sleep(self, machine: _Machine, now: float) -> None:
        if machine.stopped_at is not None:
            self.asleep_s += now - machine.stopped_at
            machine.stopped_at = None

    def _view(self, machine: _Machine) -> Instance:
        if machine.view is None:
            machine.view = Instance(
                id=machine.id,
                offering=machine.offering.name,
                state=machine.state,
                role=machine.role,
                token=machine.token,
                launched_at=machine.launched_at,
                interrupt_at=machine.interrupt_at,
                credits=machine.credits,
            )
        return machine.view

    def _changed(self, machine: _Machine) -> None:
        machine.view = None

    def _named(self, names: tuple[str, ...]) -> list[_Machine]:
        return [self._machines[name] for name in names if name in self._machines]

    def _after(self, machine: _Machine, delay_s: float, action: Callable[[_Machine, float], None]) -> None:
        """Do this to the machine in `delay_s`, unless it has changed course by then."""
        epoch = machine.epoch

        def act(now: float) -> None:
            if machine.epoch == epoch and machine.id in self._machines:
                action(machine, now)

        self._at(self._engine.now + delay_s, act)

    def _at(self, at: float, action: Callable[[float], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._heap, (at, self._scheduled, action))


def _draw(time: LognormalTime, rng: np.random.Generator) -> float:
    return time.at(float(rng.standard_normal()))

"""A cloud in virtual time: instances that boot, wake, drain, are interrupted and billed.

It answers the controller's Cloud port; `next_at` and `fire` let the replay move it from event to event. What an
instance may become, when, and what of it is billed is `mark.cloudmodel.lifecycle`'s; here stands what the engine
and the bill have to do with it. A process ends at once: nothing is seen to be stopping.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from mark.cloudmodel.capacity import NO_CAPACITY, Capacity, pool_name
from mark.cloudmodel.lifecycle import (
    Event,
    Life,
    Phase,
    allows,
    credits_at_start,
    credits_kept,
    draw_advice,
    draw_launch,
    draw_victims,
    draw_wake,
    launched,
    step,
    wake,
    warn,
    when_drained,
)
from mark.cloudmodel.world import World, pool_zone
from mark.domain.billing.costs import InstanceUsage
from mark.domain.commitments.owned import CapacityReservation
from mark.domain.fleet.instances import FleetView, Instance, Role
from mark.domain.fleet.orders import (
    Drain,
    Fact,
    Launch,
    LaunchRefused,
    Order,
    RebalanceAdvised,
    RefusalCause,
    SpotWarned,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.domain.offerings.offering import Market, Offering
from mark.simulator.engine.data_plane import Engine
from mark.simulator.engine.host_plane import HostPlane
from mark.simulator.engine.node_plane import NodePlane
from mark.simulator.faults import FaultScript, Interrupt, Refuse
from mark.simulator.rng import stream

NEVER = float("inf")
OVER_QUOTA = {Market.SPOT: "MaxSpotInstanceCountExceeded", Market.ON_DEMAND: "VcpuLimitExceeded"}
"""EC2's code for a launch beyond the account's vCPU quota."""


@dataclass(slots=True)
class _Machine:
    """One simulated instance; `slot` is its place in the engine while it serves."""

    id: str
    offering: Offering
    role: Role
    token: str
    launched_at: float
    life: Life
    #: Empty where zones are not told apart.
    zone: str
    #: See `Capacity.number_launch`.
    number: str
    slot: int | None = None
    credits: float | None = None
    view: Instance | None = None

    @property
    def is_spot(self) -> bool:
        """True where it is rented on the spot market."""
        return self.offering.market is Market.SPOT

    @property
    def pool(self) -> str:
        """The pool that it was taken from."""
        return _pool_of(self.offering, self.zone)


def _pool_of(offering: Offering, zone: str) -> str:
    return pool_name(offering.anywhere, pool_zone(offering.market, zone))


Room = Callable[[Sequence[Offering], int], int]
"""Of so many instances, each of one of these offerings, those that a guardrail lets in."""


def any_room(_offerings: Sequence[Offering], count: int) -> int:
    """The room of a service without a cap."""
    return count


def without_quotas(_offering: str) -> float:
    """Instances that an account without quotas leaves."""
    return NEVER


class SimulatedCloud:
    """The instances of a replay.

    Randomness comes from named streams of one seed, that of spot prices and refusals from `market_seed` if given.
    """

    def __init__(
        self,
        *,
        engine: Engine | HostPlane | NodePlane,
        offerings: Mapping[str, Offering],
        world: World,
        faults: FaultScript,
        seed: int,
        start_at: float,
        redispatch: bool,
        market_seed: int | None = None,
    ) -> None:
        self._engine = engine
        self._offerings = offerings
        self._times = world.times
        self._capacity = Capacity(world, seed if market_seed is None else market_seed, start_at=start_at)
        self._faults = faults
        self._start_at = start_at
        self._redispatch = redispatch
        self._boots = stream(seed, "boots")
        self._wakes = stream(seed, "wakes")
        # A stream per pool: what happens in one does not depend on what is rented in another.
        pools = (pool_name(item.anywhere, z) for item in offerings.values() for z in world.pools_for(item))
        self._spot = {pool: stream(seed, f"spot {pool}") for pool in pools}
        self._spot_items = {name: item for name, item in offerings.items() if item.market is Market.SPOT}
        self._advised = {pool: stream(seed, f"spot advice {pool}") for pool in self._spot}
        self._victims = stream(seed, "victims")
        self._machines: dict[str, _Machine] = {}
        #: As it was last observed; None after a change.
        self._fleet: FleetView | None = None
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._scheduled = 0
        self._facts: list[Fact] = []
        self._made = 0
        self._tokens: set[str] = set()
        self._credited: tuple[float, ...] = ()
        self.usages: list[InstanceUsage] = []
        self.asleep_s = 0.0
        self.running_s = 0.0
        self.refusals = 0
        self.interruptions = 0
        self.wakes = 0
        self.prewarmed = False
        #: The guardrail of what it rents and wakes.
        self.room: Room = any_room
        #: Instances of an offering that the account's quotas still leave.
        self.left_of_quotas: Callable[[str], float] = without_quotas
        #: Capacity that the account has reserved for what it rents.
        self.reserved: Callable[[], Iterable[CapacityReservation]] = tuple
        for interrupt in faults.interrupts:
            self._script(interrupt)
        self._lose_pools(0)

    # The Cloud port.

    def observe(self) -> FleetView:
        """All instances that are not gone, by id, and the spot prices of now."""
        prices = self._capacity.prices.cheapest(self._spot_items, self._engine.now)
        if self._fleet is None or self._fleet.spot_usd_per_hour != prices:
            machines = self._machines.values()
            self._fleet = FleetView(instances=tuple(map(self._view, machines)), spot_usd_per_hour=prices)
        return self._fleet

    def drain_facts(self) -> tuple[Fact, ...]:
        """The facts since the last call."""
        facts, self._facts = tuple(self._facts), []
        return facts

    def acknowledge(self) -> None:
        """Do nothing: a replay does not crash."""

    @property
    def launches(self) -> int:
        """Instances started so far, the first fleet's too."""
        return self._made

    def submit(self, order: Order) -> None:
        """Do what is asked, or begin to. While `prewarmed` it is there at once: the first fleet, and Lambda."""
        match order:
            case Launch():
                self._launch(order)
            case Drain():
                for machine in self._named(order.instances):
                    self._leave(machine, Event.DRAIN, self._engine.now)
            case Terminate():
                for machine in self._named(order.instances):
                    self._leave(machine, Event.TERMINATE, self._engine.now)
            case StartStandby():
                self._start(order)
            case StopStandby():
                for machine in self._named(order.instances):
                    self._leave(machine, Event.DRAIN_TO_STOP, self._engine.now)
            case WarmLambda():
                self._engine.warm(order.concurrency, are_there=self.prewarmed)
            case Withdraw():
                pass  # each launch was taken at once
            case _:
                assert_never(order)

    def slots(self) -> dict[str, int]:
        """The engine's slot of each instance that serves, by its id."""
        return {machine.id: machine.slot for machine in self._machines.values() if machine.slot is not None}

    # Virtual time.

    def next_at(self) -> float:
        """The instant of the next event; NEVER where none is due."""
        return self._heap[0][0] if self._heap else NEVER

    def fire(self, now: float) -> bool:
        """Let everything due by `now` happen; whether the controller should look at it at once."""
        before = len(self._facts)
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
        return len(self._facts) > before

    def close(self, now: float) -> None:
        """End the run: what still runs is billed to `now`."""
        for machine in self._machines.values():
            self._write_down(machine, machine.life, None, now)

    def ready(self) -> dict[str, int]:
        """Instances that serve, standbys included, per offering."""
        counts: dict[str, int] = {}
        for machine in self._machines.values():
            if machine.life.phase is Phase.READY:
                name = machine.offering.name
                counts[name] = counts.get(name, 0) + 1
        return counts

    def _script(self, interrupt: Interrupt) -> None:
        self._at(
            self._start_at + interrupt.at_s,
            lambda now: self._take(now, interrupt.share, interrupt.offering),
        )

    def _lose_pools(self, number: int) -> None:
        """Whole pools are lost, in a world where they are: the n-th now, the next in its time."""
        after_s = self._capacity.pool_loss_s(number)
        if after_s is None:
            return

        def lose(now: float) -> None:
            pools = {m.pool for m in self._machines.values() if m.life.is_ready_to_lose and m.is_spot}
            if pools:
                self._take(now, 1.0, self._capacity.lost_pool(number, [*pools]))
            self._lose_pools(number + 1)

        self._at(self._start_at + after_s, lose)

    # Transitions.

    def _launch(self, order: Launch) -> None:
        if order.token in self._tokens:  # the same order again: EC2 answers with the instances it already has
            return
        self._tokens.add(order.token)
        now = self._engine.now
        order = replace(order, count=order.count - self._launch_reserved(order, now))
        if not order.count:
            return
        refusals = {name: self._refusal(name, now) for name in order.offerings}
        found = [self._pool_for(order, name, now) for name, refusal in refusals.items() if refusal is None]
        _, _, zone, offering = min(filter(None, found), key=lambda one: one[:2], default=(0.0, "", "", None))
        if offering is None:
            refusal, lacking = refusals[order.offering], self._offerings[order.offering]
            asked = {*self._capacity.world.pools_for(lacking)} - order.zones_without(order.offering)
            for place, zone in enumerate(sorted(asked) or [""]):
                self._refuse(
                    order.token,
                    order.offering,
                    0 if place else order.count,
                    code=NO_CAPACITY if refusal is None else refusal.code,
                    zone=zone,
                )
            return
        count = self.room([self._offerings[name] for name in order.offerings], order.count)
        if count < order.count:
            self._refuse(order.token, order.offering, order.count - count, cause=RefusalCause.GUARDRAIL)
        allowed = int(min(count, self.left_of_quotas(offering.name)))
        if allowed < count:
            self._refuse(
                order.token,
                offering.name,
                count - allowed,
                code=OVER_QUOTA[offering.market],
                cause=RefusalCause.QUOTA,
            )
        for _ in range(allowed):
            if offering.market is Market.ON_DEMAND:
                zone = self._emptiest(order, offering)
            self._begin(order, offering, zone, now)

    def _launch_reserved(self, order: Launch, now: float) -> int:
        """Launch what of an order reserved capacity has a place for: no refusal hits it. The count."""
        offering, launched = self._offerings[order.offering], 0
        kind, places = offering.instance_type.name, Counter[str]()
        if offering.market is not Market.ON_DEMAND:
            return 0
        for item in self.reserved():
            zone = next((zone for zone in self._capacity.world.zones_for(offering) if item.is_in(zone)), None)
            if item.instance_type == kind and zone is not None:
                places[zone] += int(item.count)
        for zone in sorted(places.keys() - order.zones_without(order.offering)):
            there = sum(
                m.zone == zone and m.offering.anywhere == offering.anywhere and m.life.phase is not Phase.STOPPED
                for m in self._machines.values()
            )
            wanted = max(0, min(places[zone] - there, order.count - launched))
            count = int(min(self.room([offering], wanted), self.left_of_quotas(offering.name)))
            for _ in range(count):
                self._begin(order, offering, zone, now)
            launched += count
        return launched

    def _emptiest(self, order: Launch, offering: Offering) -> str:
        """The zone of an order with the fewest instances of the offering: so groups of instances are spread."""
        there = Counter(m.zone for m in self._machines.values() if m.offering.name == offering.name)
        out = order.zones_without(offering.name)
        return min((z for z in self._capacity.world.zones_for(offering) if z not in out), key=lambda z: there[z])

    def _refusal(self, name: str, now: float) -> Refuse | None:
        """The scripted refusal that hits an offering now, or its type and market in all zones."""
        at_s = now - self._start_at
        return self._faults.refusal(at_s, name) or self._faults.refusal(at_s, self._offerings[name].anywhere)

    def _pool_for(self, order: Launch, name: str, now: float) -> tuple[float, str, str, Offering] | None:
        """The pool that an order gets of an offering, its price and name first; None where it is refused."""
        offering = self._offerings[name]
        item = offering.instance_type
        world = self._capacity.world
        elsewhere = {*world.zones} - {*world.zones_for(offering)}
        zone = self._capacity.zone_of_launch(
            item, offering.market, now, without=order.zones_without(name) | elsewhere, prewarmed=self.prewarmed
        )
        if zone is None:
            return None
        spot, is_told_apart = self._capacity.prices.usd_per_hour, pool_zone(offering.market, zone)
        usd_per_hour = spot(item, zone, now) if is_told_apart else offering.usd_per_hour
        return usd_per_hour, name, zone, offering

    def _refuse(
        self,
        token: str,
        offering: str,
        count: int,
        *,
        instances: tuple[str, ...] = (),
        code: str = NO_CAPACITY,
        zone: str = "",
        cause: RefusalCause = RefusalCause.CAPACITY,
    ) -> None:
        """Tell of a refused launch, or of standbys that cannot be woken, with the next event."""
        now = self._engine.now
        is_full = cause is RefusalCause.GUARDRAIL
        self.refusals += 0 if is_full else count
        fact = LaunchRefused(
            token=token,
            offering=offering,
            count=count,
            cause=cause,
            code="" if is_full else code,
            detail="the service's cap is reached" if is_full else "",
            at=now,
            instances=instances,
            zone=zone or None,
        )
        self._at(now, lambda _: self._facts.append(fact))

    def _begin(self, order: Launch, offering: Offering, zone: str, now: float) -> None:
        """A new instance; `prewarmed` ones are ready, or asleep where they are standbys."""
        self._made += 1
        pool, hazard = _pool_of(offering, zone), offering.hazard_per_hour * self._faults.stress
        drawn = draw_launch(
            self._times,
            self._boots,
            self._spot[pool],
            boot_factor=self._faults.boot_factor(now - self._start_at),
            hazard_per_hour=hazard,
        )
        machine = _Machine(
            id=f"i-{self._made:06d}",
            offering=offering,
            role=order.role,
            token=order.token,
            launched_at=now,
            life=launched(
                now,
                pending_s=0.0 if self.prewarmed else drawn.pending_s,
                boot_s=0.0 if self.prewarmed else drawn.boot_s,
            ),
            zone=zone,
            number=self._capacity.number_launch(pool),
        )
        self._machines[machine.id] = machine
        self._fleet = None
        if drawn.until_notice_s is not None:
            self._at(now + drawn.until_notice_s, lambda at: self._warn(machine, at))
        for after_s in draw_advice(self._times.advice, self._advised[pool], drawn.until_notice_s, hazard):
            self._at(now + after_s, lambda at: self._advise(machine, at))
        if self.prewarmed:
            if machine.role is Role.STANDBY:  # it booted before the run, and was paid for then
                self._leave(machine, Event.STOP, now)
            else:
                self._run(machine, now)
                self._serve(machine, now)
            return
        self._at(machine.life.runs_at, lambda at: self._run(machine, at))
        self._at(machine.life.ready_at, lambda at: self._serve(machine, at))

    def _run(self, machine: _Machine, now: float) -> None:
        self._enter(machine, step(machine.life, Event.RUN, now), now)

    def _serve(self, machine: _Machine, now: float) -> None:
        if not self._enter(machine, step(machine.life, Event.SERVE, now), now):
            return
        balance, burst = 0.0, machine.offering.instance_type.credits
        if burst:
            balance, self._credited = credits_at_start(burst, machine.credits, self._credited, now)
        machine.slot = self._engine.add(
            machine.offering, standby=machine.role is Role.STANDBY, balance=balance, zone=machine.zone
        )
        if machine.life.terminates_at is not None:
            self._engine.will_go(machine.slot, machine.life.terminates_at)

    def _start(self, order: StartStandby) -> None:
        """Wake the standbys that can be."""
        refused: dict[str, list[str]] = {}
        for machine in self._named(order.instances):
            if not allows(machine.life, Event.WAKE):
                continue
            is_refused = self._capacity.refuses_wake(
                machine.offering.instance_type, machine.number, self._engine.now
            )
            is_full = not self.room([machine.offering], 1) or self.left_of_quotas(machine.offering.name) < 1
            if is_refused or is_full:
                refused.setdefault(machine.offering.name, []).append(machine.id)
            else:
                self._wake(machine)
        for offering, names in refused.items():
            self._refuse(order.token, offering, len(names), instances=tuple(names))

    def _wake(self, machine: _Machine) -> None:
        now = self._engine.now
        self.wakes += 1
        item = machine.offering.instance_type
        wake_s = draw_wake(
            self._times, item, self._wakes, boot_factor=self._faults.boot_factor(now - self._start_at)
        )
        self._enter(machine, wake(machine.life, now, wake_s), now)
        self._run(machine, now)
        self._at(machine.life.ready_at, lambda at: self._serve(machine, at))

    def _leave(self, machine: _Machine, event: Event, now: float) -> None:
        """Take it out of service: what serves drains first, unless it is ended at once."""
        if not self._enter(machine, step(machine.life, event, now), now):
            return
        if machine.life.phase is Phase.DRAINING:
            assert machine.slot is not None
            self._engine.stop_accepting(machine.slot)
            self._drained(machine, now)
        else:
            self._power_off(machine, now)

    def _drained(self, machine: _Machine, now: float) -> None:
        if machine.life.phase is not Phase.DRAINING:
            return
        assert machine.slot is not None
        if self._engine.is_idle(machine.slot):
            self._leave(machine, when_drained(machine.role), now)
            return
        drained_at = self._engine.drained_at(machine.slot)
        assert drained_at > now, "an instance holds a request that it has answered"
        self._at(drained_at, lambda at: self._drained(machine, at))

    def _power_off(self, machine: _Machine, now: float) -> None:
        self._enter(machine, step(machine.life, Event.PROCESS_ENDED, now), now)
        slot, machine.slot = machine.slot, None
        if machine.life.phase is Phase.GONE:
            del self._machines[machine.id]
        if slot is not None:
            machine.credits = credits_kept(machine.offering.instance_type.credits, self._engine.credits(slot))
            self._engine.remove(slot, redispatch=self._redispatch)

    def _advise(self, machine: _Machine, now: float) -> None:
        """The rebalance recommendation, which changes nothing by itself."""
        if machine.life.can_be_warned:
            self._facts.append(RebalanceAdvised(instance=machine.id, at=now))

    def _warn(self, machine: _Machine, now: float) -> None:
        """The spot notice; the instance is gone when it has run out."""
        warned = warn(machine.life, now, self._times.spot_notice_s)
        if not self._enter(machine, warned, now):
            return
        assert warned.terminates_at is not None
        self.interruptions += 1
        if machine.slot is not None:
            self._engine.will_go(machine.slot, warned.terminates_at)
        self._facts.append(SpotWarned(instance=machine.id, at=now, terminates_at=warned.terminates_at))
        pool = [m for m in self._machines.values() if m.pool == machine.pool]
        notices = sum(m.life.terminates_at is not None for m in pool)
        self._capacity.note_notices(
            machine.offering.instance_type, machine.zone, warned=notices, there=len(pool), now=now
        )
        self._at(warned.terminates_at, lambda at: self._leave(machine, Event.TERMINATE, at))

    def _take(self, now: float, share: float, taken: str) -> None:
        """An interruption of a share of the ready spot instances: all, those of an offering, or of a pool."""
        pool = [
            m
            for m in self._machines.values()
            if m.is_spot
            and m.life.is_ready_to_lose
            and taken in ("", m.offering.anywhere, m.offering.name, m.pool)
        ]
        for machine in draw_victims(share, pool, self._victims):
            self._warn(machine, now)

    def _enter(self, machine: _Machine, life: Life, now: float) -> bool:
        """Go on with this life, and write down what ended with the last one; whether it is another."""
        before, machine.life = machine.life, life
        if life is before:
            return False
        machine.view = self._fleet = None
        self._write_down(machine, before, life, now)
        return True

    # Bookkeeping.

    def _write_down(self, machine: _Machine, before: Life, after: Life | None, now: float) -> None:
        """The stretch that was billed, and the time asleep, of what ends now."""
        if before.asleep_since is not None and (after is None or after.asleep_since is None):
            self.asleep_s += now - before.asleep_since
        if before.billed_since is None or (after is not None and after.billed_since is not None):
            return
        surplus = self._engine.surplus_vcpu_s(machine.slot) if machine.slot is not None else 0.0
        item, since, price = machine.offering.instance_type, before.billed_since, None
        if pool_zone(machine.offering.market, machine.zone):
            price = self._capacity.prices.mean_usd_per_hour(item, machine.zone, since, now)
        self.usages.append(
            InstanceUsage(
                instance=machine.id,
                offering=machine.offering.name,
                role=machine.role,
                started_at=since,
                ended_at=now,
                surplus_vcpu_s=surplus,
                usd_per_hour=price,
            )
        )
        self.running_s += now - since

    def _view(self, machine: _Machine) -> Instance:
        if machine.view is None:
            machine.view = Instance(
                id=machine.id,
                offering=machine.offering.name,
                state=machine.life.seen,
                role=machine.role,
                token=machine.token,
                zone=machine.zone,
                launched_at=machine.launched_at,
                terminates_at=machine.life.terminates_at,
                credits=machine.credits,
            )
        return machine.view

    def _named(self, names: tuple[str, ...]) -> list[_Machine]:
        return [self._machines[name] for name in names if name in self._machines]

    def _at(self, at: float, action: Callable[[float], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._heap, (at, self._scheduled, action))

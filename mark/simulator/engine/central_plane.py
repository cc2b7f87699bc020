"""The request engine with a central queue: an instance gets a request once it is idle, one at a time.

Decisions are those of a live gateway, by the same object (`mark.dispatch.central.queue`), and what is counted is
counted as by the engine that binds requests early. The truth is here: a request takes its profile's time, with the
offering's noise. Predictions are the profile's; a live queue learns them. Instances never run out of CPU credits,
and there is no Lambda. An instance that gets no more requests finishes the one that it has.

What happens at one instant happens together: answers, then instances that go, then arrivals, then one decision.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mark.dispatch.central.own_rule import OwnDecide
from mark.dispatch.central.policy import CentralPolicy
from mark.dispatch.central.queue import CentralCode, CentralQueue, Instance, base_first
from mark.domain.offerings.offering import Offering
from mark.simulator.engine.data_plane import BLOCK_S, Engine, EngineSetup
from mark.simulator.engine.kernel_tally import answer, second_of, shed, zone_of_entry

MS = 1000.0


class CentralServing(NamedTuple):
    """A central queue's policy and its decisions, plain or compiled."""

    policy: CentralPolicy
    code: CentralCode


@dataclass(slots=True)
class _Machine:
    """An instance that is there. `leaves_at`: from then on it gets no more requests."""

    name: str
    offering: Offering
    leaves_at: float = math.inf
    #: Number of the request in service; None where it is idle.
    serves: int | None = None
    done_at: float = math.inf

    @property
    def kind(self) -> str:
        """Its type."""
        return self.offering.instance_type.name


class CentralEngine(Engine):
    """Requests from arrival to answer through one central queue. offerings: all that may be there."""

    def __init__(self, serving: CentralServing, offerings: tuple[Offering, ...], given: EngineSetup) -> None:
        super().__init__(given)
        assert self._overflow is None, "a central queue is replayed without Lambda"
        profiles = {  # by type, which is the same on spot and on demand
            one.instance_type.name: [self._speed * seconds for seconds in one.profile.latencies_s(self._largest)]
            for one in offerings
        }
        code, own = serving.code, serving.policy.own
        self._own = None if own is None else OwnDecide(own, code.decide)
        self._queue: CentralQueue[int] = CentralQueue(
            serving.policy,
            slo_ms=MS * float(self._rules.objective_s),
            profiles_s=base_first(profiles),
            code=code if self._own is None else code._replace(decide=self._own),
        )
        self._profiles_s = profiles
        self._machines: dict[int, _Machine] = {}
        self._slot_of: dict[str, int] = {}
        self._draws = dict.fromkeys(profiles, 0)
        #: (end, slot) of each request in service
        self._ends: list[tuple[float, int]] = []
        #: arrival and size of each request that is here
        self._asked: dict[int, tuple[float, int]] = {}
        self._count = 0

    @property
    def has_central_queue(self) -> bool:
        """True."""
        return True

    def decision_failures(self) -> Mapping[str, int]:
        """Decisions of the user's own rule that failed, by what went wrong."""
        return {} if self._own is None else self._own.failures

    def close(self) -> None:
        """The run is over: what waits and is late is missed, or a rule that starts little would look best."""
        late_before = self._now - float(self._rules.objective_s)
        late = [request for request in self._queue.waiting() if self._asked[request][0] < late_before]
        for request in self._queue.remove_all(late):
            self._shed(request)
        if self._own is not None:
            self._own.close()

    def add(self, offering: Offering, *, standby: bool, balance: float = 0.0, zone: str = "") -> int:
        """A ready instance that accepts requests from now on; returns its slot."""
        slot = super().add(offering, standby=standby, balance=balance, zone=zone)
        self._count += 1
        self._machines[slot] = _Machine(name=f"{self._count:09d}", offering=offering)
        self._slot_of[self._machines[slot].name] = slot
        self._set_pool()
        return slot

    def stop_accepting(self, slot: int) -> None:
        """Give this instance no new requests."""
        super().stop_accepting(slot)
        self._set_pool()

    def will_go(self, slot: int, at: float) -> None:
        """This instance goes at `at`: it gets nothing that it might not finish before."""
        super().will_go(slot, at)
        machine = self._machines[slot]
        machine.leaves_at = at - self._profiles_s[machine.kind][-1]
        self._set_pool()

    def drained_at(self, slot: int) -> float:
        """Instant at which it has answered what it has."""
        return self._now if self.is_idle(slot) else self._machines[slot].done_at

    def is_idle(self, slot: int) -> bool:
        """True where it holds no request."""
        return self._machines[slot].serves is None

    def remove(self, slot: int, *, redispatch: bool) -> None:
        """The instance is gone; what it held is sent elsewhere, or shed where the model forbids that."""
        machine = self._machines.pop(slot)
        del self._slot_of[machine.name]
        super().remove(slot, redispatch=redispatch)
        self._set_pool()
        if machine.serves is None:
            return
        self._ends.remove((machine.done_at, slot))
        heapq.heapify(self._ends)
        if redispatch:
            self._join(machine.serves)
        else:
            self._shed(machine.serves)

    def run_until(self, until: float) -> float:
        """Run to `until`; returns where it is."""
        self._decide()  # instances may have come or gone
        while (at := self._next_at(until)) < until:
            self._now = at
            self._complete()
            if any(machine.leaves_at == at for machine in self._machines.values()):
                self._set_pool()
            self._take_arrivals()
            self._decide()
        self._now = until
        self._complete()
        self._give_up()
        self._decide()
        return until

    def _next_at(self, until: float) -> float:
        """Instant at which something happens next."""
        while self._index >= self._block.size and self._block_until < until:
            self._block = self._arrivals(self._block_until, self._block_until + BLOCK_S)
            if self._sizes is not None:
                self._block_sizes = self._sizes(self._block_until, self._block_until + BLOCK_S)
            self._block_until += BLOCK_S
            self._index = 0
        arrives_at = float(self._block[self._index]) if self._index < self._block.size else math.inf
        ends_at = self._ends[0][0] if self._ends else math.inf
        leaving = (one.leaves_at for one in self._machines.values() if one.leaves_at > self._now)
        return min(arrives_at, ends_at, min(leaving, default=math.inf))

    def _complete(self) -> None:
        """Count what was answered by now."""
        while self._ends and self._ends[0][0] <= self._now:
            done_at, slot = heapq.heappop(self._ends)
            machine = self._machines[slot]
            assert machine.serves is not None, "an instance that answers had a request"
            arrived_at, _ = self._asked.pop(machine.serves)
            answer(arrived_at, done_at, self._rules, self._tally)
            self._tally.totals.instance += 1
            fleet = self._fleet
            self._tally.totals.crossed += fleet.servers[slot].zone != zone_of_entry(arrived_at, fleet.zones.entry)
            machine.serves, machine.done_at = None, math.inf
            self._queue.set_idle(machine.name)

    def _take_arrivals(self) -> None:
        while self._index < self._block.size and self._block[self._index] <= self._now:
            size = 1 if self._block_sizes is None else int(self._block_sizes[self._index])
            self._tally.seconds[second_of(self._now, self._rules)].arrivals += 1
            self._count += 1
            self._asked[self._count] = (float(self._block[self._index]), size)
            self._index += 1
            self._join(self._count)

    def _join(self, request: int) -> None:
        arrived_at, size = self._asked[request]
        deadline_ms = self._ms(arrived_at) + MS * float(self._rules.objective_s)
        self._queue.add(self._ms(self._now), request, size=size, deadline_ms=deadline_ms)

    def _decide(self) -> None:
        if not len(self._queue):
            return
        decided = self._queue.decide(self._ms(self._now))
        for request, name in decided.started:
            slot = self._slot_of[name]
            machine = self._machines[slot]
            machine.serves, machine.done_at = request, self._now + self._takes_s(machine, request)
            heapq.heappush(self._ends, (machine.done_at, slot))
        for request in decided.handed_on:
            self._shed(request)

    def _takes_s(self, machine: _Machine, request: int) -> float:
        """Seconds that a request truly takes."""
        expected_s = self._profiles_s[machine.kind][self._asked[request][1] - 1]
        factors = self._fleet.noise[self._noise_row(machine.offering.cv)]
        draw, self._draws[machine.kind] = self._draws[machine.kind], self._draws[machine.kind] + 1
        return expected_s * float(factors[draw % factors.size])

    def _give_up(self) -> None:
        """Shed what has waited for the service's time-out."""
        give_up_at = self._now - self._rules.give_up_s  # what has joined again is out of order
        late = [request for request in self._queue.waiting() if self._asked[request][0] < give_up_at]
        for request in self._queue.remove_all(late):
            self._shed(request)

    def _shed(self, request: int) -> None:
        arrived_at, _ = self._asked.pop(request)
        shed(arrived_at, self._rules, self._tally)

    def _set_pool(self) -> None:
        """Tell the queue which instances get requests now."""
        there = sorted(
            (machine.name, machine)
            for slot, machine in self._machines.items()
            if slot in self._accepting and machine.leaves_at > self._now
        )
        self._queue.set_pool(
            self._ms(self._now),
            [
                Instance(name, one.kind, None if one.serves is None else self._ms(one.done_at))
                for name, one in there
            ],
        )

    def _ms(self, at: float) -> float:
        return MS * (at - self._start_at)

"""Requests of several models in one run, whose instances may share devices (`kernel_devices.py`).

Each model has an engine of its own for its cloud and its controller to talk to; the arrays behind them are common.
An instance that a model adds is a device of its own. What several share is placed with `place`.

A model whose requests have sizes, or that has variants, shares nothing: it has an engine of its own, which moves
on the same clock, and its place in the common arrays stays empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mark.domain.offerings.offering import Offering
from mark.simulator.engine import arrays, kernel
from mark.simulator.engine.compiled import DeviceKernel
from mark.simulator.engine.data_plane import BLOCK_S, Engine, EngineSetup, Floats, Ints
from mark.simulator.engine.kernel_devices import MARKS, Devices, Models
from mark.simulator.engine.kernel_lambda import POOL, Pool
from mark.simulator.engine.kernel_tally import HISTOGRAM_BINS, SECOND, TOTAL, Record, RunTally, second_of


class SharedPlane:
    """The common arrays of a service's models, and their clock. `engines`: one a model, in the order of `given`.

    The models' runs begin and end together. apart: engines of models that share nothing, by number.
    """

    def __init__(self, device_kernel: DeviceKernel, given: Sequence[EngineSetup]) -> None:
        assert len({(one.start_at, one.duration_s) for one in given}) == 1, "all runs are equally long"
        self.apart = {number: Engine(one) for number, one in enumerate(given) if not may_share(one)}
        #: When a window missed at which one of them stopped, by number.
        self._missed_at: dict[int, float] = {}
        given = [without_load(one) if number in self.apart else one for number, one in enumerate(given)]
        self.kernel = device_kernel
        self.now = given[0].start_at
        self._zones = given[0].zones
        entry = np.ones(len(given[0].zones))  # until the engines say
        self.fleet = arrays.fleet(arrays.FIRST_SLOTS, arrays.FIRST_QUEUE, 1, sized=False, entry=entry)
        self.free = list(range(arrays.FIRST_SLOTS))
        self._arrivals = [one.arrivals for one in given]
        self._block = np.empty(0)
        self._whose: Ints = np.empty(0, np.int64)
        self._block_until = self.now
        self._index = 0
        self._tenants: list[list[int]] = []
        self._idle_devices: list[int] = []
        nobody, none = np.zeros((0, 1), np.int64), np.zeros(0, np.int64)
        self._devices = Devices(nobody, none, nobody, none, np.zeros(0), arrays.records(MARKS, 1)[0])
        self._changed = True
        self.engines = tuple(ModelEngine(self, number, one) for number, one in enumerate(given))
        self._models = _stacked(self.engines)
        for engine in self.engines:
            engine.use(self._models)
        self._most_calls = max(engine.most_calls for engine in (*self.engines, *self.apart.values()))
        self._devices.marks.concurrency = self._most_calls

    def run_until(self, until: float) -> int | None:
        """Run to `until`, or until the window of a model's SLO monitor missed: that model's number.

        Until its own next event nothing changes for a model that shares nothing: it may be ahead of the others.
        """
        for number, engine in self.apart.items():
            if number not in self._missed_at and engine.now < until:
                engine.most_calls = self._calls_beside(engine)
                if engine.run_until(until) < until:
                    self._missed_at[number] = engine.now
        if self.apart:
            self._devices.marks.concurrency = self._calls_beside(*self.engines)
        first_at, first = min(((at, number) for number, at in self._missed_at.items()), default=(math.inf, 0))
        missed = self._run_shared(min(until, first_at))
        if missed is not None or first_at > until:
            return missed
        del self._missed_at[first]
        return first

    def _calls_beside(self, *engines: Engine) -> int:
        """Calls of Lambda that the others leave of the account's, as of where each of them is."""
        others = (one for one in (*self.engines, *self.apart.values()) if one not in engines)
        return max(0, self._most_calls - sum(one.calls for one in others))

    def _run_shared(self, until: float) -> int | None:
        while self.now < until:
            if self._block_until <= self.now:
                self._fetch()
            stop = min(until, self._block_until)
            self._index, code = self.kernel.run(stop, self._block, self._whose, self._index, *self.state)
            if code == kernel.QUEUE_FULL:
                self.fleet = arrays.with_longer_queues(self.fleet)
            elif code == kernel.BREACHED:
                missed = int(self._devices.marks.missed)
                self.now = float(self._models.totals[missed].closed_at)
                self.settle()
                return missed
            else:
                self.now = stop
        return None

    def settle(self) -> None:
        """Complete what was answered by now."""
        self.kernel.settle(self.now, *self.state)

    def new_device(self) -> int:
        """The number of a device without tenants."""
        if self._idle_devices:
            return self._idle_devices.pop()
        self._tenants.append([])
        return len(self._tenants) - 1

    def join(self, row: int, device: int) -> None:
        """This row of the fleet is a tenant of the device."""
        self.fleet.servers[row].device_number = device
        self._tenants[device].append(row)
        self.change()

    def leave(self, row: int) -> int:
        """It no longer is; returns the device."""
        device = int(self.fleet.servers[row].device_number)
        self._tenants[device].remove(row)
        self.change()
        return device

    def end_device(self, device: int) -> None:
        """The device is gone, and its number free for another."""
        assert not self._tenants[device], "a device that is gone has no tenants"
        self._idle_devices.append(device)

    def neighbours(self, row: int) -> list[int]:
        """All tenants of its device, itself too."""
        return self._tenants[int(self.fleet.servers[row].device_number)]

    def change(self) -> None:
        """Tenants or accepting rows are no longer those of the arrays."""
        self._changed = True

    @property
    def state(self) -> tuple[kernel.Fleet, Devices, Models]:
        """The arrays as the kernel takes them."""
        if self._changed:
            tenants, counts = arrays.padded(self._tenants)
            held = self.fleet.servers.in_service + self.fleet.servers.waiting
            working, works = arrays.padded([[row for row in rows if held[row]] for rows in self._tenants])
            working = np.concatenate((working, np.zeros_like(tenants)), axis=1)  # room for all
            due_at = np.full(counts.size, -np.inf)  # whoever runs there is looked at anew
            self._devices = Devices(tenants, counts, working, works, due_at, self._devices.marks)
            rows, accepting = arrays.padded([engine.accepting for engine in self.engines])
            own = np.array([engine.own for engine in self.engines], np.int64)
            near, near_accepting, near_own = self._near()
            self._models = self._models._replace(
                rows=rows,
                accepting=accepting,
                own=own,
                near=near,
                near_accepting=near_accepting,
                near_own=near_own,
            )
            self._changed = False
        return self.fleet, self._devices, self._models

    def _near(self) -> tuple[Ints, Ints, Ints]:
        """`Models.near` and its counts."""
        zone_of, zones = self.fleet.servers.zone, range(len(self._zones))
        found = [[[row for row in one.accepting if zone_of[row] == z] for z in zones] for one in self.engines]
        owned = [
            [sum(one.is_own(row) for row in rows) for rows in by_zone]
            for one, by_zone in zip(self.engines, found, strict=True)
        ]
        near, accepting = arrays.padded([rows for by_zone in found for rows in by_zone])
        shape = len(self.engines), len(self._zones)
        return near.reshape(*shape, -1), accepting.reshape(shape), np.array(owned, np.int64).reshape(shape)

    def _fetch(self) -> None:
        """The next hour's arrivals of all models, in order."""
        until = self._block_until + BLOCK_S
        found = [arrivals(self._block_until, until) for arrivals in self._arrivals]
        instants: Floats = np.concatenate(found)
        whose = np.repeat(np.arange(len(found)), [one.size for one in found])
        order = np.argsort(instants, kind="stable")
        self._block, self._whose = instants[order], whose[order]
        self._block_until, self._index = until, 0


def may_share(given: EngineSetup) -> bool:
    """True where the common arrays can hold the model: its requests are of one item, and it has no variants."""
    return given.sizes is None and given.variants is None


def without_load(given: EngineSetup) -> EngineSetup:
    """The place of a model in the common arrays that has an engine of its own."""
    return replace(
        given,
        arrivals=lambda _from_s, _to_s: np.empty(0),
        overflow=None,
        monitor=None,
        sizes=None,
        largest=1,
        variants=None,
    )


class ModelEngine(Engine):
    """One model's part of a shared plane."""

    def __init__(self, plane: SharedPlane, number: int, given: EngineSetup) -> None:
        self._plane = plane
        self._number = number
        super().__init__(given)
        self._free = plane.free
        #: Slots whose device has this model alone, and is gone when it is.
        self._alone: set[int] = set()

    def use(self, models: Models) -> None:
        """Count in these arrays."""
        number = self._number
        self._rules = models.rules[number]
        self._tally = RunTally(models.seconds[number], models.histogram[number], models.totals[number])
        self._arrived = self._tally.seconds.arrivals
        self._pool = Pool(
            models.pool_marks[number],
            models.idle_until[number],
            models.rings[number],
            models.started_at[number],
            models.idle_life_s[number],
            models.belief[number],
            models.noise[number],
        )

    @property
    def pool(self) -> Pool:
        """Lambda's environments."""
        return self._pool

    @property
    def rules(self) -> Record:
        """The rules of the run."""
        return self._rules

    @property
    def tally(self) -> RunTally:
        """The counts so far."""
        return self._tally

    @property
    def accepting(self) -> list[int]:
        """The rows that take its requests, those of its own instances first."""
        return sorted(self._accepting, key=lambda slot: (slot not in self._alone, slot))

    @property
    def own(self) -> int:
        """So many of them are of its own instances."""
        return len(self._alone & self._accepting)

    def is_own(self, slot: int) -> bool:
        """True for an instance that this model has alone."""
        return slot in self._alone

    def let_in(self, entry: Mapping[str, float]) -> None:
        """Requests come in by these shares from now on, those of the other models too."""
        for engine in (*self._plane.engines, *self._plane.apart.values()):
            if not engine.has_central_queue:  # whose gateways need them evenly
                Engine.let_in(engine, entry)

    def add(self, offering: Offering, *, standby: bool, balance: float = 0.0, zone: str = "") -> int:
        """A ready instance of this model alone."""
        return self.place(offering, self._plane.new_device(), standby=standby, balance=balance, zone=zone)

    def place(
        self,
        offering: Offering,
        device: int,
        *,
        standby: bool = False,
        balance: float = 0.0,
        share_rps: float | None = None,
        zone: str = "",
    ) -> int:
        """A tenant of this model on that device, which accepts requests from now on; returns its slot.

        share_rps: requests/s that it takes before the model's own instances are asked, where the instance is the
        service's: what it takes is no load of the model's own fleet.
        """
        slot = super().add(offering, standby=standby, balance=balance, zone=zone)
        server = self._fleet.servers[slot]
        server.model, server.objective_s = self._number, self._rules.objective_s
        if share_rps is None:
            self._alone.add(slot)
        else:
            server.share_left = math.inf  # as much as it may take at once
            server.share_at = self._now / self._speed
            self.give_share(slot, share_rps)
        self._plane.join(slot, device)
        return slot

    def give_share(self, slot: int, share_rps: float) -> None:
        """So much this tenant of a shared instance takes first; at 0 the model's own fleet is asked before it."""
        server = self._fleet.servers[slot]
        server.share_rps, server.shared = share_rps, share_rps > 0.0
        if not server.shared:
            server.share_left = 0.0

    def _loads(self, seconds: slice) -> Ints:
        """Arrivals in each of these seconds for which shared instances were not enough: load of its own fleet."""
        found = self._tally.seconds
        loads: Ints = self._arrived[seconds] - found.on_shared[seconds] - found.spared[seconds]
        return np.maximum(loads, 0)  # what was spared and then lost may be on shared ones later

    def on_shared(self) -> int:
        """Requests that shared instances took so far."""
        return int(self._tally.seconds.on_shared.sum())

    def shared_rps(self) -> float:
        """Requests/s that shared instances took in the last minute."""
        until = math.floor(self._now - self._rules.start_at)
        took = self._tally.seconds.on_shared[max(0, until - 60) : until]
        return self._speed * float(took.mean()) if took.size else 0.0

    def accept(self, slot: int) -> None:
        """Give this tenant new requests, again where that was stopped."""
        if slot not in self._accepting:
            self._accepting.add(slot)
            self._lists = None
            self._plane.change()

    def stop_accepting(self, slot: int) -> None:
        """Give this tenant no new requests."""
        super().stop_accepting(slot)
        self._plane.change()

    def remove(self, slot: int, *, redispatch: bool) -> None:
        """The tenant is gone; a shared instance did not take what it held after all."""
        if self._fleet.servers[slot].shared:
            for arrived_at in self._fleet.queue[slot, self._held(slot)]:
                second = self._tally.seconds[second_of(arrived_at, self._rules)]
                second.on_shared = max(0, second.on_shared - 1)  # those taken late were not counted
        super().remove(slot, redispatch=redispatch)

    def busy_s(self, slot: int) -> float:
        """What its batches have taken by now."""
        server = self._fleet.servers[slot]
        left_s = max(0.0, float(server.done_at) - self._now) if server.in_service > 0 else 0.0
        return float(server.busy_s) - left_s

    def drained_at(self, slot: int) -> float:
        """Instant at which its queue is empty at the earliest: neighbours' batches may come between."""
        servers = self._fleet.servers
        server = servers[slot]
        running = [row for row in self._plane.neighbours(slot) if servers[row].in_service > 0]
        if server.in_service > 0 or not running:
            return super().drained_at(slot)
        batches = -(-int(server.waiting) // int(server.max_batch))
        return float(servers[running[0]].done_at + batches * server.full_batch_s) if batches else self._now

    def run_until(self, until: float) -> float:
        """Run all models to `until`, or to the instant at which a monitor's window missed; where they are."""
        self._plane.run_until(until)
        return self._now

    @property
    def _now(self) -> float:
        return self._plane.now

    @_now.setter
    def _now(self, at: float) -> None:
        assert at == self._plane.now, "the plane's clock is all models'"

    @property
    def _fleet(self) -> kernel.Fleet:
        return self._plane.fleet

    @_fleet.setter
    def _fleet(self, fleet: kernel.Fleet) -> None:
        self._plane.fleet = fleet

    def _forget(self, slot: int) -> None:
        super()._forget(slot)
        device = self._plane.leave(slot)
        if slot in self._alone:
            self._alone.remove(slot)
            self._plane.end_device(device)

    def _settle(self) -> None:
        self._plane.settle()

    def _start_environment(self, busy_s: float) -> bool:
        _, _, models = self._plane.state
        return self._plane.kernel.start_environment(self._now, busy_s, self._number, models)

    def _send(self, arrived_at: float, size: int) -> None:
        assert size == 1
        if self._plane.kernel.dispatch(self._now, arrived_at, self._number, *self._plane.state):
            self._fleet = arrays.with_longer_queues(self._fleet)


def _stacked(engines: Sequence[ModelEngine]) -> Models:
    """The arrays that the engines were made with, one model after the other."""
    room = max(engine.pool.idle_until.size for engine in engines)
    bursts = max(engine.pool.started_at.size for engine in engines)
    count, seconds = len(engines), engines[0].tally.seconds.size
    made = Models(
        rules=arrays.records(kernel.RULES, count),
        rows=np.zeros((count, 1), np.int64),
        accepting=np.zeros(count, np.int64),
        own=np.zeros(count, np.int64),
        near=np.zeros((count, 1, 1), np.int64),
        near_accepting=np.zeros((count, 1), np.int64),
        near_own=np.zeros((count, 1), np.int64),
        seconds=arrays.records(SECOND, count * seconds).reshape(count, seconds),
        histogram=np.zeros((count, HISTOGRAM_BINS), np.int64),
        totals=arrays.records(TOTAL, count),
        pool_marks=arrays.records(POOL, count),
        idle_until=np.zeros((count, room)),
        rings=np.zeros((count, 4, room)),
        started_at=np.zeros((count, bursts)),
        idle_life_s=np.stack([engine.pool.idle_life_s for engine in engines]),
        belief=np.stack([engine.pool.belief for engine in engines]),
        noise=np.stack([engine.pool.noise for engine in engines]),
    )
    for number, engine in enumerate(engines):
        made.rules[number] = engine.rules
        made.totals[number] = engine.tally.totals
    return made

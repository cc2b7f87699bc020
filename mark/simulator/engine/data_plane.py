"""The data plane in virtual time: instances, queues and Lambda as arrays, run from event to event.

The cloud adds and removes instances, the replay says how far to run; everything that happens to a request
happens in `kernel.py`. Slots are reused and the arrays grow by doubling.

A rehearsal moves through its trace X times as fast while service times stay real. The engine keeps the trace's
clock: there whatever takes real seconds takes X times as long, and one request stands for X.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.controller.policy import MonitorPolicy
from mark.dispatch.instance.credits import earned
from mark.dispatch.objective import attainment
from mark.dispatch.overflow import believed_warm, comes_before_crossing, note_in_flight
from mark.dispatch.policy import DispatchPolicy
from mark.dispatch.variants.serving import VariantServing
from mark.domain.billing.costs import LambdaUsage
from mark.domain.demand import WINDOW_S
from mark.domain.errors import Misconfigured
from mark.domain.load.outcomes import Outcomes
from mark.domain.models.objective import Slo, SloWindow
from mark.domain.models.variants import AccuracyTotal
from mark.domain.offerings.offering import PING_S, LambdaOffering, Offering
from mark.simulator.engine import arrays, kernel
from mark.simulator.engine.compiled import Kernel
from mark.simulator.engine.kernel_lambda import Pool
from mark.simulator.engine.kernel_tally import Record, RunTally, shed
from mark.simulator.results import Latency, SecondSeries, ServedCounts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_LAMBDA = "a replay with a central queue has no Lambda: leave it out with offerings.overflow: false"
BLOCK_S = 3600.0
"""Arrivals are fetched for this long at a time, so that a week never stands in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """A run of the engine: what comes, and by which rules it is answered."""

    kernel: Kernel
    #: Sorted arrival instants in [from_s, to_s).
    arrivals: Callable[[float, float], Floats]
    slo: Slo
    dispatch: DispatchPolicy
    #: None without Lambda.
    overflow: LambdaOffering | None
    start_at: float
    duration_s: float
    #: Draws the lives and the times of Lambda.
    rng: np.random.Generator
    #: None: nothing stops the run where a window missed.
    monitor: MonitorPolicy | None
    #: Draws the times of batches on offerings whose times vary.
    noise: np.random.Generator
    #: Added to each answer.
    network_s: float = 0.0
    #: A rehearsal's X, 1 for a plain replay.
    speed: float = 1.0
    #: The arrivals' sizes in items; None where all have one.
    sizes: Callable[[float, float], Ints] | None = None
    #: Items of the largest request.
    largest: int = 1
    #: The model's, where it has several.
    variants: VariantServing | None = None
    #: Availability zones of instances; one without a name where they are not told apart.
    zones: tuple[str, ...] = ("",)
    #: Of these, the ones with gateways: requests come in there, evenly at first. Empty for all.
    entry: tuple[str, ...] = ()
    #: What a request costs that crosses to an instance in another zone, USD.
    crossing_usd: float = 0.0


class Engine:
    """Requests from arrival to answer."""

    def __init__(self, given: EngineSetup) -> None:
        self._kernel = given.kernel
        self._speed = given.speed
        self._arrivals = given.arrivals
        self._sizes = given.sizes
        self._largest = given.largest
        self._overflow = given.overflow
        self._start_at = self._now = given.start_at
        seconds = math.ceil(given.duration_s)
        self._rules = arrays.rules(
            given.slo,
            given.dispatch,
            given.overflow,
            start_at=given.start_at,
            seconds=seconds,
            monitor=given.monitor,
            speed=given.speed,
            network_s=given.network_s,
        )
        lambda_usd = math.inf if given.overflow is None else given.overflow.usd_per_warm_request
        lambda_first = comes_before_crossing(lambda_usd, given.crossing_usd)
        self._rules.lambda_before_crossing = self._rules.overflows and lambda_first
        self._zones = given.zones
        self._entry = {zone: 1.0 / len(given.entry or given.zones) for zone in given.entry or given.zones}
        self._variants = given.variants
        variants = None if given.variants is None else arrays.variants(given.variants, self._rules)
        central, room = None, arrays.FIRST_QUEUE
        if variants is not None and given.variants is not None and given.variants.dispatch.is_central:
            if given.overflow is not None:
                raise Misconfigured(NO_LAMBDA)
            central = arrays.central(given.variants, variants, given.speed)
            room = max(room, 2 ** given.variants.table.max_batch.bit_length())
        self._fleet = arrays.fleet(
            arrays.FIRST_SLOTS,
            room,
            1,
            sized=given.sizes is not None,
            variants=variants,
            entry=self._added_up(),
            central=central,
        )
        self._pool = arrays.pool(self._rules, given.overflow, given.rng)
        self._tally = arrays.tally(given.start_at, seconds)
        self._arrived: Ints = self._tally.seconds.arrivals
        self._is_watched = given.monitor is not None
        self._normals = given.noise.standard_normal(arrays.DRAWS)
        self._noise_rows = {0.0: 0}
        self._free = list(range(arrays.FIRST_SLOTS))
        self._accepting: set[int] = set()
        self._used: set[int] = set()
        self._lists: tuple[Ints, Ints] | None = None
        self._block = np.empty(0)
        self._block_sizes: Ints | None = None if given.sizes is None else np.empty(0, np.int64)
        self._block_until = given.start_at
        self._index = 0
        self._warm_pings = self._cold_pings = 0

    @property
    def has_central_queue(self) -> bool:
        """True where requests wait in one queue for all instances."""
        return self._fleet.central is not None

    @property
    def entry(self) -> Mapping[str, float]:
        """Shares of the requests by the zone in which they come in; empty where zones are not told apart."""
        return self._entry if len(self._zones) > 1 else {}

    def let_in(self, entry: Mapping[str, float]) -> None:
        """Requests come in by these shares from now on. What comes later must not know them: settled first."""
        if entry != self._entry:
            self._settle()
            self._entry = dict(entry)
            self._fleet = self._fleet._replace(zones=self._fleet.zones._replace(entry=self._added_up()))

    def _added_up(self) -> Floats:
        """The shares of the zones, added up. shape (zones,)."""
        return np.cumsum([self._entry.get(zone, 0.0) for zone in self._zones])

    def add(self, offering: Offering, *, standby: bool, balance: float = 0.0, zone: str = "") -> int:
        """A ready instance that accepts requests from now on; returns its slot."""
        type_name, variants = offering.instance_type.name, self._variants
        largest = offering.batch.max_batch if variants is None else variants.max_batch[type_name]
        most = max(largest, self._largest)
        self._make_room(most)
        row = self._noise_row(offering.cv)
        slot, fleet = self._free.pop(0), self._fleet
        batch_s = offering.profile.latencies_s(most) if variants is None else variants.fastest_s(type_name)[:most]
        fleet.batch_s[slot, 1 : most + 1] = [self._speed * seconds for seconds in batch_s]
        fleet.servers[slot] = 0
        server = fleet.servers[slot]
        if variants is not None:
            server.kind = variants.types.index(type_name)
        server.max_batch, server.standby, server.weight = largest, standby, offering.capacity_rps
        server.zone = self._zones.index(zone) if len(self._zones) > 1 else 0
        server.free_at, server.terminates_at = self._now, np.inf
        server.cv, server.noise = offering.cv, row
        server.single_s, server.full_batch_s = fleet.batch_s[slot, 1], fleet.batch_s[slot, largest]
        burst = offering.instance_type.credits
        if burst:
            server.burn_per_s = burst.vcpus / 60.0
            server.balance, server.balance_at = balance, self._now
            server.earn_per_s, server.max_balance = burst.earn_per_hour / 3600.0, burst.max_balance
            server.slow = 1.0 if burst.unlimited else 1.0 / burst.baseline
            kernel.show_pace(balance, server, fleet.batch_s[slot])
        self._used.add(slot)
        self._accepting.add(slot)
        self._lists = None
        return slot

    def stop_accepting(self, slot: int) -> None:
        """Give this instance no new requests."""
        self._accepting.discard(slot)
        self._lists = None

    def will_go(self, slot: int, at: float) -> None:
        """This instance goes at `at`: admit only what it is predicted to finish before."""
        self._fleet.servers[slot].terminates_at = at

    def drained_at(self, slot: int) -> float:
        """Instant at which its queue is empty (now or earlier when it holds nothing)."""
        server = self._fleet.servers[slot]
        if self.is_idle(slot):
            return self._now
        batches = -(-int(server.waiting) // int(server.max_batch))
        return float(server.done_at + batches * server.full_batch_s)

    def is_idle(self, slot: int) -> bool:
        """True where it holds no request."""
        server = self._fleet.servers[slot]
        return bool(server.in_service + server.waiting == 0)

    def credits(self, slot: int) -> float:
        """CPU credits it has left now."""
        server = self._fleet.servers[slot]
        elapsed_s = max(0.0, self._now - server.balance_at)
        return float(earned(server.balance, elapsed_s, server.earn_per_s, server.max_balance))

    def surplus_vcpu_s(self, slot: int) -> float:
        """Seconds of vCPUs used beyond its credits since it was added (unlimited types)."""
        return float(self._fleet.servers[slot].surplus * 60.0)

    def remove(self, slot: int, *, redispatch: bool) -> None:
        """The instance is gone; what it held is sent elsewhere, or shed where the model forbids that."""
        server, queue, sizes = self._fleet.servers[slot], self._fleet.queue, self._fleet.sizes
        places = self._held(slot)
        lost = queue[slot, places]
        items = np.ones(places.size, np.int64) if sizes is None else sizes[slot, places]
        server.in_service = server.waiting = server.serving = server.queued = 0
        self._forget(slot)
        for arrived_at, size in zip(lost, items, strict=True):
            if redispatch:
                self._send(float(arrived_at), int(size))
            else:
                shed(float(arrived_at), self._rules, self._tally)

    def _held(self, slot: int) -> Ints:
        """Places in its ring of the requests it holds, the oldest first."""
        server = self._fleet.servers[slot]
        held = int(kernel.held_requests(server, self._fleet.sizes))
        return np.asarray((server.head + np.arange(held)) % self._fleet.queue.shape[1], np.int64)

    def _forget(self, slot: int) -> None:
        """Free a slot that holds nothing."""
        self._accepting.discard(slot)
        self._used.discard(slot)
        self._free.append(slot)
        self._lists = None

    def run_until(self, until: float) -> float:
        """Run to `until`, or to the instant at which the SLO monitor's window missed; returns where it is."""
        while self._now < until:
            if self._block_until <= self._now:
                self._block = self._arrivals(self._block_until, self._block_until + BLOCK_S)
                if self._sizes is not None:
                    self._block_sizes = self._sizes(self._block_until, self._block_until + BLOCK_S)
                self._block_until += BLOCK_S
                self._index = 0
            stop = min(until, self._block_until)
            self._index, code = self._kernel.run(
                stop, self._block, self._block_sizes, self._index, self._rows, self._every, *self._state
            )
            if code == kernel.QUEUE_FULL:
                self._fleet = arrays.with_longer_queues(self._fleet)
            elif code == kernel.BREACHED:
                self._now = float(self._tally.totals.closed_at)
                # Whoever looks at an instance now must not find batches that have ended.
                self._settle()
                break
            else:
                self._now = stop
        return self._now

    def quiet_until(self, at: float) -> None:
        """The monitor is in its cool-down: do not stop for missed windows before `at`."""
        self._tally.totals.quiet_until = at

    def warm(self, concurrency: int, *, are_there: bool = False) -> None:
        """Ping so many Lambda environments at once; those that are not warm start, all are billed.

        are_there: as many are warm as are asked for, and none starts.
        """
        if self._overflow is None:
            return
        self._settle()
        marks = self._pool.marks
        pings = min(concurrency, self._overflow.concurrency) - int(marks.warm + marks.cold)
        if are_there:
            self._make_idle(pings)
        pinged = self._ping_idle(pings)
        busy_s = float(self._rules.cold_s) + PING_S * self._speed
        for _ in range(pings - pinged):
            if not self._start_environment(busy_s):
                break
            self._cold_pings += 1
        self._warm_pings += pinged
        note_in_flight(self._pool.belief, self._now, int(marks.warm + marks.cold) + pinged)

    def begin_warm(self, count: int) -> None:
        """So many Lambda environments are warm from the load before the run; nothing of them is billed."""
        if self._overflow is not None:
            count = min(count, self._overflow.concurrency)
            self._make_idle(count)
            self._ping_idle(count)

    def _make_idle(self, count: int) -> None:
        """Have so many idle environments at least, for `_ping_idle` to draw their lives."""
        marks, idle_until = self._pool.marks, self._pool.idle_until
        idle_until[(marks.idle_low + np.arange(marks.idle, count)) % idle_until.size] = np.inf
        marks.idle = max(int(marks.idle), count)

    def _ping_idle(self, most: int) -> int:
        """Use up to `most` idle environments for an instant, which starts their idle lives anew; how many."""
        marks, idle_until, lives_s = self._pool.marks, self._pool.idle_until, self._pool.idle_life_s
        until = idle_until[(marks.idle_low + np.arange(marks.idle)) % idle_until.size]
        until = until[until > self._now]
        count = max(0, min(most, int(until.size)))
        drawn = lives_s[(marks.draws + np.arange(count)) % lives_s.size]
        until[until.size - count :] = self._now + drawn
        idle_until[: until.size] = until
        marks.idle_low, marks.idle = 0, until.size
        marks.draws += count
        return count

    @property
    def now(self) -> float:
        """The instant it was run to."""
        return self._now

    def window_counts(self, from_s: float, to_s: float) -> Ints:
        """Arrivals per 5 s window of [from_s, to_s). Shape (windows,)."""
        first = round(from_s - self._start_at)
        counts = self._loads(slice(first, round(to_s - self._start_at)))
        per = int(WINDOW_S)
        whole = counts.size - counts.size % per
        sums: Ints = np.add.reduce(counts[:whole].reshape(-1, per), axis=1)
        return sums

    def _loads(self, seconds: slice) -> Ints:
        """Arrivals in each of these seconds."""
        return self._arrived[seconds]

    def slo_window(self) -> SloWindow | None:
        """The monitor's last full window."""
        if not self._is_watched:
            return None
        at = float(self._tally.totals.closed_at)
        if not np.isfinite(at):
            return None
        totals = self._tally.totals
        return SloWindow(closed_at=at, requests=int(totals.last_requests), missed=int(totals.last_missed))

    def lambda_warm(self) -> int:
        """Lambda environments that the gateways believe to be warm."""
        if self._overflow is None:
            return 0
        return int(believed_warm(self._pool.belief, self._now))

    def served(self) -> ServedCounts:
        """Outcomes of the requests so far."""
        totals = self._tally.totals
        instance, standby, lambda_, shed = (
            int(n) for n in (totals.instance, totals.standby, totals.lambda_, totals.shed)
        )
        arrived = int(self._tally.seconds.arrivals.sum())
        return ServedCounts(
            instance=instance,
            standby=standby,
            lambda_=lambda_,
            shed=shed,
            in_flight=arrived - instance - standby - lambda_ - shed,
        )

    def batches(self) -> int:
        """Batches that instances have completed."""
        return int(self._tally.totals.batches)

    def fallback_decisions(self) -> int:
        """Batches that the heuristic chose because a learned policy gave no number."""
        return int(self._tally.totals.fallback_decisions)

    def decision_failures(self) -> Mapping[str, int]:
        """Decisions of a user's own dispatch rule that failed, by what went wrong."""
        return {}

    def close(self) -> None:
        """The run is over."""

    def outcomes(self) -> Outcomes:
        """Requests that are finished so far, and those of them that missed the objective."""
        totals = self._tally.totals
        finished = int(totals.instance + totals.standby + totals.lambda_ + totals.shed)
        return Outcomes(finished=finished, missed=int(totals.missed))

    def attained(self) -> float:
        """Share of the finished requests that were answered in time (1 when none finished)."""
        outcomes = self.outcomes()
        attained = attainment(outcomes.missed, outcomes.finished)
        return 1.0 if attained is None else attained

    def lambda_usage(self) -> LambdaUsage:
        """Billed use of Lambda, pings included.

        A request stands for as many as the speed says. Environments come and go on the trace's clock: as many
        start cold, and are pinged, as at the trace's own speed.
        """
        if self._overflow is None:
            return LambdaUsage(requests=0, cold_starts=0, gib_s=0.0)
        totals = self._tally.totals
        invocations, cold = round(self._speed * int(totals.invocations)), int(totals.cold)
        seconds = (
            invocations * self._overflow.latency_s
            + cold * self._overflow.cold_start_s
            + (self._warm_pings + self._cold_pings) * PING_S
        )
        return LambdaUsage(
            requests=invocations + int(totals.pings) + self._warm_pings,
            cold_starts=cold,
            gib_s=seconds * self._overflow.memory_gib,
        )

    def invocations(self) -> tuple[int, int]:
        """Requests that Lambda took, and how many of them started cold."""
        totals = self._tally.totals
        return int(totals.invocations), int(totals.cold) - int(totals.pings)

    @property
    def calls(self) -> int:
        """Calls of Lambda in flight, those that ended and were not looked at since too."""
        return int(self._pool.marks.warm + self._pool.marks.cold)

    @property
    def most_calls(self) -> int:
        """So many may be in flight at once."""
        return int(self._rules.concurrency)

    @most_calls.setter
    def most_calls(self, count: int) -> None:
        """Change it, as others of the account have calls in flight."""
        self._rules.concurrency = count

    def throttled(self) -> int:
        """Calls that Lambda refused: its concurrency was used up, or too many new environments at once."""
        return int(self._tally.totals.throttled)

    def crossed(self) -> int | None:
        """Requests that an instance in another zone than they came in has answered; None where none is told apart.

        What waits where requests come in by other shares than before counts by those of now.
        """
        return int(self._tally.totals.crossed) if len(self._zones) > 1 else None

    def latency(self) -> Latency:
        """Latencies of what was answered, from the histogram (0.1 ms wide below 2 s)."""
        return arrays.summarise(self._tally)

    def seconds(self) -> SecondSeries:
        """The per-second series of the run."""
        t = self._tally.seconds
        return SecondSeries(
            arrivals=t.arrivals,
            answered=t.answered,
            missed=t.missed,
            to_lambda=t.to_lambda,
            latency_sum_s=t.latency_sum,
            latency_max_s=t.latency_max,
            accuracy_sum=None if self._variants is None else t.accuracy,
        )

    def accuracy_total(self) -> AccuracyTotal:
        """Answers of variants on instances so far; none for a model without variants."""
        if self._variants is None:
            return AccuracyTotal()
        totals = self._tally.totals
        answers = int(totals.instance + totals.standby)
        return AccuracyTotal(answers=answers, accuracy_sum=float(totals.accuracy_sum))

    def accuracy(self) -> float | None:
        """Mean accuracy of the variants that answered on instances; None without variants, or answers."""
        served = self.accuracy_total().since(AccuracyTotal())
        return None if served is None else served.mean

    def quality(self) -> float | None:
        """Mean quality of what instances answered or was shed (quality 0); None without variants, or requests.

        The quality of an answer is the accuracy of its variant times the utility of its delay
        (`dispatch/variants/qos.py`).
        """
        served = self.served()
        requests = served.instance + served.standby + served.shed
        if self._variants is None or not requests:
            return None
        return float(self._tally.totals.quality_sum) / requests

    @property
    def _state(self) -> tuple[Record, kernel.Fleet, Pool, RunTally]:
        return self._rules, self._fleet, self._pool, self._tally

    def _send(self, arrived_at: float, size: int) -> None:
        if self._kernel.dispatch(self._now, arrived_at, size, self._rows, *self._state):
            self._fleet = arrays.with_longer_queues(self._fleet)

    def _settle(self) -> None:
        self._kernel.settle(self._now, self._every, *self._state)

    def _start_environment(self, busy_s: float) -> bool:
        """Start a Lambda environment for a ping; False when too many were started at once."""
        return self._kernel.start_environment(self._now, np.nan, busy_s, self._rules, self._pool, self._tally)

    def _noise_row(self, cv: float) -> int:
        """The row of factors for that coefficient of variation."""
        if cv not in self._noise_rows:
            self._noise_rows[cv] = len(self._fleet.noise)
            made = arrays.noise_factors(cv, self._normals)
            self._fleet = self._fleet._replace(noise=np.vstack((self._fleet.noise, made)))
        return self._noise_rows[cv]

    def _make_room(self, max_batch: int) -> None:
        if not self._free:
            have = self._fleet.servers.size
            self._fleet = arrays.with_more_slots(self._fleet)
            self._free.extend(range(have, self._fleet.servers.size))
        if self._fleet.batch_s.shape[1] <= max_batch:
            self._fleet = arrays.with_wider_batches(self._fleet, max_batch)

    @property
    def _rows(self) -> Ints:
        """The slots that accept requests; listed anew only after a change."""
        return self._listed()[0]

    @property
    def _every(self) -> Ints:
        """All slots in use."""
        return self._listed()[1]

    def _listed(self) -> tuple[Ints, Ints]:
        if self._lists is None:
            rows, every = (np.array(sorted(slots), np.int64) for slots in (self._accepting, self._used))
            self._lists = rows, every
            by_zone = arrays.padded([rows[self._fleet.servers.zone[rows] == z] for z in range(len(self._zones))])
            self._fleet = self._fleet._replace(zones=kernel.Zones(self._fleet.zones.entry, *by_zone))
        return self._lists

"""A rehearsal: a slice of a trace driven through the live service, faster than it happened, beside its replay.

The service is brought up with its clock standing still and the trace's past as history, as a replay begins; the
load draws the same arrivals as the replay does. What differs afterwards is the difference between the two worlds.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from mark.config.policies import check_binds_early, chosen_model, chosen_overrides, chosen_sizes
from mark.config.settings import Settings
from mark.controller.journal import Header, read_journal
from mark.controller.state import Decision, Observation
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.orders import Launch, Order, WarmLambda, Withdraw
from mark.live.commands.load import (
    LoadDocument,
    LoadOptions,
    ModelLoad,
    chosen,
    due_requests,
    load_document,
    send,
)
from mark.live.commands.up import service_up
from mark.live.local.emulator_client import EmulatedControls
from mark.live.local.running import Running
from mark.live.status.watch import live_table, view_of
from mark.offline.experiments import make_experiment
from mark.offline.trace_source import TraceReading
from mark.report.live.service_status import ModelStatus
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_documents import RunDocument, run_document
from mark.report.terminal import note, progress
from mark.simulator.results import RunResult
from mark.steady_time import steady_time
from mark.store.connect import connect
from mark.store.service import ServiceStore

BIN_MIN = 10.0
"""Orders are compared by ten minutes of the trace."""

OrderRow = tuple[float, FleetView, tuple[Order, ...]]
"""When, what was there, and what was ordered."""
OrderCounts = Counter[tuple[int, str, str]]
"""(ten minutes, kind of order, offering) -> instances ordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """Result of a rehearsal: load, the model's status, the replay's document, and both sides' orders."""

    load: LoadDocument
    live: ModelStatus
    replay: RunDocument
    live_orders: OrderCounts
    replay_orders: OrderCounts


@dataclass(slots=True)
class OrderLog:
    """A journal that keeps what was ordered when."""

    rows: list[OrderRow] = field(default_factory=list)

    def append(self, _before: FleetView, seen: Observation, decision: Decision) -> None:
        """Keep one tick's orders."""
        self.rows.append((seen.now, seen.fleet, decision.orders))


def rehearse(settings: Settings) -> Rehearsed:
    """Replay the slice that the settings describe, then drive it through the live service."""
    result, replay_orders = replay_slice(settings)
    with service_up(settings, hold=True) as running:
        began_at = ServiceStore(connect(running.store), running.name).clock().service_at
        (load,) = drive(running, [settings], show_live=False)
        end_at = began_at + result.duration_s  # the clock goes on until the last answer, and after it
        status = view_of(running).status(until=end_at)
        live = next(m for m in status.models if m.name == settings.model)
        live = replace(live, cost_usd=live.cost_usd.with_shared(status.overhead.usd))
        live_orders = journal_orders(running, str(settings.model), until=end_at)
    return Rehearsed(
        load=load,
        live=live,
        replay=run_document(ComparedRun(result=result)),
        live_orders=live_orders,
        replay_orders=replay_orders,
    )


def replay_slice(settings: Settings) -> tuple[RunResult, OrderCounts]:
    """The replay of the slice, and what it ordered."""
    check_binds_early(settings)
    experiment = make_experiment(settings)
    log = OrderLog()

    @contextmanager
    def keep(_header: Header) -> Iterator[OrderLog]:
        yield log

    policy = settings.policies[0]
    with progress() as report:
        result = experiment.run(policy, overrides=chosen_overrides(settings), open_journal=keep, progress=report)
    return result, order_counts(log.rows, result.start_at)


def drive(running: Running, models: Sequence[Settings], *, show_live: bool) -> list[LoadDocument]:
    """Send the slice's requests to each model, interrupt as the settings say; what its clients saw.

    models: the settings of each, which have the slice and its speed in common.
    """
    settings = models[0]
    speed = settings.trace.speed
    loads = [_load(running, one) for one in models]
    over = threading.Event()
    threads = [threading.Thread(target=_interrupt, args=(running, settings, speed, over), daemon=True)]
    if show_live:
        threads.append(threading.Thread(target=_show, args=(running, over), daemon=True))
    for thread in threads:
        thread.start()
    try:
        results = send(running, loads, speed=speed)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if any(result.sent < load.due_s.size for result, load in zip(results, loads, strict=True)):
        raise KeyboardInterrupt  # a load takes it as its end; half a slice is beside nothing
    return [load_document(result) for result in results]


def _load(running: Running, settings: Settings) -> ModelLoad:
    """The requests that a replay draws by the same settings."""
    options = LoadOptions(
        service=running.name,
        model=settings.model,
        trace=settings.trace.file,
        rate_rps=None,
        mean_rps=settings.trace.mean_rps,
        start_s=settings.trace.start_s,
        duration_s=settings.trace.duration_s,
        speed=settings.trace.speed,
        seed=settings.seed,
        sizes=chosen_sizes(settings, chosen_model(settings)),
        reading=TraceReading.of(settings),
    )
    return ModelLoad(chosen(running, settings.model), *due_requests(options))


def journal_orders(running: Running, model: str, *, until: float) -> OrderCounts:
    """Orders of the live controller before `until`, service time, from its journal."""
    store = ServiceStore(connect(running.store), running.name)
    _, ticks = read_journal(store.journal_lines(model), skip=lambda line: note(line.words))
    rows = [(tick.seen.now, tick.seen.fleet, tick.orders) for tick in ticks if tick.seen.now < until]
    return order_counts(rows, rows[0][0] if rows else 0.0)


def order_counts(rows: Sequence[OrderRow], start_at: float) -> OrderCounts:
    """Instances by ten minutes, kind of order and offering."""
    counts: OrderCounts = Counter()
    for at, fleet, orders in rows:
        place = int((at - start_at) // (BIN_MIN * 60))
        offerings = {instance.id: instance.offering for instance in fleet}
        for order in orders:
            match order:
                case Launch() | Withdraw():
                    counts[place, order.kind, order.offering] += order.count
                case WarmLambda():
                    pass  # how many are warm already is believed, not known
                case _:
                    counts.update((place, order.kind, offerings.get(name, "")) for name in order.instances)
    return counts


def _interrupt(running: Running, settings: Settings, speed: float, over: threading.Event) -> None:
    """Take spot instances away at their minutes."""
    controls = EmulatedControls.of(running)
    store = ServiceStore(connect(running.store), running.name)
    began = store.clock().service_at
    for planned in sorted(settings.faults.interrupts, key=lambda item: item.at_min):
        due_at = began + planned.at_min * 60
        while store.clock().service_time(steady_time()) < due_at:
            if over.wait(min(0.5, 1 / speed)):
                return
        controls.interrupt(planned.share, planned.offering)


def _show(running: Running, over: threading.Event) -> None:
    """The live table until the load is over."""
    with live_table(running) as refresh:
        while not over.wait(1.0):
            refresh()

"""A journal's own arrivals as a trace, and what it says of model, market and objective: other policies on them.

A journal holds each minute's count and its largest rate over 5 s, not the instants: within a minute they are
drawn, such that both are kept exactly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.accounting.journal_stats import CountedEvents, Segment, journal_demand
from mark.accounting.load_history import joined, latest, load_key, read_load, start_of
from mark.config.capacity import CapacitySettings
from mark.config.events import EventSettings
from mark.config.policies import chosen_model
from mark.config.served import settings_of_model
from mark.config.settings import Settings
from mark.config.trace import TraceSettings
from mark.controller.journal import Header, read_journal
from mark.domain.commitments.owned import Commitments
from mark.domain.demand import UNIT_S, WINDOW_S, Demand
from mark.domain.errors import Misconfigured, unknown
from mark.domain.load.announced_events import Events, events_of
from mark.live.archived_load import archived_load, archived_segments
from mark.live.local.run_dir import RunFolder, find_running, not_up
from mark.offline.explanation.explain import find_journal
from mark.offline.workloads import workload_on
from mark.report.cost.archive_reader import ArchiveReader
from mark.report.cost.read import journal_of
from mark.report.terminal import note
from mark.simulator.rng import stream
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from mark.store.connect import connect
from mark.store.published_status import COMMITMENTS
from mark.store.service import ServiceStore
from mark.telemetry.journal_file import whole_lines

Ints = NDArray[np.int64]
WINDOWS = round(UNIT_S / WINDOW_S)
SECONDS = round(WINDOW_S)
HISTORY_S = 3600.0
"""Load that policies know before a replay begins, where nothing else is known."""
LEAST_UNITS = 2
"""Minutes that a replay needs at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journalled:
    """A replay's input from a journal. `observed_from`: before it, demand is what was assumed, not what came."""

    name: str
    demand: Demand
    observed_from: float
    #: Announced events that its plans counted.
    events: Events = ()

    def by_dates(self, clock_at: float) -> Journalled:
        """The same by dates, of a journal whose clock is 0 at `clock_at`, epoch seconds: a replay's is."""
        return replace(
            self,
            demand=replace(self.demand, end_at=self.demand.end_at + clock_at),
            observed_from=self.observed_from + clock_at,
            events=tuple(
                replace(event, at=event.at + clock_at, until=event.until + clock_at) for event in self.events
            ),
        )

    @property
    def start_at(self) -> float:
        """Start of its first minute."""
        return start_of(self.demand)

    @property
    def begin_at(self) -> float:
        """From when on a replay makes sense: the load was seen, and there is some before it to forecast from."""
        if self.observed_from > self.start_at:
            return self.observed_from
        return self.start_at + min(HISTORY_S, len(self.demand) * UNIT_S / 2)


def journalled_run(given: Settings, journal: str) -> tuple[Settings, Workload]:
    """Settings and workload of a replay of a service's journal, archived or not, or of a replay's.

    What `given` sets wins; the rest is the service's own, or what the journal's first line says.
    """
    if given.trace.file is not None:
        raise Misconfigured("--trace and --journal both say what arrives; give one of them")
    settings, found = _of_place(given, journal)
    if len(found.demand) < LEAST_UNITS:
        raise Misconfigured(
            f"{found.name} holds {len(found.demand)} minutes of load, too few to replay; try later"
        )
    if "start_s" not in given.trace.model_fields_set:
        last_s = (len(found.demand) - 1) * UNIT_S
        start_s = min(found.begin_at - found.start_at, last_s) // UNIT_S * UNIT_S
        trace = settings.trace.model_copy(update={"start_s": start_s})
        settings = settings.model_copy(update={"trace": trace})
    settings = with_counted_events(settings, found)
    return settings, workload_on(settings, demand_trace(found, settings.seed))


def owned_by(given: Settings, journal: str) -> Commitments | None:
    """A model's part of the commitments that a running service last read of its account; None where none did.

    A file that the settings name goes before.
    """
    running = RunFolder.of(journal).running() is not None and not Path(journal).exists()
    if given.account.commitments is not None or not running:
        return None
    store = ServiceStore(connect(find_running(journal).store), journal)
    known = COMMITMENTS.read(store)
    return None if known is None else known.commitments.active_at(time.time()).share(1 / len(store.spec().models))


def with_counted_events(settings: Settings, found: Journalled) -> Settings:
    """Settings of a replay that knows what the service knew; those of the same name in the settings go before."""
    own = events_of([item.event for item in settings.events], chosen_model(settings).name)
    given = {event.name for event in own}
    counted = tuple(EventSettings.of(event) for event in found.events if event.name not in given)
    return settings.model_copy(update={"events": (*settings.events, *counted)})


def _of_place(given: Settings, journal: str) -> tuple[Settings, Journalled]:
    """A folder or file of archived segments, the folder of a replay, or a service by its name."""
    place = Path(journal)
    segments = archived_segments(place)
    if segments:
        header, demand, events = archived_load(segments, given.model)
        name = f"the journal in {place}"
        found = Journalled(name=name, demand=demand, observed_from=start_of(demand), events=events)
        found = found.by_dates(header.policy.clock_at)
        return merged(Settings.model_validate(_header_settings(header)), given), found
    return _of_folder(given, place) if place.is_dir() else _of_service(given, journal)


def demand_trace(found: Journalled, seed: int) -> Trace:
    """Whole counts of each second: every minute's count and its largest 5 s window are those of the demand."""
    rng = stream(seed, "journalled-arrivals")
    counts: Ints = np.rint(np.array(found.demand.mean_rps) * UNIT_S).astype(np.int64)
    peaks: Ints = np.rint(np.array(found.demand.max_rps) * WINDOW_S).astype(np.int64)
    peaks = np.clip(peaks, -(-counts // WINDOWS), counts)
    others = rng.multinomial(counts - peaks, np.full(WINDOWS - 1, 1 / (WINDOWS - 1)))
    for row in np.flatnonzero(others.max(axis=1, initial=0) > peaks):
        others[row] = _levelled(others[row], int(peaks[row]))
    places = rng.integers(0, WINDOWS, len(counts))
    windows = np.zeros((len(counts), WINDOWS), dtype=np.int64)
    at_peak = np.arange(WINDOWS) == places[:, None]
    windows[at_peak] = peaks
    windows[~at_peak] = others.reshape(-1)
    seconds = rng.multinomial(windows.reshape(-1), np.full(SECONDS, 1 / SECONDS))
    return Trace(
        name=found.name,
        start_at=found.start_at,
        bin_s=1.0,
        rates_rps=seconds.reshape(-1).astype(np.float64),
        whole_counts=True,
        notes=("arrivals of each minute and its largest 5 s are the journal's, their instants are drawn",),
    )


def _levelled(counts: Ints, most: int) -> Ints:
    """Counts of the same sum with no window above `most`; there is room for it. counts: shape (windows,)."""
    level = np.minimum(counts, most)
    for _ in range(int(counts.sum() - level.sum())):
        level[int(np.argmin(level))] += 1
    return level


def service_journal(store: ArchiveReader, service: str, model: str) -> Journalled:
    """The demand that a service's journal knows of a model, and what was kept of before. Misconfigured without."""
    journal = journal_of(store, model, skip=lambda why: note(f"the journal of {model}: {why}"))
    counted = CountedEvents()
    demand, observed_from = journal_demand(counted.watch(journal))
    if not len(demand):
        raise Misconfigured(f"the service {service} has no journal of {model} yet")
    kept = read_load(store.status(load_key(model)))
    if kept is not None and start_of(kept) < observed_from - UNIT_S:
        demand, observed_from = joined(kept, latest(demand, kept.end_at)), start_of(kept)
    name = f"the journal of {service}, {model}"
    return Journalled(name=name, demand=demand, observed_from=observed_from, events=counted.events)


def merged(own: Settings, given: Settings) -> Settings:
    """`own` with all that `given` sets itself."""
    return Settings.model_validate(_over(own.model_dump(exclude_unset=True), given.model_dump(exclude_unset=True)))


def _of_service(given: Settings, service: str) -> tuple[Settings, Journalled]:
    if RunFolder.of(service).running() is None:
        raise not_up(
            service,
            "`mark up --detach` starts a service",
            but=", and no folder or file of journals has that name",
        )
    running = find_running(service)
    own = RunFolder.of(service).settings()
    store = ServiceStore(connect(running.store), service)
    served = [model.name for model in store.spec().models]
    model = given.model or served[0]
    if model not in served:
        raise unknown(f"model of the service {service}", model, served)
    own = settings_of_model(own, model)
    own = own.model_copy(update={"trace": TraceSettings(), "out": None})
    return merged(own, given), service_journal(store, service, model)


def _of_folder(given: Settings, folder: Path) -> tuple[Settings, Journalled]:
    path = find_journal(folder, None)
    lines = whole_lines(path)
    header, ticks = read_journal(lines, skip=lambda line: note(f"{path}: {line.words}"))
    segments: Iterator[Segment] = iter([(header, ticks)])
    counted = CountedEvents()
    demand, observed_from = journal_demand(counted.watch(segments))
    name = f"the journal in {folder}"
    found = Journalled(name=name, demand=demand, observed_from=observed_from, events=counted.events)
    found = found.by_dates(header.policy.clock_at)
    return merged(Settings.model_validate(_header_settings(header)), given), found


def _header_settings(header: Header) -> dict[str, Any]:
    """Settings of the run that a journal's header describes."""
    policy, slo = header.policy, header.policy.slo
    objective: dict[str, Any] = {"latency_ms": slo.judged_s * 1000, "target": slo.target}
    if slo.first_byte_s is not None:
        objective |= {"measured": "first_byte", "rest_ms": slo.rest_s * 1000}
    if not slo.mean_is_default:
        objective["mean_latency_ms"] = (slo.mean_latency_s - slo.rest_s) * 1000
    types = sorted({offering.instance_type.name for offering in policy.offerings})
    return {
        "model": header.model,
        "market": header.market or "on-demand",
        "policies": [policy.name],
        "objective": objective,
        "offerings": {"types": types, "overflow": policy.overflow is not None},
        "capacity": [CapacitySettings.of(window).model_dump() for window in policy.capacity],
        "seed": header.seed,
    }


def _over(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Both trees as one, `given` on top."""
    found = dict(own)
    for key, value in given.items():
        below = found.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        found[key] = _over(below, value) if both else value  # type: ignore[arg-type]
    return found

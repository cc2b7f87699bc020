"""From settings to a workload: the trace that they name, scaled, cut and with bursts, as asked."""

from __future__ import annotations

from mark.config.policies import chosen_model, chosen_sizes
from mark.config.served import each_model
from mark.config.service import ServedSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.offline.trace_source import TraceReading, read_place
from mark.report.terminal import progress
from mark.simulator.rng import seeds_of
from mark.simulator.traces.bursts import with_bursts
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload


def each_seeded(settings: Settings) -> list[tuple[Settings, ServedSettings]]:
    """As `each_model`; each of several models draws from a seed of its own, live and in a replay."""
    found = each_model(settings)
    seeds = seeds_of(settings.seed, [entry.model for _, entry in found])
    return [(own.model_copy(update={"seed": seeds[entry.model]}), entry) for own, entry in found]


def chosen_workload(settings: Settings) -> Workload:
    """The trace, scaled and cut as asked."""
    chosen = settings.trace
    if chosen.file is None:
        raise Misconfigured("name a trace with --trace; `mark trace generate` writes one")
    with progress() as report:
        report(f"reading {chosen.file}", 0.0)
        trace = read_place(chosen.file, TraceReading.of(settings))
    return workload_on(settings, trace)


def workload_on(settings: Settings, trace: Trace) -> Workload:
    """A trace that is already read, scaled and cut as asked."""
    chosen = settings.trace
    if chosen.mean_rps is not None:
        trace = trace.scaled(chosen.mean_rps, chosen.start_s, chosen.duration_s)
    trace = trace.times(chosen.scale, after_rps=chosen.mean_rps)
    sizes = chosen_sizes(settings, chosen_model(settings)) if settings.model else None
    workload = Workload(
        trace=with_bursts(trace, chosen.bursts, settings.seed),
        seed=settings.seed,
        start_s=chosen.start_s,
        duration_s=chosen.duration_s,
        speed=chosen.speed,
        sizes=sizes,
    )
    first_s, last_s = workload.whole_seconds
    if last_s <= first_s:
        raise Misconfigured(
            f"a replay needs a whole second, not {workload.duration_s:g} s; give a longer --duration-s"
        )
    return workload

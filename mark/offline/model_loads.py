"""The loads of a service's models out of one log or one folder: `--model-from`."""

from __future__ import annotations

from mark.config.service import ServedSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.offline.service_members import LoadOf, recorded_load
from mark.offline.trace_source import TraceReading, open_objects
from mark.offline.workloads import workload_on
from mark.report.terminal import note, progress
from mark.simulator.traces.by_model import parse_model_from, read_by_model, request_count, silent
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload

MOST_NAMED = 10


def chosen_loads(settings: Settings, model_from: str | None) -> LoadOf:
    """The load of each model: its own trace, or its part of one log where `model_from` is given."""
    return recorded_load if model_from is None else loads_from(settings, model_from)


def loads_from(settings: Settings, model_from: str) -> LoadOf:
    """The load of each model that the settings serve; a note names the others of the log, and those without any.

    Misconfigured where the settings serve none of the models that the log names.
    """
    place, served = settings.trace.file, [one.model for one in settings.service.serve]
    if settings.model is not None:
        raise Misconfigured(
            f"--model-from is of all models of a service: leave --model out, or take one's requests with "
            f"--where 'path=*/models/{settings.model}/*'"
        )
    wanted = parse_model_from(model_from)
    if place is None:
        raise Misconfigured("--model-from reads the models of one log: name it with --trace")
    reading = TraceReading.of(settings)
    with progress() as report, open_objects([place], reading.region) as objects:
        report(f"reading {place}", 0.0)
        found = read_by_model(place, wanted, reading.options, objects)
    others = {name: trace for name, trace in found.items() if name not in served}
    if len(others) == len(found):
        raise Misconfigured(
            f"{place} names {_counted(found)}, and the settings serve {', '.join(served) or 'none by name'}: name "
            "its models under service.serve of --config (docs/report.md#several-models)"
        )
    if others:
        note(f"{place} also names {_counted(others)}, which the settings do not serve: they are left out")
    missing = [name for name in served if name not in found]
    if missing:
        note(f"{place} has no request for {', '.join(missing)}")
    like = next(iter(found.values()))

    def load_of(own: Settings, entry: ServedSettings) -> Workload:
        return workload_on(own, found.get(entry.model) or silent(like, entry.model))

    return load_of


def _counted(found: dict[str, Trace]) -> str:
    """`a (1,200 requests), b (3)`, most first."""
    counts = sorted(
        ((request_count(trace), name) for name, trace in found.items()), key=lambda one: (-one[0], one[1])
    )
    named = ", ".join(
        f"{name} ({count:,}{'' if place else ' requests'})"
        for place, (count, name) in enumerate(counts[:MOST_NAMED])
    )
    return f"{named} and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else named

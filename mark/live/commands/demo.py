"""The demo: five models in Python share instances through a surge and a loss of spot instances.

Their files are copied as a user would write them, and measured here. A slice of generated traffic goes through the
live service, beside its replay; then replays say what else could have served it. `replay_all` replays a whole day
of the traffic under every policy for one shipped model instead, without starting anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from mark.config.policies import ALL
from mark.config.service import OfferingSettings
from mark.config.settings import FaultSettings, InterruptSettings, Settings, load_settings
from mark.config.trace import TraceSettings
from mark.domain.demand import UNIT_S
from mark.domain.figures import plural
from mark.domain.offerings.offering import Market
from mark.live.commands.service_rehearsal import rehearse_service
from mark.offline.own_model.init import CONFIG_FILE
from mark.offline.own_model.init_from_folder import examined_apart, targets_in
from mark.offline.own_model.init_from_target import Examined, InitOptions, write_files
from mark.offline.own_model.predict import call_ms
from mark.offline.simulate import simulate_settings
from mark.offline.simulate_service import simulate_service
from mark.report.files import make_folder, write_whole
from mark.report.formatting import format_count, format_duration
from mark.report.terminal import note, progress
from mark.simulator.traces import generators
from mark.simulator.traces.trace import Trace, write_trace

MODEL = "inception-v3"
"""Of the replayed day, unless one is named."""
FOLDER = Path("out/demo")
SOURCES = "mark.models.demo"
"""Package whose files are copied."""
MEAN_RPS: Mapping[str, float] = {
    "tagger": 30.0,
    "language": 30.0,
    "scorer": 30.0,
    "network": 20.0,
    "forecast": 20.0,
}
"""Requests/s of each model over the slice: enough that an instance which they share is worth its rent."""
LATENCY_MS, TARGET = 500.0, 0.98
MEASURED_S = 2.0
"""For each model."""
SPEED = 10.0
MINUTES = 24
"""Of the trace: two and a half real minutes at that speed."""
HISTORY_S = 3 * 3600.0
"""Before the slice: what forecasters learn from, and the strongest rival is tuned on, five times."""
BEFORE_SURGE = 8
"""Minutes of the slice before its surge."""
SURGE = 2.0
"""A minute with so many times the mean of the minutes before it begins a surge."""
INTERRUPT = InterruptSettings(at_min=12.5, share=0.6)
"""Of one instance that one, of two one. Between two plans: a notice takes a moment, and a plan of the same instant
would miss some."""
FORECASTER = "ridge"
"""Where none is named: it learns in a second. Five mixtures with their networks take many minutes."""


def demonstrate(settings: Settings, *, as_json: bool) -> None:
    """Measure the models, drive the slice through their live service and set it beside replays."""
    out = settings.out or FOLDER
    note(
        f"{plural(len(MEAN_RPS), 'model')} in Python are measured and served on this machine: {MINUTES} minutes "
        f"of generated traffic with a surge, {SPEED:g} times as fast; in minute {INTERRUPT.at_min:g} spot "
        "instances are taken away. Then replays say what else could have served it. Some five minutes on two idle "
        f"processors, without any cloud account. Forecasts are by {settings.forecaster or FORECASTER}."
    )
    chosen = demo_settings(settings, out, measured_models(out))
    note(f"serving {out / CONFIG_FILE}; Ctrl-C ends the service, too")
    compared = rehearse_service(chosen)
    note("replaying what else could have served it; Ctrl-C keeps what is finished")
    simulate_service(chosen, as_json=as_json, compare=True, live=compared)


def measured_models(out: Path) -> Path:
    """Copy the models' files, measure them and write what `mark init` writes; the path of mark.yaml."""
    make_folder(out)
    folder = out / "sources"  # replays write a folder "models"
    for source in files(SOURCES).iterdir():
        if source.name.endswith(".py") and not source.name.startswith("_"):
            write_whole(folder / source.name, source.read_text(encoding="utf-8"))
    targets = targets_in(folder).targets
    options = InitOptions(
        target=str(folder),
        out=out,
        model=None,
        latency_ms=LATENCY_MS,
        share=TARGET,
        memory_gib=None,
        rps=None,
        settings=Settings(),
        seconds=MEASURED_S,
        ask=False,
        force=True,
    )
    found: list[Examined] = []
    with progress() as report:
        for place, target in enumerate(targets):
            report(f"measuring {target}", place / len(targets))
            found.append(examined_apart(replace(options, target=target), None, ()))
    write_files(out, "demo", found, options)
    told = ", ".join(f"{one.needs.name} {call_ms(one.profiles[0].latency_s(1))}" for one in found)
    note(f"one request takes: {told}; measured here")
    return out / CONFIG_FILE


def demo_settings(settings: Settings, out: Path, measured: Path) -> Settings:
    """Settings of the service; its trace is written to the folder, so that any command can use it again.

    measured: mark.yaml of the models. Of `settings` its seed, policies, forecaster and world count, too.
    """
    whole = generators.demo_workload(settings.seed).trace
    surge_at_s = surge_start_s(whole)
    first_s = max(0.0, surge_at_s - HISTORY_S)
    bins = slice(round(first_s / whole.bin_s), round((surge_at_s + MINUTES * UNIT_S) / whole.bin_s))
    trace = replace(whole, start_at=whole.start_at + first_s, rates_rps=whole.rates_rps[bins])
    file = out / "trace.csv.gz"
    write_trace(trace, file)
    slice_ = TraceSettings(file=str(file), start_s=surge_at_s - first_s, duration_s=MINUTES * UNIT_S, speed=SPEED)
    models = load_settings(measured, {})
    serve = tuple(
        one.model_copy(update={"trace": slice_.model_copy(update={"mean_rps": MEAN_RPS[one.model]})})
        for one in models.service.serve
    )
    own = {"name": "demo", "stress": 0.0, "serve": serve, "gateways": 1}  # two cores have enough to do
    return settings.model_copy(
        update={
            "model": None,
            "models": models.models,
            "profiles": models.profiles,
            "market": Market.SPOT,
            "offerings": OfferingSettings(),
            "rollout": settings.rollout.model_copy(update={"nodes": 1}),
            "forecaster": settings.forecaster or FORECASTER,
            "trace": slice_,
            "faults": FaultSettings(stress=0.0, interrupts=(INTERRUPT,)),
            "service": settings.service.model_copy(update=own),
            "out": out,
        }
    )


def surge_start_s(trace: Trace) -> float:
    """Start of the slice: BEFORE_SURGE minutes before the last day's first surge."""
    minutes = trace.rates_rps.reshape(-1, round(UNIT_S / trace.bin_s)).mean(axis=1)
    first = (generators.DEMO_DAYS - 1) * 24 * 60
    for minute in range(first + BEFORE_SURGE, len(minutes) - MINUTES):
        if minutes[minute] > SURGE * float(np.mean(minutes[minute - BEFORE_SURGE : minute])):
            return (minute - BEFORE_SURGE) * UNIT_S
    raise AssertionError("a day of the shipped workload holds some ten surges")


def replay_all(settings: Settings, *, as_json: bool) -> None:
    """Replay a day of the shipped workload under all policies, for `inception-v3` where no model is named."""
    workload = generators.demo_workload(settings.seed)
    chosen = settings.model_copy(
        update={"model": settings.model or MODEL, "policies": (ALL,), "out": settings.out or FOLDER}
    )
    expected = round(workload.trace.mean_between(workload.start_s, workload.end_s) * workload.duration_s)
    note(
        f"{format_duration(workload.duration_s)} of generated traffic, {format_count(expected)} requests for "
        f"{chosen.model}, are replayed under every policy; {format_duration(workload.start_s)} before it "
        "are the history that forecasters learn from. Some minutes, without any cloud account."
    )
    simulate_settings(chosen, as_json=as_json, workload=workload)

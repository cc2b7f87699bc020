"""The demo: a slice of generated traffic, with a surge and a loss of spot instances, through the live service.

The same slice is replayed first; the report shows both side by side. `replay_all` replays a whole day of the
traffic under every policy instead, without starting anything.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mark.config.policies import ALL
from mark.config.service import OfferingSettings
from mark.config.settings import FaultSettings, InterruptSettings, Settings
from mark.config.trace import TraceSettings
from mark.domain.demand import UNIT_S
from mark.domain.figures import plural, share_words
from mark.domain.offering import Market
from mark.live.commands.rehearsal import Rehearsed, rehearse
from mark.offline.experiments import line_up, make_experiment, verdict_rivals
from mark.offline.simulate import simulate_settings
from mark.policies.present import parse_present
from mark.report.files import make_folder
from mark.report.formatting import format_count, format_duration
from mark.report.live.rehearsal import (
    agreement,
    comparison_document,
    comparison_table,
    headline,
    write_comparison,
)
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_verdict import verdict_of
from mark.report.terminal import note, progress, show, show_json
from mark.report.verdict import Verdict, verdict_document
from mark.simulator.results import RunResult
from mark.simulator.traces import generators
from mark.simulator.traces.trace import Trace, write_trace

MODEL = "inception-v3"
FOLDER = Path("out/demo")
SPEED = 20.0
MINUTES = 36
"""Of the trace: a hundred seconds at that speed."""
BEFORE_SURGE = 20
"""Minutes of the slice before its surge."""
SURGE = 2.0
"""A minute with so many times the mean of the minutes before it begins a surge."""
INTERRUPT = InterruptSettings(at_min=8.5, share=0.4)
"""Between two plans: EC2's notices take a moment, and a plan of the same instant would miss some."""
TYPES = ("c5.large", "c5.xlarge", "c5.2xlarge")
"""For that model, where none are named: a fleet of a dozen instances, some of which can be lost."""
FORECASTER = "boosted"
"""Of the slice, where none is named: it learns in seconds, the mixture with its network for minutes."""


def demonstrate(settings: Settings, *, as_json: bool) -> None:
    """Drive the slice through the live service and set it beside its replay."""
    out = settings.out or FOLDER
    chosen = demo_settings(settings, out)
    note(
        f"{MINUTES} minutes of generated traffic with a surge go through the service on this machine, "
        f"{SPEED:g} times as fast; {share_words(INTERRUPT.share)} of its spot instances are taken away in minute "
        f"{INTERRUPT.at_min:g}. Then replays say what else could have served it. Some five minutes, without any "
        f"cloud account. Forecasts are by {chosen.forecaster}."
    )
    rehearsed = rehearse(chosen)
    verdict = _verdict(chosen, rehearsed.result)
    document = comparison_document(
        rehearsed.live,
        rehearsed.replay,
        live_orders=rehearsed.live_orders,
        replayed_orders=rehearsed.replay_orders,
    )
    page = write_comparison(
        out,
        document,
        live=rehearsed.live.series,
        replayed=rehearsed.result,
        title="Live beside its replay",
        command="mark demo",
    )
    if as_json:
        show_json({**document, "load": rehearsed.load, "verdict": verdict_document(verdict)})
        return
    show(headline(document), "", comparison_table(document), "")
    _show(rehearsed)
    show(f"report: {page}", "", *filter(None, [verdict.sentence, verdict.how]), agreement(document))


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


def _verdict(settings: Settings, ours: RunResult) -> Verdict:
    """The other ways to serve the slice: replays of it beside ours, with the same surge and interruptions."""
    experiment = make_experiment(settings)
    now = parse_present(settings.simulate.now)
    rivals = verdict_rivals(experiment, now)
    lineup = line_up(settings.model_copy(update={"policies": ()}), experiment, rivals)
    for text in lineup.left_out:
        note(text)
    with progress() as report:
        others = [experiment.run(policy, progress=report) for policy in lineup.policies]
    return verdict_of([ComparedRun(result=result) for result in (ours, *others)], now)


def demo_settings(settings: Settings, out: Path) -> Settings:
    """Settings of the slice; its trace is written to the folder, so that any command can use it again."""
    make_folder(out)
    trace = generators.demo_workload(settings.seed).trace
    file = out / "trace.csv.gz"
    write_trace(trace, file)
    model = settings.model or MODEL
    types = settings.offerings.types or (TYPES if model == MODEL else ())
    return settings.model_copy(
        update={
            "model": model,
            "market": Market.SPOT,
            "offerings": OfferingSettings(types=types),
            "policies": settings.policies,
            "forecaster": settings.forecaster or FORECASTER,
            "trace": TraceSettings(
                file=str(file), start_s=surge_start_s(trace), duration_s=MINUTES * UNIT_S, speed=SPEED
            ),
            "faults": FaultSettings(stress=0.0, interrupts=(INTERRUPT,)),
            "service": settings.service.model_copy(update={"name": "demo", "stress": 0.0, "serve": ()}),
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


def _show(rehearsed: Rehearsed) -> None:
    """Print the clients' view in one line."""
    load = rehearsed.load
    by = ", ".join(f"{count:,} by {who}" for who, count in load["by"].items() if count and who != "shed")
    show(
        f"{plural(load['sent'], 'request')} sent, {load['answered']:,} answered ({by}), {load['by']['shed']} shed"
    )

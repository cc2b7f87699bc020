"""The demo: a generated day of traffic, every policy, one report."""

from __future__ import annotations

from pathlib import Path

from mark.app.settings import Settings
from mark.app.simulating import simulate_settings
from mark.app.terminal import note
from mark.app.wiring import ALL
from mark.report.wording import count_words, duration_words
from mark.simulator import generators

MODEL = "inception-v3"
FOLDER = Path("out/demo")


def demonstrate(settings: Settings, *, as_json: bool) -> None:
    """Replay the shipped workload under all policies, for `inception-v3` where no other model is named."""
    workload = generators.demo_workload(settings.seed)
    asked = settings.model_copy(
        update={"model": settings.model or MODEL, "policies": (ALL,), "out": settings.out or FOLDER}
    )
    expected = round(workload.trace.mean_between(workload.start_s, workload.end_s) * workload.duration_s)
    note(
        f"{duration_words(workload.duration_s)} of generated traffic, {count_words(expected)} requests for "
        f"{asked.model}, are replayed under every policy; {duration_words(workload.start_s)} before it "
        "are the history that forecasters learn from. Some minutes, without any cloud account."
    )
    simulate_settings(asked, as_json=as_json, workload=workload)

"""The paper's experiments, by name."""

from __future__ import annotations

from mark.app.plugins import build_forecaster
from mark.app.settings import Settings
from mark.app.terminal import progress, show, show_json, show_wide
from mark.app.wiring import usable_cache
from mark.domain.errors import unknown
from mark.simulator.compiled import compiled_kernel
from mark.studies.registry import STUDIES, StudyContext


def reproduce_study(name: str, settings: Settings, *, as_json: bool) -> None:
    """Run a study and print it."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    cache = usable_cache()
    with progress() as report:
        report(f"reproducing {name}", 0.0)
        study = STUDIES[name](
            StudyContext(
                kernel=compiled_kernel(cache),
                build_forecaster=build_forecaster,
                cache_dir=cache,
                seed=settings.seed,
                trace=settings.trace.file,
                progress=report,
            )
        )
    if as_json:
        show_json(study.document())
        return
    for table in study.tables():
        show_wide(table)
        show("")
    for text in study.document()["assumptions"]:
        show(f"assumed: {text}")

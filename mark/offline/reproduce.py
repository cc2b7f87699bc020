"""The paper's experiments, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from mark.config.policies import usable_cache
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured, unknown
from mark.offline.trace_source import TraceReading, given_trace, read_place
from mark.plugins.load import build_forecaster
from mark.report.files import write_json, write_whole
from mark.report.terminal import note, progress, show, show_json
from mark.simulator.engine.compiled import compiled_central_kernel, compiled_kernel, compiled_variant_kernel
from mark.studies.registry import STUDIES, Study, StudyContext


def reproduce_study(
    name: str, settings: Settings, *, pairs: Path | None = None, others: Sequence[Path] = (), as_json: bool
) -> None:
    """Run a study, print it, and with `out` write its document and its plots there."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    if pairs is not None and not name.startswith("hetsev-fig"):
        raise Misconfigured(f"{name} reads no pairs: leave out --pairs, or name hetsev-fig5, -fig6 or -fig7")
    if others and not name.endswith("-loads"):
        raise Misconfigured(
            f"{name} judges on no other trace: leave out --others, or name fang-loads or superserve-loads"
        )
    with progress() as report:
        report(f"reproducing {name}", 0.0)
        study = STUDIES[name](study_context(settings, pairs=pairs, others=others, report=report))
    if as_json:
        show_json(study.document())
    else:
        _print(study)
    if settings.out is not None:
        _write(study, settings.out)


def study_context(
    settings: Settings,
    *,
    pairs: Path | None = None,
    others: Sequence[Path] = (),
    report: Callable[[str, float], None] = lambda *_: None,
) -> StudyContext:
    """Input of a study by these settings: seed, trace, and the user's cache. others: traces beside it."""
    cache, reading = usable_cache(), TraceReading.of(settings)
    trace, besides = given_trace(settings), tuple(read_place(str(path), reading) for path in others)
    names = Counter(one.name for one in (trace, *besides) if one is not None)
    if twice := [name for name, count in names.items() if count > 1]:
        raise Misconfigured(f"two traces are called {twice[0]}: the study tells them apart by it, so rename one")
    return StudyContext(
        kernel=compiled_kernel(cache),
        central_kernel=lambda: compiled_central_kernel(cache),
        variant_kernel=lambda: compiled_variant_kernel(cache),
        build_forecaster=build_forecaster,
        cache_dir=cache,
        seed=settings.seed,
        trace=trace,
        pairs=pairs,
        others=besides,
        progress=report,
    )


def _print(study: Study) -> None:
    for table in study.tables():
        show(table)
        show("")
    for text in study.provenance:
        show(text)
    for text in study.assumptions:
        show(f"assumed: {text}")


def _write(study: Study, out: Path) -> None:
    write_json(out / f"{study.name}.json", study.document())
    for name, svg in study.figures().items():
        write_whole(out / f"{name}.svg", svg)
        note(f"plot: {out / name}.svg")

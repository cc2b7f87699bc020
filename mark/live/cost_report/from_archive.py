"""A service as its bucket keeps it: `mark report --archive` on what was downloaded of it, after its store is gone.

Of each model the newest figures are read, and its journal; what they cost is said by the settings that are given.
What happened after the last full hour is not in them.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from mark.accounting.client_totals import traffic_of
from mark.accounting.hourly_totals import HourlyMark, Totals, load_marks, marks_key
from mark.accounting.load_history import load_key
from mark.adapters import adapter_of
from mark.config.settings import Settings
from mark.domain.billing.costs import LedgerRecord, Transition, UsageRollup
from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured
from mark.domain.fleet.host_spec import SHARED
from mark.domain.load.traffic import ModelTraffic
from mark.live.archived_load import archived_segments, segment_lines
from mark.live.models import make_live_models, service_spec
from mark.service_spec import ServedModel
from mark.store.snapshot import Snapshot, StoredModel

FIGURES = "figures.json.gz"
REAL = ("billed", "gib_s", "shared_usd", "accuracy_sum")
COUNTS = tuple(field.name for field in fields(Totals) if field.name not in ("requests", "zoned", *REAL))
"""Totals that are whole numbers of a `ModelTraffic`, which has zones by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A model's figures as they were kept last, and the files of its journal, oldest first.

    `books` are the documents of the store that hold its marks and its load, by their names.
    """

    marks: tuple[HourlyMark, ...]
    ledger: LedgerRecord
    books: Mapping[str, dict[str, Any]]
    segments: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedService(Snapshot):
    """A service as of the last full hour that was kept. `files`: of each model's journal, oldest first."""

    files: Mapping[str, tuple[Path, ...]]

    def journal_segments(self, model: str) -> Sequence[int]:
        """Numbers of the files of its journal."""
        return range(len(self.files[model]))

    def journal_lines(self, model: str, segment: int | None = None) -> Iterator[bytes]:
        """The lines of one of them, the last one by default."""
        return segment_lines(self.files[model][-1 if segment is None else segment])


def open_archive(settings: Settings, folder: Path) -> ArchivedService:
    """The service of these settings as a folder has it. Misconfigured where it lacks a model's figures."""
    provisioned = settings.rollout.functions.provisioned
    spec = service_spec(settings, make_live_models(settings))
    shares = spec.shares and any(_model_of(path) == SHARED for path in folder.rglob(FIGURES))
    models = tuple(_provisioned(model, provisioned) for model in spec.models)
    spec = replace(spec, models=models, shares=shares)
    figures = {model.name: _figures(folder, spec.name, model.name) for model in spec.billed}
    return ArchivedService(
        at=max(found.marks[-1].at for found in figures.values()),
        described=spec,
        anchor=ClockAnchor(),  # instants in the archive are the service's
        models={
            name: StoredModel(traffic=_traffic(name, found.marks[-1]), ledger=found.ledger, segments={})
            for name, found in figures.items()
        },
        documents={name: book for found in figures.values() for name, book in found.books.items()},
        files={name: found.segments for name, found in figures.items()},
    )


def _traffic(model: str, mark: HourlyMark) -> ModelTraffic:
    """Totals at a mark."""
    counts = {name: round(getattr(mark.totals, name)) for name in COUNTS}
    real = {name: getattr(mark.totals, name) for name in REAL}
    return ModelTraffic(model=model, **counts, **real, clients=traffic_of(mark.clients))


def _provisioned(served: ServedModel, count: int) -> ServedModel:
    """With the environments that the rollout keeps ready, which are billed."""
    return replace(served, overflow=served.overflow and replace(served.overflow, provisioned=count))


def _figures(folder: Path, service: str, model: str) -> Figures:
    """The newest ones: they reach back as far as a store does."""
    found = (path for path in folder.rglob(FIGURES) if _model_of(path) == model)
    newest = max(found, key=lambda path: path.parts[-2], default=None)
    if newest is None:
        raise Misconfigured(
            f"{folder} holds no figures of {model}: `aws s3 sync s3://BUCKET/journal/{service} {folder}` brings "
            "them from the service's bucket, and --config says what it served"
        )
    try:
        told = json.loads(gzip.decompress(newest.read_bytes()))
        marks = load_marks(told["marks"])
        transitions = adapter_of(tuple[Transition, ...]).validate_python(told["transitions"])
        rollups = adapter_of(tuple[UsageRollup, ...]).validate_python(told.get("rollups", ()))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise Misconfigured(f"{newest} cannot be read, download it again: {str(error).splitlines()[0]}") from error
    if not marks:
        raise Misconfigured(f"{newest} holds no full hour yet")
    books = {marks_key(model): told["marks"], load_key(model): told.get("load")}
    return Figures(
        marks=marks,
        ledger=LedgerRecord(
            transitions=tuple(sorted(transitions, key=lambda transition: transition.at)), rollups=rollups
        ),
        books={name: book for name, book in books.items() if book is not None},
        segments=tuple(path for path in archived_segments(folder) if _model_of(path) == model),
    )


def _model_of(path: Path) -> str:
    """.../MODEL/DAY/FILE."""
    return path.parts[-3] if len(path.parts) > 2 else ""

"""Copies journals from the store into the service's bucket, where they outlive it.

A segment that is closed is copied once, the one that is written to each hour of the service's clock, with the
figures that a report needs beside it. Names come from what is copied: a copy that is made twice is the same one.
What fails is tried again, and told by status until it is done.
"""

from __future__ import annotations

import gzip
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mark.accounting.hourly_totals import dump_marks, first_mark, marks_key
from mark.accounting.load_history import load_key
from mark.aws.archive import figures_key, journal_key, packed, put_object, snapshot_key
from mark.aws.session import Aws
from mark.controller.hosts.placement_journal import read_placements
from mark.controller.journal import read_journal
from mark.domain.documents import json_text
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.host_spec import SHARED
from mark.ports import Clock
from mark.store.published_status import ARCHIVE, MODEL, RESOURCES, ArchiveStatus, PublishedModel
from mark.store.service import ServiceStore
from mark.store.snapshot import take_snapshot

log = logging.getLogger(__name__)

OPEN_EACH_S = 3600.0
"""Of the service's clock, between two copies of the segment that is written to."""
AGAIN_S = 60.0
"""Of the service's clock, until what failed is tried again."""
ZIPPED = "application/gzip"


class Archivist:
    """Copies what there is to copy, while a controller acts; the one before left in the store what it had done."""

    def __init__(self, *, store: ServiceStore, aws: Aws, clock: Clock) -> None:
        self._store, self._aws, self._clock = store, aws, clock
        self._again_at = -math.inf
        self._began_at = clock.now()

    def poll(self) -> None:
        """Copy what is due, where the service has a bucket."""
        resources, now = RESOURCES.read(self._store), self._clock.now()
        if resources is None or not resources.bucket or now < self._again_at:
            return
        before = ARCHIVE.read(self._store) or ArchiveStatus()
        copied, whole_at = dict(before.copied), self._began_at if before.whole_at is None else before.whole_at
        spec = self._store.spec()
        models = [model.name for model in spec.billed]
        whole = now >= whole_at + OPEN_EACH_S
        todo = {model: self._closed(model, copied.get(model, 0)) for model in models}
        if not whole and not any(todo.values()):
            return
        failed = None
        try:
            for model, segments in todo.items():
                self._copy(resources.bucket, model, segments, copied, whole=whole)
            if whole and resources.snapshot:
                self._copy_snapshot(resources.bucket, now)
        except MarkError as error:
            log.warning("the journal cannot be archived and is tried again later", extra={"why": str(error)})
            failed, self._again_at = str(error), now + AGAIN_S
        done_at = now if whole and failed is None else whole_at
        told = ArchiveStatus(bucket=resources.bucket, at=now, copied=copied, failed=failed, whole_at=done_at)
        ARCHIVE.write(self._store, told)

    def _copy(
        self, bucket: str, model: str, segments: Sequence[int], copied: dict[str, int], *, whole: bool
    ) -> None:
        """Closed segments, each noted in `copied`; and with `whole` all that is there by now."""
        for segment in segments:
            self._copy_segment(bucket, model, segment)
            copied[model] = segment
        kept = self._store.journal_segments(model)
        if whole and kept:
            self._copy_segment(bucket, model, kept[-1])
        if whole and model == SHARED:
            self._copy_figures(bucket, model, self._began())
        elif whole and kept:
            self._copy_figures(bucket, model, self._store.status(marks_key(model)))

    def _began(self) -> Mapping[str, Any]:
        """Marks of shared instances: they take no requests, and say when the service began."""
        began_at = (MODEL.read(self._store, SHARED) or PublishedModel()).began_at
        return dump_marks((first_mark(self._clock.now() if began_at is None else began_at),))

    def _closed(self, model: str, copied: int) -> list[int]:
        """Segments that are closed, there, and not copied."""
        return [segment for segment in self._store.journal_segments(model)[:-1] if segment > copied]

    def _copy_segment(self, bucket: str, model: str, segment: int) -> None:
        """One that nothing was written to yet, or that was dropped meanwhile, is left out.

        A segment is named after its header and its first tick: one whose header cannot be read has no name.
        """
        try:
            lines = list(self._store.journal_lines(model, segment))
        except Misconfigured:
            return
        try:
            begins = _placements_begin(lines) if model == SHARED else _ticks_begin(lines)
        except Misconfigured as error:
            log.warning(
                "an unreadable segment is not archived",
                extra={"model": model, "segment": segment, "why": str(error)},
            )
            return
        if begins is not None:
            at, run = begins
            key = journal_key(self._store.service, model, at=at, run=run, segment=segment)
            put_object(self._aws.objects, bucket, key, packed(lines), content_type=ZIPPED)

    def _copy_snapshot(self, bucket: str, now: float) -> None:
        """All that a report reads, for a function that cannot reach the store."""
        key, packed_store = snapshot_key(self._store.service), take_snapshot(self._store, now)
        put_object(self._aws.objects, bucket, key, packed_store, content_type=ZIPPED)

    def _copy_figures(self, bucket: str, model: str, marks: Mapping[str, Any] | None) -> None:
        record = self._store.ledger(model)
        figures = {
            "marks": marks,
            "load": self._store.status(load_key(model)),
            "transitions": [asdict(transition) for transition in record.transitions],
            "rollups": [asdict(rollup) for rollup in record.rollups],
        }
        body = gzip.compress(json_text(figures).encode(), mtime=0)
        key = figures_key(self._store.service, model, self._clock.now())
        put_object(self._aws.objects, bucket, key, body, content_type=ZIPPED)


def _ticks_begin(lines: Sequence[bytes]) -> tuple[float, str] | None:
    """When a segment's first tick was, and its run; None without any. Misconfigured without a header."""
    header, ticks = read_journal(lines, skip=lambda _: None)
    first = next(ticks, None)
    return None if first is None else (first.seen.now, header.run)


def _placements_begin(lines: Sequence[bytes]) -> tuple[float, str] | None:
    """The same of a segment of placements."""
    header, decisions = read_placements(lines, skip=lambda _: None)
    first = next(decisions, None)
    return None if first is None else (first.at, header.run)


def may_drop(store: ServiceStore, model: str, segment: int) -> bool:
    """True for a segment that is copied, or where there is no bucket to copy it to."""
    resources = RESOURCES.read(store)
    archive = ARCHIVE.read(store) or ArchiveStatus()
    return segment < 1 or resources is None or not resources.bucket or segment <= archive.copied.get(model, 0)

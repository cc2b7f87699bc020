"""A service as a report reads it, in one piece: for whoever cannot reach its store.

What the journal says of the last day is in its last segments; no more are taken.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from mark.adapters import adapter_of
from mark.domain.billing.costs import LedgerRecord
from mark.domain.clock import ClockAnchor
from mark.domain.documents import plain
from mark.domain.errors import Misconfigured
from mark.domain.load.traffic import ModelTraffic
from mark.service_spec import ServiceSpec
from mark.store.keys import MODEL_DOCUMENTS
from mark.store.service import ServiceStore

SEGMENTS = 2
"""Of each journal: a segment takes a day to fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """Stored data of one model. `segments`: lines of the journal by the segment's number."""

    traffic: ModelTraffic
    ledger: LedgerRecord
    segments: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A `mark.report.cost.archive_reader.ArchiveReader`; what is put into it is forgotten with it.

    `at`: when it was taken, by the service's clock.
    """

    at: float
    described: ServiceSpec
    anchor: ClockAnchor
    models: Mapping[str, StoredModel]
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)

    def spec(self) -> ServiceSpec:
        """The service's models and how they are served."""
        return self.described

    def clock(self) -> ClockAnchor:
        """The service's clock."""
        return self.anchor

    def traffic(self, model: str) -> ModelTraffic:
        """Counts of a model from all gateways."""
        return self.models[model].traffic

    def ledger(self, model: str) -> LedgerRecord:
        """Record of a model's instances."""
        return self.models[model].ledger

    def journal_segments(self, model: str) -> Sequence[int]:
        """The numbers of the journal's segments that were taken."""
        return sorted(self.models[model].segments)

    def journal_lines(self, model: str, segment: int | None = None) -> Iterator[bytes]:
        """The lines of a segment, the last one by default. Misconfigured where there is none."""
        kept = self.models[model].segments
        number = max(kept, default=0) if segment is None else segment
        if number not in kept:
            raise Misconfigured(f"the snapshot has no journal of {model} numbered {number}")
        yield from (line.encode() for line in kept[number])

    def status(self, name: str) -> dict[str, Any] | None:
        """The document of that name, if there is one."""
        return self.documents.get(name)

    def put_status(self, name: str, document: Mapping[str, Any]) -> None:
        """Remember it as long as this lasts."""
        self.documents[name] = dict(document)


def take_snapshot(store: ServiceStore, at: float) -> bytes:
    """The snapshot of a store, packed."""
    spec = store.spec()
    names = [served.name for served in spec.billed]
    documents = [f"{kind}:{model}" for model in names for kind in MODEL_DOCUMENTS]
    snapshot = Snapshot(
        at=at,
        described=spec,
        anchor=store.clock(),
        models={model: _stored(store, model) for model in names},
        documents={name: found for name in documents if (found := store.status(name)) is not None},
    )
    return gzip.compress(to_json(snapshot, inf_nan_mode="constants", fallback=plain), mtime=0)


def read_snapshot(packed: bytes) -> Snapshot:
    """The snapshot again. Misconfigured where another version of this program wrote it."""
    try:
        return adapter_of(Snapshot).validate_json(gzip.decompress(packed))
    except (ValidationError, OSError, EOFError, zlib.error, json.JSONDecodeError) as error:
        raise Misconfigured(
            f"the service's snapshot cannot be read ({str(error).splitlines()[0]}); wait for the next hour's"
        ) from error


def _stored(store: ServiceStore, model: str) -> StoredModel:
    segments = store.journal_segments(model)[-SEGMENTS:]
    return StoredModel(
        traffic=store.traffic(model),
        ledger=store.ledger(model),
        segments={
            number: tuple(line.decode() for line in store.journal_lines(model, number)) for number in segments
        },
    )

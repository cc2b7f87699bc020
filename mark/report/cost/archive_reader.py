"""Source of a report: a service's store, or the archive in its bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from mark.domain.billing.costs import LedgerRecord
from mark.domain.clock import ClockAnchor
from mark.domain.load.traffic import ModelTraffic
from mark.service_spec import ServiceSpec


class ArchiveReader(Protocol):
    """The part of a store (`mark.store.service`) that reports and replays read."""

    def spec(self) -> ServiceSpec:
        """The service's models and how they are served."""
        ...

    def clock(self) -> ClockAnchor:
        """The service's clock."""
        ...

    def traffic(self, model: str) -> ModelTraffic:
        """Counts of a model from all gateways."""
        ...

    def ledger(self, model: str) -> LedgerRecord:
        """Record of a model's instances, as far as it is kept."""
        ...

    def journal_segments(self, model: str) -> Sequence[int]:
        """The numbers of the journal's segments that are kept."""
        ...

    def journal_lines(self, model: str, segment: int | None = None) -> Iterator[bytes]:
        """The lines of a segment, a header first. Misconfigured where there is none."""
        ...

    def status(self, name: str) -> dict[str, Any] | None:
        """The document of that name, if there is one."""
        ...

    def put_status(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document under a name."""
        ...

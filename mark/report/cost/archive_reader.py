"""What a report reads of a service: its store, or what was kept of it in its bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from mark.controller.service import ServiceSpec
from mark.domain.clock import ClockAnchor
from mark.domain.costs import LedgerRecord
from mark.domain.traffic import ModelTraffic


class ArchiveReader(Protocol):
    """As much of a store (`mark.store.service`) as reports and replays ask for."""

    def spec(self) -> ServiceSpec:
        """What is served."""
        ...

    def clock(self) -> ClockAnchor:
        """The service's clock."""
        ...

    def traffic(self, model: str) -> ModelTraffic:
        """What gateways saw of a model in all."""
        ...

    def ledger(self, model: str) -> LedgerRecord:
        """What a model's instances did, as it is kept."""
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

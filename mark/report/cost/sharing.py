"""Cost of sharing a pool among gateways, kept beside the service's state.

With several gateways each has a central queue for its share of the agents (`docs/papers.md`). What that costs is
known by replay alone: the same pool with one queue for all of it, and with one a gateway.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from mark.report.cost.archive_reader import ArchiveReader


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingCost:
    """The most queries/s of which the objective's share is in time, from one queue and from one a gateway."""

    gateways: int
    #: Instances by offering: the ready ones when it was replayed.
    pool: tuple[tuple[str, int], ...]
    #: Name of the sizes: `measured`, or as the settings name them.
    sizes: str
    #: Queries of each replay.
    queries: int
    one_queue_qps: float
    shared_qps: float

    @property
    def lost(self) -> float | None:
        """Share of the rate that sharing costs, below 0 by chance alone; None where the pool keeps no rate."""
        return 1 - self.shared_qps / self.one_queue_qps if self.one_queue_qps else None


_COST = TypeAdapter(SharingCost | None)


def sharing_cost(store: ArchiveReader, model: str) -> SharingCost | None:
    """Cost that was kept last; None where none was, or nothing is shared any more."""
    document = store.status(_name(model))
    return None if document is None else _COST.validate_python(document["cost"])


def keep_sharing_cost(store: ArchiveReader, model: str, found: SharingCost | None) -> None:
    """Keep it in place of the one before; None where nothing is shared any more."""
    store.put_status(_name(model), {"cost": _COST.dump_python(found, mode="json")})


def _name(model: str) -> str:
    return f"sharing:{model}"

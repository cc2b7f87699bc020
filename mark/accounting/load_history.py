"""The load of the last forty days, minute by minute, kept beside a journal that reaches less far back. Pure.

It is kept as whole counts: of each minute, and of its largest window of 5 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mark.domain.demand import UNIT_S, WINDOW_S, Demand

KEEP_UNITS = 40 * 24 * 60


def load_key(model: str) -> str:
    """The name under which a model's load is kept in the store."""
    return f"load:{model}"


def dump_load(load: Demand) -> dict[str, Any]:
    """The load as it is kept."""
    return {
        "end_at": load.end_at,
        "counts": [round(rate * UNIT_S) for rate in load.mean_rps],
        "peaks": [round(rate * WINDOW_S) for rate in load.max_rps],
    }


def read_load(document: Mapping[str, Any] | None) -> Demand | None:
    """The load that was kept, if any was."""
    if document is None:
        return None
    return Demand(
        end_at=document["end_at"],
        mean_rps=tuple(count / UNIT_S for count in document["counts"]),
        max_rps=tuple(count / WINDOW_S for count in document["peaks"]),
    )


def start_of(demand: Demand) -> float:
    """The start of its first unit, service time."""
    return demand.end_at - len(demand) * demand.unit_s


def latest(demand: Demand, since: float) -> Demand:
    """The units from `since` on."""
    units = min(len(demand), max(0, round((demand.end_at - since) / demand.unit_s)))
    return replace(
        demand, mean_rps=demand.mean_rps[len(demand) - units :], max_rps=demand.max_rps[len(demand) - units :]
    )


def joined(earlier: Demand | None, later: Demand) -> Demand:
    """Both as one, as far back as KEEP_UNITS; where they overlap or one is missing, `later` counts.

    What lies between them was not seen by anybody: the earlier part is dropped then.
    """
    if earlier is None:
        return later
    units = round((start_of(later) - start_of(earlier)) / later.unit_s)
    if units <= 0 or units > len(earlier):
        return later
    return Demand(
        end_at=later.end_at,
        mean_rps=(*earlier.mean_rps[:units], *later.mean_rps)[-KEEP_UNITS:],
        max_rps=(*earlier.max_rps[:units], *later.max_rps)[-KEEP_UNITS:],
    )

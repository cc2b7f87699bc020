"""The cost of what stands around a fleet: before a deploy, and beside a plan."""

from __future__ import annotations

import math

from mark.catalog.billing import HOURS_PER_MONTH, SECONDS_PER_HOUR, bill_shared
from mark.config.footprint import ShapeAdvice
from mark.domain.billing.costs import BillLine
from mark.domain.billing.footprint import Footprint
from mark.report.formatting import format_rps

NAMED = 4
"""Lines of the bill that are named; the others are one sum."""


def overhead_of_month(footprint: Footprint) -> tuple[BillLine, ...]:
    """The bill of a month in which nothing comes, dearest line first."""
    lines = bill_shared(footprint, 0.0, HOURS_PER_MONTH * SECONDS_PER_HOUR)
    return tuple(sorted(lines, key=lambda line: (-line.usd, line.item)))


def overhead_usd_per_month(footprint: Footprint) -> float:
    """USD of that month."""
    return sum(line.usd for line in overhead_of_month(footprint))


def overhead_usd_per_hour(footprint: Footprint) -> float:
    """USD of an hour in which nothing comes."""
    return overhead_usd_per_month(footprint) / HOURS_PER_MONTH


def overhead_line(footprint: Footprint) -> str:
    """The sum of a month, and its largest parts."""
    largest = overhead_of_month(footprint)
    parts = [f"{line.item} {line.usd:.2f}" for line in largest[:NAMED]]
    rest = sum(line.usd for line in largest[NAMED:])
    return (
        f"Beside instances and Lambda the service costs {overhead_usd_per_month(footprint):.2f} USD a month: "
        f"{', '.join(parts)}, all else {rest:.2f} (docs/costs.md)."
    )


def shape_line(advice: ShapeAdvice) -> str:
    """The shape that carries the peak, its machines, and up to which load the smaller one would do."""
    footprint, peak = advice.footprint, advice.peak
    each, store = footprint.gateways, footprint.store
    machines = f"{each.count} x {each.instance_type}{' (one to spare)' if each.spare else ''}"
    carried = f"Two lean nodes carry {format_rps(advice.lean_rps)} such requests/s for long"
    if store is None:
        return f"{carried}: at {format_rps(peak.rps)} rollout.shape lean does ({machines})."
    return (
        f"{carried}. At {format_rps(peak.rps)} rollout.shape ha takes {machines} and {store.count} x "
        f"{store.node_type}, {overhead_usd_per_month(footprint):.2f} USD a month: write shape: ha and peak_rps: "
        f"{math.ceil(peak.rps)}."
    )


def shape_document(advice: ShapeAdvice) -> dict[str, object]:
    """The same as `mark plan --json` has it."""
    store = advice.footprint.store
    return {
        "shape": advice.shape,
        "peak_rps": advice.peak.rps,
        "peak_mib_per_s": advice.peak.mib_per_s,
        "lean_rps": advice.lean_rps,
        "gateway_type": advice.footprint.gateways.instance_type,
        "gateways": advice.footprint.gateways.count,
        "store_type": None if store is None else store.node_type,
        "overhead_usd_per_month": overhead_usd_per_month(advice.footprint),
    }

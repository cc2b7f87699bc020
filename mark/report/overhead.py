"""The cost of what stands around a fleet, in one line: before a deploy, and beside a plan."""

from __future__ import annotations

from mark.catalog.billing import HOURS_PER_MONTH, SECONDS_PER_HOUR, bill_shared
from mark.domain.footprint import Footprint

NAMED = 4
"""Lines of the bill that are named; the others are one sum."""


def overhead_usd_per_month(footprint: Footprint) -> float:
    """USD of a month in which nothing comes."""
    return sum(line.usd for line in bill_shared(footprint, 0.0, HOURS_PER_MONTH * SECONDS_PER_HOUR))


def overhead_line(footprint: Footprint) -> str:
    """The sum of a month, and its largest parts."""
    lines = bill_shared(footprint, 0.0, HOURS_PER_MONTH * SECONDS_PER_HOUR)
    largest = sorted(lines, key=lambda line: (-line.usd, line.item))
    parts = [f"{line.item} {line.usd:.2f}" for line in largest[:NAMED]]
    rest = sum(line.usd for line in largest[NAMED:])
    return (
        f"Beside instances and Lambda the service costs {sum(line.usd for line in lines):.2f} USD a month: "
        f"{', '.join(parts)}, all else {rest:.2f} (docs/costs.md)."
    )

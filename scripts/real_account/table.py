"""Assumed beside measured, and what to set; expected beside billed. Pure.

A 95 % point needs more samples than a run of an hour has. With fewer than `ENOUGH` the spread stays the assumed
one around the measured median, and never lies below what was seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import numpy as np

from mark.domain.offerings.times import LognormalTime

ENOUGH = 20
"""Samples from which on a 95 % point is measured: one of twenty lies above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Something that was assumed, in seconds, and what was measured of it."""

    name: str
    assumed: str
    #: The setting or the constant that says so.
    where: str
    measured_s: tuple[float, ...]
    #: The median and the 95 % point that were assumed, where `setting` takes both.
    spread: LognormalTime | None = None
    #: A part of `simulate` that takes the measurement: `launch`, `wake`.
    setting: str = ""


class Part(StrEnum):
    """Parts of the bill."""

    SPOT = "spot instances"
    ON_DEMAND = "instances on demand, the node among them"
    LAMBDA = "Lambda"
    ELSE = "all else"


def advised(quantity: Quantity) -> LognormalTime | None:
    """The times to set; None where nothing was measured, or no setting takes them."""
    assumed, found = quantity.spread, quantity.measured_s
    if assumed is None or not quantity.setting or not found:
        return None
    half = float(median(found))
    if len(found) >= ENOUGH:
        return LognormalTime(median_s=half, p95_s=float(np.percentile(found, 95)))
    return LognormalTime(median_s=half, p95_s=max(half * assumed.p95_s / assumed.median_s, *found, half))


def snippet(quantities: Iterable[Quantity]) -> str:
    """Settings that replace what was assumed; empty where nothing does."""
    found = [(one.setting, times) for one in quantities if (times := advised(one)) is not None]
    lines = [f"  {name}: {{median_s: {times.median_s:.3g}, p95_s: {times.p95_s:.3g}}}" for name, times in found]
    return "\n".join(["simulate:", *lines]) if lines else ""


def table(quantities: Iterable[Quantity]) -> str:
    """A Markdown table, a row for each."""
    rows = [
        (one.name, one.assumed, one.where, *_measured(one.measured_s), str(len(one.measured_s)))
        for one in quantities
    ]
    return markdown(("quantity", "assumed", "by", "median", "90 %", "n"), rows)


def _measured(found: Sequence[float]) -> tuple[str, str]:
    if not found:
        return "not measured", ""
    return f"{median(found):.3g} s", f"{np.percentile(found, 90):.3g} s"


def part_of(service: str, usage_type: str) -> Part:
    """The part of the bill that a usage type of Cost Explorer is; regions stand before it: `EUC1-BoxUsage:...`."""
    if service == "AWS Lambda":
        return Part.LAMBDA
    if re.search(r"\bSpotUsage:", usage_type):
        return Part.SPOT
    return Part.ON_DEMAND if re.search(r"\bBoxUsage:", usage_type) else Part.ELSE


def by_part(billed: Mapping[tuple[str, str], float]) -> dict[Part, float]:
    """Costs by service and usage type, summed; USD."""
    found = dict.fromkeys(Part, 0.0)
    for names, usd in billed.items():
        found[part_of(*names)] += usd
    return found


def bill_table(expected: Mapping[Part, float], billed: Mapping[Part, float]) -> str:
    """A Markdown table of both, and their sum."""
    rows = [(part.value, expected.get(part, 0.0), billed.get(part, 0.0)) for part in Part]
    rows.append(("sum", sum(expected.values()), sum(billed.values())))
    return markdown(
        ("part", "expected, USD", "billed, USD", "difference"),
        [(name, f"{ours:.4f}", f"{theirs:.4f}", _off(ours, theirs)) for name, ours, theirs in rows],
    )


def _off(expected: float, billed: float) -> str:
    return f"{billed / expected - 1:+.0%}" if expected > 0 else "" if billed == 0 else "not expected"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

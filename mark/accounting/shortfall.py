"""Load that a fleet which nobody asked would not have carried, by minutes beside its ready capacity. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import dropwhile, pairwise
from typing import NamedTuple


class Shortfall(NamedTuple):
    """Requests/s of all minutes, and of these at least and at most so many beyond what instances carried."""

    came: float = 0.0
    least: float = 0.0
    most: float = 0.0
    minutes: int = 0


def shortfall(
    mean_rps: Sequence[float], max_rps: Sequence[float], capacity_rps: Iterable[float | None]
) -> Shortfall:
    """Mean and highest rate of each minute, and what was ready at its end; what was ready before counts, too.

    Rates within a minute lie between 0 and the highest: least is beyond where all are the mean, most where they
    are 0 or the highest. Minutes before the first ready instance are left out, and those without a known capacity.
    """
    minutes = dropwhile(lambda one: not one[2], zip(mean_rps, max_rps, capacity_rps, strict=False))
    known = [(mean, top, capacity) for mean, top, capacity in minutes if capacity is not None]
    least = most = 0.0
    for (_, _, before), (mean, top, capacity) in pairwise([*known[:1], *known]):
        least += max(0.0, mean - max(before, capacity))
        most += mean * max(0.0, top - min(before, capacity)) / top if top else 0.0
    return Shortfall(came=sum(mean for mean, _, _ in known), least=least, most=most, minutes=len(known))

"""The reference of models that share instances: the least with the trace known, in whole instances of one type.

Every request is served in its own second, by an instance or by Lambda. Fleets may change each minute:

    min  sum rent n[t] + launch u[t] + sum lambda[m] left[m,s],   n whole, u[t] >= n[t] - n[t-1],
         sum over m of (arrivals[m,s] - left[m,s]) / capacity[m] <= n[minute(s)]

It differs from the sum of the models' references (`yardsticks.py`) in two ways: a second's time on an instance is
for all models, and who rents one pays for its idle time. Memory and batches that wait for each other are left out.

Of a second's time those come first whose requests cost most on Lambda by the time that they take. So each further
instance saves no more than the one before it, and the program separates by instance: the n-th is a chain of two
states, on or off, as a level of capacity is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mark.domain.errors import PlanInfeasible
from mark.domain.offerings.offering import Offering
from mark.planner.yardsticks import MINUTE_S, YardstickInput

ROUNDED = 1e-9
"""Seconds of an instance that are no load but the rounding of sums."""


def whole_reference_usd(models: Sequence[YardstickInput]) -> float:
    """Reference of models that may share, of the type that is best for all that run on it, USD.

    Those that do not run on it have another type. Raises PlanInfeasible where arrivals have nothing to serve them.
    """
    models = [model for model in models if model.arrivals.any()]
    found = [_with_type(name, models) for name in sorted({item.name for one in models for item in one.offerings})]
    if not found:
        found = [math.fsum(model.shortfall_usd * float(model.arrivals.sum()) for model in models)]
    if math.isinf(min(found)):
        raise PlanInfeasible("no offering and no Lambda that keeps the objective: add one of them")
    return min(found)


def _with_type(name: str, models: Sequence[YardstickInput]) -> float:
    served: list[tuple[YardstickInput, Offering]] = []
    others = []
    for model in models:
        item = next((one for one in model.offerings if one.name == name), None)
        if item is None:
            others.append(model)
        else:
            served.append((model, item))
    try:
        return _on_type(served) + (whole_reference_usd(others) if others else 0.0)
    except PlanInfeasible:
        return math.inf


def _on_type(served: Sequence[tuple[YardstickInput, Offering]]) -> float:
    """Cost of these models on instances of one type and on Lambda, USD."""
    served = sorted(served, key=lambda pair: -pair[0].shortfall_usd * pair[1].capacity_rps)
    (_, item), length = served[0], len(served[0][0].arrivals)
    asked = np.array([model.arrivals / one.capacity_rps for model, one in served])
    usd_per_s = np.array([[model.shortfall_usd * one.capacity_rps] for model, one in served])
    until = np.cumsum(asked, axis=0)
    starts = range(0, length, MINUTE_S)
    total_usd = 0.0
    for below in range(math.ceil(until[-1].max() - ROUNDED)):
        parts = np.diff(np.clip(until, below, below + 1), axis=0, prepend=float(below))
        lost_usd = np.where(parts > ROUNDED, usd_per_s, 0.0) * np.where(parts > ROUNDED, parts, 1.0)
        off_usd = np.add.reduceat(lost_usd.sum(axis=0), starts)
        total_usd += _switched(off_usd.tolist(), item, length)
    return total_usd


def _switched(off_usd: Sequence[float], item: Offering, length: int) -> float:
    """Least cost of an instance that is there or not in each minute. off_usd: what is lost where it is not."""
    on = off = 0.0
    for minute, lost_usd in enumerate(off_usd):
        seconds = min(MINUTE_S, length - minute * MINUTE_S)
        started = off + (item.launch_usd if minute else 0.0)  # the first fleet is there
        on, off = min(on, started) + item.usd_per_hour / 3600.0 * seconds, min(on, off) + lost_usd
    return min(on, off)

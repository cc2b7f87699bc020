"""Small random instances whose best fleet, by the hedged planner's own costs, is found by trying every order.

The gap is what the planner's fleet costs, with all that it leaves to Lambda, over what the best one does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mark.planner.hedged import Terms, choose_fleet, worth_of
from mark.planner.hedging.rates import LEVELS

UNITS = 30
MOST_INSTANCES = 5
"""Instances in the largest fleet that is tried: the load needs no more."""


def gap_of(terms: Terms) -> float:
    """The planner's cost over the best one's, less 1."""
    alternative = float(terms.saved[:, -1].sum())
    worth, _, _ = choose_fleet(terms)
    return (alternative - worth) / (alternative - best_worth(terms)) - 1.0


def best_worth(terms: Terms) -> float:
    """By trying every order of every fleet."""
    return max((worth_of(terms, layout) for layout in layouts(terms)), default=0.0)


def layouts(terms: Terms, laid: tuple[tuple[int, bool], ...] = ()) -> Iterator[tuple[tuple[int, bool], ...]]:
    """All orders of instances, each that is there at most once, and before new ones of its kind."""
    yield laid
    if len(laid) == MOST_INSTANCES:
        return
    for i in range(len(terms.rent)):
        used = sum(1 for place, is_new in laid if place == i and not is_new)
        if used < terms.there[i] and (i, True) not in laid:
            yield from layouts(terms, (*laid, (i, False)))
        yield from layouts(terms, (*laid, (i, True)))


def small_terms(count: int, seed: int = 1) -> Iterator[Terms]:
    """Random prices, capacities, fleets and loads: a level that wanders, and Lambda at 2 to 12 times the rent."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        kinds = int(rng.integers(1, 4))
        capacity = rng.uniform(4.0, 30.0, kinds)
        usd_per_request = rng.uniform(1.0, 3.0, kinds) * 1e-6
        rent = capacity * usd_per_request * 60.0
        # No load needs more instances than are tried.
        top = float(capacity.min()) * (MOST_INSTANCES - 1)
        levels = np.linspace(0.0, top, LEVELS + 1)
        rates = np.abs(rng.uniform(0.2, 0.9) * top + np.cumsum(rng.normal(0.0, top / 12.0, UNITS)))
        spread = rng.uniform(0.02, 0.4) * top
        noise = np.clip(rates[:, None] + rng.normal(0.0, spread, (UNITS, 16)), 0.0, top)
        carried = np.minimum(noise[:, :, None], levels).mean(axis=1)
        yield Terms(
            offerings=(),
            levels=levels,
            saved=carried * rng.uniform(2.0, 12.0) * float(usd_per_request.min()) * 60.0,
            rent=rent,
            launch=rent * rng.uniform(0.0, 6.0, kinds),
            lead=np.full(kinds, 3, np.int64),
            capacity=capacity,
            there=rng.integers(0, 2 if kinds > 1 else math.ceil(MOST_INSTANCES / 2), kinds),
        )

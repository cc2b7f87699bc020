"""Quantiles of windows that slide along a series: what left and what came is merged into the sorted window before.

A window of two days moves by a quarter of an hour: a pass over it takes an eighth of sorting it anew.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mark.predictors.expert import LEVELS, Floats, Ints


def sliding_quantiles(values: Floats, ends: Ints, window: int, *, fewest: int) -> Floats:
    """Quantiles, at LEVELS, of the `window` values before each end; NaN values are left out.

    values: shape (units,); ends: shape (windows,), rising, each at least `window`. A level's place is that of one
    more value to come, and between two values it is linear. Returns shape (windows, levels), NaN under `fewest`
    values.
    """
    first = values[ends[0] - window : ends[0]]
    return _slide(values, ends, window, np.sort(first[~np.isnan(first)]), np.array(LEVELS), fewest)


@njit(cache=True)
def _slide(values: Floats, ends: Ints, window: int, held: Floats, levels: Floats, fewest: int) -> Floats:
    """`held`: the first window, sorted."""
    found = np.full((len(ends), len(levels)), np.nan)
    for row in range(len(ends)):
        if row > 0:
            last, end = ends[row - 1], ends[row]
            gone = values[last - window : min(end - window, last)]
            come = values[max(end - window, last) : end]
            held = _moved(held, _sorted(gone), _sorted(come))
        if len(held) >= fewest:
            for column in range(len(levels)):
                found[row, column] = _read(held, levels[column])
    return found


@njit(cache=True)
def _sorted(values: Floats) -> Floats:
    return np.sort(values[~np.isnan(values)])


@njit(cache=True)
def _moved(held: Floats, gone: Floats, come: Floats) -> Floats:
    """`held` without what has gone, which it holds, and with what has come: all sorted."""
    moved = np.empty(len(held) - len(gone) + len(come))
    left = new = filled = 0
    for value in held:
        if left < len(gone) and gone[left] == value:
            left += 1
            continue
        while new < len(come) and come[new] < value:
            moved[filled] = come[new]
            new, filled = new + 1, filled + 1
        moved[filled] = value
        filled += 1
    moved[filled:] = come[new:]
    return moved


@njit(cache=True)
def _read(ordered: Floats, level: float) -> float:
    last = len(ordered) - 1
    place = min(max((len(ordered) + 1) * level - 1.0, 0.0), float(last))
    below = int(place)
    lower, upper = ordered[below], ordered[min(below + 1, last)]
    value: float = lower + (upper - lower) * (place - below)
    return value

"""Conformal recalibration: a quantile with too little coverage is read further up the forecast's distribution.

The probability integral transform (PIT) of an outcome is kept on the scale of the quantiles' ranks: k at quantile
k, between them linearly, and beyond the outer ones by the width of the nearest gap. If 90 % of the latest outcomes
had a PIT value of at most 4.3, then the 90 % quantile is read at rank 4.3. So the shift is wide where the forecast
is unsure and narrow where it is sure.
"""

from __future__ import annotations

import numpy as np

from mark.predictors.expert import LEVELS, Floats

TOP = len(LEVELS) - 1
BEYOND = 3.0
"""Furthest rank beyond the outer quantiles, in gaps."""
THINNEST = 0.005
"""No gap beyond the outer quantiles is thinner than this share of the outer quantile."""


def pit_values(quantiles: Floats, actual: Floats) -> Floats:
    """Ranks of outcomes among the quantiles: -BEYOND to TOP + BEYOND, NaN where there is no outcome or forecast.

    quantiles: shape (..., levels), rising; actual: shape (...). `read_at` of this rank gives the outcome.
    """
    above = (quantiles < actual[..., None]).sum(axis=-1)
    lower = np.clip(above - 1, 0, TOP - 1)[..., None]
    left = np.take_along_axis(quantiles, lower, axis=-1)[..., 0]
    right = np.take_along_axis(quantiles, lower + 1, axis=-1)[..., 0]
    inside = lower[..., 0] + (actual - left) / np.maximum(right - left, 1e-12)
    down, up = _outer_gaps(quantiles)
    beneath = (actual - quantiles[..., 0]) / down
    beyond = TOP + (actual - quantiles[..., TOP]) / up
    found = np.where(above == 0, beneath, np.where(above > TOP, beyond, inside))
    known = np.isfinite(actual) & np.isfinite(quantiles[..., 0])
    return np.where(known, np.clip(found, -BEYOND, TOP + BEYOND), np.nan)


def read_at(quantiles: Floats, wanted: Floats) -> Floats:
    """The forecast read at other ranks, at least 0. quantiles, wanted: shape (..., levels), both rising."""
    left = np.clip(np.floor(wanted), 0, TOP - 1).astype(np.int64)
    low = np.take_along_axis(quantiles, left, axis=-1)
    high = np.take_along_axis(quantiles, left + 1, axis=-1)
    inside = low + (np.clip(wanted, 0, TOP) - left) * (high - low)
    down, up = _outer_gaps(quantiles)
    beyond = np.maximum(wanted - TOP, 0.0) * up[..., None] + np.minimum(wanted, 0.0) * down[..., None]
    return np.maximum(inside + beyond, 0.0)


def calibrated_pit(seen: Floats, *, strength: float, tolerance: float) -> Floats:
    """Rank at which each level is read, from the PIT values of past outcomes: shape (levels,), rising.

    seen: shape (outcomes,), PIT values, NaN left out. A level moves only until its coverage is within `tolerance`
    of it: moving costs sharpness, and a share of two days is no exact one. `strength` is the part of that way that
    is gone, in [0, 1].
    """
    own = np.arange(len(LEVELS), dtype=np.float64)
    known = np.sort(seen[np.isfinite(seen)])
    if not len(known):
        return own
    levels = np.asarray(LEVELS)
    margin = np.minimum(tolerance, np.minimum(levels, 1.0 - levels) / 2)
    wanted = own.clip(_covering(known, levels - margin), _covering(known, levels + margin))
    moved: Floats = own + strength * (wanted - own)
    return np.maximum.accumulate(moved)


def _covering(known: Floats, shares: Floats) -> Floats:
    """Ranks at or below which these shares of the outcomes lie. known: rising."""
    # The conformal rank: with one more outcome to come, the share is covered by it too.
    ranks = np.ceil((len(known) + 1) * shares).astype(np.int64)
    return known[np.clip(ranks - 1, 0, len(known) - 1)]


def _outer_gaps(quantiles: Floats) -> tuple[Floats, Floats]:
    down = np.maximum(quantiles[..., 1] - quantiles[..., 0], THINNEST * quantiles[..., 0] + 1e-9)
    up = np.maximum(quantiles[..., TOP] - quantiles[..., TOP - 1], THINNEST * quantiles[..., TOP] + 1e-9)
    return down, up

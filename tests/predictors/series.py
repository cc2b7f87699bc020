"""Series for tests of experts."""

from __future__ import annotations

import math

import numpy as np

from mark.predictors.expert import Series

DAY = 1440


def noisy_days(units: int, *, seed: int = 1, start_at: float = 0.0, factor: float = 1.0) -> Series:
    """A daily load between 20 and 100 with 10 % noise, and a flood at minute 32 of every other hour."""
    rng = np.random.default_rng(seed)
    unit = np.arange(units)
    shape = 60 - 40 * np.cos(2 * math.pi * unit / DAY)
    flood = np.where((unit % 120 >= 32) & (unit % 120 < 40), 2.5, 1.0)
    return Series(rates=factor * shape * flood * rng.uniform(0.9, 1.1, units), start_at=start_at)


def last_units(series: Series, units: int) -> Series:
    """The same series, known for a shorter time."""
    gone = len(series.rates) - units
    return Series(rates=series.rates[gone:], start_at=series.start_at + gone * series.unit_s, unit_s=series.unit_s)


def until(series: Series, end: int) -> Series:
    """The same series when only `end` units had ended."""
    return Series(rates=series.rates[:end].copy(), start_at=series.start_at, unit_s=series.unit_s)

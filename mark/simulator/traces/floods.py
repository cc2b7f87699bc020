"""Daily load with steep floods, fitted to the Twitter stream of August 2021.

The source counts tweets and deletion notices per second: a daily cycle of 40 to 80 rps, and about ten times a
day a flood of deletions that reaches about 240 rps within half a minute and lasts 3 to 26 minutes. Floods start
at two and at thirty-two minutes past the hour: one in nearly every odd hour of the day, an irregular few in
even hours. Every number of `TWITTER_2021` is fitted to days 1 to 3 of the trace, without the last 29 minutes of
each day, which the source mirrored; days 4 and 5 are kept for the test that compares what is generated here with
what was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HOUR_S = 3600
DAY_S = 86400
FLOOD_RISE_RPS = 60.0
"""A minute belongs to a flood when its mean lies this far above the median of the hour around it."""
MIN_FLOOD_MIN = 3
"""Least length: a shorter one is a spike, the source's floods last 3 minutes or more."""
MAX_FLOOD_MIN = 26
"""The longest flood of the source's seven days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodModel:
    """Parameters of the generator; `TWITTER_2021` below is the fit.

    base_rps: calm rate at the middle of each of the 24 hours, read linearly between them. The calm rate wanders
    by a factor exp(x), x a first-order process over minutes with `wander_sigma` and `wander_correlation`.
    odd_hour_share, even_hour_share: how many of these hours have a flood (hour 23 none); half_past_share: how
    many of them start at :32 rather than :02. A flood starts `delay_s` (median, lognormal with `delay_sigma`)
    after that. Length (minutes above 60 rps) is lognormal, height normal. shape: height at eleven points of the
    length; after it, exponential decay over `tail_s`. Counts are negative binomial with variance / mean
    `dispersion`.
    """

    base_rps: tuple[float, ...]
    wander_sigma: float
    wander_correlation: float
    odd_hour_share: float
    even_hour_share: float
    half_past_share: float
    delay_s: float
    delay_sigma: float
    length_median_min: float
    length_sigma: float
    height_rps: float
    height_sigma_rps: float
    shape: tuple[float, ...]
    tail_s: float
    dispersion: float


TWITTER_2021 = FloodModel(
    base_rps=(
        45.7, 46.5, 49.7, 53.6, 59.3, 65.0, 72.7, 76.3, 79.3, 70.5, 62.2, 56.5,
        50.8, 48.9, 47.2, 47.7, 46.5, 45.7, 47.6, 51.0, 55.0, 57.1, 49.0, 46.3,
    ),
    wander_sigma=0.071,
    wander_correlation=0.649,
    odd_hour_share=0.727,
    even_hour_share=0.194,
    half_past_share=0.806,
    delay_s=25.0,
    delay_sigma=1.153,
    length_median_min=7.883,
    length_sigma=0.34,
    height_rps=177.939,
    height_sigma_rps=6.447,
    shape=(0.37, 0.96, 1.0, 1.02, 0.99, 0.97, 0.94, 0.9, 0.79, 0.61, 0.33),
    tail_s=83.385,
    dispersion=1.119,
)  # fmt: skip
"""Fitted to twitter_2021_08_d01_07_1s, days 1-3."""


def flood_means(model: FloodModel, days: int, rng: np.random.Generator) -> Floats:
    """Mean rate of every second of `days` days, shape (seconds,), requests/s."""
    return _calm_means(model, days, rng) + _flood_excess(model, days, rng)


def _calm_means(model: FloodModel, days: int, rng: np.random.Generator) -> Floats:
    middles_s = (np.arange(24) + 0.5) * HOUR_S
    base = np.interp(np.arange(DAY_S), middles_s, model.base_rps, period=DAY_S)
    minutes = days * DAY_S // 60
    steps = rng.standard_normal(minutes) * model.wander_sigma * np.sqrt(1 - model.wander_correlation**2)
    wander = np.empty(minutes)
    level = rng.standard_normal() * model.wander_sigma
    for minute, step in enumerate(steps.tolist()):
        level = model.wander_correlation * level + step
        wander[minute] = level
    means: Floats = np.tile(base, days) * np.repeat(np.exp(wander), 60)
    return means


def _flood_excess(model: FloodModel, days: int, rng: np.random.Generator) -> Floats:
    excess = np.zeros(days * DAY_S)
    for hour in range(24 * days):
        clock = hour % 24
        share = model.odd_hour_share if clock % 2 else model.even_hour_share
        if clock == 23 or rng.random() >= share:
            continue
        minute = 32 if rng.random() < model.half_past_share else 2
        delay_s = min(60.0, model.delay_s * np.exp(model.delay_sigma * rng.standard_normal()))
        start = hour * HOUR_S + minute * 60 + round(delay_s)
        flood = _flood(model, rng)
        part = excess[start : start + len(flood)]
        np.maximum(part, flood[: len(part)], out=part)
    return excess


def _flood(model: FloodModel, rng: np.random.Generator) -> Floats:
    """One flood's rate above the calm, second by second."""
    length_min = model.length_median_min * np.exp(model.length_sigma * rng.standard_normal())
    length_s = round(60 * float(np.clip(length_min, MIN_FLOOD_MIN, MAX_FLOOD_MIN)))
    height_rps = max(2 * FLOOD_RISE_RPS, model.height_rps + model.height_sigma_rps * rng.standard_normal())
    inside = np.interp(np.arange(length_s), np.linspace(0, length_s, len(model.shape)), model.shape)
    after = model.shape[-1] * np.exp(-np.arange(round(5 * model.tail_s)) / model.tail_s)
    excess: Floats = height_rps * np.concatenate((inside, after))
    return excess

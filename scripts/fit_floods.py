"""Fit the flood generator to the Twitter trace: `MARK_DATA=... python -m scripts.fit_floods`.

Prints the `FloodModel` of `mark/simulator/traces/floods.py`, fitted to days 1 to 3 of `twitter_2021_08_d01_07_1s`.
The last 29 minutes of every day are mirrored in the source (they were never recorded) and left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mark.simulator.traces.floods import DAY_S, Flood, FloodModel, calm_rps, find_floods
from mark.simulator.traces.trace import read_trace

Floats = NDArray[np.float64]

TRACE = "traces/twitter_2021_08_d01_07_1s.csv.gz"
FIT_DAYS = 3
MIRRORED_MIN = 29
"""Minutes at the end of each day that the source filled by mirroring (README of the traces, note 1)."""
SMOOTH_S = 10
TAIL_MIN = 4


def calm_minutes(rates_rps: Floats, floods: tuple[Flood, ...]) -> NDArray[np.bool_]:
    """Mask of the minutes that were recorded and lie outside floods and their tails, shape (minutes,)."""
    calm = np.ones(len(rates_rps) // 60, dtype=bool)
    for flood in floods:
        calm[max(0, flood.start_min - 1) : flood.start_min + flood.length_min + TAIL_MIN] = False
    calm.reshape(FIT_DAYS, -1)[:, -MIRRORED_MIN:] = False
    return calm


def fit_calm(rates_rps: Floats, floods: tuple[Flood, ...]) -> dict[str, Any]:
    """Daily cycle, slow wander and second-level dispersion of the calm minutes."""
    seconds = rates_rps.reshape(-1, 60)
    minutes = seconds.mean(axis=1)
    calm = calm_minutes(rates_rps, floods)
    hours = np.arange(len(minutes)) // 60 % 24
    base = np.array([minutes[calm & (hours == hour)].mean() for hour in range(24)])
    at_min = np.arange(1440) + 0.5
    cycle = np.tile(np.interp(at_min, np.arange(24) * 60 + 30, base, period=1440), FIT_DAYS)
    wander = np.where(calm, np.log(minutes / cycle), np.nan)
    pairs = ~np.isnan(wander[:-1]) & ~np.isnan(wander[1:])
    # Minute means of Poisson counts scatter on their own; what is left is the wander.
    variance = np.nanvar(wander) - 1 / (60 * minutes[calm].mean())
    covariance = np.cov(wander[:-1][pairs], wander[1:][pairs])[0, 1]
    return {
        "base_rps": tuple(np.round(base, 1).tolist()),
        "wander_sigma": float(np.sqrt(variance)),
        "wander_correlation": float(covariance / variance),
        "dispersion": float(np.median(seconds[calm].var(axis=1, ddof=1) / minutes[calm])),
    }


def fit_floods(rates_rps: Floats, floods: tuple[Flood, ...]) -> dict[str, Any]:
    """Starts, lengths, heights and shape of floods."""
    minutes = rates_rps.reshape(-1, 60).mean(axis=1)
    calm = np.repeat(calm_rps(minutes), 60)
    smooth = np.convolve(rates_rps - calm, np.ones(SMOOTH_S) / SMOOTH_S, mode="same")
    hours = [flood.start_min // 60 % 24 for flood in floods]
    delays, lengths, heights, shapes, tails = [], [], [], [], []
    for flood in floods:
        start_s = flood.start_min * 60 - 60
        near = smooth[start_s : start_s + flood.length_min * 60 + 600]
        above = np.flatnonzero(near > 60)
        first = int(above[0])
        length = int(np.argmax(near[first + 90 :] < 60)) + 90
        height = float(np.percentile(near[first : first + length], 75))
        delays.append((start_s + first - flood_slot_s(flood)) % DAY_S)
        lengths.append(length / 60)
        heights.append(height)
        at = first + np.linspace(0, length, 11)
        shapes.append(np.interp(at, np.arange(len(near)), near) / height)
        end = near[first + length : first + length + 240]
        tails.append(float(np.clip(end, 0, None).sum() / 60))
    shape: Floats = np.mean(shapes, axis=0)
    log_delay, log_length = np.log(np.clip(delays, 1, 60)), np.log(lengths)
    odd = sum(hour % 2 for hour in hours)
    return {
        "odd_hour_share": odd / (11 * FIT_DAYS),
        "even_hour_share": (len(hours) - odd) / (12 * FIT_DAYS),
        "half_past_share": float(np.mean([flood.start_min % 60 >= 30 for flood in floods])),
        "delay_s": float(np.exp(np.median(log_delay))),
        "delay_sigma": float(log_delay.std()),
        "length_median_min": float(np.exp(np.median(log_length))),
        "length_sigma": float(log_length.std()),
        "height_rps": float(np.mean(heights)),
        "height_sigma_rps": float(np.std(heights)),
        "shape": tuple(np.round(shape, 2).tolist()),
        "tail_s": float(np.median(tails)),
    }


def flood_slot_s(flood: Flood) -> int:
    """The second at which floods of this half hour are due: :02 or :32."""
    half_hour = (flood.start_min - 1) // 30  # a rise just before :02 or :32 is due then too
    return (half_hour * 30 + 2) * 60


def fit(rates_rps: Floats) -> FloodModel:
    """The model of `FIT_DAYS` days of seconds, rounded to three decimals."""
    floods = find_floods(rates_rps)
    found = fit_calm(rates_rps, floods) | fit_floods(rates_rps, floods)
    rounded: dict[str, Any] = {name: round(v, 3) if isinstance(v, float) else v for name, v in found.items()}
    return FloodModel(**rounded)


def main() -> None:
    """Print the fitted model."""
    trace = read_trace(Path(os.environ["MARK_DATA"]) / TRACE).window(0, FIT_DAYS * DAY_S)
    print(fit(trace.rates_rps))


if __name__ == "__main__":
    main()

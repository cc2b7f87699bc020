"""Fit the bursts that long bins hide: `MARK_DATA=... python -m scripts.fit_bursts`.

Every trace that has bins of a second is cut into bins of five minutes. Of the counts of a bin over their mean, the
products of seconds that lie LAGS_S apart are averaged: Poisson noise adds nothing to them. The model of
`mark/simulator/traces/bursts.py` is drawn in bins of the same length for each pair of parameters, and the pair
whose averages are nearest is printed, with the peak of 5 s over the mean of the bin in the trace and in the
models. Correlation times longer than a bin cannot be told from it.
"""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.simulator.traces.bursts import BURSTS, BurstModel, draw_shape
from mark.simulator.traces.trace import read_trace

Floats = NDArray[np.float64]

TRACES = (
    "twitter_2021_08_d01_07_1s",
    "twitter_2018_04_25_30min_1s",
    "azure_llm_2023_conv_1s",
    "azure_llm_2023_code_1s",
    "wikipedia_2007_09_18_1h_1s",
)
BIN_S = 300
LAGS_S = (1, 2, 3, 5, 10, 20, 30, 60, 100)
LEAST_RPS = 0.5
"""Bins of fewer requests are all Poisson noise."""
WINDOW_S = 5
CVS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
CORRELATIONS_S = (2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0)
DRAWN_BINS = 2000


def within_bins(counts: Floats) -> tuple[Floats, Floats]:
    """Counts of each second, shape (bins, BIN_S), and the mean of each bin, shape (bins,)."""
    seconds = counts[: len(counts) // BIN_S * BIN_S].reshape(-1, BIN_S)
    means = seconds.mean(axis=1)
    busy = means >= LEAST_RPS
    return seconds[busy], means[busy]


def covariances(shape: Floats) -> Floats:
    """Mean product of deviations LAGS_S apart, shape (lags,). shape: of mean 1 over each bin, (bins, BIN_S)."""
    away = shape - 1.0
    return np.array([(away[:, :-lag] * away[:, lag:]).mean() for lag in LAGS_S])


def peaks(shape: Floats) -> tuple[float, float]:
    """Median and 99th percentile, over bins, of the busiest WINDOW_S over the bin's mean."""
    windows = shape.reshape(len(shape), -1, WINDOW_S).mean(axis=2).max(axis=1)
    median, high = np.percentile(windows, (50, 99))
    return float(median), float(high)


def spread(shape: Floats, means: Floats) -> float:
    """Root of the mean variance within a bin, the Poisson counts' own taken off."""
    return float(np.sqrt(max(0.0, (shape.var(axis=1) - 1 / means).mean())))


def fit(found: Floats, drawn: dict[tuple[float, float], Floats]) -> tuple[float, float]:
    """The pair of parameters whose covariances are nearest to those found."""
    return min(drawn, key=lambda pair: float(((drawn[pair] - found) ** 2).sum()))


def model_peaks(model: BurstModel, means: Floats) -> tuple[float, float]:
    """Peaks of Poisson counts with the model's bursts, at the bins' means."""
    shape = draw_shape(model, bins=len(means), steps=BIN_S, step_s=1.0, seed=1)
    counts = np.random.default_rng(1).poisson(shape * means[:, None])
    return peaks(counts / np.maximum(counts.mean(axis=1, keepdims=True), 1e-9))


def main() -> None:
    """Print the fit of each trace, and how both models do on it."""
    folder = Path(os.environ["MARK_DATA"]) / "traces"
    drawn = {
        (cv, correlation_s): covariances(
            draw_shape(
                BurstModel(cv=cv, correlation_s=correlation_s), bins=DRAWN_BINS, steps=BIN_S, step_s=1.0, seed=0
            )
        )
        for cv, correlation_s in product(CVS, CORRELATIONS_S)
    }
    for name in TRACES:
        seconds, means = within_bins(read_trace(folder / f"{name}.csv.gz").rates_rps)
        shape = seconds / means[:, None]
        cv, correlation_s = fit(covariances(shape), drawn)
        print(f"{name}: {len(means)} bins of {BIN_S} s; cv {cv:g}, correlation time {correlation_s:g} s")
        print(f"  standard deviation / mean within a bin, without Poisson noise: {spread(shape, means):.2f}")
        print(
            "  peak of 5 s over the bin's mean, median and p99: " + " and ".join(f"{x:.2f}" for x in peaks(shape))
        )
        flat = BurstModel(cv=1e-9, correlation_s=1.0)
        for label, model in {
            "flat": flat,
            **BURSTS,
            "fitted": BurstModel(cv=cv, correlation_s=correlation_s),
        }.items():
            print(f"    {label:8}" + " and ".join(f"{x:.2f}" for x in model_peaks(model, means)))


if __name__ == "__main__":
    main()

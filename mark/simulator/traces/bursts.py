"""Bursts within bins that are too long to show any.

A bin of five minutes says how many requests came, not how unevenly. Replayed flat it flatters every policy, since
forecasts and percentiles depend on what happens within it. So its rate is multiplied by positive noise of mean 1:
the exponential of a Gaussian first-order autoregression, of which the coefficient of variation and the correlation
time are the two parameters. It is drawn anew in each bin and divided by its mean there, so the mean of every bin
is kept. An hour's own trend stays hidden: the noise holds for minutes.

Both parameters are fitted to five traces with bins of a second, cut into bins of five minutes: of all pairs, the
one whose mean products of deviations, 1 to 100 s apart, are nearest to the trace's. Poisson noise adds nothing to
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured, unknown
from mark.domain.figures import share_words
from mark.simulator.rng import stream
from mark.simulator.traces.trace import Trace

Floats = NDArray[np.float64]

LONG_BIN_S = 60.0
"""Longer bins hide bursts: forecasts are made of minutes."""
STEP_S = 1.0
MAX_STEPS = 50_000_000
"""A year and a half of seconds, 400 MB: a longer trace has longer steps."""
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstModel:
    """Lognormal noise. `cv`: standard deviation over mean. `correlation_s`: after which correlation is 1/e."""

    cv: float
    correlation_s: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise's logarithm."""
        return math.sqrt(math.log1p(self.cv**2))


BURSTS: Mapping[str, BurstModel] = MappingProxyType(
    {
        "typical": BurstModel(cv=0.25, correlation_s=300.0),
        "strong": BurstModel(cv=2.1, correlation_s=5.0),
    }
)
"""By name. docs/traces.md says which traces they were fitted to."""


def has_long_bins(trace: Trace) -> bool:
    """True where the trace's bins hide bursts."""
    return trace.bin_s > LONG_BIN_S


def long_bins_note(trace: Trace) -> str:
    """The warning of a trace whose bins hide bursts."""
    return (
        f"bins of {trace.bin_s:g} s hide the bursts within them, on which the share in time depends: a replay "
        "draws some (--bursts typical); export bins of 60 s or shorter where you can"
    )


def with_bursts(trace: Trace, name: str, seed: int) -> Trace:
    """The trace with bursts drawn within its bins where these are long, the mean of each bin kept."""
    if name != NONE and name not in BURSTS:
        raise unknown("kind of bursts", name, (NONE, *BURSTS))
    if not has_long_bins(trace):
        return trace
    if name == NONE:
        note = f"bins of {trace.bin_s:g} s are replayed flat (--bursts none): no burst within them is seen"
        return replace(trace, notes=(*trace.notes, note))
    model = BURSTS[name]
    steps = steps_a_bin(trace)
    shape = draw_shape(model, bins=len(trace.rates_rps), steps=steps, step_s=trace.bin_s / steps, seed=seed)
    note = (
        f"bins of {trace.bin_s:g} s hide the bursts within them, so {name} ones are drawn (--bursts {name}): "
        f"lognormal noise with a standard deviation of {share_words(model.cv)} of the mean and a correlation time "
        f"of {model.correlation_s:g} s, the mean of each bin kept"
    )
    return replace(
        trace,
        bin_s=trace.bin_s / steps,
        rates_rps=(trace.rates_rps[:, None] * shape).ravel(),
        whole_counts=False,
        arrivals_s=None,
        notes=(*trace.notes, note),
    )


def steps_a_bin(trace: Trace) -> int:
    """Into how many steps a bin is cut: of a second, or of more where the trace is very long."""
    step_s = STEP_S
    while trace.duration_s / step_s > MAX_STEPS:
        step_s *= 2
    if step_s >= trace.bin_s:
        raise Misconfigured(
            f"trace {trace.name} is too long for bursts; cut it with `mark trace import --duration-s`"
        )
    return max(1, round(trace.bin_s / step_s))


def draw_shape(model: BurstModel, *, bins: int, steps: int, step_s: float, seed: int) -> Floats:
    """Noise of mean 1 over each bin, shape (bins, steps)."""
    kept = math.exp(-step_s / model.correlation_s)
    fresh = math.sqrt(1.0 - kept**2)
    draws = stream(seed, "bursts").standard_normal((bins, steps))
    for step in range(1, steps):
        draws[:, step] = kept * draws[:, step - 1] + fresh * draws[:, step]
    draws *= model.sigma
    np.exp(draws, out=draws)
    draws /= draws.mean(axis=1, keepdims=True)
    return draws

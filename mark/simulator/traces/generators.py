"""Traces that are drawn: constant load, surges, Markov-modulated load, and daily load with floods.

Each is a trace of 1 s bins that hold whole counts, so every policy and every replay seed meets the same
counts; the same seed gives the same trace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured
from mark.simulator.rng import stream
from mark.simulator.traces.floods import DAY_S, TWITTER_2021, FloodModel, flood_means
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload

Floats = NDArray[np.float64]

DEMO_DAYS = 8
"""Seven days to learn from, the eighth is replayed."""


def constant(rps: float, *, duration_s: float = 3600.0, seed: int = 0) -> Trace:
    """Poisson arrivals at one rate."""
    _check_rate("rate", rps)
    means = np.full(_seconds(duration_s), float(rps))
    return _drawn(f"constant-{rps:g}", means, seed)


def surge(
    base_rps: float, *, plus: float, at_s: float, rise_s: float = 120.0, duration_s: float = 1800.0, seed: int = 0
) -> Trace:
    """Poisson arrivals at `base_rps` that rise by the share `plus` within `rise_s` from `at_s` on, and stay.

    MArk section 5.3 (figure 9): plus 0.5, 0.75 and 1 within two minutes.
    """
    _check_rate("base rate", base_rps)
    if not (math.isfinite(plus) and plus >= -1 and rise_s >= 0 and at_s >= 0):
        raise Misconfigured(f"a surge needs plus >= -1, at_s and rise_s >= 0, not {plus:g}, {at_s:g}, {rise_s:g}")
    middles_s = np.arange(_seconds(duration_s)) + 0.5
    risen = np.clip((middles_s - at_s) / max(rise_s, 1e-9), 0.0, 1.0)
    return _drawn(f"surge-{plus:+.0%}", base_rps * (1 + plus * risen), seed)


def mmpp(
    rates_rps: Sequence[float], mean_sojourns_s: Sequence[float], *, duration_s: float = 86400.0, seed: int = 0
) -> Trace:
    """Markov-modulated Poisson process: exponential stays in states, then any other state, equally likely.

    rates_rps, mean_sojourns_s: one per state, two states or more. The long-run mean is the sojourns' weighted mean
    of the rates, because with equally likely jumps every state is entered equally often.
    """
    if len(rates_rps) != len(mean_sojourns_s) or len(rates_rps) < 2:
        raise Misconfigured(
            f"mmpp needs a rate and a sojourn per state, got {len(rates_rps)}, {len(mean_sojourns_s)}"
        )
    for rate, sojourn in zip(rates_rps, mean_sojourns_s, strict=True):
        _check_rate("rate of a state", rate)
        if not (math.isfinite(sojourn) and sojourn > 0):
            raise Misconfigured(f"a mean sojourn must be above 0 s, not {sojourn:g}")
    rng = stream(seed, "mmpp-states")
    seconds = _seconds(duration_s)
    edges_s, arrived = [0.0], [0.0]
    weights = np.asarray(mean_sojourns_s, dtype=np.float64)
    state = int(rng.choice(len(weights), p=weights / weights.sum()))
    while edges_s[-1] < seconds:
        stay_s = float(rng.exponential(mean_sojourns_s[state]))
        edges_s.append(edges_s[-1] + stay_s)
        arrived.append(arrived[-1] + stay_s * rates_rps[state])
        state = (state + 1 + int(rng.integers(len(weights) - 1))) % len(weights)
    means = np.diff(np.interp(np.arange(seconds + 1), edges_s, arrived))
    return _drawn(f"mmpp-{len(rates_rps)}", means, seed)


def diurnal_floods(seed: int, days: int, *, model: FloodModel = TWITTER_2021) -> Trace:
    """Daily cycle with about ten steep floods a day, fitted to the Twitter stream of August 2021."""
    if days < 1:
        raise Misconfigured(f"a generated trace needs one day or more, not {days}")
    means = flood_means(model, days, stream(seed, "floods"))
    # Counts scatter more than Poisson's: gamma-mixed, so that variance / mean is the fitted dispersion.
    extra = model.dispersion - 1
    counts = stream(seed, "flood-counts").negative_binomial(means / extra, 1 / model.dispersion)
    return _whole(f"diurnal-floods-{days}d", counts.astype(np.float64))


def demo_workload(seed: int = 0) -> Workload:
    """The shipped input of `make demo`: eight days of `diurnal_floods`, the eighth replayed."""
    trace = diurnal_floods(seed, DEMO_DAYS)
    return Workload(trace=trace, seed=seed, start_s=float((DEMO_DAYS - 1) * DAY_S))


def _seconds(duration_s: float) -> int:
    if not (math.isfinite(duration_s) and duration_s >= 1):
        raise Misconfigured(f"a generated trace needs a duration of 1 s or more, not {duration_s:g}")
    return math.ceil(duration_s)


def _check_rate(label: str, rps: float) -> None:
    if not (math.isfinite(rps) and rps >= 0):
        raise Misconfigured(f"the {label} must be 0 rps or more, not {rps:g}")


def _drawn(name: str, means: Floats, seed: int) -> Trace:
    """Poisson counts around means, shape (seconds,)."""
    return _whole(name, stream(seed, f"counts-{name}").poisson(means).astype(np.float64))


def _whole(name: str, counts: Floats) -> Trace:
    return Trace(name=name, start_at=0.0, bin_s=1.0, rates_rps=counts, whole_counts=True)

"""How much each expert of a mixture counts: exponential weights of the losses that are known.

Weights are learned apart for each quantile level and each band of leads. An expert that was silent, or is not
judged by units that it learned from (`Judged`), is taken to have been as good as the best of the others meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.demand import HORIZON
from predictors.expert import Floats, Ints
from predictors.naive import DAY_S

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast weights are learned.

    A loss counts half after `half_life_s`. `sharpness`: how fast weight falls with loss: an expert that was 1 %
    worse has exp(-0.01 x sharpness) of the best one's weight.
    """

    half_life_s: float
    sharpness: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSettings:
    """How a mixture learns from its experts' losses; chosen on worldcup98 rows 33270-54870 and Twitter days 1-7.

    `stride`: every how many units of absolute time a forecast is scored; it shares no factor with an hour, so that
    all minutes come by. `bands`: the last lead of each band. Losses of `memory_s` count: it holds a crowd before
    two calm days, when experts for calm days look best. Weights are the mean of those learned at each of `paces`:
    a slow one knows who is good, a fast one follows a crowd while it lasts. `settled_s`: with fewer known losses,
    weights are the more equal. `recalibrated`: quantiles are read where outcomes of the last `recalibrated_s`
    fell, see `conformal.py`, until the share they covered is off by no more than `tolerance`; not so before
    outcomes of `wary_s` are known (those of some hours say little: of an hour's crowd, or of none), fully once
    those of `trusted_s` are.
    """

    horizon: int = HORIZON
    stride: int = 7
    bands: tuple[int, ...] = (1, 3, 7, 15, 30, 60)
    memory_s: float = 4 * DAY_S
    paces: tuple[Pace, ...] = (Pace(half_life_s=4 * DAY_S, sharpness=30.0), Pace(half_life_s=DAY_S / 4))
    settled_s: float = DAY_S / 4
    recalibrated: bool = True
    recalibrated_s: float = 2 * DAY_S
    tolerance: float = 0.02
    wary_s: float = DAY_S
    trusted_s: float = 1.5 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Losses at scored origins.

    loss: shape (origins, experts, bands, levels), 0 where silent; awake: (origins, experts); common: (origins,
    bands, levels), the mean over those awake. What is not known yet is masked by who asks.
    """

    loss: Floats
    awake: Mask
    common: Floats


def band_of_leads(bands: tuple[int, ...], horizon: int) -> Ints:
    """The band of each lead: shape (horizon,)."""
    return np.minimum(np.searchsorted(bands, np.arange(1, horizon + 1)), len(bands) - 1)


def weigh(losses: Losses, known: Ints, decays: Floats, *, sharpness: float, settled: float) -> Floats:
    """Weights of the experts: shape (experts, bands, levels), summing to 1 over experts.

    known: shape (bands,), how many of the origins, from the first, count in each band. decays: (origins,), how
    much each one counts; while they are fewer than `settled`, weights are the more equal.
    """
    _, experts, bands, levels = losses.loss.shape
    weights = np.full((experts, bands, levels), 1.0 / experts)
    for band, count in enumerate(known):
        decay = decays[:count]
        common = losses.common[:count, band]
        most = decay @ common
        if not count or not most.any():
            continue
        own = (decay @ losses.loss[:count, :, band].reshape(count, -1)).reshape(experts, levels)
        shared = (decay[:, None] * losses.awake[:count]).T @ common
        worth = _relative(own, shared, most)
        excess = worth / worth.min(axis=0).clip(1e-12) - 1.0
        raw = np.exp(-sharpness * min(1.0, decay.sum() / settled) * excess)
        weights[:, band] = raw / raw.sum(axis=0)
    return weights


def _relative(own: Floats, shared: Floats, most: Floats) -> Floats:
    """Each expert's loss relative to the experts' mean; silence counts as the best of those who mostly spoke.

    own, shared: shape (experts, levels), its own loss and the mean's while it spoke; most: (levels,), the mean's.
    """
    heard = shared > 0
    while_awake = np.where(heard, own / np.where(heard, shared, 1.0), np.inf)
    leader = np.where(shared >= 0.5 * most, while_awake, np.inf).min(axis=0)
    leader = np.where(np.isfinite(leader), leader, 1.0)
    whole = np.where(most > 0, most, 1.0)
    relative: Floats = np.where(most > 0, (own + (most - shared).clip(0) * leader) / whole, 1.0)
    return relative


def mix(spoken: Floats, weights: Floats, band_of: Ints) -> Floats:
    """The weighted mean of the experts' quantiles, rising over levels; silent experts (NaN) have no part.

    spoken: shape (experts, horizon, levels); weights: (experts, bands, levels). NaN where all are silent.
    """
    awake = np.isfinite(spoken).all(axis=(1, 2))
    if not awake.any():
        return np.full(spoken.shape[1:], np.nan)
    part = weights[awake][:, band_of]
    total = part.sum(axis=0)
    # All weight may lie with experts that are silent now: then those that speak count alike.
    part = np.where(total > 0, part, 1.0)
    mixed = (part * spoken[awake]).sum(axis=0) / part.sum(axis=0)
    return np.sort(mixed, axis=-1)

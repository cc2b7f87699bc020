"""Weights of a mixture's experts (an online ensemble): exponential in the pinball losses known so far.

Weights are learned apart for each quantile level and each band of leads. An expert without a forecast, or one
that is scored out of sample only (`OutOfSample`), counts as the best of the others where it has no score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.demand import HORIZON
from mark.predictors.expert import Floats, Ints
from mark.predictors.naive import DAY_S

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayRate:
    """Exponential forgetting of losses, and the step from a loss to a weight."""

    #: Age at which a loss counts half, s.
    half_life_s: float
    #: Fall of weight with loss: an expert that was 1 % worse has exp(-0.01 x sharpness) of the best one's.
    sharpness: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSettings:
    """Settings of a mixture; the defaults were chosen on worldcup98 rows 33270-54870 and Twitter days 1-7."""

    #: Units that a forecast reaches ahead.
    horizon: int = HORIZON
    #: Units of absolute time between two scored origins; no factor of an hour, so that all minutes come by.
    stride: int = 7
    #: Last lead of each band, units.
    bands: tuple[int, ...] = (1, 3, 7, 15, 30, 60)
    #: Age up to which losses count, s: it holds a crowd before two calm days, which favour experts for calm days.
    memory_s: float = 4 * DAY_S
    #: Weights are the mean of those learned at each: the slow one knows the best experts, the fast one a crowd.
    decay_rates: tuple[DecayRate, ...] = (
        DecayRate(half_life_s=4 * DAY_S, sharpness=30.0),
        DecayRate(half_life_s=DAY_S / 4),
    )
    #: Known losses, s, below which weights are the more equal.
    settled_s: float = DAY_S / 4
    #: Read quantiles where recent outcomes fell, see `conformal.py`.
    recalibrated: bool = True
    #: Age up to which outcomes count for that, s.
    recalibrated_s: float = 2 * DAY_S
    #: Deviation of a quantile's coverage from its level that is left alone, as a share.
    tolerance: float = 0.02
    #: Outcomes, s, below which nothing is recalibrated: some hours hold a crowd, or none.
    wary_s: float = DAY_S
    #: Outcomes, s, from which on it is recalibrated fully.
    trusted_s: float = 1.5 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Losses at scored origins; the reader masks those that were not known at its own origin."""

    #: Pinball loss, shape (origins, experts, bands, levels); 0 where the expert was unavailable.
    loss: Floats
    #: Experts with an out-of-sample forecast, shape (origins, experts).
    available: Mask
    #: Mean loss over the available experts, shape (origins, bands, levels).
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
        shared = (decay[:, None] * losses.available[:count]).T @ common
        worth = _relative(own, shared, most)
        excess = worth / worth.min(axis=0).clip(1e-12) - 1.0
        raw = np.exp(-sharpness * min(1.0, decay.sum() / settled) * excess)
        weights[:, band] = raw / raw.sum(axis=0)
    return weights


def _relative(own: Floats, shared: Floats, most: Floats) -> Floats:
    """Each expert's loss relative to the experts' mean; where it was unavailable the best of the others counts.

    own, shared: shape (experts, levels), its own loss and the mean's while it was available; most: (levels,), the
    mean's.
    """
    predicted = shared > 0
    while_available = np.where(predicted, own / np.where(predicted, shared, 1.0), np.inf)
    leader = np.where(shared >= 0.5 * most, while_available, np.inf).min(axis=0)
    leader = np.where(np.isfinite(leader), leader, 1.0)
    whole = np.where(most > 0, most, 1.0)
    relative: Floats = np.where(most > 0, (own + (most - shared).clip(0) * leader) / whole, 1.0)
    return relative


def mix(predictions: Floats, weights: Floats, band_of: Ints) -> Floats:
    """The weighted mean of the experts' quantiles, rising over levels, without unavailable experts (NaN).

    predictions: shape (experts, horizon, levels); weights: (experts, bands, levels). NaN where none is available.
    """
    available = np.isfinite(predictions).all(axis=(1, 2))
    if not available.any():
        return np.full(predictions.shape[1:], np.nan)
    part = weights[available][:, band_of]
    total = part.sum(axis=0)
    # All weight may lie with experts that are unavailable now: then the available ones count alike.
    part = np.where(total > 0, part, 1.0)
    mixed = (part * predictions[available]).sum(axis=0) / part.sum(axis=0)
    return np.sort(mixed, axis=-1)

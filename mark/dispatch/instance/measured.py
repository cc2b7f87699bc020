"""Measured service times of batches on this machine: the profile at first, then measurements.

The estimate of a batch size moves by a fifth towards each measurement, which counts as at most twice and at least
half of what was expected: one hiccup says little, a machine that has become slow is believed after a few batches.
Sizes that were never seen move with the mean of those that were. All stay within a factor of the profile, and what
is read is the running maximum over the sizes: a larger batch is never promised sooner. How much batches vary is
measured as well, more slowly: the coefficient of variation of their time over what was expected.

Sizes are in items. A request that is larger than a batch goes alone: such sizes have estimates of their own, never
below that of a full batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

SHARE = 0.2
HICCUP = 2.0
VARIANCE_SHARE = 0.02
"""A variance takes some fifty batches to be known."""
BOUND = 20.0
"""No machine is believed to be more than so many times slower or faster than its profile."""


def estimate_cv(cv: float) -> float:
    """Coefficient of variation of an estimate after many measurements that each vary by `cv`."""
    return cv * math.sqrt(SHARE / (2.0 - SHARE))


class MeasuredTimes:
    """Seconds by batch size. profile_s: what a batch of 1, 2, ... should take; cv: how much that should vary.

    beyond_s: what a request that is one, two, ... items larger than the largest batch should take.
    """

    def __init__(self, profile_s: Sequence[float], cv: float = 0.0, beyond_s: Sequence[float] = ()) -> None:
        self._profile = tuple(profile_s)
        self._beyond = tuple(beyond_s)
        self._beyond_ratio: dict[int, float] = {}
        self._ratio = [1.0] * len(self._profile)
        self._seen = [False] * len(self._profile)
        self._mean_ratio = 1.0
        self._variance = cv * cv
        self._batch_s = tuple(accumulate(self._profile, max))

    def note(self, size: int, took_s: float) -> None:
        """Take in a measurement."""
        place, batches = size - 1, len(self._profile)
        if place < batches:
            expected = self._ratio[place] if self._seen[place] else self._mean_ratio
            ratio = took_s / self._profile[place]
        else:
            expected = self._beyond_ratio.get(size, self._mean_ratio)
            ratio = took_s / self._beyond[place - batches]
        off = min(ratio / expected, HICCUP) - 1.0
        self._variance += VARIANCE_SHARE * (off * off - self._variance)
        if place < batches:
            self._seen[place] = True
            self._ratio[place] = _moved(expected, ratio)
        else:
            self._beyond_ratio[size] = _moved(expected, ratio)
        self._mean_ratio = _moved(self._mean_ratio, ratio)
        self._update()

    def _update(self) -> None:
        times = (
            profile * (own if seen else self._mean_ratio)
            for profile, own, seen in zip(self._profile, self._ratio, self._seen, strict=True)
        )
        self._batch_s = tuple(accumulate(times, max))

    @property
    def shared(self) -> tuple[float, float]:
        """Prior for other variants on this machine: its mean ratio to the profile, and the variance."""
        return self._mean_ratio, self._variance

    def share(self, mean_ratio: float, variance: float) -> None:
        """Take in what another variant has measured: sizes that were never seen move with it."""
        self._mean_ratio, self._variance = mean_ratio, variance
        self._update()

    def knows(self, size: int) -> bool:
        """True where a batch of that size was measured."""
        return self._seen[size - 1] if size <= len(self._seen) else size in self._beyond_ratio

    @property
    def largest(self) -> int:
        """The largest size that is known: of a batch, or of a request that goes alone."""
        return len(self._profile) + len(self._beyond)

    def items_s(self, size: int) -> float:
        """Service time of so many items now."""
        batches = len(self._profile)
        if size <= batches:
            return self._batch_s[size - 1]
        ratio = self._beyond_ratio.get(size, self._mean_ratio)
        return max(self._batch_s[-1], self._beyond[size - batches - 1] * ratio)

    @property
    def cv(self) -> float:
        """Coefficient of variation of a batch's time."""
        return math.sqrt(self._variance)

    @property
    def batch_s(self) -> tuple[float, ...]:
        """Service time of a batch of 1, 2, ... now."""
        return self._batch_s

    @property
    def single_s(self) -> float:
        """Service time of a batch of one."""
        return self._batch_s[0]

    @property
    def full_batch_s(self) -> float:
        """Service time of the largest batch."""
        return self._batch_s[-1]


class VariantTimes:
    """Measured times by variant. profiles_s: by variant, what a batch of 1, 2, ... should take.

    Each variant has estimates of its own, because profiles of two variants may be off by different factors: one
    estimate for all would swing whenever they alternate, and admission with it. What says something of the machine
    goes from one to all: the mean ratio, by which sizes move that a variant never ran, and how much batches vary.
    So the fastest variant, which admission counts on, is known to be slow before a surge makes it run.
    """

    def __init__(self, profiles_s: Sequence[Sequence[float]], cv: float = 0.0) -> None:
        self._times = [MeasuredTimes(profile_s, cv) for profile_s in profiles_s]
        self._shared = self._times[0].shared

    def of(self, variant: int) -> MeasuredTimes:
        """The estimates of one variant now; always the same object."""
        times = self._times[variant]
        if times.shared != self._shared:
            times.share(*self._shared)
        return times

    def note(self, variant: int, size: int, took_s: float) -> None:
        """Take in a measurement."""
        times = self.of(variant)
        times.note(size, took_s)
        self._shared = times.shared


def _moved(expected: float, ratio: float) -> float:
    believed = min(max(ratio, expected / HICCUP), expected * HICCUP)
    return min(max(expected + SHARE * (believed - expected), 1.0 / BOUND), BOUND)

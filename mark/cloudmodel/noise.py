"""Noise of service times: lognormal factors with mean 1, for replay and emulated backends alike.

A time whose coefficient of variation is cv is its expected value times exp(sigma z - sigma^2 / 2), z standard
normal and sigma^2 = ln(1 + cv^2): never below zero, its mean unchanged, a few large values and no cap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from statistics import NormalDist

SUREST = 0.9999
"""No time is sure: the longest has no end."""


def noise_factor(cv: float, normal: float) -> float:
    """The factor on an expected time that a standard normal number stands for; 1 without noise."""
    return noise_factors(cv, (normal,))[0]


def noise_factors(cv: float, normals: Iterable[float]) -> list[float]:
    """`noise_factor` of each of these numbers."""
    variance = math.log1p(cv * cv)
    sigma, half = math.sqrt(variance), variance / 2
    return [math.exp(sigma * normal - half) for normal in normals]


def noise_quantile(cv: float, share: float) -> float:
    """The factor that a `share` of all times keeps below; 1 without noise. A share of 1 is taken as SUREST."""
    return noise_factor(cv, NormalDist().inv_cdf(min(share, SUREST)))


@cache
def both_quantile(cv: float, share: float) -> float:
    """The factor on the expected sum of two independent times that a `share` of all sums keeps below.

    Two times vary by cv / sqrt 2 of their sum.
    """
    return noise_quantile(cv / math.sqrt(2.0), share)


def second_quantile(cv: float, share: float) -> float:
    """The factor on the second of two independent times, from when the first is expected to end to when both have.

    The wait for the first is over then, its uncertainty is not: two times vary by cv x sqrt 2 of one.
    """
    return noise_quantile(cv * math.sqrt(2.0), share)

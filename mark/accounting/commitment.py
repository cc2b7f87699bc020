"""A Savings Plan for a fleet: how much to commit to, and what that saves. Pure.

A plan of c USD an hour buys usage that costs c / (1 - discount) on demand, in each hour by itself: what an hour
does not use is paid all the same, and what it uses beyond is paid on demand (AWS, Savings Plans user guide, "How
Savings Plans apply to your AWS usage"). A plan for usage x of hours that cost s_h on demand costs

    sum over the hours of (1 - discount) x + max(0, s_h - x)

which is least where a share of 1 - discount of the hours uses more than x: a quantile, as the newsvendor's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.domain.errors import Misconfigured

Floats = NDArray[np.float64]


class Commitment(NamedTuple):
    """A Savings Plan: USD an hour that are committed to, and USD that it saves over the hours it was sized for."""

    usd_per_hour: float
    saved_usd: float


def best_commitment(hours_usd: Floats, discount: float) -> Commitment:
    """The plan that saves most over hours like these.

    hours_usd: shape (hours,), what each costs on demand. discount: of the plan's prices on those of on demand, in
    (0, 1). Misconfigured for another.
    """
    if not 0.0 < discount < 1.0:
        raise Misconfigured(f"a Savings Plan's discount is between 0 and 1, such as 0.27, not {discount:g}")
    if not hours_usd.size:
        return Commitment(0.0, 0.0)
    used = float(np.quantile(hours_usd, discount, method="inverted_cdf"))
    committed = (1.0 - discount) * used
    paid = committed * hours_usd.size + float(np.maximum(0.0, hours_usd - used).sum())
    return Commitment(committed, max(0.0, float(hours_usd.sum()) - paid))

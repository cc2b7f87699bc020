"""vCPU quotas of an account, by family of instance types and market."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from mark.domain.offerings.offering import Market

STANDARD = "standard"
P5 = "p5"
"""Its spot requests have a quota of their own; on demand they count as p (Service Quotas, L-C4BD4855)."""
_LETTERS = re.compile(r"^([a-z]+)")
_FAMILIES: Mapping[str, str] = {
    **dict.fromkeys(("a", "c", "d", "h", "hpc", "i", "im", "is", "m", "r", "t", "z"), STANDARD),
    **dict.fromkeys(("g", "gr", "vt"), "g"),
    **dict.fromkeys(("f", "inf", "p", "x", "trn", "dl"), ""),
}
"""Letters of a type -> its family; empty: the letters themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpuQuota:
    """vCPUs of a family that may run at once in a market."""

    family: str
    market: Market
    vcpus: float


Quotas = tuple[VcpuQuota, ...]


def quotas_beside(quotas: Quotas, instance_type: str, vcpus: float) -> Quotas:
    """Quotas less so many vCPUs of machines of the type, which run on demand."""
    own = quota_family(instance_type, Market.ON_DEMAND), Market.ON_DEMAND
    return tuple(
        replace(one, vcpus=max(0.0, one.vcpus - vcpus)) if (one.family, one.market) == own else one
        for one in quotas
    )


@cache
def quota_family(instance_type: str, market: Market) -> str:
    """The family whose quota a type counts against in a market; empty where it is not known."""
    if market is Market.SPOT and instance_type.startswith(P5):
        return P5
    found = _LETTERS.match(instance_type)
    letters = found[1] if found else ""
    return (_FAMILIES[letters] or letters) if letters in _FAMILIES else ""

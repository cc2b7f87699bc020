"""Sets of instance types that have a name: what stands in `offerings.types` and `--types` beside single types.

A set chooses among the profiled types of a model; it demands no profile, as a type does that is named itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from mark.catalog.load import PriceSnapshot
from mark.domain.errors import unknown
from mark.domain.offerings.offering import InstanceType

RETIRED_FAMILIES = ("p2", "p3")
"""EC2's own list of types no longer has them, though the price list still does: the instance-type reference of
aws/karpenter-provider-aws is made from DescribeInstanceTypes; that of version 1.0 has both, that of commit 1d92708
(2026-08-21) has neither."""
PAPER_FAMILIES = ("c5", "p2", "t2")
"""The types that MArk's evaluation rented (IEEE TCC 2020, ATC 2019: Tables 3 to 5)."""
PAPER, CURRENT, CPU = "paper", "current", "cpu"


def _family(item: InstanceType) -> str:
    return item.name.partition(".")[0]


def is_retired(item: InstanceType) -> bool:
    """Membership in a family that EC2 no longer lists."""
    return _family(item) in RETIRED_FAMILIES


TYPE_SETS: Mapping[str, Callable[[InstanceType], bool]] = MappingProxyType(
    {
        PAPER: lambda item: _family(item) in PAPER_FAMILIES,
        CURRENT: lambda item: not is_retired(item),
        CPU: lambda item: not is_retired(item) and not item.accelerator,
    }
)
"""Membership by the set's name."""
DEFAULT_SETS = (CURRENT,)
"""The types that may be rented where nobody names any."""


def split_types(types: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sets and the single types among the names; where nothing is named, the default sets."""
    names = tuple(types) or DEFAULT_SETS
    sets = tuple(name for name in names if name in TYPE_SETS)
    return sets, tuple(name for name in names if name not in TYPE_SETS)


def check_types(names: Iterable[str], prices: PriceSnapshot) -> None:
    """Refuse what is neither a set nor a priced type: Misconfigured has the nearest name."""
    known = (*TYPE_SETS, *(item.name for item in prices.types))
    for name in names:
        if name not in known:
            raise unknown("instance type", name, known)


def outside_reason(item: InstanceType, sets: Collection[str]) -> str | None:
    """Reason for which none of the sets has the type; None where one has it."""
    if any(TYPE_SETS[name](item) for name in sets):
        return None
    if is_retired(item):
        return "retired by AWS: rented only where it is named, or the set paper is"
    return f"not among the types of {' or '.join(sets)}"

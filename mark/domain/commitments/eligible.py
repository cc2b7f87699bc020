"""Usage that commitments may cover, and the sizes of instance types within their families."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mark.domain.offerings.offering import Market

FACTORS = {"nano": 0.25, "micro": 0.5, "small": 1.0, "medium": 2.0, "large": 4.0, "xlarge": 8.0}
"""Normalisation factors of sizes; Nxlarge has N times that of xlarge (EC2 user guide, "Reserved Instances")."""
_LARGER = re.compile(r"(\d+)xlarge")
INFLEXIBLE = re.compile(r"(g4ad|g4dn|g5g?|g6e?|gr6|hpc\w*|inf[12]|p5\w*|trn\w*|u\w*-\w+)")
"""Families whose reservations are for one size alone (same page)."""


class Compute(StrEnum):
    """The kind of compute that is used."""

    EC2 = "ec2"
    FARGATE = "fargate"
    LAMBDA = "lambda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage on demand of one kind within one hour."""

    compute: Compute
    #: Its price on demand.
    on_demand_usd: float
    #: Instance-hours; 0 of what is no instance.
    hours: float = 0.0
    instance_type: str = ""
    #: Availability zone; empty where it is not known.
    zone: str = ""

    @property
    def family(self) -> str:
        """Family of the instance type, such as c5."""
        return family_of(self.instance_type)


def running_hour(running: Iterable[tuple[str, float]]) -> tuple[Usage, ...]:
    """An hour of these instances: the offering of each, and its price, USD an hour. Spot is nobody's to cover."""
    counts: Counter[tuple[str, float]] = Counter()
    for offering, usd_per_hour in running:
        kind, _, rest = offering.partition(":")
        if rest.partition(":")[0] == Market.ON_DEMAND.value:
            counts[kind, usd_per_hour] += 1
    return tuple(
        Usage(compute=Compute.EC2, on_demand_usd=count * usd, hours=float(count), instance_type=kind)
        for (kind, usd), count in sorted(counts.items())
    )


def family_of(instance_type: str) -> str:
    """The family of an instance type: c5 of c5.xlarge."""
    return instance_type.partition(".")[0]


def units_of(instance_type: str) -> float | None:
    """Normalised units of one instance; None where its reservations hold for its size alone."""
    family, _, size = instance_type.partition(".")
    if INFLEXIBLE.fullmatch(family):
        return None
    larger = _LARGER.fullmatch(size)
    return FACTORS["xlarge"] * int(larger[1]) if larger else FACTORS.get(size)

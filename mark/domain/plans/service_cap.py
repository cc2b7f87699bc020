"""The cap of a service: the most that the instances of all its models may be at once, whatever their load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mark.domain.offerings.offering import Offering

EXACT = 1e-9
"""Share of a cap that rounding may add."""


class Takes(NamedTuple):
    """What instances take of each limit of a cap."""

    usd_per_hour: float = 0.0
    vcpus: float = 0.0
    gpus: float = 0.0

    def plus(self, other: Takes, times: float = 1.0) -> Takes:
        """Both together, the other `times` times."""
        return Takes(*(mine + times * its for mine, its in zip(self, other, strict=True)))

    def largest(self, other: Takes) -> Takes:
        """The larger of both, limit by limit."""
        return Takes(*map(max, self, other))


NOTHING = Takes()


def takes_of(offering: Offering, count: float = 1) -> Takes:
    """What so many instances of an offering take, at its price of now."""
    kind = offering.instance_type
    return Takes(count * offering.usd_per_hour, count * kind.vcpus, count * kind.accelerator_count)


@dataclass(frozen=True, kw_only=True)  # no slots: what is limited is kept
class ServiceCap:
    """The limits of all models' instances together; infinite where there is none."""

    usd_per_hour: float = math.inf
    vcpus: float = math.inf
    gpus: float = math.inf

    @cached_property
    def limits(self) -> Takes:
        """The same as what may be taken."""
        return Takes(self.usd_per_hour, self.vcpus, self.gpus)

    def __bool__(self) -> bool:
        """True where anything is limited."""
        return not all(map(math.isinf, self.limits))

    @property
    def words(self) -> str:
        """`2 USD/h and 16 vCPUs`."""
        units = ("USD/h", "vCPUs", "GPUs")
        said = (f"{most:g} {unit}" for most, unit in zip(self.limits, units, strict=True) if math.isfinite(most))
        return " and ".join(said)

    def holds(self, takes: Takes) -> bool:
        """True where so much may be taken."""
        return all(took <= limit * (1.0 + EXACT) for took, limit in zip(takes, self.limits, strict=True))

    def share(self, takes: Takes) -> float:
        """The largest share of a limit that is taken (dominant resource)."""
        return max(took / limit for took, limit in zip(takes, self.limits, strict=True))

    def fitting(self, one: Takes, count: int, taken: Takes) -> int:
        """Of so many instances, those that fit beside what is taken."""
        rooms = (
            (limit * (1.0 + EXACT) - used) / each
            for each, used, limit in zip(one, taken, self.limits, strict=True)
            if each > 0.0
        )
        return max(0, math.floor(min((count, *rooms))))


NO_CAP = ServiceCap()

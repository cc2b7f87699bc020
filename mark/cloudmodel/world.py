"""Worlds: how far the cloud departs from its averages, one description for replay and emulated AWS. Pure.

`ideal` is the world of the papers: every batch takes what its profile says, nothing is refused but by script.
`typical` is the default. `rough` is a bad day: nothing a service should be sized for, and nothing it may break in.

Where a figure comes from:

- Noise of a batch's time. Instances share hosts and caches; Clockwork (OSDI '20, section 2) measured how
  predictable inference is on a machine of one's own, clouds add neighbours. A profile that measured its
  coefficient of variation keeps it; 10 % is assumed elsewhere and 25 % in `rough`, until somebody measures.
- Lambda: 20 %, assumed. A function shares its host's memory bandwidth and is moved between generations of CPUs.
- Network: 1 ms a request, gateway to instance and back across zones: AWS states single-digit milliseconds between
  the zones of a region.
- Wakes: StartInstances on a stopped instance has to place it again and boot it. 75 s at the median for small
  types is this project's figure; larger types and GPUs take longer to place and load drivers: assumed.
- Refusals: "InsufficientInstanceCapacity" has no published rate; 1 % on demand and 5 % on spot are assumed, as is
  the 10 % of GPU wakes. After a pool was lost half of what is asked there is refused for half an hour: the
  capacity that was taken away is in use elsewhere (SkyServe and `spot-traces` show that launches in a zone fail
  for tens of minutes after a preemption).
- Quotas: 256 standard vCPU in each market is a usual account a while after its first weeks; G and P instances
  start at a few and none (Service Quotas: L-1216C47A, L-34B43A08, L-DB2E81BA, L-3819A6DF, L-417A185B,
  L-7212CCBC).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mark.domain.errors import unknown
from mark.domain.times import CloudTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One world. Chances are shares in [0, 1], coefficients of variation are deviation over mean."""

    name: str
    #: Boots, wakes and notices.
    times: CloudTimes = field(default_factory=CloudTimes)
    #: Coefficient of variation of a batch's time where no profile measured one.
    service_cv: float = 0.0
    #: Whether a profile's own measurement replaces it.
    uses_measured_cv: bool = False
    #: Coefficient of variation of a call's time on Lambda.
    lambda_cv: float = 0.0
    #: What the network adds to each answer, s.
    network_s: float = 0.0

    def cv_of(self, measured: float | None) -> float:
        """Coefficient of variation of a batch's time, where a profile measured it or not."""
        return measured if measured is not None and self.uses_measured_cv else self.service_cv


IDEAL = World(name="ideal")
TYPICAL = World(name="typical", service_cv=0.10, uses_measured_cv=True, lambda_cv=0.20, network_s=0.001)
ROUGH = World(name="rough", service_cv=0.25, lambda_cv=0.20, network_s=0.001)

_WORLDS = {world.name: world for world in (IDEAL, TYPICAL, ROUGH)}


def find_world(name: str) -> World:
    """The world of that name; Misconfigured where there is none."""
    if name not in _WORLDS:
        raise unknown("world", name, _WORLDS)
    return _WORLDS[name]

"""Worlds: how far the cloud departs from its averages, one description for replay and emulated AWS. Pure.

`ideal` is the world of the papers: every batch takes what its profile says, nothing is refused but by script.
`typical` is the default. `rough` is a bad day: nothing a service should be sized for, and nothing it may break in.

Where a figure comes from:

- A batch's time. Kairos' authors timed 99 repetitions of 2,000 cells (HPDC 2023, boringlee24/hpdc23-kairos
  fa20590): median coefficient of variation 1.0 % on g4dn.xlarge, 1.1 % on c5n.2xlarge, 1.7 % on r5n.large, 20.6 %
  on t3.xlarge, 95 % point of all 25 %. Those profiles carry their own; the machines did nothing else, so 10 % is
  assumed where nobody measured, and the 95 % point is `rough`.
- Lambda: 20 %, assumed. A function shares a host and is moved between generations of CPUs.
- Network: 1 ms an answer, within AWS's "single-digit millisecond" between the zones of a region.
- Wakes: a stopped instance has to be placed again and booted. 75 s at the median for small types is this project's
  figure; larger types take longer to place, GPUs to load drivers and weights: assumed.
- Refusals: nobody publishes how often InsufficientInstanceCapacity is met; all shares are assumed. Zones refuse
  together in 0.37 of the cases: of the time in which p3.2xlarge could not be had in a zone of us-west-2, none of
  the three had it for so much (45 days from 15 February 2023; skypilot-org/spot-traces 221da1a, NSDI 2024).
- Spot prices: `spot_prices.py`. Three zones, as regions have at least.
- Quotas: an account some weeks old, assumed; P is 0 until AWS raises it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mark.domain.offerings.offering import ANY_ZONE, InstanceType, MachineKind, Market, Offering
from mark.domain.offerings.quota import STANDARD, Quotas, VcpuQuota, quota_family
from mark.domain.offerings.times import CloudTimes, LognormalTime
from mark.domain.plans.service_cap import NO_CAP, ServiceCap


class WorldName(StrEnum):
    """The worlds that there are."""

    IDEAL = "ideal"
    TYPICAL = "typical"
    ROUGH = "rough"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One world. Chances are shares in [0, 1], coefficients of variation are deviation over mean."""

    name: WorldName
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

    #: Chance that launches of an offering are refused, by the minute; on spot, of each of its zones.
    on_demand_refused: float = 0.0
    spot_refused: float = 0.0
    #: Availability zones, of a spot pool each; one without a name where a type is a single pool, its price never
    #: moves, and nothing is told apart by zone.
    zones: tuple[str, ...] = ("",)
    #: Deviation of the logarithm of a type's price between zones, and at a knot of its drift.
    spot_zone_spread: float = 0.0
    spot_drift: float = 0.0
    #: Of the refusals of a zone, the share in which all zones refuse.
    refused_together: float = 0.0
    #: Chance that a stopped instance cannot be started, by the minute; the second with an accelerator.
    wake_refused: float = 0.0
    accelerated_wake_refused: float = 0.0
    #: The same for `after_loss_s` after a pool of the type was lost: of spot launches in that pool's zone, and of
    #: all launches on demand and wakes of the type, which are not told by zone.
    refused_after_loss: float = 0.0
    after_loss_s: float = 0.0
    #: A whole spot pool is lost once in so many seconds; None where none is.
    pool_loss_every_s: float | None = None
    #: vCPU quotas of the account; families without one have no limit.
    quotas: Quotas = ()
    #: What the account's owner lets all instances of the service be together.
    cap: ServiceCap = NO_CAP
    #: Kinds of machines that can be launched; None for any.
    machines: tuple[MachineKind, ...] | None = None
    #: Calls to Lambda at once at most; None for Lambda's usual quota.
    lambda_concurrency: int | None = None

    def cv_of(self, measured: float | None) -> float:
        """Coefficient of variation of a batch's time, where a profile measured it or not."""
        return measured if measured is not None and self.uses_measured_cv else self.service_cv

    def wake_refused_of(self, item: InstanceType) -> float:
        """Chance that a stopped instance of the type cannot be started."""
        return self.accelerated_wake_refused if item.accelerator else self.wake_refused

    def zones_for(self, offering: Offering) -> tuple[str, ...]:
        """The zones that a launch of the offering may go to; one without a name where they are not told apart."""
        return self.zones if offering.zone == ANY_ZONE else (offering.zone,)

    def pools_for(self, offering: Offering) -> tuple[str, ...]:
        """The zones of its pools; one without a name where its capacity and price are the same in all."""
        return tuple({pool_zone(offering.market, zone): None for zone in self.zones_for(offering)})

    def quota_of(self, item: InstanceType, market: Market) -> float:
        """VCPUs of the type's family that may run at once in a market; infinite where there is no limit."""
        family = quota_family(item.name, market)
        return next((q.vcpus for q in self.quotas if (q.family, q.market) == (family, market)), math.inf)


def pool_zone(market: Market, zone: str) -> str:
    """The zone by which a pool is told apart: empty on demand, where capacity and price are a region's."""
    return zone if market is Market.SPOT else ""


_QUOTAS = tuple(
    VcpuQuota(family=family, market=market, vcpus=vcpus)
    for family, vcpus in ((STANDARD, 256.0), ("g", 8.0), ("p", 0.0))
    for market in Market
)
IDEAL = World(name=WorldName.IDEAL)
TYPICAL = World(
    name=WorldName.TYPICAL,
    times=CloudTimes(
        wake_large=LognormalTime(median_s=90.0, p95_s=180.0),
        wake_accelerated=LognormalTime(median_s=120.0, p95_s=240.0),
    ),
    service_cv=0.10,
    uses_measured_cv=True,
    lambda_cv=0.20,
    network_s=0.001,
    on_demand_refused=0.01,
    spot_refused=0.05,
    zones=("a", "b", "c"),
    spot_zone_spread=0.10,
    spot_drift=0.026,
    refused_together=0.37,
    wake_refused=0.02,
    accelerated_wake_refused=0.10,
    refused_after_loss=0.5,
    after_loss_s=1800.0,
    quotas=_QUOTAS,
)
ROUGH = replace(
    TYPICAL,
    name=WorldName.ROUGH,
    service_cv=0.25,
    uses_measured_cv=False,
    wake_refused=0.5,
    accelerated_wake_refused=0.5,
    pool_loss_every_s=3600.0,
    lambda_concurrency=100,
)

WORLDS = {world.name: world for world in (IDEAL, TYPICAL, ROUGH)}

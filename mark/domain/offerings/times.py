"""Times of the cloud: boot, wake and notice, pinned for every figure in this project."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.offerings.offering import InstanceType

P95_SIGMAS = 1.6448536269514722
"""The standard normal's 95 % point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalTime:
    """A duration in seconds, lognormal with this median and 95 % point."""

    median_s: float
    p95_s: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.log(self.p95_s / self.median_s) / P95_SIGMAS

    @property
    def mean_s(self) -> float:
        """Its mean."""
        return self.median_s * math.exp(self.sigma**2 / 2)

    def at(self, normal: float) -> float:
        """The duration at `normal` standard deviations of its logarithm."""
        return self.median_s * math.exp(self.sigma * normal)


LAUNCH = LognormalTime(median_s=150.0, p95_s=270.0)
WAKE = LognormalTime(median_s=75.0, p95_s=110.0)
SMALL_VCPUS = 4
SPOT_NOTICE_S = 120.0
"""A spot notice comes two minutes before the instance is taken (EC2 user guide)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceAdvice:
    """How well rebalance recommendations foretell spot notices. AWS publishes no figure, so none is assumed here.

    "The signal can arrive sooner than the two-minute notice", or along with it, on a best-effort basis (EC2 user
    guide, "EC2 instance rebalance recommendations").
    """

    #: Share of the notices that a recommendation precedes, ...
    share: float
    #: ... by so long; one that would come before the launch comes with it.
    lead: LognormalTime
    #: Recommendations that no notice follows, as a multiple of the notices.
    unfounded: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudTimes:
    """Launch and wake times (launch to serving), of which `pending` is not billed, and the spot notice."""

    launch: LognormalTime = LAUNCH
    #: burstable types, and those of up to SMALL_VCPUS
    wake: LognormalTime = WAKE
    #: larger ones
    wake_large: LognormalTime = WAKE
    #: those with an accelerator
    wake_accelerated: LognormalTime = WAKE
    pending_min_s: float = 10.0
    pending_max_s: float = 20.0
    spot_notice_s: float = SPOT_NOTICE_S
    #: None where AWS recommends nothing before a notice.
    advice: RebalanceAdvice | None = None

    def wake_of(self, item: InstanceType) -> LognormalTime:
        """Time from the start of a stopped instance of the type to serving."""
        if item.accelerator:
            return self.wake_accelerated
        return self.wake if item.credits is not None or item.vcpus <= SMALL_VCPUS else self.wake_large

    @property
    def pending_s(self) -> float:
        """Mean unbilled time of a launch."""
        return (self.pending_min_s + self.pending_max_s) / 2

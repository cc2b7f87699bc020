"""The account's vCPU quotas in a replay: what plans count on, and what the clouds of all models enforce."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mark.controller.limits.quotas import QuotaLimits, SharedQuotas
from mark.domain.offerings.offering import Offering
from mark.domain.offerings.quota import Quotas
from mark.simulator.cloud import SimulatedCloud


class AccountQuotas:
    """Quotas of one account, and the clouds that rent under them. offerings: those of all, by name."""

    def __init__(self, quotas: Quotas, offerings: Mapping[str, Offering]) -> None:
        self._quotas, self._offerings = quotas, offerings
        self._clouds: list[SimulatedCloud] = []
        #: What plans know: notes of controllers, not what the world sees.
        self.shared = SharedQuotas(offerings.values())

    def watch(self, cloud: SimulatedCloud) -> None:
        """Refuse a cloud what exceeds the quotas, beside what the others run."""
        if self._quotas:
            cloud.left_of_quotas = self._left
            self._clouds.append(cloud)

    def _left(self, offering: str) -> float:
        counts = Counter[str]()
        for cloud in self._clouds:
            counts.update(cloud.observe().awake)
        return QuotaLimits(self._quotas, self._offerings.values(), counts).left(offering)

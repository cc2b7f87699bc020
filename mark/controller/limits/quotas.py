"""The account's vCPU quotas by family and market, and the instances that they still allow. Pure.

EC2 counts the vCPUs of what runs, boots or stops, not of what is stopped. A family is a group of types that share
a quota. A model plans within what the service's other models and the shared instances leave: who asks first gets
it, and who gets none plans other types, another market or Lambda. What others of the account run is not known
here: EC2 refuses what is too much then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from mark.controller.policy import ControllerPolicy
from mark.domain.fleet.instances import FleetView
from mark.domain.offerings.offering import Market, Offering
from mark.domain.offerings.quota import Quotas, quota_family

Vcpus = Counter[tuple[str, Market]]
"""vCPUs by family and market."""


class QuotaLimits:
    """The quotas less `counts` instances by offering; what is reserved counts from then on."""

    def __init__(self, quotas: Quotas, offerings: Iterable[Offering], counts: Mapping[str, int]) -> None:
        self._offerings = {item.name: item for item in offerings}
        self._left: dict[tuple[str, Market], float] = {(q.family, q.market): q.vcpus for q in quotas}
        for name, count in counts.items():
            self.reserve(name, count)

    def left(self, name: str) -> float:
        """Instances of the offering that may still be launched; infinite where no quota is known."""
        item = self._offerings.get(name)
        left = self._left.get(_quota_group(item), math.inf) if item else math.inf
        return left if item is None or math.isinf(left) else max(0, math.floor(left / item.instance_type.vcpus))

    def reserve(self, name: str, count: int) -> None:
        """Count a launch against its family's quota."""
        item = self._offerings.get(name)
        if item is not None and _quota_group(item) in self._left:
            self._left[_quota_group(item)] -= count * item.instance_type.vcpus


class SharedQuotas:
    """The account's quotas among their users: each leaves the others the rest. offerings: those of all.

    A user is a model of the service, or the shared instances.
    """

    def __init__(self, offerings: Iterable[Offering]) -> None:
        self._offerings = {item.name: item for item in offerings}
        self._taken: dict[str, Vcpus] = {}
        self._total: Vcpus = Counter()

    def note(self, user: str, counts: Mapping[str, int]) -> None:
        """Replace what a user takes: instances by offering (`counted`)."""
        taken: Vcpus = Counter()
        for name, count in counts.items():
            if (item := self._offerings.get(name)) is not None:
                taken[_quota_group(item)] += count * item.instance_type.vcpus
        before = self._taken.get(user, Counter())
        if taken != before:
            self._taken[user], self._total = taken, self._total - before + taken

    def left_for(self, user: str, quotas: Quotas | None) -> Quotas | None:
        """The quotas less what all others take; None where none are known."""
        others = self._total - self._taken.get(user, Counter())
        if quotas is None or not others:
            return quotas
        return tuple(replace(one, vcpus=max(0.0, one.vcpus - others[one.family, one.market])) for one in quotas)


def takes_alone(_counts: Mapping[str, int]) -> None:
    """Nobody else counts on the same quotas."""


def no_new_quotas() -> Quotas | None:
    """The reading of a world whose quotas stay as they are: a replay's, or a test's."""
    return None


def known_quotas(policy: ControllerPolicy, read: Quotas | None) -> Quotas:
    """Quotas that were left at the last reading; the policy's where there was none."""
    return policy.quotas if read is None else read


def counted(fleet: FleetView, requested: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Instances by offering that count against quotas: all but stopped ones, and those on their way."""
    counts = dict(fleet.awake)
    for name, count in requested:
        counts[name] = counts.get(name, 0) + count
    return counts


def _quota_group(item: Offering) -> tuple[str, Market]:
    return quota_family(item.instance_type.name, item.market), item.market

"""The account's quotas are read again each hour, and a reading that fails leaves the last one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import STANDARD, Quotas, VcpuQuota
from mark.live.control import journal_opening
from mark.live.control.journal_opening import fleet_quotas
from mark.live.control.watches.quota_watch import AGAIN_S, EACH_S, QuotaWatch
from tests.aws.builders import HandClock


class Account:
    """An account whose quotas change, and may not be had."""

    def __init__(self) -> None:
        self.vcpus, self.refuses, self.asked = 5.0, False, 0
        self.recorded: list[str | None] = []

    def read(self) -> Quotas:
        self.asked += 1
        if self.refuses:
            raise Misconfigured("ListServiceQuotas: AccessDenied")
        return (VcpuQuota(family=STANDARD, market=Market.ON_DEMAND, vcpus=self.vcpus),)


@pytest.mark.parametrize(("nodes", "left"), [(1, 3.0), (2, 0.0)])
def test_a_fleet_leaves_its_nodes_the_vcpus_of_an_update(
    monkeypatch: pytest.MonkeyPatch, nodes: int, left: float
) -> None:
    """Of two vCPUs each; one more of two nodes begins before the old ones end. Spot has a quota of its own."""
    account, spot = Account(), VcpuQuota(family=STANDARD, market=Market.SPOT, vcpus=5.0)
    monkeypatch.setattr(journal_opening, "read_quotas", lambda _aws: (*account.read(), spot))
    settings, there = Settings.model_validate({"rollout": {"nodes": nodes}}), cast("Any", None)
    assert [one.vcpus for one in fleet_quotas(there, settings)] == [left, 5.0]


def test_quotas_are_read_at_once_and_then_each_hour() -> None:
    account, clock = Account(), HandClock()
    watch = QuotaWatch(account.read, clock=clock, record=account.recorded.append)
    assert watch.latest() is None
    watch.poll()
    account.vcpus = 64.0
    clock.at += EACH_S - 1.0
    watch.poll()
    assert watch.latest() == (VcpuQuota(family=STANDARD, market=Market.ON_DEMAND, vcpus=5.0),)
    clock.at += 1.0
    watch.poll()
    assert watch.latest() == (VcpuQuota(family=STANDARD, market=Market.ON_DEMAND, vcpus=64.0),)
    assert account.asked == 2


def test_quotas_that_cannot_be_read_stay_are_told_and_are_asked_for_again_soon() -> None:
    account, clock = Account(), HandClock()
    watch = QuotaWatch(account.read, clock=clock, record=account.recorded.append)
    watch.poll()
    account.refuses = True
    clock.at += EACH_S
    watch.poll()
    before = watch.latest()
    assert before is not None
    account.refuses = False
    clock.at += AGAIN_S
    watch.poll()

    assert watch.latest() == before
    assert account.recorded == [None, "ListServiceQuotas: AccessDenied", None]

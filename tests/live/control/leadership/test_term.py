"""What a controller makes sure of before it acts in its predecessor's place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.domain.billing.spending import SpendingLimit
from mark.domain.errors import RetryLater
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.lease import STORE_LEASE, LeaseLost, LeaseTimes
from mark.domain.offerings.offering import Market
from mark.domain.offerings.quota import STANDARD, VcpuQuota
from mark.live.control.leadership.term import Term
from tests.planner.builders import offering

ITEM = offering("c5.large")
QUOTAS = tuple(VcpuQuota(family=STANDARD, market=market, vcpus=64.0) for market in Market)


class Acts:
    """A service with two models, whose drivers say what they do."""

    def __init__(self, *, lease_lost: bool = False, times: LeaseTimes = STORE_LEASE) -> None:
        self.said: list[str] = []
        self.shared: Any = None
        self.renewed = threading.Event()
        self._lost = lease_lost
        self.leases = self
        self.times = times

    def spec(self) -> Any:
        return SimpleNamespace(shared=None)

    def status(self, _name: str) -> dict[str, Any]:
        return {"events_url": "https://queue"}

    def keep_scripts(self) -> None:
        pass

    def renew(self, _lease: object) -> None:
        self.said.append("renew")
        self.renewed.set()
        if self._lost:
            raise LeaseLost("another one acts")

    def run(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = lambda: None) -> None:
        """Run a term, whose drivers' making takes until `before` returns."""

        def make_driver(model: Any, _forecasters: Any, shared: Any, *_: Any) -> Any:
            before()
            self.shared = shared

            def act() -> None:
                self.said.append(f"{model.name} submits")
                if model.name == "b":
                    raise RetryLater("the test is over")

            def observe() -> None:
                self.said.append(f"{model.name} looks")

            return SimpleNamespace(observe=observe, act=act, is_due=lambda: True)

        monkeypatch.setattr(
            "mark.live.control.leadership.term.EventInbox",
            lambda *_, **__: SimpleNamespace(start=lambda: None, close=lambda: None),
        )
        unlimited = SimpleNamespace(
            poll=lambda: None,
            run=threading.Event.wait,
            spending_limit=lambda: SpendingLimit.NONE,
            latest=lambda: QUOTAS,
        )
        monkeypatch.setattr("mark.live.control.leadership.term.BudgetWatch", lambda *_, **__: unlimited)
        monkeypatch.setattr("mark.live.control.leadership.term.QuotaWatch", lambda *_, **__: unlimited)
        monkeypatch.setattr("mark.live.control.leadership.term.ServiceClock", lambda _: None)
        anything: Any = SimpleNamespace(sqs=None, epoch=1)
        models: Any = [
            SimpleNamespace(name=name, served=SimpleNamespace(offerings=(ITEM,))) for name in ("a", "b")
        ]
        store: Any = self
        term = Term(
            Settings(),
            store=store,
            aws=anything,
            lease=anything,
            failures=anything,
            outside=lambda: None,
            make_driver=make_driver,
        )
        term.run(models, {"a": anything, "b": anything}, threading.Event())


def test_all_models_are_looked_at_and_the_lease_is_renewed_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acts = Acts()
    with pytest.raises(RetryLater):
        acts.run(monkeypatch)

    assert acts.said[:3] == ["a looks", "b looks", "renew"]
    assert set(acts.said[3:]) == {"a submits", "b submits"}


def test_each_model_hears_what_the_others_leave_of_the_accounts_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = Acts()
    with pytest.raises(RetryLater):
        acts.run(monkeypatch)
    acts.shared.took("a", {ITEM.name: 3})
    assert acts.shared.quotas("a") == QUOTAS
    on_demand, spot = acts.shared.quotas("b")
    assert (on_demand.vcpus, spot.vcpus) == (64.0 - 3 * ITEM.instance_type.vcpus, 64.0)
    assert acts.shared.quotas(SHARED) == (on_demand, spot)


def test_who_has_lost_the_lease_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = Acts(lease_lost=True)
    with pytest.raises(LeaseLost):
        acts.run(monkeypatch)

    assert not [word for word in acts.said if word.endswith("submits")]


def test_the_lease_is_renewed_while_the_drivers_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = Acts(times=LeaseTimes(ttl_s=1.0, renew_s=0.001, retry_s=1.0))
    with pytest.raises(RetryLater):
        acts.run(monkeypatch, before=lambda: acts.renewed.wait(60.0))

    assert acts.said[0] == "renew"

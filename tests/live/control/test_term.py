"""What a controller makes sure of before it acts in its predecessor's place."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mark.config.settings import Settings
from mark.domain.billing.spending import SpendingLimit
from mark.domain.lease import STORE_LEASE, LeaseLost
from mark.live.control.term import Term


class Acts:
    """A service with two models, whose drivers say what they do."""

    def __init__(self, *, lease_lost: bool = False) -> None:
        self.said: list[str] = []
        self._lost = lease_lost
        self.leases = self
        self.times = STORE_LEASE

    def spec(self) -> Any:
        return SimpleNamespace(shared=None)

    def status(self, _name: str) -> dict[str, Any]:
        return {"events_url": "https://queue"}

    def renew(self, _lease: object) -> None:
        self.said.append("renew")
        if self._lost:
            raise LeaseLost("another one acts")

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def make_driver(model: Any, *_: Any) -> Any:
            def run(over: threading.Event) -> None:
                self.said.append(f"{model.name} submits")
                over.set()

            def observe() -> None:
                self.said.append(f"{model.name} looks")

            return SimpleNamespace(observe=observe), run

        monkeypatch.setattr(
            "mark.live.control.term.EventInbox",
            lambda *_, **__: SimpleNamespace(start=lambda: None, close=lambda: None),
        )
        unlimited = SimpleNamespace(
            poll=lambda: None, run=lambda _: None, spending_limit=lambda: SpendingLimit.NONE
        )
        monkeypatch.setattr("mark.live.control.term.BudgetWatch", lambda *_, **__: unlimited)
        monkeypatch.setattr("mark.live.control.term.ServiceClock", lambda _: None)
        anything: Any = SimpleNamespace(sqs=None, epoch=1)
        models: Any = [SimpleNamespace(name=name, served=SimpleNamespace(offerings=())) for name in ("a", "b")]
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
    acts.run(monkeypatch)

    assert acts.said[:3] == ["a looks", "b looks", "renew"]
    assert set(acts.said[3:]) == {"a submits", "b submits"}


def test_who_has_lost_the_lease_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = Acts(lease_lost=True)
    with pytest.raises(LeaseLost):
        acts.run(monkeypatch)

    assert not [word for word in acts.said if word.endswith("submits")]

"""Which controller says what the service is: the one that acts."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mark.config.service import ServiceSettings
from mark.domain.errors import RetryLater
from mark.domain.fleet.lease import LeaseLost, LeaseTimes
from mark.live.control.leadership import leader_election

TIMES = LeaseTimes(ttl_s=3.0, renew_s=0.75, retry_s=0.001)


class Node:
    """A node that says what its store is to be."""

    def __init__(self, heard: list[str], *, ready: bool = True) -> None:
        self.heard, self.ready = heard, ready

    def may_lead(self) -> bool:
        if not self.ready:
            self.heard.append("lacks data")
        return self.ready

    def lead(self) -> None:
        self.heard.append("lead")

    def resign(self) -> None:
        self.heard.append("resign")

    def follow(self) -> None:
        self.heard.append("follow")

    def beside(self, over: threading.Event) -> None:
        over.wait()


def said(
    monkeypatch: pytest.MonkeyPatch,
    *,
    free: bool = True,
    renews: tuple[Exception | None, ...] = (),
    heard: list[str] | None = None,
    node: Node | None = None,
) -> list[str]:
    """What a controller's process does until its first term ends, or until it has asked for the lease thrice."""
    heard = [] if heard is None else heard
    over = threading.Event()
    answers = list(renews)

    def acquire(_holder: str, _ttl_s: float) -> object:
        heard.append("acquire")
        if heard.count("acquire") == 3:
            over.set()
        return SimpleNamespace(epoch=1) if free else None

    def renew(_lease: object) -> None:
        error = answers.pop(0) if answers else None
        if error is not None:
            raise error

    def run(*_: object, **__: object) -> None:
        heard.append("act")
        over.set()

    leases = SimpleNamespace(times=TIMES, acquire=acquire, renew=renew, release=lambda _lease: None)
    anything: Any = SimpleNamespace(
        service=ServiceSettings(),
        leases=leases,
        take_over=lambda _lease, _models: None,
        name="test",
        record=lambda *_: None,
    )
    monkeypatch.setattr(leader_election, "aws_of", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(leader_election, "Term", lambda *_, **__: SimpleNamespace(run=run))
    monkeypatch.setattr(leader_election, "NightlyReplays", lambda *_, **__: SimpleNamespace(run=None))
    monkeypatch.setattr(leader_election, "start_background_worker", lambda **_: None)
    monkeypatch.setattr(leader_election, "read_pause", lambda *_: None)
    monkeypatch.setattr(leader_election, "TRY_EACH_S", 0.001)
    monkeypatch.setattr(leader_election, "PAUSE_S", 0.001)
    leader = leader_election.Leader(
        anything,
        anything,
        (),
        store=anything,
        holder="test",
        failures=anything,
        forecasters=leader_election.Forecasters(by_model={}),
        publish=lambda: heard.append("publish"),
        node=node,
    )
    leader.run(over)
    return heard


def test_who_acts_says_first_what_the_service_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch) == ["acquire", "publish", "act"]


def test_who_waits_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, free=False) == ["acquire", "acquire", "acquire"]


def test_who_slept_and_lost_the_lease_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, renews=(LeaseLost("another acts"),)) == ["acquire", "acquire", "publish", "act"]


def test_it_is_said_again_after_the_store_was_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, renews=(RetryLater("unreachable"),)) == ["acquire", "publish", "act"]


def test_a_node_leads_with_its_lease_and_resigns_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    said(monkeypatch, heard=heard, node=Node(heard))
    assert heard == ["acquire", "lead", "publish", "act", "resign"]


def test_a_node_whose_lease_cannot_be_renewed_takes_no_more_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot know whether another one leads by now."""
    heard: list[str] = []
    away = RetryLater("the table is away")
    said(monkeypatch, renews=(away, away), heard=heard, node=Node(heard))
    assert heard == ["acquire", "resign", "lead", "publish", "act", "resign"]


def test_a_node_that_waits_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    said(monkeypatch, free=False, heard=heard, node=Node(heard))
    assert heard == ["acquire", "follow"] * 3

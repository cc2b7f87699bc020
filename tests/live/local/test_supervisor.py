"""When a service that starts counts as ready, also where its store remembers an earlier life."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mark.domain.errors import RetryLater
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import MemberState
from mark.domain.load.traffic import Warmed
from mark.live.local.startup import is_ready, is_warm, published_since

SINCE = 1000.0


class Store:
    """What a controller told last, and who serves."""

    def __init__(self, at: float | None, members: int, *, unreachable: bool = False) -> None:
        self.at, self.unreachable = at, unreachable
        self.found = [SimpleNamespace(state=MemberState.READY, role=Role.SERVING)] * members
        self.found += [SimpleNamespace(state=MemberState.READY, role=Role.STANDBY)] * 3

    def status(self, name: str) -> dict[str, Any] | None:
        assert name in ("model:m", "hosts")
        if self.at is None or name == "hosts":
            return None
        return {"at": self.at, "planned": {"small": 1, "large": 1}}

    def membership(self, _model: str) -> Any:
        return self

    def members(self) -> list[Any]:
        if self.unreachable:
            raise RetryLater("unreachable")
        return self.found


@pytest.mark.parametrize(
    ("store", "ready"),
    [
        (Store(None, 2), False),
        (Store(SINCE - 1.0, 2), False),  # the last word of the life before
        (Store(SINCE, 1), False),
        (Store(SINCE, 2), True),
        (Store(SINCE + 60.0, 2), True),
        (Store(SINCE, 2, unreachable=True), False),
    ],
)
def test_the_first_fleet_is_that_which_this_life_planned(store: Any, ready: bool) -> None:
    assert is_ready(store, "m", SINCE) is ready


def test_a_plan_of_an_earlier_life_is_none() -> None:
    store: Any = Store(SINCE - 1.0, 0)
    assert published_since(store, "m", SINCE) is None
    assert published_since(store, "m", SINCE - 1.0)


class WarmingStore(Store):
    """A controller that ordered warm environments at `ordered_at`, and what was warmed since."""

    def __init__(self, ordered_at: float, warmed: Warmed | None) -> None:
        super().__init__(SINCE, 0)
        self.ordered_at, self.found_warm = ordered_at, warmed

    def status(self, name: str) -> dict[str, Any] | None:
        order = {"at": self.ordered_at, "kind": "warm-lambda", "what": "2 environments", "reason": "load"}
        return {**(super().status(name) or {}), "decisions": [order]}

    def versions(self, _model: str) -> Any:
        return SimpleNamespace(stable="v1")

    def warmed(self, _model: str, version: str) -> Warmed | None:
        assert version == "v1"
        return self.found_warm


def warm(at: float, share: int) -> Warmed:
    return Warmed(model="m", at=at, share=share, version="v1")


@pytest.mark.parametrize(
    ("store", "is_there"),
    [
        (WarmingStore(SINCE, None), False),
        (WarmingStore(SINCE, warm(SINCE - 1.0, 2)), False),  # of the life before
        (WarmingStore(SINCE, warm(SINCE, 0)), False),  # no ping was answered
        (WarmingStore(SINCE, warm(SINCE, 2)), True),
        (WarmingStore(SINCE - 1.0, None), True),  # this life ordered none
    ],
)
def test_what_the_first_plan_orders_warm_is_waited_for(store: Any, is_there: bool) -> None:
    served: Any = SimpleNamespace(name="m", function_versions=True)
    assert is_warm(store, served, SINCE) is is_there

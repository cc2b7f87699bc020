"""When a service that starts counts as ready, also where its store remembers an earlier life."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mark.domain.errors import RetryLater
from mark.domain.fleet import Role
from mark.domain.member import MemberState
from mark.live.local.startup import is_ready, published_since

SINCE = 1000.0


class Store:
    """What a controller told last, and who serves."""

    def __init__(self, at: float | None, members: int, *, unreachable: bool = False) -> None:
        self.at, self.unreachable = at, unreachable
        self.found = [SimpleNamespace(state=MemberState.READY, role=Role.SERVING)] * members
        self.found += [SimpleNamespace(state=MemberState.READY, role=Role.STANDBY)] * 3

    def status(self, name: str) -> dict[str, Any] | None:
        assert name == "model:m"
        return None if self.at is None else {"at": self.at, "planned": {"small": 1, "large": 1}}

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

"""What the emulated AWS forgot when it ended is made again, however often that fails at first."""

from __future__ import annotations

from mark.domain.errors import RetryLater
from mark.live.local.account_upkeep import AccountUpkeep
from tests.waiting import until


def test_a_lost_account_is_set_up_until_that_succeeds() -> None:
    tries: list[str] = []

    def set_up() -> None:
        tries.append("try")
        if len(tries) < 3:
            raise RetryLater("the emulated AWS does not answer")

    upkeep = AccountUpkeep(set_up)
    upkeep.begin()
    try:
        upkeep.lost()
        assert upkeep.missing_since is not None
        until(lambda: upkeep.missing_since is None)
        assert len(tries) == 3
        upkeep.lost()
        until(lambda: upkeep.missing_since is None and len(tries) == 4)
    finally:
        upkeep.end()
    assert upkeep.why == ""


def test_it_ends_while_it_fails() -> None:
    def set_up() -> None:
        raise RetryLater("away")

    upkeep = AccountUpkeep(set_up)
    upkeep.begin()
    upkeep.lost()
    until(lambda: upkeep.why)
    upkeep.end()
    assert not upkeep._thread.is_alive()

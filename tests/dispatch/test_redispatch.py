"""A request whose server was lost is tried once more, and never a third time."""

from __future__ import annotations

import pytest

from mark.dispatch.redispatch import AfterLoss, after_loss, at_work


@pytest.mark.parametrize(
    ("allowed", "losses", "waited_s", "found"),
    [
        (True, 0, 0.1, AfterLoss.AGAIN),
        (True, 1, 0.1, AfterLoss.AGAIN),
        (True, 2, 0.1, AfterLoss.GIVEN_UP),
        (True, 1, 61.0, AfterLoss.EXPIRED),
        (False, 1, 0.1, AfterLoss.FORBIDDEN),
    ],
)
def test_two_tries_in_all(allowed: bool, losses: int, waited_s: float, found: AfterLoss) -> None:
    assert after_loss(allowed=allowed, losses=losses, waited_s=waited_s, give_up_s=60.0) is found


def test_the_batch_that_ran_and_the_one_before_it_may_be_guilty() -> None:
    assert at_work(4) == 8

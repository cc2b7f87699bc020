"""A pause from outside as controllers hear of it: the last answer holds until there is another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.controller.limits.spending_limit import sendable_orders
from mark.domain.billing.spending import OutsidePause, SpendingLimit
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.domain.fleet.orders import Drain, Launch, Order, StartStandby
from mark.live.control.watches.outside_pause_watch import OutsidePauseWatch
from mark.store.published_status import OutsidePauseStatus
from tests.aws.builders import launch

ANSWERS = st.one_of(
    st.none(),
    st.builds(OutsidePause, by=st.sampled_from(["anna", ""]), at=st.sampled_from([0.0, 1.0])),
    st.builds(RetryLater, st.just("throttled")),
    st.builds(Misconfigured, st.just("not allowed")),
)


@given(answers=st.lists(ANSWERS, max_size=8))
def test_an_answer_holds_until_there_is_another_and_no_error_is_one(
    answers: list[OutsidePause | MarkError | None],
) -> None:
    told: list[str | None] = []
    left = iter(answers)

    def read() -> OutsidePause | None:
        answer = next(left)
        if isinstance(answer, MarkError):
            raise answer
        return answer

    watch = OutsidePauseWatch(read, record=told.append)
    expected: OutsidePauseStatus | None = None
    for answer in answers:
        watch.poll()
        if not isinstance(answer, MarkError):
            expected = OutsidePauseStatus(pause=answer)
        assert watch.latest() == expected
        assert told[-1] == (str(answer) if isinstance(answer, MarkError) else None)


LEFT: tuple[Order, ...] = (
    launch(2),
    StartStandby(token="t1-2", reason="r", instances=("i-1",)),
    Drain(token="t1-3", reason="r", instances=("i-2",)),
)


@pytest.mark.parametrize("limit", SpendingLimit)
def test_a_controller_that_takes_over_a_paused_service_sends_no_launch_that_was_left(limit: SpendingLimit) -> None:
    sent = sendable_orders(LEFT, limit)
    assert sent == (LEFT[2:] if limit is SpendingLimit.PAUSE else LEFT)
    assert any(isinstance(order, Launch) for order in sent) == (limit is not SpendingLimit.PAUSE)

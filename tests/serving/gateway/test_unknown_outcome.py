"""A call of Lambda that may have run, or run still: it is run elsewhere only where the model allows it twice."""

from __future__ import annotations

import pytest

from mark.dispatch.policy import Bounced, DispatchPolicy
from mark.domain.errors import OutcomeUnknown, RetryLater
from mark.ports import InferRequest, OverflowReply
from tests.serving.fakes import FakeLambda
from tests.serving.harness import LAMBDA, live, served


class LostLambda(FakeLambda):
    """Its connection is lost while it works, or it throttles."""

    def __init__(self, error: RetryLater) -> None:
        super().__init__()
        self._error = error

    async def invoke(self, function: str, request: InferRequest, timeout_s: float) -> OverflowReply:
        self.calls.append((function, request))
        raise self._error


@pytest.mark.parametrize(
    ("error", "redispatch", "status"),
    [
        (OutcomeUnknown("lost"), False, 502),
        (OutcomeUnknown("lost"), True, 200),
        (RetryLater("throttled"), False, 200),
    ],
)
async def test_what_lambda_may_have_run_is_run_again_only_where_the_model_allows_it(
    error: RetryLater, redispatch: bool, status: int
) -> None:
    overflow = LostLambda(error)
    model = served(dispatch=DispatchPolicy(bounced=Bounced.LAMBDA), overflow=LAMBDA, redispatch=redispatch)
    async with live(model, overflow=overflow) as running:
        reply = await running.ask(x_mark_deadline_ms="1")

        assert reply.status == status
        assert len(overflow.calls) == 1
        assert len(running.agents["i-0"].backend.batches) == (1 if status == 200 else 0)
        await running.until_metric('mark_gateway_failed_total{model="echo"}', 1 if status == 502 else 0)

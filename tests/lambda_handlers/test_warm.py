"""Warm-up pings from within AWS, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mark.domain.errors import Misconfigured
from mark.lambda_handlers import warm
from tests.aws.lambda_stand_in import COLD, LambdaStandIn, log
from tests.lambda_handlers.records import CONTEXT


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[LambdaStandIn]:
    warm._client.cache_clear()
    with LambdaStandIn(lambda _: (200, log(COLD), b"{}")) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        yield made
        warm._client().close()
    warm._client.cache_clear()


def test_so_many_pings_and_what_became_of_them(stand_in: LambdaStandIn) -> None:
    done = warm.handler({"function": "mark-shop-infer-m", "concurrency": 3, "hold_s": 0.5}, CONTEXT)

    assert done == {"answered": 3, "cold": 3, "failed": 0, "gib_s": pytest.approx(1.2)}
    assert {path for path, _ in stand_in.calls} == {"/2015-03-31/functions/mark-shop-infer-m/invocations"}
    events = [event for _, event in stand_in.calls]
    assert all(event["mark-warm"] for event in events)
    assert min(event["hold_s"] for event in events) == 0.5


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"function": "", "concurrency": 1},
        {"function": "f"},
        {"function": "f", "concurrency": -1},
        {"function": "f", "concurrency": True},
        {"function": "f", "concurrency": 1001},
        {"function": "f", "concurrency": 1, "hold_s": "long"},
        {"function": "f", "concurrency": 1, "hold_s": 3600},
    ],
)
def test_a_wrong_event_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        warm.handler(event, CONTEXT)

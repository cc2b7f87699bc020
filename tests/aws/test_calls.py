"""The list of AWS calls is what the code calls: no more, no less."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import botocore.handlers
import pytest
from moto import mock_aws

from lambda_handlers import interruption, warm
from mark.aws.calls import CALLS
from mark.aws.overflow import LambdaOverflow
from mark.aws.setting_up import set_up, tear_down
from mark.domain.fleet import Role
from mark.domain.orders import SpotWarned, StartStandby, StopStandby, Terminate
from mark.ports import InferRequest
from tests.aws.builders import SLEEPER, Scene, launch, scene, service, zipped
from tests.lambda_handlers.records import CONTEXT, batch, spot_event


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """(service, action) of every call that any boto3 client of this process makes."""
    calls: set[tuple[str, str]] = set()

    def note(model: Any, **_: Any) -> None:
        calls.add((model.service_model.service_name, model.name))

    handlers = [*botocore.handlers.BUILTIN_HANDLERS, ("before-call", note)]
    monkeypatch.setattr(botocore.handlers, "BUILTIN_HANDLERS", handlers)
    return calls


def live(there: Scene) -> None:
    """A life of a service: launch, sleep, wake, hear of a notice, end; a bounced request, pings."""
    there.cloud.submit(launch(1, kind=SLEEPER.name, role=Role.STANDBY))
    names = tuple(there.ids())
    for order in (
        StopStandby(token="t2-1", reason="r", instances=names),
        StartStandby(token="t3-1", reason="r", instances=names),
        Terminate(token="t4-1", reason="r", instances=names),
    ):
        there.cloud.submit(order)
    there.send(SpotWarned(instance=names[0], at=1.0, gone_at=2.0))
    assert there.cloud.facts()
    there.cloud.facts()
    there.send(SpotWarned(instance=names[0], at=1.0, gone_at=3.0))
    there.inbox.close()
    overflow = LambdaOverflow(there.aws, concurrency=1)
    asked = InferRequest(path="/p", content_type="application/json", body=b"{}")
    asyncio.run(overflow.invoke("mark-shop-infer-m", asked, 5.0))
    overflow.close()


def test_all_that_is_called_is_listed(called: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    interruption._queue.cache_clear()
    warm._client.cache_clear()
    with mock_aws(config={"lambda": {"use_docker": False}}):
        there = scene()
        live(there)
        monkeypatch.setenv("EVENTS_QUEUE_URL", there.events_url)
        assert interruption.handler(batch(json.dumps(spot_event())), CONTEXT) == {"batchItemFailures": []}
        warm.handler({"function": "mark-shop-infer-m", "concurrency": 1}, CONTEXT)
        set_up(there.aws, service(store_url="redis://y", code=zipped("pass  # better"), handler_memory_mib=512))
        tear_down(there.aws, "shop")
        there.close()
        interruption._queue().close()
        warm._client().close()
    interruption._queue.cache_clear()
    warm._client.cache_clear()

    assert called == CALLS

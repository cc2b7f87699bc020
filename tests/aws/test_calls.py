"""The list of AWS calls is what the code calls, role by role: no more, no less; and permissions allow it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from moto import mock_aws

from mark.aws.account.quotas import read_quotas
from mark.aws.alarms import read_alerts
from mark.aws.archive import put_object
from mark.aws.client_tokens import valid_tokens
from mark.aws.ec2.inventory import default_subnets
from mark.aws.functions.overflow import LambdaOverflow
from mark.aws.functions.probe import ask_from_within
from mark.aws.functions.warmup import warm_up
from mark.aws.outside_pause import read_pause
from mark.aws.provision import set_up, tear_down
from mark.aws.stacks.cloudformation import Stacks
from mark.aws.trainings import carry_out, fetch_result, order_training, training_key
from mark.domain.demand import Demand
from mark.domain.errors import MarkError
from mark.domain.fleet.instances import Role
from mark.domain.fleet.orders import SpotWarned, StartStandby, StopStandby, Terminate
from mark.lambda_handlers import interruption, orphans, warm, webhook
from mark.plugins.trained import TrainingOrder, read_result
from mark.ports import InferRequest
from tests.aws.builders import REPORT, SLEEPER, SPOT, Scene, infer_function, launch, scene, service, zipped
from tests.aws.iam import NAMES
from tests.aws.recording import Recorder
from tests.lambda_handlers.records import CONTEXT, batch, spot_event

ORDER = TrainingOrder(
    forecaster="last-value", history=Demand(end_at=60.0, mean_rps=(1.0,), max_rps=(1.0,)), seed=0, version="1"
)


def controller(there: Scene) -> None:
    """Launch, sleep, wake, end, and one that stays."""
    there.cloud.submit(launch(1, kind=SLEEPER.name, role=Role.STANDBY))
    names = tuple(there.ids())
    for order in (
        StopStandby(token="t2-1", reason="r", instances=names),
        StartStandby(token="t3-1", reason="r", instances=names),
        Terminate(token="t4-1", reason="r", instances=names),
    ):
        there.cloud.submit(order)
    there.cloud.submit(launch(1, token="t5-1", kind=SPOT.name))


def hear(there: Scene, instance: str) -> None:
    """A notice comes."""
    there.inbox.receive(0)
    assert [fact.instance for fact in there.cloud.drain_facts() if isinstance(fact, SpotWarned)] == [instance]


def read_account(there: Scene) -> None:
    """Ask for what moto knows nothing of: that it was asked is what counts."""
    plans = there.aws.savings_plans
    with suppress(NotImplementedError):
        read_quotas(there.aws)
    with suppress(NotImplementedError, BotoCoreError, ClientError):
        plans.describe_savings_plans()
    with suppress(NotImplementedError, BotoCoreError, ClientError):
        plans.describe_savings_plan_rates(savingsPlanId="p")
    with suppress(NotImplementedError, BotoCoreError, ClientError):
        there.aws.ec2.describe_reserved_instances()
    with suppress(NotImplementedError, BotoCoreError, ClientError):
        there.aws.ec2.describe_capacity_reservations()


def gateway(there: Scene) -> None:
    overflow = LambdaOverflow(there.aws, concurrency=1)
    asked = InferRequest(path="/p", content_type="application/json", body=b"{}")
    asyncio.run(overflow.invoke("mark-shop-infer-m", asked, 5.0))
    overflow.close()


def post_alarm(there: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The secret is read, and holds no address."""
    monkeypatch.setenv("MARK_WEBHOOK_SECRET", "mark-shop-token")
    assert "must read https://" in str(webhook.handler({"mark-test": True}, CONTEXT)["why"])


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The handlers make their clients anew, and close them."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    caches = (interruption._queue, warm._client)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        if cache.cache_info().currsize:
            cache().close()
        cache.cache_clear()


@pytest.mark.usefixtures("handlers")
def test_each_role_calls_what_is_listed_for_it(  # noqa: PLR0915 a day of all roles
    called: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mock_aws(config={"lambda": {"use_docker": False}}):
        with called.acting("setup"):
            there = scene(whole=True)
            assert default_subnets(there.aws)
        with called.acting("controller"):
            read_account(there)
            controller(there)
            (instance,) = there.ids()
        monkeypatch.setenv("EVENTS_QUEUE_URL", there.events_url)
        for at in (1000.0, 2000.0):
            with called.acting("interruption"):
                event = spot_event(SpotWarned(instance=instance, at=at, terminates_at=at + 120.0))
                assert interruption.handler(batch(json.dumps(event)), CONTEXT) == {"batchItemFailures": []}
            with called.acting("controller"):
                there.cloud.acknowledge()  # of the notice before
                hear(there, instance)
        with called.acting("controller"):
            there.inbox.close()  # the last notice is left to the next controller
            warm_up(there.aws.lambda_, "mark-shop-infer-m", 1)
            read_alerts(there.aws, "shop", at=0.0)
            assert read_pause(there.aws, "shop") is None
            put_object(there.aws.objects, there.bucket, "journal/x", b"", content_type="text/plain")
        there.aws.secrets.create_secret(Name="mark-shop-token", SecretString="t")
        with called.acting("gateway"):
            gateway(there)
            assert valid_tokens(there.aws, "shop") == ("t",)
        with called.acting("warm"):
            warm.handler({"function": "mark-shop-infer-m", "concurrency": 1}, CONTEXT)
        with called.acting("webhook"):
            post_alarm(there, monkeypatch)
        with called.acting("setup"):
            changed = replace(infer_function(), memory_mib=1024)
            better = {"agents_store": "redis://y", "code": zipped("pass  # better")}
            rollout = {"report": REPORT, "functions": {"probe": True}}
            set_up(there.aws, service(infer=changed, rollout=rollout, trains=True, **better))
        key = training_key("shop", "m", ORDER.name)
        with called.acting("controller"):
            order_training(there.aws, "shop", there.bucket, key, ORDER)
        with called.acting("train"):
            assert carry_out(there.aws.objects, there.bucket, key) == ""
        with called.acting("controller"):
            assert read_result(fetch_result(there.aws, there.bucket, key), ORDER) == {}
        with called.acting("prober"):
            assert Stacks(there.aws).state("mark-shop-gateways") is None
            with suppress(ValueError):  # moto runs no function, and says so in plain words
                ask_from_within(there.aws, "shop", "https://shop.mark.internal/v2/models/m/infer", "{}")
        for name, value in {"SERVICE": "shop", "BUCKET": there.bucket}.items():
            monkeypatch.setenv(f"MARK_{name}", value)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        for later in ("2100-01-01T00:00:00Z", "2100-01-01T06:00:00Z"):
            with called.acting("orphans"), pytest.raises(MarkError, match="no controller of shop owns"):
                orphans.handler({"time": later}, CONTEXT)
        with called.acting("controller"):
            there.cloud.submit(launch(token="t9-1"))  # what the removal ends
        with called.acting("setup"):
            tear_down(there.aws, "shop")
        there.close()
    for role in ("setup", "controller", "gateway", "interruption", "orphans", "train", "warm", "webhook"):
        called.assert_permitted(role, replace(NAMES, bucket=there.bucket, webhook="mark-shop-token"))
    reads = frozenset({("StackReads", "cloudformation:DescribeStacks")})  # moto's stacks are judged by nobody
    called.assert_permitted("prober", replace(NAMES, bucket=there.bucket), unseen=reads)

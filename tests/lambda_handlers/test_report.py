"""A schedule calls the real handler, which reads the store and mails: once for each scheduled time."""

from __future__ import annotations

import email
import json
import re
import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from mark.domain.billing.costs import CostUsd
from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured
from mark.emulator.config import LambdaLimits
from mark.lambda_handlers import mailing, report
from mark.store.embedded import EmbeddedRedis
from tests.emulator.conftest import World, config_for, stub_zip
from tests.lambda_handlers.records import CONTEXT
from tests.lambda_handlers.stored import ENDED_AT, SERVICE, store_service
from tests.waiting import until

FROM, TO = "report@a.example", "team@b.example"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    anchor = ClockAnchor(wall_at=time.time(), service_at=ENDED_AT - 60.0, speed=0.0)
    made = World(config_for(tmp_path / "logs", anchor=anchor, lambdas=LambdaLimits(cold_start_s=0.0)))
    yield made
    made.stop()


@pytest.fixture
def spent_usd(redis: EmbeddedRedis) -> CostUsd:
    anchor = ClockAnchor(wall_at=time.time() - 86400, service_at=ENDED_AT - 86400, speed=1.0)
    return store_service(redis.url, anchor=anchor)


def deploy(world: World, redis: EmbeddedRedis, **variables: str) -> str:
    """The function, as a rollout has it."""
    world.client("iam").create_role(RoleName="functions", AssumeRolePolicyDocument="{}")
    environment = {
        "MARK_SERVICE": SERVICE,
        "MARK_STORE_URL": redis.url,
        "MARK_REPORT_FROM": FROM,
        "MARK_REPORT_TO": TO,
        **variables,
    }
    made = world.client("lambda").create_function(
        FunctionName="report",
        Runtime="python3.12",
        Role="arn:aws:iam::123456789012:role/functions",
        Handler="mark.lambda_handlers.report.handler",
        Code={"ZipFile": stub_zip()},
        Timeout=60,
        Environment={"Variables": environment},
    )
    return str(made["FunctionArn"])


def schedule(world: World, arn: str) -> None:
    world.client("scheduler").create_schedule(
        Name="report",
        ScheduleExpression="cron(0 8 * * ? *)",
        FlexibleTimeWindow={"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15},
        Target={"Arn": arn, "RoleArn": "arn:aws:iam::123456789012:role/scheduler"},
    )


def show(world: World, at: float) -> None:
    world.mark("POST", "clock", {"wall_at": time.time(), "service_at": at, "speed": 0.0})


def sent(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.mark("GET", "mail")["sent"]
    return found


def call(world: World, event: dict[str, Any]) -> dict[str, Any]:
    reply = world.client("lambda").invoke(FunctionName="report", Payload=json.dumps(event).encode())
    found: dict[str, Any] = json.loads(reply["Payload"].read())
    return found


def event() -> dict[str, Any]:
    """Scheduler's event of the scheduled time."""
    arn = "arn:aws:scheduler:us-east-1:123456789012:schedule/default/report"
    return {"source": "aws.scheduler", "time": "2027-01-15T08:00:00Z", "resources": [arn], "detail": "{}"}


def test_the_scheduled_report_arrives_with_the_ledgers_figures_once(
    world: World, redis: EmbeddedRedis, spent_usd: CostUsd
) -> None:
    """What cannot be sent says what to do, and is sent later."""
    schedule(world, deploy(world, redis))
    asked = event() | {"time": "2027-01-14T08:00:00Z"}
    said = call(world, asked)
    assert said["errorType"] == "Misconfigured"
    assert f"{FROM}, {TO}" in said["errorMessage"]
    assert "aws sesv2 create-email-identity" in said["errorMessage"]
    assert sent(world) == []
    world.mark("POST", "mail", {"verify": ["a.example", TO]})
    assert call(world, asked) == {"message": sent(world)[0]["id"]}
    show(world, ENDED_AT - 1)
    assert len(sent(world)) == 1
    show(world, ENDED_AT)
    until(lambda: len(sent(world)) > 1)
    _, mail = sent(world)

    assert (mail["sender"], mail["to"]) == (FROM, [TO])
    message = email.message_from_string(mail["raw"], policy=default)
    assert isinstance(message, EmailMessage)
    assert SERVICE in message["Subject"]
    bodies = {part.get_content_type(): part for part in message.walk() if not part.is_multipart()}
    assert set(bodies) == {"text/plain", "text/html", "image/png"}
    for kind in ("text/plain", "text/html"):
        text = bodies[kind].get_content()
        for word in ("instances", "overhead", "total"):
            assert f"{getattr(spent_usd, word):.2f}" in text
        assert "99.6" in text
    assert bodies["image/png"].get_content().startswith(b"\x89PNG")
    named = set(re.findall(r'src="cid:([^"]+)"', bodies["text/html"].get_content()))
    attached = {
        str(part["Content-ID"]).strip("<>") for part in message.walk() if part.get_content_maintype() == "image"
    }
    assert named == attached

    again = call(world, event())
    assert again == {"message": mail["id"]}
    assert len(sent(world)) == 2
    later = event() | {"time": "2027-01-16T08:00:00Z"}
    assert call(world, later)["message"] != mail["id"]
    assert len(sent(world)) == 3


def test_the_report_is_kept_in_the_bucket_and_mailed_where_it_cannot_be(
    world: World, redis: EmbeddedRedis, spent_usd: CostUsd
) -> None:
    """Of a store that a secret names, and of a ledger that Cost Explorer knows no day of yet."""
    world.mark("POST", "mail", {"verify": [FROM, TO]})
    secret = world.client("secretsmanager").create_secret(Name="store", SecretString=redis.url)["ARN"]
    store = {"MARK_STORE_URL": "", "MARK_STORE_SECRET": secret}
    deploy(world, redis, MARK_REPORT_BUCKET="shop-archive", MARK_REPORT_RECONCILE="1", **store)
    assert call(world, event() | {"time": "2027-01-14T09:00:00Z"}) == {"message": sent(world)[0]["id"]}
    log = (world.config.folder / "lambda-report.log").read_text()
    assert "not kept in shop-archive: PutObject: NoSuchBucket" in log
    assert "not reconciled with Cost Explorer" in log

    objects = world.client("s3")
    objects.create_bucket(Bucket="shop-archive")
    show(world, ENDED_AT)
    call(world, event() | {"time": "2027-01-15T08:00:00Z", "resources": ["kept"]})
    (row,) = objects.list_objects_v2(Bucket="shop-archive")["Contents"]
    assert row["Key"] == f"reports/{SERVICE}/2027-01-15.html"
    page = objects.get_object(Bucket="shop-archive", Key=row["Key"])["Body"].read().decode()
    assert f"{spent_usd.total:.2f}" in page
    assert 'src="cid:' not in page
    assert len(sent(world)) == 2


# powertools warns of the name that its CachePersistenceLayer still is another one for.
@pytest.mark.filterwarnings("ignore:RedisCachePersistenceLayer will be removed:DeprecationWarning")
@pytest.mark.parametrize(
    ("change", "variables", "says"),
    [
        ({"time": None}, {}, '"time"'),
        ({"time": "tomorrow"}, {}, "ISO 8601"),
        ({"time": "2027-01-13T08:00:00Z"}, {"MARK_SERVICE": "nobody"}, "nobody"),
        ({"time": "2027-01-12T08:00:00Z"}, {"MARK_REPORT_TO": "not an address"}, "not an address"),
        ({"time": "2027-01-11T08:00:00Z"}, {"MARK_REPORT_FROM": ""}, "MARK_REPORT_FROM"),
        ({"time": "2027-01-10T08:00:00Z"}, {"MARK_REPORT_PERIOD_S": "a day"}, "MARK_REPORT_PERIOD_S"),
        ({"time": "2027-01-09T08:00:00Z"}, {"MARK_STORE_URL": "http://x"}, "the store's URL is wrong"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line(
    redis: EmbeddedRedis,
    spent_usd: CostUsd,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    variables: dict[str, str],
    says: str,
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    plain = {"MARK_SERVICE": SERVICE, "MARK_STORE_URL": redis.url, "MARK_REPORT_FROM": FROM, "MARK_REPORT_TO": TO}
    for name, value in (plain | variables).items():
        monkeypatch.setenv(name, value)
    mailing._link.cache_clear()
    with pytest.raises(Misconfigured, match=re.escape(says)) as refused:
        report.handler({"resources": ["r"], **change}, CONTEXT)
    assert "\n" not in str(refused.value)
    mailing._link.cache_clear()

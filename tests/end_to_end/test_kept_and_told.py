"""What a service keeps in its account and tells of it: dead letters, alarms, the scheduled report, the archive."""

from __future__ import annotations

import email
import gzip
import json
import math
import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import default
from typing import Any

import boto3
import pytest
import yaml

from mark import Misconfigured, Service
from mark.aws.names import name_of
from mark.aws.resources import RAW_ATTEMPTS
from mark.controller.journal import read_journal
from mark.domain.clock import ClockAnchor
from mark.live.background.archive import AGAIN_S, OPEN_EACH_S
from mark.live.local.clock_control import set_clock
from mark.live.local.emulator_client import EmulatedControls
from tests.end_to_end.rig import Rig, eventually, fetch, rig

HOUR_S = 3600.0
CONFIG = """
service:
  name: {name}
  port: 0
  status_port: 0
  serve:
    - model: inception-v3
      market: on-demand
      offerings: {{types: [c5.large, c5.xlarge], overflow: false}}
      expected_rps: 300
rollout:
  report:
    sender: mark@shop.example
    to: [team@shop.example]
    schedule: cron(0 {hour} * * ? *)
"""
MODEL = "inception-v3"


@pytest.fixture(scope="module")
def due_at() -> float:
    """When the report is mailed: a full hour, one to two hours from now."""
    return (math.floor(time.time() / HOUR_S) + 2) * HOUR_S


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, due_at: float) -> Iterator[Rig]:
    """The service as Python starts it from a dict; it ends with an exception."""
    with rig(tmp_path_factory.mktemp("kept"), "kept") as made, pytest.MonkeyPatch.context() as patch:
        for name in ("MARK_STATE", "MARK_CACHE"):
            patch.setenv(name, made.environment[name])
        text = CONFIG.format(name=made.name, hour=time.gmtime(due_at).tm_hour)
        service = Service(yaml.safe_load(made.config(text).read_text()))
        with pytest.raises(ZeroDivisionError), service.up() as found:  # noqa: PT012 - it ends what is up
            url = f"{found.gateway}/v2/models/{found.models[0]['name']}/infer"
            assert fetch(url, found.models[0]["example"])[0] == 200
            with pytest.raises(Misconfigured, match="the service kept is up already"), service.up():
                pass
            yield made
            state = controls(made).state()
            assert state["callers"]["report"]
            assert state["permissions"]["refused"] == {}
            raise ZeroDivisionError
        made.assert_gone()
        made.assert_gone()


def controls(live: Rig) -> EmulatedControls:
    return live.controls


def client(live: Rig, service: str) -> Any:
    factory: Any = boto3.client  # its overloads take literals alone
    return factory(
        service,
        endpoint_url=live.running["aws_endpoint"],
        region_name="us-east-1",
        aws_access_key_id=live.running["aws_access_key_id"],
        aws_secret_access_key=live.running["aws_secret_access_key"],
    )


def move_to(live: Rig, at: float, *, speed: float = 0.0) -> None:
    """Let the service's clock show an instant, and stand there."""
    set_clock(live.store, controls(live), ClockAnchor(wall_at=time.time(), service_at=at, speed=speed))


def now(live: Rig) -> float:
    return live.store.clock().service_time(time.time())


def test_a_poison_message_is_a_dead_letter_rings_the_alarm_and_is_seen(live: Rig) -> None:
    sqs = client(live, "sqs")
    raw, dead = (sqs.get_queue_url(QueueName=name_of(live.name, part))["QueueUrl"] for part in ("raw", "raw-dead"))
    eventually(lambda: live.store.status("alerts"))
    assert all(live.store.status("alerts")[key] in (0, []) for key in ("dead_letters", "ringing"))  # type: ignore[index]
    sqs.set_queue_attributes(QueueUrl=raw, Attributes={"VisibilityTimeout": "1"})  # it comes again soon
    sqs.send_message(QueueUrl=raw, MessageBody='{"source": "aws.ec2", "detail-type": "poison"}')
    name = "ApproximateNumberOfMessages"

    def letters() -> str:
        return str(sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=[name])["Attributes"][name])

    eventually(lambda: letters() == "1")
    function = controls(live).state()["lambda"][name_of(live.name, "interruption")]
    assert function["invocations"] >= RAW_ATTEMPTS
    move_to(live, now(live) + 61, speed=1.0)
    alarm = name_of(live.name, "deadletters")
    eventually(lambda: controls(live).state()["alarms"] == {alarm: "ALARM"})
    move_to(live, now(live) + 61, speed=1.0)
    eventually(lambda: live.store.status("alerts")["ringing"])  # type: ignore[index]

    alerts = live.ask("status")["alerts"]
    assert alerts["dead_letters"] == 1
    assert [one["name"] for one in alerts["ringing"]] == [alarm]
    for told in (live.mark("status", "--name", live.name).out, fetch(live.running["status_page"])[1].decode()):
        assert "1 message about instances is a dead letter" in told
        assert f"{alarm} rings" in told
    assert f"{alarm} rings" in live.mark("status", "--aws", "--name", live.name).out

    sqs.purge_queue(QueueUrl=dead)
    move_to(live, now(live) + 61, speed=1.0)
    eventually(lambda: controls(live).state()["alarms"] == {alarm: "OK"})


def test_the_scheduled_report_arrives_with_the_command_s_figures_and_is_kept(live: Rig, due_at: float) -> None:
    move_to(live, due_at - 30)
    eventually(lambda: caught_up(live))
    assert mails(live) == []
    move_to(live, due_at)
    eventually(lambda: mails(live))
    (mail,) = mails(live)
    told = live.ask("report", "--since", "24h", "--policy", "none")
    printed = live.mark("report", "--since", "24h", "--policy", "none", "--name", live.name).out

    assert told["until"] == due_at
    message = email.message_from_string(mail["raw"], policy=default)
    assert isinstance(message, EmailMessage)
    text, html = (message.get_body((kind,)).get_content() for kind in ("plain", "html"))  # type: ignore[union-attr]
    assert text.replace("\r\n", "\n").strip() == printed.strip()
    assert told["cost_usd"]["total"] > 0.10
    for word in ("instances", "overhead", "total"):
        assert f"{told['cost_usd'][word]:.2f}" in text
        assert f"{told['cost_usd'][word]:.2f}" in html

    (kept,) = objects(live, "reports/").items()
    assert kept[0] == f"reports/{live.name}/{time.strftime('%Y-%m-%d', time.gmtime(due_at))}.html"
    assert f"{told['cost_usd']['total']:.2f}" in kept[1].decode()
    assert "data:image/png;base64," in kept[1].decode()


def test_the_journal_is_archived_and_what_fails_is_told_and_done_later(live: Rig, due_at: float) -> None:
    at = due_at + OPEN_EACH_S + 60
    move_to(live, at - OPEN_EACH_S + 1)  # an hour and more since it began
    eventually(lambda: any(name.endswith(".jsonl.gz") for name in objects(live, "journal/")))
    assert live.store.status("archive")["failed"] is None  # type: ignore[index]
    before = set(objects(live, "journal/"))
    assert any(name.endswith("-000001.jsonl.gz") for name in before)

    # of the sign that a controller acts, and of the journal
    controls(live).fault({"kind": "error", "service": "s3", "code": "AccessDenied", "status": 403, "count": 2})
    move_to(live, at + 1)
    eventually(lambda: live.store.status("archive")["failed"])  # type: ignore[index]
    said = live.mark("status", "--name", live.name).out
    assert "The journal is not archived, and is tried again: PutObject: AccessDenied" in " ".join(said.split())
    move_to(live, at + AGAIN_S + 2)
    eventually(lambda: not live.store.status("archive")["failed"])  # type: ignore[index]

    found = objects(live, "journal/")
    assert before <= set(found)
    [segment] = (data for name, data in found.items() if name.endswith("-000001.jsonl.gz"))
    kept = list(read_journal(segment.splitlines())[1])
    assert kept == live.ticks(MODEL)[: len(kept)]
    assert kept[-1].seen.now >= at
    figures = json.loads(found[max(name for name in found if name.endswith("figures.json.gz"))])
    assert 0 < len(figures["transitions"]) <= len(live.store.transitions(MODEL))
    assert len(figures["load"]["counts"]) >= OPEN_EACH_S / 60


def caught_up(live: Rig) -> bool:
    """Whether the controller has seen every minute that is over."""
    last = max((tick.seen.demand.start_at for tick in live.ticks(MODEL) if tick.seen.demand), default=0.0)
    return now(live) < last + 120.0


def mails(live: Rig) -> list[dict[str, Any]]:
    status, body, _ = fetch(
        f"{live.running['aws_endpoint']}/_mark/mail", token=live.running["aws_secret_access_key"]
    )
    assert status == 200
    return list(json.loads(body)["sent"])


def objects(live: Rig, prefix: str) -> dict[str, bytes]:
    """What the bucket holds, unpacked."""
    s3 = client(live, "s3")
    bucket = str(live.store.status("resources")["bucket"])  # type: ignore[index]
    found = {}
    for row in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ()):
        with s3.get_object(Bucket=bucket, Key=row["Key"])["Body"] as stream:
            data = stream.read()
        found[row["Key"]] = gzip.decompress(data) if row["Key"].endswith(".gz") else data
    return found

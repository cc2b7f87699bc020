"""EventBridge's messages in, the controller's messages out; what fails, fails alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from moto import mock_aws

from mark.domain.fleet.orders import RebalanceAdvised
from mark.lambda_handlers import interruption
from mark.protocols.events import InstanceMessage, StateChanged, parse_message
from tests.lambda_handlers.records import CONTEXT, NOTICE, batch, spot_event


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    interruption._queue.cache_clear()
    with mock_aws():
        url = interruption._queue().create_queue(QueueName="events")["QueueUrl"]
        monkeypatch.setenv("EVENTS_QUEUE_URL", url)
        yield url
        interruption._queue().close()
    interruption._queue.cache_clear()


def words(queue: str) -> list[InstanceMessage]:
    reply = interruption._queue().receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    return [parse_message(message["Body"]) for message in reply.get("Messages", [])]


def test_all_three_kinds_are_passed_on(queue: str) -> None:
    told = [
        NOTICE,
        StateChanged(instance="i-2", at=1784505601.0, state="shutting-down"),
        RebalanceAdvised(instance="i-3", at=1784505602.0),
    ]
    answer = interruption.handler(batch(*(json.dumps(spot_event(word)) for word in told)), CONTEXT)

    assert answer == {"batchItemFailures": []}
    assert sorted(words(queue), key=lambda word: word.at) == told


def test_what_cannot_be_read_fails_alone(queue: str) -> None:
    answer = interruption.handler(batch("{", json.dumps(spot_event()), '{"source":"aws.s3"}'), CONTEXT)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}, {"itemIdentifier": "m2"}]}
    assert words(queue) == [NOTICE]


def test_what_cannot_be_sent_comes_again(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTS_QUEUE_URL", queue + "-gone")
    answer = interruption.handler(batch(json.dumps(spot_event())), CONTEXT)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}


def test_what_is_not_passed_on_is_counted(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    interruption.handler(batch(json.dumps(spot_event())), CONTEXT)
    interruption.handler(batch("{", json.dumps(spot_event())), CONTEXT)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["Failed"] for line in lines if "_aws" in line] == [[1.0]]


def test_a_queue_that_nobody_named_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("EVENTS_QUEUE_URL", raising=False)
    answer = interruption.handler(batch(json.dumps(spot_event())), CONTEXT)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert "EVENTS_QUEUE_URL" in caplog.text

"""EventBridge's messages in, the controller's words out; what fails, fails alone; it starts fast."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from moto import mock_aws

from lambda_handlers import interruption
from mark.protocols.events import QueueWord, RebalanceAdvised, StateChanged, parse_word
from tests.lambda_handlers.records import CONTEXT, NOTICE, batch, spot_event

IMPORT_LIMIT_S = 0.3


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


def words(queue: str) -> list[QueueWord]:
    reply = interruption._queue().receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
    return [parse_word(message["Body"]) for message in reply.get("Messages", [])]


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


@pytest.mark.parametrize("module", ["interruption", "warm"])
def test_a_cold_import_is_short_and_brings_no_boto3(module: str) -> None:
    """The best of three, in CPU seconds: other processes of the machine are not what is measured."""
    code = (
        "import sys, time; began = time.process_time(); "
        f"import lambda_handlers.{module}; "
        "print(time.process_time() - began, 'boto3' in sys.modules)"
    )
    took_s = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
        seconds, boto3 = done.stdout.split()
        took_s.append(float(seconds))
        assert boto3 == "False"
    assert min(took_s) <= IMPORT_LIMIT_S

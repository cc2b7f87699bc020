"""The function that posts alarms: an event of SNS in, messages at a webhook out, and the address nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from mark.domain.errors import MarkError, Misconfigured
from mark.lambda_handlers import webhook
from tests.lambda_handlers.records import CONTEXT
from tests.protocols.test_alert_messages import ALARM, BUDGET
from tests.webhook_receiver import Receiver, receiver


def of_sns(*messages: str | dict[str, Any]) -> dict[str, Any]:
    """An event as Lambda hands it over (Lambda developer guide, "Invoking Lambda functions with Amazon SNS")."""
    texts = (message if isinstance(message, str) else json.dumps(message) for message in messages)
    return {"Records": [{"EventSource": "aws:sns", "Sns": {"Subject": None, "Message": text}} for text in texts]}


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that the system trusts, and whose address a secret holds."""
    for name, value in {
        "MARK_SERVICE": "shop",
        "MARK_WEBHOOK_SECRET": "mark/webhook",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }.items():
        monkeypatch.setenv(name, value)
    with receiver(tmp_path) as made, mock_aws():
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        keep(made.url)
        yield made


def keep(text: str) -> None:
    client = boto3.client("secretsmanager")
    try:
        client.create_secret(Name="mark/webhook", SecretString=text)
    except client.exceptions.ResourceExistsException:
        client.put_secret_value(SecretId="mark/webhook", SecretString=text)
    client.close()


def test_each_message_of_the_topic_is_posted(there: Receiver) -> None:
    assert webhook.handler(of_sns(ALARM, BUDGET), CONTEXT) == {"posted": 2}
    first, second = there.texts
    assert first.startswith("ALARM mark-shop-burnrate0: ")
    assert second.startswith("ALARM mark-shop-spending: ")


def test_what_nobody_need_read_is_not_posted_and_reads_no_secret(
    there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MARK_WEBHOOK_SECRET")
    own = {**ALARM, "AlarmName": "mark-shop-webhookfails"}
    assert webhook.handler(of_sns(own), CONTEXT) == {"posted": 0}
    assert there.texts == []


def test_a_failure_raises_so_that_lambda_tries_again_and_names_no_address(
    there: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    there.status = 500
    with pytest.raises(MarkError, match="status 500") as caught:
        webhook.handler(of_sns(ALARM), CONTEXT)
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err + str(caught.value)
    there.status = 200
    assert webhook.handler(of_sns(ALARM), CONTEXT) == {"posted": 1}, "once more, as Lambda does"


def test_an_address_that_is_changed_counts_at_once(there: Receiver) -> None:
    keep("http://example.com/hunter2")
    with pytest.raises(Misconfigured, match="must read https://HOST/PATH") as caught:
        webhook.handler(of_sns(ALARM), CONTEXT)
    assert "hunter2" not in str(caught.value)
    keep(f" {there.url}\n")
    assert webhook.handler(of_sns(ALARM), CONTEXT) == {"posted": 1}


def test_a_test_answers_what_came_of_it(there: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert webhook.handler({"mark-test": True}, CONTEXT) == {"posted": 1}
    there.status = 404
    told = webhook.handler({"mark-test": True}, CONTEXT)
    assert told["posted"] == 0
    assert "status 404" in str(told["why"])
    monkeypatch.setenv("MARK_WEBHOOK_SECRET", "mark/none")
    assert "the secret mark/none cannot be read" in str(webhook.handler({"mark-test": True}, CONTEXT)["why"])

"""Who the emulated AWS answers: only its set-up while the account is empty, and never a web page."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mark.domain.errors import Misconfigured
from mark.emulator.signature import new_key
from mark.live.local.emulator_client import EmulatedControls
from tests.emulator.conftest import World
from tests.waiting import PATIENCE_S


def test_an_account_that_is_set_up_answers_nobody_else(start: Callable[..., World]) -> None:
    world = start(closed=True)
    with pytest.raises(ClientError, match="ServiceUnavailable"):
        world.client("sqs", attempts=1).list_queues()
    sets_up = boto3.client(
        "sqs",
        endpoint_url=world.url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(user_agent_appid="mark-setup"),
    )
    sets_up.create_queue(QueueName="one")
    world.mark("POST", "open")
    assert len(world.client("sqs").list_queues()["QueueUrls"]) == 1


@pytest.mark.parametrize("headers", [{"Origin": "https://a.example"}, {"Host": "a.example:80"}])
def test_a_web_page_is_refused(world: World, headers: dict[str, str]) -> None:
    asked = urllib.request.Request(  # noqa: S310
        f"{world.url}/_mark/interrupt", data=json.dumps({"share": 1.0}).encode(), headers=headers
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(asked, timeout=PATIENCE_S)  # noqa: S310


def test_the_controls_ask_for_the_accounts_key(start: Callable[..., World]) -> None:
    key = new_key()
    world = start(key=key)
    for secret in ("", "wrong", key.id):
        controls = EmulatedControls(world.url, secret)
        for control in (controls.state, controls.open, controls.clear_faults, lambda: controls.interrupt(1.0)):  # noqa: B023
            with pytest.raises(Misconfigured, match="secret key"):
                control()
    assert EmulatedControls(world.url, key.secret).state()["instances"] == []


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "localhost.", "a.localhost", "127.0.0.2", "[::1]"])
def test_a_name_of_this_machine_is_none(world: World, name: str) -> None:
    port = world.url.rpartition(":")[2]
    asked = urllib.request.Request(f"{world.url}/_mark/state", headers={"Host": f"{name}:{port}"})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as reply:  # noqa: S310
        assert reply.status == 200

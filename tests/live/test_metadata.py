"""The metadata that an agent beside model code may read: who it is and when it is taken, and no credentials."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import pytest

from mark.aws.ec2.imds import Imds
from mark.domain.errors import RetryLater
from mark.live.processes.metadata import Kept, Metadata, read_from

THERE = {
    "meta-data/instance-id": "i-1",
    "meta-data/local-ipv4": "10.0.0.7",
    "meta-data/tags/instance": "mark:service\nmark:model",
    "meta-data/tags/instance/mark:service": "shop",
    "meta-data/tags/instance/mark:model": "digits",
    "meta-data/spot/instance-action": '{"action": "terminate", "time": "2026-11-22T10:00:00Z"}',
    "meta-data/iam/security-credentials": "mark-shop-agent",
    "meta-data/iam/security-credentials/mark-shop-agent": '{"SecretAccessKey": "x"}',
    "dynamic/instance-identity/document": "{}",
    "user-data": "#!/bin/bash",
}
FORBIDDEN = [
    *(path for path in THERE if "iam" in path or "dynamic" in path),
    "meta-data/tags/instance/../../iam/security-credentials",
    "meta-data/tags/instance/x?y",
    "meta-data/tags/instance/%2e%2e/iam",
    "meta-data/identity-credentials/ec2/security-credentials/ec2-instance",
    "meta-data/",
    "../latest/meta-data/iam/security-credentials",
    "api/token",
]


class Upstream(Imds):
    """EC2's own metadata service, which answers whatever is asked."""

    def __init__(self) -> None:
        self.is_away = False

    def get(self, path: str) -> str | None:
        if self.is_away:
            raise RetryLater("away")
        return THERE.get(path, "a secret of the instance")


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def imds(upstream: Upstream) -> Iterator[Imds]:
    server = Metadata(partial(read_from, upstream, lambda: "10.0.0.9", password=lambda: "of agents"), port=0)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    client = Imds(f"http://127.0.0.1:{server.server_port}")
    yield client
    client.close()
    server.shutdown()
    serving.join()
    server.server_close()


def test_an_agent_learns_who_it_is_as_from_ec2(imds: Imds) -> None:
    found = imds.identity()
    assert (found.instance, found.host, found.user_data) == ("i-1", "10.0.0.7", {})
    assert found.tags == {"mark:service": "shop", "mark:model": "digits"}


def test_an_agent_hears_of_its_spot_notice_and_of_the_node_that_leads(imds: Imds, upstream: Upstream) -> None:
    assert imds.taken_at() == 1795341600.0
    assert imds.leader() == "10.0.0.9"
    assert imds.store_password() == "of agents"
    upstream.is_away = True
    with pytest.raises(RetryLater, match="answered 503"):
        imds.taken_at()


@pytest.mark.parametrize("path", FORBIDDEN)
def test_nothing_else_is_told(imds: Imds, path: str) -> None:
    assert imds.get(path) is None


def test_where_no_lease_is_followed_nobody_leads() -> None:
    assert read_from(Upstream(), None, "meta-data/mark/leader") is None
    assert read_from(Upstream(), None, "meta-data/mark/store-password") is None


def test_a_password_is_read_again_once_it_is_old_and_the_last_one_stands_where_it_cannot_be() -> None:
    now, secret = [0.0], ["", "old", "new"]

    def read() -> str:
        if not secret[0]:
            raise RetryLater("away")
        return secret[0]

    kept = Kept(read, 60.0, monotonic=lambda: now[0])
    with pytest.raises(RetryLater, match="nobody could read"):
        kept()
    told = []
    for now[0] in (59.0, 60.0, 61.0, 120.0, 180.0):
        if now[0] != 59.0 and now[0] != 61.0:
            secret.append(secret.pop(0))
        with pytest.raises(RetryLater) if now[0] == 59.0 else nullcontext():
            told.append(kept())
    assert told == ["old", "old", "new", "new"], "at last it is away again"

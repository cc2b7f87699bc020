"""The metadata that an agent beside model code may read: who it is and when it is taken, and no credentials."""

from __future__ import annotations

import errno
import hashlib
import json
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

from mark.aws.ec2.imds import Imds
from mark.domain.errors import RetryLater
from mark.live.processes.metadata import Kept, Metadata, read_from
from mark.live.processes.version_fetch import LOADING, READY, VersionFetch
from mark.plugins.version_hash import BACKEND_FILE, HowToLoad, version_name

THERE = {
    "meta-data/instance-id": "i-1",
    "meta-data/local-ipv4": "10.0.0.7",
    "meta-data/tags/instance": "mark:service\nmark:model",
    "meta-data/tags/instance/mark:service": "shop",
    "meta-data/tags/instance/mark:model": "digits",
    "meta-data/tags/instance/mark:model-version": "b" * 64,
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
    server = Metadata(
        partial(read_from, upstream, lambda: "10.0.0.9", password=lambda: "of agents", versions=lambda _: "asked"),
        port=0,
    )
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


@pytest.mark.parametrize(
    ("model", "version", "told"),
    [("@shared", "a" * 64, "asked"), ("digits", "a" * 64, None), ("digits", "b" * 64, "asked")],
)
def test_any_version_is_fetched_for_shared_instances_alone(
    imds: Imds, monkeypatch: pytest.MonkeyPatch, model: str, version: str, told: str | None
) -> None:
    """Elsewhere model code, which runs as the agent does, would get those of other models."""
    monkeypatch.setitem(THERE, "meta-data/tags/instance/mark:model", model)
    assert imds.version(version) == told


HOW = HowToLoad(kind="python", target="model.py:Shop")
VERSION = version_name(HOW, [("model.py", hashlib.sha256(b"x").hexdigest())])


def bundle(files: dict[str, bytes]) -> BytesIO:
    body, files = BytesIO(), {BACKEND_FILE: json.dumps(asdict(HOW)).encode(), **files}
    with tarfile.open(fileobj=body, mode="w:gz") as packed:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            packed.addfile(entry, BytesIO(content))
    body.seek(0)
    return body


def settled(fetch: VersionFetch, version: str) -> str | None:
    while (said := fetch.ask(version)) == LOADING:
        time.sleep(0.001)
    return said


def test_a_version_is_fetched_once_and_readable_for_its_model(tmp_path: Path) -> None:
    opened: list[str] = []

    def open_bundle(version: str) -> BytesIO:
        opened.append(version)
        return bundle({"model.py": b"x", ".packages/amd64/shade.py": b"y"})

    fetch = VersionFetch(tmp_path, open_bundle)
    assert [settled(fetch, VERSION) for _ in range(2)] == [READY, READY]
    assert opened == [VERSION]
    found = tmp_path / VERSION / ".packages" / "amd64" / "shade.py"
    assert (found.read_bytes(), found.stat().st_mode & 0o777) == (b"y", 0o644)
    assert fetch.ask("../../etc") is None


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (RetryLater("S3 is away"), "S3 is away"),
        (ValueError("odd"), "the log of the metadata process says why"),
    ],
)
def test_a_version_that_cannot_be_had_is_one_line_and_tried_again(
    tmp_path: Path, failure: Exception, said: str
) -> None:
    failures = [failure]

    def open_bundle(version: str) -> BytesIO:
        if failures:
            raise failures.pop()
        return bundle({"model.py": b"x"})

    fetch = VersionFetch(tmp_path, open_bundle)
    told = settled(fetch, VERSION)
    assert told is not None
    assert said in told
    assert "\n" not in told
    assert list(tmp_path.iterdir()) == []
    assert settled(fetch, VERSION) == READY


def test_files_of_another_version_are_not_kept_under_its_name(tmp_path: Path) -> None:
    told = settled(VersionFetch(tmp_path, lambda _: bundle({"model.py": b"y"})), VERSION)
    assert told is not None
    assert "other files than its name stands for" in told
    assert list(tmp_path.iterdir()) == []


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

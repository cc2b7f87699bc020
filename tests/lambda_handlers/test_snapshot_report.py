"""The report of a service whose store no function reaches: of its last snapshot, once for each scheduled time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from mark.aws.archive import make_bucket, put_object, snapshot_key
from mark.aws.resources import service_tags
from mark.aws.session import Aws
from mark.domain.billing.costs import CostUsd
from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.fleet.host_spec import SHARED
from mark.lambda_handlers import mailing, report
from mark.report.cost.read import read_cost_report
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore
from mark.store.snapshot import read_snapshot, take_snapshot
from tests.aws.builders import aws
from tests.aws.lease_tables import TABLE, make_table
from tests.lambda_handlers.records import CONTEXT
from tests.lambda_handlers.stored import ENDED_AT, MODEL, SERVICE, store_service

FROM, TO, BUCKET = "report@a.example", "team@b.example", "shop-archive"
EVENT = {"source": "aws.scheduler", "time": "2027-01-15T08:00:00Z", "resources": ["schedule"], "detail": "{}"}


@pytest.fixture
def stored(redis: EmbeddedRedis) -> tuple[ServiceStore, CostUsd]:
    link = connect(redis.url)
    link.call("FLUSHALL")
    anchor = ClockAnchor(wall_at=time.time() - 86400, service_at=ENDED_AT - 86400, speed=1.0)
    cost = store_service(redis.url, anchor=anchor)
    store = ServiceStore(link, SERVICE)
    lease = store.leases.acquire("test", 60.0)
    assert lease is not None
    journal = store.open_journal(MODEL, b"{}", lease)
    for number in range(2, 5):
        journal.rotate(f'{{"segment": {number}}}'.encode())
    journal.write('{"reason": "Ökonomie"}'.encode())
    return store, cost


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Aws]:
    variables = {
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "MARK_SERVICE": SERVICE,
        "MARK_REPORT_FROM": FROM,
        "MARK_REPORT_TO": TO,
        "MARK_REPORT_BUCKET": BUCKET,
        "MARK_REPORT_TABLE": TABLE,
        "MARK_CACHE": str(tmp_path),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MARK_STORE_URL", raising=False)
    monkeypatch.delenv("MARK_STORE_SECRET", raising=False)
    with mock_aws():
        made = aws()
        make_table(made.tables)
        make_bucket(made, BUCKET, [], service_tags(SERVICE, "mark"))
        made.mail.create_email_identity(EmailIdentity=FROM)
        yield made
        made.close()


def test_a_snapshot_says_what_the_store_says(stored: tuple[ServiceStore, CostUsd]) -> None:
    store, _ = stored
    store.put_spec(replace(store.spec(), shares=True))
    store.note(replace(store.transitions(MODEL)[0], model=SHARED, instance="i-of-several"))
    found = read_snapshot(take_snapshot(store, ENDED_AT))
    assert found.spec() == store.spec()
    assert found.traffic(MODEL) == store.traffic(MODEL)
    assert found.ledger(MODEL) == store.ledger(MODEL)
    assert found.status(f"model:{MODEL}") == store.status(f"model:{MODEL}")
    assert list(found.journal_segments(MODEL)) == list(store.journal_segments(MODEL))[-2:]
    assert list(found.journal_lines(MODEL)) == list(store.journal_lines(MODEL))
    with pytest.raises(Misconfigured, match="no journal of m numbered 1"):
        next(found.journal_lines(MODEL, 1))
    wall_at = store.clock().wall_time(ENDED_AT)
    ours, theirs = (read_cost_report(one, period_s=86400.0, wall_at=wall_at) for one in (found, store))
    assert ours.shared == theirs.shared
    assert any(item.line.component == "instances" for item in ours.shared)
    assert ours.models[0].lines == theirs.models[0].lines
    assert ours.models[0].answers == theirs.models[0].answers


def test_what_is_no_snapshot_is_one_line() -> None:
    with pytest.raises(Misconfigured, match="the service's snapshot cannot be read"):
        read_snapshot(b"something else")


def test_the_report_is_of_the_snapshot_and_is_mailed_once(
    there: Aws, stored: tuple[ServiceStore, CostUsd], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after it could not be made."""
    store, _ = stored
    event: dict[str, Any] = dict(EVENT)
    with pytest.raises(MarkError, match="NoSuchKey"):
        report.handler(event, CONTEXT)
    put_object(
        there.objects,
        BUCKET,
        snapshot_key(SERVICE),
        take_snapshot(store, ENDED_AT - 600.0),
        content_type="application/gzip",
    )
    mails: list[Any] = []

    def send(_client: object, raw: bytes, **_: Any) -> str:
        mails.append(raw)
        return f"mail-{len(mails)}"

    monkeypatch.setattr(mailing, "send_mail", send)
    assert report.handler(event, CONTEXT) == {"message": "mail-1"}
    assert report.handler(event, CONTEXT) == {"message": "mail-1"}
    assert report.handler(event | {"time": "2027-01-16T08:00:00Z"}, CONTEXT) == {"message": "mail-2"}
    assert SERVICE.encode() in mails[0]
    kept = there.objects.list_objects_v2(Bucket=BUCKET, Prefix="reports/")["Contents"]
    assert [row["Key"] for row in kept] == ["reports/shop/2027-01-15.html"], "it reaches to the snapshot"
